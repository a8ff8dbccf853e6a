"""The check of real windows finds each fault that was planted into a sound one."""

from __future__ import annotations

from typing import Any

import pytest

from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import message_pb2
from abridged.v1.summary_pb2 import MessageRange, SummaryRecord
from tests.support.sent_window import faults_of

CALL = [{"id": "c", "name": "find", "arguments": "{}"}]
APPENDED: list[dict[str, Any]] = [
    {"id": "m1", "role": "system", "content": "Rules."},
    {"id": "m2", "role": "user", "content": "First."},
    {"id": "m3", "role": "assistant", "content": "Second."},
    {"id": "m4", "role": "user", "content": "Third."},
    {"id": "m5", "role": "assistant", "content": "", "tool_calls": CALL},
    {"id": "m6", "role": "tool", "content": "found", "tool_call_id": "c"},
    {"id": "m7", "role": "user", "content": "Thanks."},
]
RECORDS = [
    SummaryRecord(id="r0", depth=0, covered=[MessageRange(first=2, last=2)]),
    SummaryRecord(id="r1", depth=1, parent_id="r0", covered=[MessageRange(first=3, last=3)]),
]


def sent(number: int) -> api.ContextMessage:
    came = APPENDED[number - 1]
    role = message_pb2.Role.Value(f"ROLE_{came['role'].upper()}")
    calls = [message_pb2.ToolCall(**call) for call in came.get("tool_calls", ())]
    message = message_pb2.Message(
        id=came["id"],
        role=role,
        content=came["content"],
        tool_calls=calls,
        tool_call_id=came.get("tool_call_id", ""),
    )
    return api.ContextMessage(number=number, message=message)


def window(*numbers: int) -> api.GetContextResponse:
    summary = api.ContextMessage(message=message_pb2.Message(id="r1", role=message_pb2.ROLE_SYSTEM, content="So far."))
    messages = [summary if number == 0 else sent(number) for number in numbers]
    return api.GetContextResponse(messages=messages, summary_id="r1" if 0 in numbers else "")


def test_a_sound_window_has_no_fault():
    """The window has a chain of two records, or everything in it, or a call that is still pending."""
    assert faults_of(APPENDED, window(1, 0, 4, 5, 6, 7), RECORDS) == []
    assert faults_of(APPENDED, window(1, 2, 3, 4, 5, 6, 7), []) == []
    assert faults_of(APPENDED[:5], window(1, 0, 4, 5), RECORDS) == []


@pytest.mark.parametrize(
    ("numbers", "fault"),
    [
        ((1, 0, 3, 4, 5, 6, 7), "in the window and covered: [3]"),
        ((1, 0, 5, 6, 7), "neither in the window nor covered: [4]"),
        ((1, 2, 4, 5, 6, 7), "neither in the window nor covered: [3]"),
        ((1, 0, 4, 6, 7), "the result m6 has no call c before it"),
        ((1, 0, 4, 5, 7), "the calls ['c'] have no result before the user message m7"),
        ((1, 4, 0, 5, 6, 7), "the window is out of order"),
        ((0, 1, 4, 5, 6, 7), "the window is out of order"),
    ],
)
def test_a_planted_fault_of_places_is_found(numbers, fault):
    """A message too many, one too few, half a tool call, another order."""
    assert any(found.startswith(fault) for found in faults_of(APPENDED, window(*numbers), RECORDS))


def test_a_planted_fault_of_the_chain_is_found():
    """A parent that is gone covers nothing, and a message is covered once."""
    twice = [RECORDS[0], SummaryRecord(id="r1", depth=1, parent_id="r0", covered=[MessageRange(first=2, last=3)])]

    assert faults_of(APPENDED, window(1, 0, 4, 5, 6, 7), RECORDS[1:]) == ["neither in the window nor covered: [2]"]
    assert faults_of(APPENDED, window(1, 0, 4, 5, 6, 7), twice) == ["two records of the chain cover the same message"]


def test_a_planted_fault_of_wording_is_found():
    """Cut, renamed, or given to another role; a result whose call is gone may be quoted."""
    cut, renamed, other, quoted = (window(1, 0, 4, 5, 6, 7) for _ in range(4))
    cut.messages[2].message.content = "Thir"
    renamed.messages[2].message.id = "m9"
    other.messages[2].message.role = message_pb2.ROLE_ASSISTANT
    quoted.messages[4].message.role = message_pb2.ROLE_USER
    quoted.messages[4].message.content = "[Result]\nfound"
    del quoted.messages[3].message.tool_calls[:]

    assert faults_of(APPENDED, cut, RECORDS) == ["m4 is not sent as it came"]
    assert faults_of(APPENDED, renamed, RECORDS) == ["number 4 is m9, not m4"]
    assert faults_of(APPENDED, other, RECORDS) == ["m4 came as user and is sent as assistant"]
    assert faults_of(APPENDED, quoted, RECORDS) == []
