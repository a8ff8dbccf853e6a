"""Chats in a JSON-lines file: one object per line, `{"conversation_id", "messages": [{"id", "role", "content", …}]}`.

This module checks only the format; the sidecar enforces the contract's rules. Malformed input becomes a Fault with its
place, and reading continues.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, BinaryIO

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from abridged.service.domain.message import Message, Role, ToolCall

LINE_BYTES_MAX = 64 << 20
"""A chat of a hundred thousand messages; parsed, it takes about four times as much memory."""

FAULTS_PER_MESSAGE_MAX = 3
_FORMS = {
    "dict_type": "must be an object",
    "list_type": "must be a list",
    "missing": "is missing",
    "model_type": "must be an object",
    "string_type": "must be text",
}
"""Messages for the file's author by pydantic's error types, whose own messages are in Python's terms."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A part of the file that was not appended.

    Attributes:
        line: Line number, from 1.
        message_id: The message; empty for a whole line.
        what: What is wrong with it, to follow the place: "role is missing".
        reason: The sidecar's error reason, such as TOO_LARGE; empty if the file's format is wrong.
    """

    line: int
    message_id: str
    what: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FileChat:
    """The chat of one line.

    Attributes:
        line: Line number, from 1.
        conversation_id: As in the file, without a prefix.
        messages: The well-formed messages. One without an id has its index as one, so that a second run recognizes it.
        faults: The malformed messages.
    """

    line: int
    conversation_id: str
    messages: tuple[Message, ...]
    faults: tuple[Fault, ...]


class _Shape(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True, strict=True)


class _Call(_Shape):
    id: str
    name: str
    arguments: str = "{}"

    @field_validator("arguments", mode="before")
    @classmethod
    def _as_text(cls, arguments: Any) -> Any:
        # Some exports contain parsed arguments.
        return json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, dict) else arguments


class _Message(_Shape):
    id: str | None = None
    role: str
    content: str | None = None
    name: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None


class _Chat(_Shape):
    conversation_id: str
    messages: list[dict[str, Any]]


def read_chats(file: BinaryIO) -> Iterator[FileChat | Fault]:
    """Yield the chats in order, and a Fault for a line without one. Skips empty lines. Raises OSError."""
    for number in count(1):
        line = file.readline(LINE_BYTES_MAX + 1)
        if not line:
            return
        if len(line) > LINE_BYTES_MAX:
            _leave_rest(file, line)
            yield Fault(number, "", f"is longer than {LINE_BYTES_MAX:,} bytes")
        elif line.strip():
            yield _read_line(number, line)


def _leave_rest(file: BinaryIO, begun: bytes) -> None:
    while begun and not begun.endswith(b"\n"):
        begun = file.readline(LINE_BYTES_MAX)


def _read_line(number: int, line: bytes) -> FileChat | Fault:
    try:
        return _chat_of(number, _Chat.model_validate_json(line.decode().rstrip()))
    except UnicodeDecodeError as error:
        return Fault(number, "", f"is not UTF-8: byte {error.start + 1}")
    except ValidationError as error:
        return Fault(number, "", _explained(error))


def _chat_of(line: int, chat: _Chat) -> FileChat:
    messages: list[Message] = []
    faults: list[Fault] = []
    for place, raw in enumerate(chat.messages):
        named = raw.get("id")
        message_id = named if isinstance(named, str) and named else f"m{place:05d}"
        try:
            messages.append(_message_of(message_id, _Message.model_validate(raw)))
        except ValidationError as error:
            faults.append(Fault(line, message_id, _explained(error)))
        except ValueError:
            faults.append(Fault(line, message_id, f"role must be one of {', '.join(Role)}"))
    return FileChat(line, chat.conversation_id, tuple(messages), tuple(faults))


def _message_of(message_id: str, shape: _Message) -> Message:
    return Message(
        id=message_id,
        role=Role(shape.role),
        content=shape.content or "",
        name=shape.name or "",
        tool_calls=tuple(ToolCall(call.id, call.name, call.arguments) for call in shape.tool_calls or ()),
        tool_call_id=shape.tool_call_id or "",
    )


def _explained(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False)[:FAULTS_PER_MESSAGE_MAX]
    places = ((".".join(str(part) for part in one["loc"]), _FORMS.get(one["type"], one["msg"])) for one in found)
    # Each line is parsed by itself, so pydantic always says "line 1".
    problems = "; ".join(f"{place} {form}".lstrip() for place, form in places)
    return problems.replace("Invalid JSON:", "is not JSON:").replace("at line 1 column", "at column")
