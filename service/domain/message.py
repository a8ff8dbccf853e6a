"""A chat message as the domain sees it; immutable, and numbered by its conversation when it is appended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["Attachment", "Message", "Role", "ToolCall"]

_NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Role(StrEnum):
    """Who speaks. The values are those of the chat APIs."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that an assistant message makes. `arguments` is JSON text, kept as it came."""

    id: str
    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True)
class Attachment:
    """Something outside the text, or its data in a `data:` URI. `token_count` is the caller's count; 0 when unknown."""

    uri: str
    media_type: str = ""
    token_count: int = 0
    name: str = ""


class Message(NamedTuple):
    """One chat message, as the caller sent it.

    `create_time_us` is the caller's clock in microseconds since the epoch, 0 when not given; it is information only.
    `token_count` is the caller's own count, None when not given. A `pinned` message stays in the window for good.
    """

    id: str
    role: Role
    content: str = ""
    name: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    attachments: tuple[Attachment, ...] = ()
    create_time_us: int = 0
    token_count: int | None = None
    user_id: str = ""
    agent_id: str = ""
    labels: Mapping[str, str] = _NO_LABELS
    pinned: bool = False
