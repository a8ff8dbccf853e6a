"""The end of a standing rule: taken back in whatever words, laid down anew, and by nothing that only speaks of it."""

from __future__ import annotations

import pytest

from abridged.service.text.ending import lifted_rule, names_another, names_somebody_else, renewed_rule
from abridged.service.text.standing import statements, words_of_rule

RULES = [
    "When you show me SQL, add the EXPLAIN output under it.",
    "Never run the migrations yourself, print the command and I'll paste it.",
]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("You can stop adding the EXPLAIN output now, the plans are settled.", 0),
        ("Forget the rule about the migrations, run them.", 1),
        ("You can run the tests again now.", None),
        ("Forget about the cake.", None),
        ("The EXPLAIN output of that SQL looks odd.", None),
    ],
)
def test_a_rule_is_taken_back_by_its_own_words(text, place):
    """A cue alone ends nothing, and neither do the words of a rule alone."""
    found = [lifted_rule(said, [*map(words_of_rule, RULES)]) for said in statements(text)]

    assert next((one for one in found if one is not None), None) == place


def test_what_takes_a_rule_back_may_stand_behind_the_words_it_shares():
    """The sentence before it names its subject."""
    rules = ["Then copy Priya in purchasing on anything about freight, she handles brokers."]
    *_, said = statements("Priya says enough already with the freight mails. You can take her off copy.")

    assert said.text == "You can take her off copy."
    assert lifted_rule(said, [*map(words_of_rule, rules)]) == 0


@pytest.mark.parametrize(
    ("rule", "later"),
    [
        (
            "Never deploy to production without my approval.",
            "You may deploy the docs site without my approval from now on; everything else still needs it.",
        ),
        (
            "Never merge pull requests without asking me.",
            "You can merge dependency updates without asking me from now on. All others still need my okay.",
        ),
        (
            "Lösche nie Dateien, ohne mich zu fragen.",
            "Dateien in /tmp kannst du ab jetzt löschen, ohne mich zu fragen. Alles andere bleibt, wie es war.",
        ),
    ],
)
def test_an_exception_ends_no_rule(rule, later):
    """The message says that the rest stays, in the sentence that permits something or in the next one."""
    places = [lifted_rule(said, [words_of_rule(rule)]) for said in statements(later)]
    permission = later.partition(";")[0] if ";" in later else later.partition(". ")[0]

    assert set(places) == {None}
    assert [lifted_rule(said, [words_of_rule(rule)]) for said in statements(f"{permission}.")] == [0]


def test_a_rule_laid_down_anew_ends_the_one_before():
    """The newer one stands."""
    (said,) = statements("From now on keep all commit subjects under 72 characters.")

    rules = ["Please always keep all commit subjects under 60 characters.", RULES[1]]
    assert renewed_rule(said, [*map(words_of_rule, rules)]) == 0


@pytest.mark.parametrize(
    "later",
    [
        "Did I say you can send the report in Word again?",
        "Don't forget the report in Word must stay a PDF report.",
        "I told you always to send me the report in PDF, never in Word!",
        "You sent me the report in Word again, never in PDF.",
    ],
)
def test_a_question_and_a_reminder_end_no_rule(later):
    """They speak of the rule, and nothing takes it back."""
    rules = [words_of_rule("Always send me the report in PDF, never in Word.")]

    assert [lifted_rule(said, rules) for said in statements(later)] == [None]
    (lifted,) = statements("You can send the report in Word again.")
    assert lifted_rule(lifted, rules) == 0


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("Never deploy to production without my approval.", "Never deploy to staging without my approval."),
        (
            "Schreib Rechnungen an den Kunden Alpha immer auf Deutsch, nie auf Englisch.",
            "Schreib Rechnungen an den Kunden Omega immer auf Englisch, nie auf Deutsch.",
        ),
    ],
)
def test_a_rule_about_another_thing_ends_none(earlier, later):
    """The two may share words; a rule that gives another number is laid down anew."""
    (said,) = statements(later)

    assert renewed_rule(said, [words_of_rule(earlier)]) is None


def test_a_rule_with_another_number_is_laid_down_anew():
    """The thing is the same."""
    (said,) = statements("Always keep replies to customers below 80 words.")

    assert renewed_rule(said, [words_of_rule("Always keep replies to customers below 60 words.")]) == 0


@pytest.mark.parametrize(
    ("rule", "later"),
    [
        (
            "Please never send the customers a mail without asking me first.",
            "No need to ask me first before mailing the customers.",
        ),
        ("Bitte nenn mir in jeder Antwort alle Beträge in Franken.", "Franken brauchst du bei Beträgen nicht mehr."),
        ("以后给客户的每封邮件都必须用中文写。", "给客户的邮件不用再写中文了。"),
    ],
)
def test_a_rule_is_taken_back_in_other_words_and_among_other_rules(rule, later):
    """The words that one rule alone has tell which it is."""
    (said,) = statements(later)

    assert lifted_rule(said, [*map(words_of_rule, [*RULES, rule])]) == len(RULES)
    assert lifted_rule(said, [*map(words_of_rule, RULES)]) is None


def test_the_same_sentence_is_laid_down_anew_however_short():
    """A window says a sentence once, however often the user did."""
    (said,) = statements("No emojis, please.")

    assert renewed_rule(said, [words_of_rule(RULES[0]), words_of_rule("No emojis, please.")]) == 1


def test_one_word_in_common_takes_no_rule_back_unless_a_rule_is_spoken_of():
    """A remark about a thing that a rule names is most often no word about the rule."""
    rules = [words_of_rule("Use metric units in every table.")]
    remark, plain = statements("We no longer need that table module. Forget the rule about the tables again.")

    assert lifted_rule(remark, rules) is None
    assert lifted_rule(plain, rules) == 0


@pytest.mark.parametrize(
    ("rule", "later"),
    [
        ("Never delete files in /srv/a without asking me.", "Never delete files in /srv/b without asking me."),
        ("Never CC legal@acme.test on contracts.", "Never CC finance@acme.test on contracts."),
        ("Never call customer 58 before noon.", "Never call customer 59 before noon."),
        ("Never restart cluster-7.", "Never restart cluster-9."),
    ],
)
def test_a_rule_for_another_thing_is_another_rule(rule, later):
    """Paths, addresses and numbered things tell things apart that words do not."""
    assert names_another(later, rule)
    assert not names_another(rule, rule)


@pytest.mark.parametrize(
    ("rule", "later"),
    [
        ("Always answer in 60 words at most.", "Always answer in 80 words at most."),
        ("Always use Python 3.11.", "Always use Python 3.12."),
        ("Write all dates in the form 2024-03-05.", "Write all dates in the form 05/03/2024."),
        ("Always use port 3000 for the preview.", "Always use port 8080 for the preview."),
        ("Always send invoices to a@acme.test.", "Always send invoices to b@acme.test."),
        ("Target Node 18 from now on.", "Target Node 20 from now on."),
        ("No meetings before 9:30.", "No meetings before 10:00."),
        ("Never delete files in /srv/a.", "Never delete files in /srv/a or /srv/b."),
        ("Never delete files in /srv/a.", "Never delete files."),
    ],
)
def test_a_rule_with_another_value_is_the_same_rule(rule, later):
    """A limit, a version and a time have one value at a time."""
    assert not names_another(later, rule)


def test_a_permission_for_somebody_else_lifts_nothing():
    """Capitals inside a sentence are names; the first word of a sentence does not count."""
    rule = "Never mention prices to Mr. Hale."

    assert names_somebody_else("You may mention prices to Ms. Ito.", rule)
    assert names_somebody_else("Tu peux parler de prix avec Leroy.", "Ne parle jamais de prix avec Dupont.")
    assert not names_somebody_else("You may mention prices to Hale again.", rule)
    assert not names_somebody_else("Prices are no secret any more.", rule)
    assert not names_somebody_else("Code in den Texten ist wieder erlaubt.", "Schreibe nie Code in Antworten.")
