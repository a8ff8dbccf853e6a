"""Golden logs: events as they were stored by a released version, and clients' views of them, for ever.

One JSON object a line: an event with its conversation, type, schema version, time and payload in base64; and behind a
conversation's last event its view, in names and values of the contract. The inner layout of the state is no part of a
view. A golden log is not edited once its version is released.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from abridged.eventlog.event import StreamId
from abridged.service.api.wire import conversation_view, ended_pass, pending_pass, sent_message
from abridged.service.codec.events import decode, encode
from abridged.service.codec.records import record_to_proto
from abridged.service.conversations.table import row_of
from abridged.service.domain.conversation import Conversation, lineage
from abridged.service.domain.events import ConversationForked, Event, MessageAppended
from abridged.service.domain.fold import fold
from abridged.service.domain.policy import Policy, SummaryRole
from abridged.service.domain.ranges import covers
from abridged.service.domain.render import rendered_window
from abridged.service.domain.triggers import held_by
from abridged.v1.conversation_service_pb2 import GetContextResponse


class GoldenLog:
    """A golden log, read: events and clients' views of them, by conversation."""

    def __init__(self, path: Path) -> None:
        self.events: dict[str, list[tuple[Event, int]]] = {}
        self.views: dict[str, Any] = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if "view" in row:
                self.views[row["conversation"]] = row["view"]
                continue
            event = decode(row["type"], row["schema_version"], base64.b64decode(row["payload"]))
            self.events.setdefault(row["conversation"], []).append((event, row["time_us"]))

    def folded(self, conversation: str, count: int | None = None) -> Conversation:
        """The state after all events of a conversation, or its first `count`."""
        events = self.events[conversation][:count]
        first = events[0][0]
        parent = first.parent_id if isinstance(first, ConversationForked) else ""
        begun = self.folded(parent, first.parent_event_version) if isinstance(first, ConversationForked) else None
        said = [*(self.events[parent] if parent else ()), *self.events[conversation]]
        messages = [event for event, _ in said if isinstance(event, MessageAppended)]
        return fold(events, begun, originals=lambda ranges: [m for m in messages if covers(ranges, m.number)])


def golden_lines(conversation: str, log: Iterable[tuple[Event, int]], state: Conversation) -> Iterable[str]:
    """The lines of one conversation for a new golden log."""
    for event, at_us in log:
        type_name, version, payload = encode(event)
        yield json.dumps(
            {
                "conversation": conversation,
                "type": type_name,
                "schema_version": version,
                "time_us": at_us,
                "payload": base64.b64encode(payload).decode(),
            }
        )
    yield json.dumps({"conversation": conversation, "view": view_of(state)}, ensure_ascii=False)


def view_of(state: Conversation) -> dict[str, Any]:
    """The conversation as GetConversation, GetContext, ListSummaries and ListSummarizations show it, under the default
    policy, at the time of its last event.
    """
    live_ids = {record.id for record in lineage(state)}
    passes = [ended_pass(ended) for ended in state.passes]
    if state.pending:
        passes.append(pending_pass(state.pending, state.pending_since_us))
    return {
        "conversation": _plain(
            conversation_view(
                row_of(StreamId("", state.id), state),
                state.settings,
                held_by=held_by(state, Policy(), state.updated_us),
            )
        ),
        "context": [_plain(message) for message in _context(state)],
        "summaries": [_plain(record_to_proto(record)) | {"live": record.id in live_ids} for record in state.records],
        "summarizations": [_plain(ended) for ended in passes],
    }


def _context(state: Conversation) -> Iterable[Message]:
    window = rendered_window(state, SummaryRole.SYSTEM)
    return GetContextResponse.FromString(b"".join(sent_message(message)[0] for message in window)).messages


class _Map(dict[str, Any]):
    """A map of the contract: its keys are no fields, and one more is another value."""


def is_within(old: Any, new: Any) -> bool:
    """Return whether `new` says all that `old` said; fields that later versions added are passed over."""
    if isinstance(old, dict) and not isinstance(new, _Map):
        return isinstance(new, dict) and all(key in new and is_within(old[key], new[key]) for key in old)
    if isinstance(old, list):
        return isinstance(new, list) and len(old) == len(new) and all(map(is_within, old, new))
    return bool(old == new)


def _plain(proto: Message) -> dict[str, Any]:
    """Every field that the message's type has, also those that are not set: None where that can be told from a zero.

    JSON's own form leaves out unset fields, so that a value that appears could not be told from a new field.
    """
    return {field.name: _plain_field(proto, field) for field in proto.DESCRIPTOR.fields}


def _plain_field(proto: Message, field: Any) -> Any:
    value = getattr(proto, field.name)
    if field.message_type and field.message_type.GetOptions().map_entry:
        return _Map(value)
    if field.is_repeated:
        return [_plain_value(item, field) for item in value]
    if field.has_presence and not proto.HasField(field.name):
        return None
    return _plain_value(value, field)


def _plain_value(value: Any, field: Any) -> Any:
    if field.message_type:
        return _plain(value)
    if field.enum_type:
        return field.enum_type.values_by_number[value].name
    return value.hex() if isinstance(value, bytes) else value
