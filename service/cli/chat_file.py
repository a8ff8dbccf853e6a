"""Chats in a JSON-lines file: one object a line, `{"conversation_id", "messages": [{"id", "role", "content", …}]}`.

Only the form is checked here; the contract's rules are the sidecar's to enforce. What has no form becomes a Fault with
its place, and the rest of the file is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from service.domain.message import Message, Role, ToolCall

__all__ = ["Fault", "FileChat", "read_chats"]

FAULTS_PER_MESSAGE_MAX = 3
_FORMS = {
    "dict_type": "must be an object",
    "list_type": "must be a list",
    "missing": "is missing",
    "model_type": "must be an object",
    "string_type": "must be text",
}
"""What the file's author is told by pydantic's error types, whose own words are Python's."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something of the file that was not appended: a message, or with an empty `message_id` a whole line."""

    line: int
    message_id: str
    what: str


@dataclass(frozen=True, slots=True)
class FileChat:
    """The chat of a line. Messages without an id got their place as one, so that a second run finds them again."""

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
        # Some exports have parsed them.
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


def read_chats(lines: Iterable[str]) -> Iterator[FileChat | Fault]:
    """The chats in order; a line that holds none is a Fault. Empty lines are left out."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            chat = _Chat.model_validate(json.loads(line))
        except json.JSONDecodeError as error:
            yield Fault(number, "", f"is no JSON: {error.msg} at column {error.colno}")
        except ValidationError as error:
            yield Fault(number, "", _explained(error))
        else:
            yield _chat_of(number, chat)


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
    return "; ".join(f"{place} {form}".lstrip() for place, form in places)
