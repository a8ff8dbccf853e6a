"""A value that the source gives to one name supports no statement that gives it to another."""

from __future__ import annotations

import pytest

from abridged.service.domain.message import Message, Role
from abridged.service.grounding.attribution import PASSAGES_MAX, Attribution
from abridged.service.grounding.support import Concordance, concordance_of
from tests.support.growth import grows_linearly

SAID = (
    "Anna has booked: the booking code of Anna is ZFA04Y for the trip in May.",
    "And what about Boris? The booking code of Boris is QRT77K for the trip in May.",
    "The budget of Falcon is 12,500 EUR. Please note that the budget of Heron is 8,300 EUR.",
    "As agreed, the hotline of Clara is +49 30 2692 479. The hotline of Denis is +49 30 5675 915.",
    "I told Emil that the ticket is OPS-2211. He wants it closed by Friday.",
    "Falcon 的批准预算是 12,500 EUR。",
    '{"passengers": [{"name": "Greta", "seat": "AB12C"}, {"name": "Hanno", "seat": "CD34E"}]}',
    "For Ida we use Postgres 16 on port 5433, and for Jonas on port 5544.",
    "My own code is WXY98Z, says Karl. The code of Lena is UVW76T.",
    "We met Mara in the lobby. The Hilton booking has the code HLT55A.",
)

OTHER_NAMES = (
    "The booking code of Anna is QRT77K.",
    "Anna's booking code is QRT77K.",
    "Boris has the booking code ZFA04Y.",
    "The budget of Heron is 12,500 EUR.",
    "Falcon has a budget of 8,300 EUR.",
    "The hotline of Clara is +49 30 5675 915.",
    "Nadia has QRT77K as booking code for the trip.",
    "The booking code of Nadia is ZFA04Y.",
)

HONEST = (
    "The booking code of Anna is ZFA04Y.",
    "Boris has QRT77K as his booking code.",
    "Booking codes of the trip in May: ZFA04Y for Anna and QRT77K for Boris.",
    "Heron has a budget of 8,300 EUR.",
    "The budget of 12,500 EUR for Falcon was set.",
    "Clara is called on the hotline +49 30 2692 479.",
    "The booking code ZFA04Y is for the trip in May.",
    "Emil was told of the ticket OPS-2211, closed by Friday.",
    "The passenger Greta has the seat AB12C.",
    "Ida uses Postgres 16 on port 5433.",
    "Karl says that his own code is WXY98Z.",
    "Mara has the Hilton booking with the code HLT55A.",
    "Mara's booking has the code HLT55A.",
)


def said(*texts: str) -> Concordance:
    return concordance_of((n, Message(f"m{n}", Role.USER, text)) for n, text in enumerate(texts, 1))


@pytest.mark.parametrize("statement", OTHER_NAMES)
def test_a_value_of_another_name_is_no_support(statement: str):
    """The source may know the statement's name or not."""
    assert said(*SAID).support(statement).numbers == ()


@pytest.mark.parametrize("statement", HONEST)
def test_a_true_value_keeps_its_support_in_other_words(statement: str):
    """The value stands beside its name, in a sentence after it, without any name, in a list of two, or in JSON."""
    assert said(*SAID).support(statement).numbers != ()


def test_a_value_moves_with_the_message_that_moves_it():
    """Once a message gives the value to the other name too, both statements are true."""
    moved = said(*SAID, "Correction: Anna and Boris swapped, QRT77K is the booking code of Anna now.")

    assert moved.support("The booking code of Anna is QRT77K.").numbers == (11,)


def test_a_value_may_belong_to_a_name_of_the_sentence_before():
    """`It is OPS-2211, says Karl`: Emil's ticket, of which the sentence before speaks."""
    told = "Then Emil called about the ticket. It is OPS-2211, says Karl at the desk."

    assert said(f"{told} The ticket of Emil was OPS-9944 before.").support("The ticket of Emil is OPS-2211.").numbers


def test_what_many_passages_tell_belongs_to_no_name():
    """One passage more than PASSAGES_MAX, and the value belongs to the whole conversation."""
    text = "The budget of Falcon is 12,500 EUR. The budget of Heron is 8,300 EUR."
    statement = "The budget of Heron is 12,500 EUR."

    assert not said(*[text] * PASSAGES_MAX).support(statement).numbers
    assert said(*[text] * (PASSAGES_MAX + 1)).support(statement).numbers


def test_the_time_of_attribution_is_linear_in_the_source():
    """A name and a value that every passage has cost no more than others."""
    text = "The budget of Falcon is 12,500 EUR. Please note that the budget of Heron is 8,300 EUR. "

    assert grows_linearly(
        lambda known: known.support("The budget of Heron is 12,500 EUR."), lambda size: said(*[text] * size), size=2_000
    )


GERMAN = (
    "Das Hotel kostet 120 EUR. Ich möchte die Reservierung für den Dienstag ändern, weil der Termin verschoben ist.",
    "Die Rechnung 4711 geht an die Buchhaltung. Der Zug nach Köln fährt um 14:20.",
)


@pytest.mark.parametrize(
    ("statement", "number"),
    [("Die Übernachtung kostet 120 EUR.", 1), ("Die Bahn fährt um 14:20.", 2), ("Der Zug fährt um 14:20.", 2)],
)
def test_a_language_that_writes_nouns_with_a_capital_has_no_names_to_confuse(statement, number):
    """Another noun for the same thing is no other name."""
    messages = ((number, Message(f"m{number}", Role.USER, text)) for number, text in enumerate(GERMAN, 1))

    assert concordance_of(messages).support(statement).numbers == (number,)


def test_the_time_of_attribution_is_linear_in_a_word():
    """A text may have a word of any length, such as a run of one letter."""
    assert grows_linearly(lambda word: Attribution([word], lambda _: None), lambda size: "a" * size, size=4_000)
