"""A record quotes what an assistant called and what came of it, and judges nothing of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abridged.service.domain.message import Message, Role, ToolCall
from abridged.service.domain.record import KEY_POINTS_MAX, RecordEvidence, SummaryRecord
from abridged.service.extraction.calls import calls
from abridged.service.extraction.extract import Extract
from abridged.service.extraction.passages import gathered
from tests.support.extracts import extract_of, record_of
from tests.support.growth import grows_linearly
from tests.unit.extraction.corpora import PLANNING, said

ASKED = said("user: Please move the booking of the harbour crane to the northern berth before the audit begins.")

NOTHING_SAID = gathered((), previous=None)


def call(name: str, arguments: str, result: str, *, call_id: str = "c") -> tuple[Message, Message]:
    """A call and its result."""
    return (
        Message(f"a-{name}", Role.ASSISTANT, "", tool_calls=(ToolCall(call_id, name, arguments),)),
        Message(f"t-{name}", Role.TOOL, result, tool_call_id=call_id),
    )


def called(extracted: Extract) -> list[str]:
    """The lines of calls in an extract, without their speaker."""
    return [point.partition(": called ")[2] for point in extracted.key_points if ": called " in point]


def told(*messages: Message, tokens_max: int = 1_500) -> list[str]:
    """The lines of calls in the extract of these messages, after a request."""
    return called(extract_of((*ASKED, *messages), tokens_max=tokens_max))


def recorded(extracted: Extract) -> SummaryRecord:
    """The record of an extract, with the messages that its key points rest on."""
    numbers = tuple(extracted.rests_on.get(point, ()) for point in extracted.key_points)
    return replace(record_of(extracted), evidence=RecordEvidence(key_points=numbers))


def test_a_call_is_quoted_with_its_result_and_rests_on_both_messages():
    """A reader sees what was tried and how it ended."""
    extracted = extract_of((*ASKED, *call("pay_order", '{"order": "A17"}', "Error: the balance is not enough")))

    line = 'assistant: called pay_order({"order": "A17"}) \u2013 Error: the balance is not enough'
    assert line in extracted.key_points
    assert extracted.rests_on[line] == (2, 3)


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ("", "empty result"),
        ("5.0", "5.0"),
        ('{"state": "moved", "berth": 4}', '{"state": "moved", "berth": 4}'),
        ('{"rows": [' + "7, " * 200 + "7]}", "{\u2026"),
        ('{"status": "failed", "rows": [' + "7, " * 200 + "7]}", '{"status": "failed", "rows": [7, 7, 7'),
        ("collected 40 items\n" + "tests/test_a.py ....\n" * 30 + "1 failed, 39 passed", "1 failed, 39 passed"),
        ("lone \ud7ff and \x00 marks", "lone \ud7ff and"),
    ],
)
def test_the_result_is_quoted_from_both_ends(result: str, shown: str):
    """A failure stands at either end; long data that is no error is only said to be there."""
    (line,) = told(*call("move_crane", "{}", result))

    assert shown in line.partition(" \u2013 ")[2]


def test_a_call_without_a_result_is_not_quoted():
    """Nobody knows whether it was made."""
    assert told(call("move_crane", "{}", "")[0]) == []


def test_results_of_one_id_belong_to_its_calls_in_their_order():
    """Some providers give parallel calls no ids."""
    both = Message("a", Role.ASSISTANT, "", tool_calls=(ToolCall("", "first", "{}"), ToolCall("", "second", "{}")))
    results = (Message("t1", Role.TOOL, "one", tool_call_id=""), Message("t2", Role.TOOL, "two", tool_call_id=""))

    assert told(both, *results) == ["first({}) \u2013 one", "second({}) \u2013 two"]


def test_the_newest_two_calls_of_a_tool_are_quoted():
    """Repeated looks take no room from others."""
    looks = [m for n in range(9) for m in call("look", f'{{"at": {n}}}', str(n), call_id=f"c{n}")]

    assert told(*call("pay", "{}", "done"), *looks) == [
        "pay({}) \u2013 done",
        'look({"at": 7}) \u2013 7',
        'look({"at": 8}) \u2013 8',
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("reset_password", '{"user": "kim"}', "tulip-42"),
        ("set_env", '{"name": "DB_PASSWORD", "value": "tulip"}', "ok"),
        ("bash", '{"command": "deploy --password tulip"}', "ok"),
        ("bash", '{"command": "mysql -p tulip"}', "ok"),
        ("charge", '{"cvv": "123"}', "ok"),
        ("verify", '{"otp": "445566"}', "ok"),
        ("unlock", '{"card_pin": "4711"}', "ok"),
        ("login", "{}", '{"access_token": "tulip"}'),
        ("login", "{}", "ghp_" + "a1B2" * 9),
        ("login", "{}", "aB3" * 40),
    ],
)
def test_a_call_that_may_tell_of_a_secret_is_not_quoted(name: str, arguments: str, result: str):
    """A record goes to models and logs."""
    assert told(*call(name, arguments, result)) == []


@pytest.mark.parametrize(("arguments", "result"), [("a" * 500, "ok"), ("{}", "a" * 500)])
def test_a_call_that_cannot_be_cut_is_not_quoted(arguments: str, result: str):
    """The call would stand there without arguments, or with an empty result."""
    assert told(*call("write", arguments, result)) == []


def test_key_points_are_as_many_as_a_record_may_have():
    """A record with more of them would be refused."""
    words = [f"{a}{b}rim" for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u", "au")]
    sentences = said(*(f"user: {w.title()}a needs {w}o, {w}i and {w}en by day {n}." for n, w in enumerate(words, 1)))
    made = [m for n in range(9) for m in call(f"tool_{n}", "{}", "done", call_id=f"c{n}")]

    assert len(extract_of((*sentences, *made), tokens_max=8_000).key_points) == KEY_POINTS_MAX


def test_calls_leave_room_for_sentences():
    """A busy agent's record still says what the conversation is about."""
    made = [m for n in range(60) for m in call(f"tool_{n}", '{"order": "A17"}', "done", call_id=f"c{n}")]
    extracted = extract_of((*PLANNING, *made), tokens_max=600)

    assert 0 < len(called(extracted)) <= KEY_POINTS_MAX // 3
    assert set(extract_of(PLANNING, tokens_max=480).context.decisions) <= set(extracted.context.decisions)


def test_a_record_keeps_the_calls_of_the_one_before():
    """They are kept letter by letter with their messages, and newer ones of the tool take their places."""
    first = extract_of((*ASKED, *call("pay", '{"order": "A: 17) \u2013 x"}', "Error: no"), *call("look", "{}", "1")))
    second = extract_of((*PLANNING, *call("look", "{}", "2"), *call("look", "{}", "3")), previous=recorded(first))

    assert called(second) == [
        'pay({"order": "A: 17) \u2013 x"}) \u2013 Error: no',
        "look({}) \u2013 2",
        "look({}) \u2013 3",
    ]
    line = next(point for point in second.key_points if "called pay" in point)
    assert second.rests_on[line] == first.rests_on[line]


def test_a_secret_of_an_earlier_record_is_dropped():
    """A model may have written it there."""
    first = extract_of((*ASKED, *call("pay", "{}", "done")))
    leaking = replace(recorded(first), key_points=(f"assistant: called pay({{}}) \u2013 ghp_{'a1B2' * 9}",))

    assert called(extract_of(PLANNING, previous=leaking)) == []


def test_a_call_of_a_superseded_value_is_not_quoted():
    """The value would stand beside the one that holds."""
    made = (*ASKED, *call("open_port", '{"port": 8443}', "open"))

    assert called(extract_of(made, superseded={"8443": 3})) == []


def test_many_calls_take_linear_time():
    """An agent makes thousands of calls between two passes at a large window."""

    def edits(count: int) -> list[Message]:
        return [m for n in range(count) for m in call("edit", '{"path": "a.py"}', "x " * 40, call_id=str(n))]

    assert grows_linearly(lambda messages: calls(messages, range(len(messages)), NOTHING_SAID, None), edits, size=8_000)
