"""Golden logs: events as they were stored by a released version, and the states that they must fold to for ever.

One JSON object a line: an event with its conversation, type, schema version, time and payload in base64; and behind a
conversation's last event its state, in names and plain values. A golden log is not edited once its version is released.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from service.codec.events import decode, encode
from service.domain.conversation import Conversation
from service.domain.events import Event
from service.domain.sequence import Sequence

__all__ = ["GoldenLog", "golden_lines", "is_within", "plain"]


class GoldenLog:
    """A golden log, read: events and the state they fold to, by conversation."""

    def __init__(self, path: Path) -> None:
        self.events: dict[str, list[tuple[Event, int]]] = {}
        self.states: dict[str, Any] = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if "state" in row:
                self.states[row["conversation"]] = row["state"]
                continue
            event = decode(row["type"], row["schema_version"], base64.b64decode(row["payload"]))
            self.events.setdefault(row["conversation"], []).append((event, row["time_us"]))


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
    yield json.dumps({"conversation": conversation, "state": plain(state)}, ensure_ascii=False)


def plain(value: Any) -> Any:
    """A domain value as JSON has it."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(item) for name, item in value._asdict().items()}
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(map(plain, value))
    if isinstance(value, tuple | list | Sequence):
        return [plain(item) for item in value]
    return value


def is_within(old: Any, new: Any) -> bool:
    """Whether `new` says all that `old` said; fields that later versions added are passed over."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(key in new and is_within(old[key], new[key]) for key in old)
    if isinstance(old, list):
        return isinstance(new, list) and len(old) == len(new) and all(map(is_within, old, new))
    return bool(old == new)
