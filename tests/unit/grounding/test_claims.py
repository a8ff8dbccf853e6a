"""A claim is supported when the source has it in any usual writing, and only then."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abridged.service.domain.message import Message, Role, ToolCall
from abridged.service.grounding.claims import LOOKUPS_MAX, evidence_of, survival, texts_of, unsupported
from abridged.service.text.identifiers import identifiers

SOURCE = (
    "Pay $1,200.00 by 2024-05-15 at 3:00 PM for ZFA04Y; twelve bags, 1.5k rows, release v2.1.3, see src/a.py:12 and "
    "foo_bar() with ratio 0.80, 45 % in 2012, from #123, 20 users, April  9, 2031, 3 APIs"
)
EVIDENCE = evidence_of([SOURCE])


SAME = (
    *("1200 dollars", "$1200", "1,200", "May 15, 2024", "15 May 2024", "05/15/2024", "15:00", "3pm", "zfa04y", "123"),
    *("12 bags", "1500 rows", "2.1.3", "src/a.py", "a.py", "foo_bar", "a ratio of 0.8", "45%", "April 9, 2031"),
)
OTHER = (
    *("1300 dollars", "$120", "May 16, 2024", "16:00", "ZFA04Z", "13 bags", "2.1.4", "src/b.py", "foo_baz", "0.81"),
    *("46%", "212", "01", "20 24", "#124", "May 2013"),
)


@pytest.mark.parametrize("claim", SAME)
def test_another_writing_of_the_same_thing_is_supported(claim: str) -> None:
    """Case, separators, currency, date order, clock and spelled numbers do not matter."""
    assert unsupported(claim, EVIDENCE) == ()


@pytest.mark.parametrize("claim", ["+49 30 2692 479", "+49302692479", "+49 (0)30 2692-479"])
def test_a_phone_number_is_supported_by_all_of_its_digits(claim: str) -> None:
    """However it is grouped; another number of the same country or city is not the same."""
    assert unsupported(claim, evidence_of(["Call +49 30 2692 479."])) == ()
    assert unsupported(claim, evidence_of(["Call +49 30 2692 478 or +49 40 2692 479."])) != ()


@pytest.mark.parametrize("claim", OTHER)
def test_what_the_source_does_not_say_is_unsupported(claim: str) -> None:
    """An invented number, date or name is found, also when it is a piece of a real one."""
    assert unsupported(claim, EVIDENCE) != ()


@pytest.mark.parametrize(
    ("source", "claim"),
    [
        ("opened 2024-05-09T11:52:16Z", "at 11:52"),
        ("opened 2024-05-09T11:52:16", "at 11:52:16"),
        ("opened 2024-05-09T13:05+02:00", "at 1:05 PM"),
        ("def parse(x): ...", "parse() reads it"),
        ("def parse_header(x): ...", "parse_header() reads it"),
        ("self.parse_header(buffer, size)", "`parse_header()`"),
        ("three euros", "3 EUR"),
        ("three dollars", "$3"),
        ("twenty-five bags", "25 bags"),
        ("Twenty five bags", "25 bags"),
        ("one hundred and fifty rows", "150 rows"),
        ("two thousand and twelve rows", "2,012 rows"),
        ("25 bags", "twenty-five bags"),
        ("$3", "three dollars"),
    ],
)
def test_times_calls_and_number_words_are_supported_both_ways(source: str, claim: str) -> None:
    """A part of a timestamp, a function without its arguments and a number in words are no inventions."""
    assert unsupported(claim, evidence_of([source])) == ()


@pytest.mark.parametrize(
    ("source", "claim"),
    [
        ("opened 2024-05-09T11:52:16Z", "at 11:53"),
        ("Please parse the header", "parse() reads it"),
        ("reparse(x)", "parse() reads it"),
        ("twenty-five bags", "26 bags"),
        ("twenty bags and five boxes", "25 bags"),
    ],
)
def test_what_only_resembles_them_is_not(source: str, claim: str) -> None:
    """Another minute, a verb, a longer name, another sum."""
    assert unsupported(claim, evidence_of([source])) != ()


def test_a_number_in_words_survives() -> None:
    """The source may have digits where the summary has words."""
    assert survival(identifiers("25 bags, $3 each"), "twenty-five bags for three dollars") == 1.0


def test_a_repeated_invention_counts_once() -> None:
    """Counts are of distinct claims."""
    assert len(unsupported("QQ777 and qq777 and QQ777", EVIDENCE)) == 1


def test_more_inventions_than_are_looked_up_are_all_counted() -> None:
    """The bound on look-ups hides nothing."""
    invented = " ".join(f"ID{number}X" for number in range(LOOKUPS_MAX + 50))

    assert len(unsupported(invented, EVIDENCE)) == LOOKUPS_MAX + 50


@given(st.text(st.characters(), max_size=300), st.text(max_size=50))
def test_a_text_supports_itself(text: str, more: str) -> None:
    """Quoting is never inventing."""
    assert unsupported(text, evidence_of([more, text])) == ()


def test_survival_is_the_part_of_the_identifiers_that_is_left() -> None:
    """Case and writing do not matter; decimals are not asked for."""
    assert survival(identifiers("ZFA04Y, src/a.py, $1,200.00 and 0.25"), "zfa04y costs 1200") == pytest.approx(2 / 3)
    assert survival(identifiers("no names here"), "") == 1.0


def test_all_texts_of_a_message_are_evidence() -> None:
    """Names, tool names and arguments are said in the conversation too; a tool's envelope counts by its result."""
    call = ToolCall("c", "find_order", '{"id": "W99"}')
    result = '{"payload": {"result": "R2D2"}, "sig": "S1G2"}'
    messages = Message("m", Role.ASSISTANT, name="agent_7", tool_calls=(call,)), Message("n", Role.TOOL, result)

    evidence = evidence_of(text for message in messages for text in texts_of(message))

    assert unsupported("R2D2 agent_7 find_order W99", evidence) == ()
    assert unsupported("S1G2", evidence) != ()
