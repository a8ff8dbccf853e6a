"""The value, of those that held, that a newer one supersedes."""

from __future__ import annotations

import pytest

from abridged.service.domain.standing_values import StandingValues, Stated, Told, told_by
from abridged.service.text.identifiers import IdentifierKind
from tests.support.growth import grows_linearly

AMOUNT, CODE = IdentifierKind.AMOUNT, IdentifierKind.CODE
WORDS = frozenset({"retry", "budge"})


SAID = Told(0.0, 0.0)


def stated(key: str, kind: IdentifierKind, words: frozenset[str], number: int = 9, told: Told | None = SAID) -> Stated:
    """A value that these words name, in a sentence with these signs."""
    return Stated(key, kind, words, words, number, told)


def standing(*values: tuple[str, IdentifierKind, frozenset[str]]) -> StandingValues:
    """Values that messages from the first on say, one each."""
    made = StandingValues()
    for number, value in enumerate(values, 1):
        made.stands(stated(*value, number))
    return made


def test_a_value_supersedes_the_one_that_shares_its_words_and_its_form():
    """The sentence need not speak of a change."""
    made = standing(("30 min", AMOUNT, WORDS), ("9 kg", AMOUNT, frozenset({"pallet"})))

    assert made.superseded_by(stated("45 min", AMOUNT, WORDS)) == "30 min"


@pytest.mark.parametrize(
    ("key", "kind", "words"),
    [
        ("45 min", AMOUNT, frozenset({"flight"})),
        ("a-7", CODE, WORDS),
        ("2 x 3", AMOUNT, frozenset({"retry"})),
        ("30 min", AMOUNT, WORDS),
        ("45 kg", AMOUNT, frozenset({"retry"})),
    ],
)
def test_a_value_of_another_thing_supersedes_none(key, kind, words):
    """Other words, another kind, another form with one word in common, the same value, and another unit."""
    assert standing(("30 min", AMOUNT, WORDS)).superseded_by(stated(key, kind, words)) == ""


@pytest.mark.parametrize(
    ("changing", "telling"),
    [
        ("Rental place only had the smaller minibus left, seats 12", "Bosch offered 4 weeks but we said no."),
        ("Umzug ist durch, mein Schild hängt jetzt an der 2.09.", "Auf Produktion ist Postgres 14.11 installiert."),
        ("VP那天飞深圳,OKR评审只能塞到4月2日了", "验证集放在 /data/cv/val_v3,两边标注格式一样"),
    ],
)
def test_a_sentence_that_gives_another_value_speaks_for_it(changing, telling):
    """Other words, or none, leave the decision to the sentence."""
    made = standing(("14:20", IdentifierKind.TIME, frozenset({"review"})))
    odds = [told.change for sentence in (changing, telling) if (told := told_by(sentence))]

    assert odds[0] > 0 > odds[1]
    values = [
        stated("16:45", IdentifierKind.TIME, frozenset({"course"}), told=Told(change, 0.0)) for change in (3.0, -3.0)
    ]
    assert [made.superseded_by(value) for value in values] == ["14:20", ""]


def test_a_family_of_values_stands_side_by_side():
    """Three of one thing would have superseded each other; a phrase of change speaks of one of them all the same."""
    hosts = [(f"db-{n:02d}", CODE, WORDS) for n in (7, 19, 31)]
    newer = stated("db-44", CODE, WORDS)

    assert standing(*hosts[:2]).superseded_by(newer) == "db-19"
    assert standing(*hosts).superseded_by(newer) == ""
    assert standing(*hosts).superseded_by(newer._replace(told=Told(0.0, 1.0))) != ""


@pytest.mark.parametrize(
    ("known", "newer"),
    [
        ("may 17", "may 17, 2024"),
        ("2024-05-17", "17 may"),
        ("3.10.2026", "2026-10-03"),
        ("3.10.", "3.10.2026"),
        ("3 de enero", "2024-01-03"),
        ("2024-05-17", "2024-05-17t10:00"),
        ("8am", "8 am"),
        ("312", "room 312"),
        ("/srv/app", "/srv/app/src"),
    ],
)
def test_a_value_is_not_superseded_by_itself_in_another_form(known, newer):
    """One of the two forms says more; a phrase of change in the sentence speaks of something else."""
    kind = IdentifierKind.DATE if known[0] in "m23" and known != "312" else CODE
    changed = stated(newer, kind, WORDS, told=Told(3.0, 1.0))

    assert standing((known, kind, WORDS)).superseded_by(changed) == ""


@pytest.mark.parametrize(
    ("known", "newer"),
    [
        ("3 may", "5 may"),
        ("4 may", "5 april"),
        ("2024-05-06", "2024-06-05"),
        ("5.6.", "6.5."),
        ("17 may", "2024-06-17"),
        ("friday 3.5.", "monday 3.6."),
    ],
)
def test_a_date_of_the_same_numbers_is_another_one(known, newer):
    """The month of May and the fifth day are two numbers, though both are 5, and their order tells them apart."""
    kind = IdentifierKind.DATE
    made = standing((known, kind, WORDS))

    assert made.superseded_by(stated(newer, kind, WORDS, told=Told(3.0, 1.0))) == known


@pytest.mark.parametrize(("known", "newer"), [("$500", "\u20ac500"), ("-5 \u00b0c", "5 \u00b0c"), ("5 %", "5 kg")])
def test_a_sign_and_a_currency_are_parts_of_a_value(known, newer):
    """The number alone is equal."""
    made = standing((known, AMOUNT, WORDS))

    assert made.superseded_by(stated(newer, AMOUNT, WORDS, told=Told(3.0, 1.0))) == known


def test_a_value_that_a_phrase_of_change_brings_back_supersedes_the_one_between():
    """Values that are named again without one were known before."""
    made = standing(("500 eur", AMOUNT, WORDS), ("600 eur", AMOUNT, WORDS))
    back = stated("500 eur", AMOUNT, WORDS, told=Told(3.0, 1.0))

    assert made.superseded_by(back) == "600 eur"
    assert made.superseded_by(back._replace(told=Told(3.0, 0.0))) == ""


def test_a_value_that_was_known_before_supersedes_none():
    """People with two reservations name one after the other."""
    made = standing(("kx-55", CODE, WORDS), ("lt-90", CODE, frozenset({"seat"})))
    again = stated("kx-55", CODE, frozenset({"seat"}))

    assert made.superseded_by(again) == ""
    made.falls("kx-55")
    assert made.superseded_by(again) == "lt-90"


def test_an_item_of_a_list_changes_nothing_without_a_phrase_of_change():
    """Items describe a thing; the same words in a sentence are signs."""
    assert told_by("- **Price:** 120 EUR a night") is None
    assert told_by("2. Price: 120 EUR a night") is None
    assert told_by("Price: 120 EUR a night") is not None
    assert told_by("- Price: make that 120 EUR a night") is not None


def test_values_of_one_message_do_not_supersede_each_other():
    """A message often lists several of a kind."""
    made = StandingValues()
    made.stands(stated("30 min", AMOUNT, WORDS, 4))

    assert made.superseded_by(stated("45 min", AMOUNT, WORDS, 4)) == ""
    assert made.superseded_by(stated("45 min", AMOUNT, WORDS, 5)) == "30 min"


def test_a_word_of_many_values_says_little():
    """Forms of many values do, too."""
    one = standing(("10 min", AMOUNT, frozenset({"task"})))
    many = standing(*((f"{n}0 min", AMOUNT, frozenset({"task"})) for n in (1, 3)))
    signs = [dict(made.candidates(stated("95 min", AMOUNT, frozenset({"task"}))))["10 min"] for made in (one, many)]

    assert [(found.words, found.rare) for found in signs] == [(1.0, 1 / 2), (2**-0.5, 1 / 3)]


def test_a_list_supersedes_nothing_and_nothing_supersedes_it():
    """Offers stand beside each other until one is taken."""
    value = stated("45 min", AMOUNT, WORDS)
    of_list = StandingValues()
    of_list.stands(stated("30 min", AMOUNT, WORDS, 1)._replace(is_listed=True))

    assert of_list.superseded_by(value) == ""
    assert standing(("30 min", AMOUNT, WORDS)).superseded_by(value._replace(is_listed=True)) == ""


def test_a_value_that_nobody_said_in_a_sentence_supersedes_none():
    """A long text is not read as sentences."""
    made = standing(("30 min", AMOUNT, WORDS))

    assert made.superseded_by(stated("45 min", AMOUNT, WORDS, told=None)) == ""


def test_a_value_that_fell_is_not_superseded_again():
    """The newer one stands in its place."""
    made = standing(("30 min", AMOUNT, WORDS))
    made.falls("30 min")

    assert made.superseded_by(stated("45 min", AMOUNT, WORDS)) == ""


def test_values_of_one_word_take_time_in_proportion():
    """Few of them are followed."""

    def read(size: int) -> None:
        made = StandingValues()
        for number in range(size):
            value = stated(f"{number} min", AMOUNT, WORDS, number)
            made.superseded_by(value)
            made.stands(value)

    assert grows_linearly(read, lambda size: size, size=2_000)
