"""The messages that a statement rests on, found by the words of both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abridged.service.domain.message import Message, Role, ToolCall
from abridged.service.domain.record import RecordContext, RecordEvidence, SummaryRecord
from abridged.service.grounding.support import Concordance, concordance_of
from tests.support.extracts import extract_of, record_of
from tests.support.growth import grows_linearly

SAID = (
    "I want to move the launch of the Falcon dashboard to May 14 because QA needs another week.",
    "Done. The invoice INV-2231 over 450 EUR is still unpaid.",
    "Let us use Postgres 16 for the ledger service.",
    "请把会议改到星期五下午三点,地点在上海办公室。",
    "Is the survey module on the agenda?",
)


def said(*texts: str) -> Concordance:
    return concordance_of((n, Message(f"m{n}", Role.USER, text)) for n, text in enumerate(texts, 1))


def earlier(*points: str, numbers: tuple[tuple[int, ...], ...] = (), summary: str = "") -> SummaryRecord:
    record = replace(record_of(extract_of([])), summary=summary, key_points=points, context=RecordContext())
    return replace(record, evidence=RecordEvidence(key_points=numbers))


@pytest.mark.parametrize(
    ("statement", "numbers"),
    [
        ("The Falcon dashboard launch moves to 14 May to give QA a week more.", (1,)),
        ("Invoice INV-2231 of 450 EUR is unpaid.", (2,)),
        ("The ledger service uses Postgres 16.", (3,)),
        ("会议改到星期五下午三点", (4,)),
        ("Invoice INV-2231 of 450 EUR is unpaid, and the Falcon dashboard launch moves to May 14.", (1, 2)),
        ("The board cancelled the merger with Vantage.", ()),
    ],
)
def test_a_statement_rests_on_the_messages_that_say_it(statement: str, numbers: tuple[int, ...]):
    """The messages may use other words, another order and another notation, and be several."""
    assert said(*SAID).support(statement).numbers == numbers


@pytest.mark.parametrize(
    "statement",
    [
        "Invoice INV-2231 over 16 EUR is still unpaid.",
        "The launch of the survey module moves to INV-2231.",
        "The survey module uses Postgres 16.",
    ],
)
def test_a_value_or_a_thing_of_another_message_is_no_support(statement: str):
    """All identifiers have to be in the messages, and so do names that the source has elsewhere."""
    talk = (SAID[2], *["What a lovely day it is."] * 8, SAID[4], *["Thank you."] * 8, *SAID[:2])

    assert not said(*talk).support(statement).supported


def test_values_of_tools_and_the_speakers_name_count_as_said():
    """A tool's result, the arguments of a call, and who spoke."""
    call = Message("m1", Role.ASSISTANT, "", tool_calls=(ToolCall("c", "book", '{"flight": "HAT047"}'),))
    result = Message("m2", Role.TOOL, '{"order": "A-7781", "carrier": "Sundial"}', tool_call_id="c")
    promise = Message("m3", Role.USER, "I will write the migration guide.", name="Priya")
    index = concordance_of(enumerate((call, result, promise), 1))

    assert index.support("Flight HAT047 is booked.").numbers == (1,)
    assert index.support("Sundial carries order A-7781.").numbers == (2,)
    assert index.support("Priya writes the migration guide.").numbers == (3,)


def test_a_repeated_statement_keeps_the_evidence_of_the_record_before():
    """A statement may be repeated any number of times; those of that record without evidence name no message."""
    record = earlier("The warehouse in Lyon closes in June.", numbers=((4, 9),), summary="The user sells honey.")
    index = concordance_of(enumerate([Message("m", Role.USER, "And what about the trucks?")], 31), record)

    assert index.support("The Lyon warehouse closes in June.").numbers == (4, 9)
    honey = index.support("The user sells honey.")
    assert (honey.supported, honey.numbers) == (True, ())
    assert not index.support("The user sells bees.").supported


def test_a_message_that_says_it_again_is_nearer_than_the_record_before():
    """The newest source of a statement is one that can be read."""
    record = earlier("The warehouse in Lyon closes in June.", numbers=((4,),))
    index = concordance_of([(31, Message("m", Role.USER, "The warehouse in Lyon closes in June."))], record)

    assert index.support("The warehouse in Lyon closes in June.").numbers == (31,)


def test_a_source_without_words_says_nothing():
    """No index, no judgement."""
    empty = concordance_of([])

    assert empty.is_empty
    assert not empty.support("The warehouse closes.").supported
    assert not said(*SAID).support("...").supported


def test_a_long_line_without_sentences_is_cut_and_found():
    """A tool's result may be one line of a megabyte."""
    rows = ",".join(f"row{n}=value{n}" for n in range(3_000))
    index = said("Good morning.", rows, "x" * 3_000)

    assert index.support("row2222 is value2222").numbers == (2,)
    assert 100 < len(index.passages) < 400


def test_evidence_takes_time_linear_in_the_source():
    """The index and every statement."""

    def work(texts: list[str]) -> None:
        index = said(*texts)
        for text in texts[:20]:
            index.support(text)

    def talk(size: int) -> list[str]:
        return [f"Item IT-{n} costs {n} EUR, and {n % 97} of them are in the warehouse of Lyon." for n in range(size)]

    assert grows_linearly(work, talk, size=1_200)


def test_a_narrative_takes_no_evidence_from_a_statement_that_has_it():
    """Both have all of its words, and the narrative in fewer: only the statement names messages."""
    point = "As agreed, the invoice INV-2231 over 450 EUR is still unpaid, so the ledger stays open."
    summary = "The invoice INV-2231 over 450 EUR is unpaid."
    known = concordance_of([], earlier(point, numbers=((7,),), summary=summary))

    assert known.support("Invoice INV-2231 over 450 EUR is unpaid.").numbers == (7,)


def test_words_of_another_script_name_no_other_thing():
    """A message in Chinese has none of the statement's words for the thing, which other messages have."""
    known = said(
        "The status page of Heron is down.", *["Thank you."] * 8, "Falcon 的状态页是 https://a.example.com/7。"
    )

    assert known.support("Falcon has https://a.example.com/7 as its status page.").numbers == (10,)


@pytest.mark.parametrize(
    ("statement", "numbers"),
    [
        ("Step 6 is done.", (2,)),
        ("user: Step 6 is done.", (2,)),
        ("Step 7 is done.", ()),
        ("done", ()),
    ],
)
def test_a_statement_of_common_words_alone_rests_on_the_message_that_has_its_text(statement, numbers):
    """Extracts quote such sentences; without words that tell messages apart, only the text itself does."""
    assert said("Step 5 is done.", "Look here. Step 6 is done.", "Then go on.").support(statement).numbers == numbers


def test_a_statement_inherits_the_messages_of_the_sentence_that_an_earlier_narrative_says_it_in():
    """Each sentence has its own; a narrative with other sentences than its evidence names none."""
    summary = "The invoice INV-2231 over 450 EUR is unpaid. The ledger service stays on Postgres 16."
    record = earlier(summary=summary)

    def numbers(*evidence: tuple[int, ...]) -> tuple[int, ...]:
        known = replace(record, evidence=RecordEvidence(summary=evidence))
        return concordance_of([], known).support("The ledger service is on Postgres 16.").numbers

    assert numbers((3,), (7, 9)) == (7, 9)
    assert numbers((3,), (7, 9), (8,)) == ()


def test_a_statement_is_judged_once_for_each_source():
    """Judging a sentence takes a search, and a narrative is judged by its sentences and as a whole."""
    asked: list[tuple[str, int]] = []

    def judge(statement: str, source: Concordance) -> int:
        asked.append((statement, len(source.passages)))
        return len(source.passages)

    one, two = said("The port is 9443."), said("The port is 9443.", "The host is db-2.")

    assert [source.once(judge, "It is 9443.") for source in (one, one, two, one, two)] == [1, 1, 2, 1, 2]
    assert asked == [("It is 9443.", 1), ("It is 9443.", 2)]
