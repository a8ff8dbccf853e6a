"""A chat message: immutable, and numbered by its conversation when it is appended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from abridged.service.text.envelope import unwrap_envelope

_NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Role(StrEnum):
    """The speaker of a message. The values are those of the chat APIs."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of an assistant message. `arguments` is JSON text, unchanged."""

    id: str
    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file or a link beside the text, or the data itself in a `data:` URI. `token_count` is the caller's; 0 to
    have it estimated."""

    uri: str
    media_type: str = ""
    token_count: int = 0
    name: str = ""


class Message(NamedTuple):
    """A chat message, as the caller sent it.

    Attributes:
        id: Unique in its conversation.
        role: The speaker.
        content: The text; may be empty.
        name: The speaker's name.
        tool_calls: Calls of an assistant message.
        tool_call_id: The call whose result a tool message is.
        attachments: Files and links beside the text.
        create_time_us: The caller's clock, in microseconds since the epoch; 0 if not given. Information only.
        token_count: The caller's own count; None if not given.
        user_id: The caller's id of a user.
        agent_id: The caller's id of an agent.
        labels: The caller's labels.
        pinned: True if the message stays in the window for good.
        is_continuation: True if it continues the topic of the message before it; None if not given.
        sentiment: The sentiment of its text, from -1 to 1, by the caller's measure; None if not given.
        flows: Flows that were active.
        tools: Tools that were invoked, in addition to those of `tool_calls`.
        extra_json: The message's form in the chat API that it came from, beside these fields; see `message_form`.
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
    is_continuation: bool | None = None
    sentiment: float | None = None
    flows: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    extra_json: str = ""


def sent_content(message: Message) -> str:
    """The text of a message as it is sent to a model: of a tool's result without its signed envelope."""
    return unwrap_envelope(message.content) if message.role is Role.TOOL else message.content
