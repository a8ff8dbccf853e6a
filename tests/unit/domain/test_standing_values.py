"""The value, of those that held, that a newer one supersedes."""

from __future__ import annotations

import pytest

from abridged.service.domain.standing_values import StandingValues
from abridged.service.text.identifiers import IdentifierKind
from tests.support.growth import grows_linearly

AMOUNT, CODE = IdentifierKind.AMOUNT, IdentifierKind.CODE
WORDS = frozenset({"retry", "budge"})


def standing(*values: tuple[str, IdentifierKind, frozenset[str]]) -> StandingValues:
    """Values that messages from the first on say, one each."""
    made = StandingValues()
    for number, (key, kind, words) in enumerate(values, 1):
        made.stands(key, kind, words, number)
    return made


def test_a_value_supersedes_the_one_that_shares_its_words_and_its_form():
    """The sentence need not speak of a change."""
    made = standing(("30 min", AMOUNT, WORDS), ("9 kg", AMOUNT, frozenset({"pallet"})))

    assert made.superseded_by("45 min", AMOUNT, WORDS, 9, changes=False) == "30 min"


@pytest.mark.parametrize(
    ("key", "kind", "about"),
    [
        ("45 min", AMOUNT, frozenset({"flight"})),
        ("45 min", CODE, WORDS),
        ("2 x 3", AMOUNT, frozenset({"retry"})),
        ("30 min", AMOUNT, WORDS),
        ("45 kg", AMOUNT, WORDS),
    ],
)
def test_a_value_of_another_thing_supersedes_none(key, kind, about):
    """Other words, another kind, another form with one word in common, the same value again, and another unit."""
    assert standing(("30 min", AMOUNT, WORDS)).superseded_by(key, kind, about, 9, changes=False) == ""


def test_values_of_one_message_do_not_supersede_each_other():
    """A message often lists several of a kind."""
    made = StandingValues()
    made.stands("30 min", AMOUNT, WORDS, 4)

    assert made.superseded_by("45 min", AMOUNT, WORDS, 4, changes=True) == ""


def test_a_word_of_many_values_says_little():
    """Each of these names one of many; no one of them gives way."""
    made = standing(*((f"{n}0 min", AMOUNT, frozenset({"task"})) for n in range(1, 9)))

    assert made.superseded_by("95 min", AMOUNT, frozenset({"task"}), 9, changes=True) == ""


def test_two_that_differ_in_their_digits_alone_are_one_thing():
    """Both must have letters enough to be a name."""
    made = standing(("fct_sales_v2", CODE, frozenset({"view"})), ("k2", CODE, frozenset({"key"})))

    assert made.superseded_by("fct_sales_v3", CODE, frozenset(), 9, changes=False) == "fct_sales_v2"
    assert made.superseded_by("k3", CODE, frozenset(), 9, changes=True) == ""


def test_a_value_that_fell_is_not_superseded_again():
    """The newer one stands in its place."""
    made = standing(("30 min", AMOUNT, WORDS))
    made.falls("30 min")

    assert made.superseded_by("45 min", AMOUNT, WORDS, 9, changes=False) == ""


def test_values_of_one_word_take_time_in_proportion():
    """Few of them are followed."""

    def read(size: int) -> None:
        made = StandingValues()
        for number in range(size):
            made.superseded_by(f"{number} min", AMOUNT, WORDS, number, changes=True)
            made.stands(f"{number} min", AMOUNT, WORDS, number)

    assert grows_linearly(read, lambda size: size, size=2_000)
