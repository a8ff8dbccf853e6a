"""Checks of windows for a chat model, over the contract alone: the messages that were appended, the window that came
back, and the records that stand for the rest. Shares no code with the product.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import message_pb2, summary_pb2

_SYSTEM, _USER, _ASSISTANT, _TOOL = (
    message_pb2.ROLE_SYSTEM,
    message_pb2.ROLE_USER,
    message_pb2.ROLE_ASSISTANT,
    message_pb2.ROLE_TOOL,
)


def faults_of(
    appended: Sequence[Mapping[str, Any]],
    window: api.GetContextResponse,
    records: Iterable[summary_pb2.SummaryRecord],
) -> list[str]:
    """Return the window's faults, as sentences; `appended` are the messages of the file, number 1 first."""
    return [
        *_order(window),
        *_coverage(len(appended), window, {record.id: record for record in records}),
        *_wording(appended, window),
        *_tool_pairs(window),
    ]


def _order(window: api.GetContextResponse) -> Iterator[str]:
    """System messages, the summary if there is one, then the others; each group by number, but results with calls."""
    keys = [
        (0 if m.number and m.message.role == _SYSTEM else 2 if m.number else 1, m.number)
        for m in window.messages
        if m.message.role != _TOOL
    ]
    if keys != sorted(set(keys)):
        yield f"the window is out of order: {keys}"
    summaries = [m.message.id for m in window.messages if not m.number]
    if summaries != ([window.summary_id] if window.summary_id else []):
        yield f"the window shows the summaries {summaries}, the live record is {window.summary_id!r}"


def _coverage(
    count: int, window: api.GetContextResponse, records: Mapping[str, summary_pb2.SummaryRecord]
) -> Iterator[str]:
    """Every message is in the window or covered by the live record and its ancestors, and never both."""
    inside = {m.number for m in window.messages if m.number}
    covered: list[int] = []
    record = records.get(window.summary_id)
    while record is not None:
        covered += [n for span in record.covered for n in range(span.first, span.last + 1)]
        record = None if record.stands_alone or not record.depth else records.get(record.parent_id)
    if len(covered) != len(set(covered)):
        yield "two records of the chain cover the same message"
    if both := inside & set(covered):
        yield f"in the window and covered: {sorted(both)}"
    if lost := set(range(1, count + 1)) - inside - set(covered):
        yield f"neither in the window nor covered: {sorted(lost)}"
    if strange := (inside | set(covered)) - set(range(1, count + 1)):
        yield f"never appended: {sorted(strange)}"


_MARK = re.compile(r"\[Result of \S+ cleared: message (\d+), \d+ tokens\. Expand it by its number\.]")


def _wording(appended: Sequence[Mapping[str, Any]], window: api.GetContextResponse) -> Iterator[str]:
    """A message is sent as it came; only a tool result may be a mark, or quoted when its call is not beside it."""
    for sent in window.messages:
        if not 0 < sent.number <= len(appended):
            continue
        came = appended[sent.number - 1]
        text, calls = came.get("content") or "", [call["id"] for call in came.get("tool_calls") or ()]
        role = message_pb2.Role.Name(sent.message.role).removeprefix("ROLE_").lower()
        sent_calls = [call.id for call in sent.message.tool_calls]
        if sent.message.id != came["id"]:
            yield f"number {sent.number} is {sent.message.id}, not {came['id']}"
        is_quoted = (came["role"], role) == ("tool", "user") or sent_calls != calls
        if came["role"] == "tool" and (mark := _MARK.fullmatch(sent.message.content)):
            if int(mark[1]) != sent.number:
                yield f"{came['id']} is cleared by the mark of message {mark[1]}"
        elif text not in sent.message.content or (sent.message.content != text and not is_quoted):
            yield f"{came['id']} is not sent as it came"
        if role != came["role"] and (came["role"], role) != ("tool", "user"):
            yield f"{came['id']} came as {came['role']} and is sent as {role}"
        if not set(sent_calls) <= set(calls):
            yield f"{came['id']} is sent with calls that it never made"


def _tool_pairs(window: api.GetContextResponse) -> Iterator[str]:
    """A result follows an unanswered call of its id; a call without a result stands after the last user message."""
    waiting: dict[str, list[int]] = defaultdict(list)
    for sent in window.messages:
        message = sent.message
        if message.role == _USER and sent.number and (open_calls := [i for i, at in waiting.items() if at]):
            yield f"the calls {open_calls} have no result before the user message {message.id}"
            waiting.clear()
        elif message.role == _ASSISTANT:
            for call in message.tool_calls:
                waiting[call.id].append(sent.number)
        elif message.role == _TOOL:
            if not waiting[message.tool_call_id]:
                yield f"the result {message.id} has no call {message.tool_call_id} before it"
            else:
                waiting[message.tool_call_id].pop()
