"""A user's reply to a model settles a proposal, and is quoted so that it can be read."""

from __future__ import annotations

import pytest

from abridged.service.domain.message import Message, Role
from abridged.service.domain.record import RecordContext
from abridged.service.extraction.extract import Extract
from tests.support.extracts import extract_of, record_of
from tests.unit.extraction.corpora import said

ASKED = "The upgrade costs 113 euros. Would you like to use the gift card for the upgrade?"


def chat(*texts: str) -> tuple[Message, ...]:
    """Turns of a user and a model by turns, the user first."""
    return said(*(f"{Role.ASSISTANT if at % 2 else Role.USER}: {text}" for at, text in enumerate(texts)))


def decided(*texts: str) -> tuple[str, ...]:
    """The decisions of an extract of such turns."""
    return extract_of(chat(*texts)).context.decisions


@pytest.mark.parametrize(
    ("asked", "reply"),
    [
        ("Would you like to use the gift card for the upgrade?", "Yes, please."),
        ("Would you like to use the gift card for the upgrade?", "No, leave it."),
        ("Would you like to use the gift card for the upgrade?", "Yes."),
        ("Soll ich den Stand der Arbeit im Wiki festhalten?", "Ja, aber knapp."),
        ("您要不要现在取消这个航班的预订\uff1f", "好的。"),
    ],
)
def test_a_short_reply_is_quoted_with_the_question_that_it_settles(asked: str, reply: str) -> None:
    """A consent alone does not say to what."""
    extracted = extract_of(chat("Hello, I call about my flight.", asked, reply))

    line = f"assistant: {asked} \u2013 user: {reply}"
    assert extracted.context.decisions == (line,)
    assert extracted.rests_on[line] == (2, 3)


def test_a_reply_that_says_what_it_settles_is_quoted_alone() -> None:
    """The question would only repeat it."""
    reply = "Yes, please use the credit card ending in 9725 for the upgrade."
    assert decided("I want business class on the flight back.", ASKED, reply) == (f"user: {reply}",)


def test_a_question_that_names_nothing_has_the_sentence_before_it() -> None:
    """The proposal is there."""
    asked = "The total cost of the economy class is $295. Would you like to proceed with this?"
    assert decided("I'd like to change my flight.", asked, "Yes, please.") == (
        f"assistant: {asked} \u2013 user: Yes, please.",
    )


@pytest.mark.parametrize(
    ("asked", "reply"),
    [
        ("Could you please provide the user ID of your profile?", "Sure, it's in my profile, sofia seven."),
        (ASKED, "Yes, what would it cost me then?"),
        ("The upgrade is booked. The gift card has 12 euros left.", "Great, thank you for the help."),
    ],
)
def test_a_reply_to_no_proposal_settles_nothing(asked: str, reply: str) -> None:
    """An answer is no choice, nor are a question and thanks."""
    assert decided("I want business class on the flight back.", asked, reply) == ()


def test_people_among_themselves_agree_in_words_of_their_own() -> None:
    """A yes between people is often only a sign of having heard."""
    assert (
        extract_of(said("Ana: Shall we use the larger gift card for the upgrade?", "Ben: Yes, yes.")).context.decisions
        == ()
    )


def test_a_later_reply_to_the_same_question_replaces_the_earlier_one() -> None:
    """The user has the last word."""
    found = decided("I want business class.", ASKED, "No, not yet.", ASKED, "Yes, please.")
    assert [line.rpartition(": ")[2] for line in found] == ["Yes, please."]


def test_an_answer_to_an_earlier_sentence_has_a_word_of_it() -> None:
    """The end of a turn may be about something else."""
    asked = "Would you like to add travel insurance? Your bags are free. I need the name of the second passenger."
    refusal = "No, I do not want any travel insurance."
    line = f"assistant: Would you like to add travel insurance? \u2013 user: {refusal}"
    assert decided("Book it.", asked, refusal) == (line,)
    assert decided("Book it.", asked, "Yes, her name is Ana Torres and she is my older sister.") == ()


def test_a_reply_that_stands_with_its_question_is_no_key_point() -> None:
    """A record says a thing once."""
    reply = "Yes, let's go with the economy class for this option, please."
    asked = "This option has a layover of two hours in Phoenix. Would you like to proceed with this option?"
    extracted = extract_of(chat("I need the fastest flight to Houston on May 27.", asked, reply))

    assert "\n".join((extracted.summary, *extracted.key_points, *extracted.context.decisions)).count(reply) == 1


@pytest.mark.parametrize(
    "reply",
    ["No!! Yes, I am certain about that.", "Yes. No need to tell Maria.", "Yes please. Hmm, actually no, keep them."],
)
def test_a_reply_is_quoted_whole(reply: str) -> None:
    """The end of a reply may take back its beginning."""
    asked = "Shall I delete the old backups of the customers?"
    assert decided("The disk is full.", asked, reply) == (f"assistant: {asked} \u2013 user: {reply}",)


def test_a_reply_settles_the_question_that_it_has_a_word_of() -> None:
    """The last question of two need not be the one, and a bare yes may be to either."""
    asked = "Shall I book the hotel Astoria in Ulm? Shall I add the travel insurance?"

    (line,) = decided("I go to Ulm.", asked, "Yes, book the hotel.")
    assert line == "assistant: Shall I book the hotel Astoria in Ulm? \u2013 user: Yes, book the hotel."
    assert decided("I go to Ulm.", asked, "Yes, please.") == ()


def test_only_the_message_right_before_a_reply_asks_for_it() -> None:
    """Messages that look like data are not read for sentences, and may have asked."""
    asked, link = "Should I drop the table of customers?", "[Docs](http://x.example/y) are ready. Shall I publish them?"
    assert decided("Clean up.", asked, "[from phone] No, leave it.", link, "Yes, please.") == ()


def test_a_refused_change_leaves_the_decision_that_it_was_to_change() -> None:
    """The old one holds because of it."""
    budget = "user: We decided that the maximum budget for the hotel in Ulm is 400 EUR."
    asked = "Shall I raise the maximum budget for the hotel in Ulm to 600 EUR?"
    previous = record_of(Extract("The user plans a trip.", (), RecordContext(decisions=(budget,))))

    found = extract_of(chat("Any news?", asked, "No, thanks."), previous=previous).context.decisions
    assert found == (budget, f"assistant: {asked} \u2013 user: No, thanks.")


def test_a_model_agrees_to_nothing_of_its_own() -> None:
    """A model may go on in a second message."""
    asked = "assistant: Shall I book the hotel Astoria in Ulm?"
    assert extract_of(said("user: I go to Ulm.", asked, "assistant: Yes, please.")).context.decisions == ()
