"""Eight short stretches of chats for passes of a real small model: 200 to 600 tokens each.

Four are written for these tests; the others are real where the shared conversations lie, and written where they do not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from abridged.service.domain.message import Role
from abridged.v1 import message_pb2
from tests.support.junk import CHATS
from tests.support.shared_data import shared_chats, shared_data_is_there
from tests.unit.extraction.corpora import PLANNING

_REAL: Final = (
    ("airline_tool_chats.jsonl", "airline-004-1", 1, 16),
    ("airline_tool_chats.jsonl", "airline-016-1", 1, 12),
    ("meetings.jsonl", "meeting-000", 0, 9),
    ("meetings.jsonl", "meeting-008", 0, 40),
)
"""File, chat, and its first message and the one after its last; the system prompts of airlines are left out."""

_INCIDENT: Final = ((1, 16), (17, 29), (31, 48), (48, 57), (57, 65))
_DEMO: Final = Path(__file__).parents[3] / "service" / "cli" / "demo_conversation.json"
_ROLES: Final = {"user": message_pb2.ROLE_USER, "assistant": message_pb2.ROLE_ASSISTANT}


@dataclass(frozen=True)
class Stretch:
    """Messages under a name that says where they are from."""

    name: str
    messages: tuple[message_pb2.Message, ...]


def stretches() -> Iterator[Stretch]:
    """The eight, in a fixed order."""
    incident = json.loads(_DEMO.read_text(encoding="utf-8"))["messages"]
    planning = ({"role": m.role.value, "name": m.name, "content": m.content} for m in PLANNING)
    yield Stretch("written-planning", _spoken(tuple(planning)))
    yield Stretch("written-garden", _spoken(_alternating(CHATS["garden"].first)))
    written = [Stretch(f"written-incident-{first}", _spoken(incident[first:end])) for first, end in _INCIDENT]
    written.append(Stretch("written-garden-later", _spoken(_alternating(CHATS["garden"].later))))
    yield from written[:2]
    if not shared_data_is_there():
        yield from written[2:]
        return
    for file, chat_id, first, end in _REAL:
        (chat,) = (chat for chat in shared_chats(file) if chat["conversation_id"] == chat_id)
        yield Stretch(f"real-{chat_id}", _spoken(chat["messages"][first:end]))


def _alternating(texts: Sequence[str]) -> tuple[dict[str, Any], ...]:
    roles = (Role.USER.value, Role.ASSISTANT.value)
    return tuple({"role": roles[n % 2], "content": text} for n, text in enumerate(texts))


def _spoken(messages: Sequence[dict[str, Any]]) -> tuple[message_pb2.Message, ...]:
    """Return what people and assistants said, without the calls and results of tools."""
    said = (m for m in messages if m["role"] in _ROLES and m["content"])
    return tuple(
        message_pb2.Message(id=f"m{n}", role=_ROLES[m["role"]], content=m["content"], name=m.get("name") or "")
        for n, m in enumerate(said, start=1)
    )
