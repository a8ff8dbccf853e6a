"""A proposal of an assistant is a decision once a user takes it up."""

from __future__ import annotations

import pytest

from abridged.service.domain.message import Message, Role
from abridged.service.grounding.roles import decides, only_proposed
from abridged.service.grounding.support import concordance_of

PROPOSAL = "I'd suggest Postgres 16 for the ledger service."
DECISION = "Use Postgres 16 for the ledger service."


def proposed(statement: str, *said: str) -> tuple[int, ...] | None:
    """The first message is a user's, the next the assistant's, and so on."""
    chat = (Message(f"m{n}", Role.USER if n % 2 else Role.ASSISTANT, text) for n, text in enumerate(said, 1))
    index = concordance_of(enumerate(chat, 1))
    return only_proposed(statement, index.support(statement), index)


@pytest.mark.parametrize("reply", ["Let me think about it.", "What would that cost per month?", "No, too risky."])
def test_a_proposal_that_nobody_took_up_is_no_decision(reply: str):
    """Put off, asked about or turned down, and at the end of the source too."""
    assert proposed(DECISION, "Which database?", PROPOSAL, reply) == (2,)
    assert proposed(DECISION, "Which database?", PROPOSAL) == (2,)


@pytest.mark.parametrize("reply", ["Sounds good, go ahead.", "Yes, but after the audit.", "The first one", "👍"])
def test_a_proposal_that_a_user_took_up_is_a_decision(reply: str):
    """The user may take it up in many words, or in few."""
    assert proposed(DECISION, "Which database?", PROPOSAL, reply) is None


def test_what_a_user_says_or_an_assistant_reports_is_the_users_own():
    """Only a proposal needs somebody's consent."""
    assert proposed(DECISION, "Which database?", PROPOSAL, "We take Postgres 16 for the ledger service.") is None
    assert proposed(DECISION, "Move it.", "The ledger service uses Postgres 16 now.", "When was that?") is None


def test_what_a_user_says_in_other_words_is_no_proposal():
    """Only an assistant's message is one, however much of the statement a user's has."""
    said = ("Let's run the compaction at two then.", "Changed, every day at two.")

    assert proposed("Compaction now runs at two, weekends included, ahead of the bank feed.", *said) is None


def test_a_proposal_that_was_turned_down_is_decided_against():
    """A statement that says so makes no decision of it; one that takes it up does."""
    said = ("What now?", "I'd suggest a painter for the living room.", "We paint it ourselves, no painter.")

    assert proposed("No painter is hired for the living room.", *said) is None
    assert proposed("A painter for the living room was ruled out.", *said) is None
    assert proposed("A painter is hired for the living room.", *said) == (2,)
    assert proposed("No painter is hired for the living room.", *said[:2], "Let me think about it.") == (2,)


def test_a_sentence_that_tells_of_a_proposal_makes_no_decision_of_it():
    """The sentence says who proposed."""
    told = "The assistant suggested Postgres 16 for the ledger service."

    assert proposed(told, "Which database?", PROPOSAL, "Let me think about it.") is None
    assert not decides(told)
    assert decides("The user decided to use Postgres 16.")


def proposed_in(said: str, statement: str) -> tuple[int, ...] | None:
    """Judge one message of the assistant, which the user puts off."""
    return proposed(statement, "Any news?", said, "Let me think about it.")


def test_a_report_stands_beside_a_proposal_in_one_message():
    """Sentence by sentence: one reports, another proposes."""
    said = "I have booked the flight to Osaka. Shall I also book a hotel?"

    assert proposed_in(said, "The flight to Osaka is booked.") is None
    assert proposed_in(said, "The user decided on the hotel.") == (2,)


def test_a_value_stands_beside_a_proposal_about_something_else():
    """The value need not be reported as done: the proposal has none of its words."""
    said = "The port of the ledger service is 5433. Let us leave the nightly cluster alone."

    assert proposed_in(said, "The port of the ledger service is 5433.") is None


@pytest.mark.parametrize(
    "said",
    [
        "The Grand Hotel fits the conference best. Shall I book it?",
        "I'd suggest the Grand Hotel for the conference. The Grand Hotel has been renovated.",
        "I have compared the Grand Hotel with others for the conference. Shall I book it?",
        "Done with the badges. I'd suggest for the conference:\n- the Grand Hotel\n- the Larch Inn",
    ],
    ids=["pointed back to", "praised after it", "only looked into", "an item of a list"],
)
def test_a_sentence_that_serves_a_proposal_settles_nothing(said: str):
    """The sentence gives a proposal's meaning, its reason, the inquiries for it, or its list."""
    assert proposed_in(said, "The user decided on the Grand Hotel for the conference.") == (2,)


def test_a_report_of_having_looked_stands_as_that():
    """The report is refused as a decision about the things looked at."""
    said = "I compared the hosting plans of Oakfield. Shall I order one?"

    assert proposed_in(said, "Compared the hosting plans of Oakfield.") is None
    assert proposed_in(said, "The user decided on the hosting plans of Oakfield.") == (2,)
