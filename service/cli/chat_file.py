"""Chats in a file: a line of JSON each, or one JSON document for a conversation that is named elsewhere.

A chat is `{"conversation_id", "messages": [{"id", "role", "content", …}]}`. The messages of a chat may also be those of
a chat API, or of the contract: whatever `abridged context` prints. The module checks only the format; the sidecar
enforces the contract's rules. Malformed input becomes a Fault with its place, and reading continues.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, BinaryIO

from google.protobuf.json_format import ParseDict, ParseError
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from abridged.service.codec.values import message_from_proto
from abridged.service.domain.events import SystemPrompt
from abridged.service.domain.message import Message, Role, ToolCall
from abridged.service.domain.read_json import NotMessages, read_value, told_form
from abridged.service.domain.render_json import Rendering
from abridged.v1 import message_pb2

LINE_BYTES_MAX = 64 << 20
"""A chat of a hundred thousand messages; parsed, it takes about four times as much memory."""

FAULTS_PER_MESSAGE_MAX = 3
NO_JSON = "is not JSON:"
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
        what: The fault, to follow the place: "role is missing".
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
        conversation_id: The id in the file, without a prefix.
        messages: The well-formed messages. One without an id has its index as one, so that a second run recognizes it.
        faults: The malformed messages; a chat with any is not appended.
        system_prompt: The system prompt beside the messages; None without one.
    """

    line: int
    conversation_id: str
    messages: tuple[Message, ...]
    faults: tuple[Fault, ...]
    system_prompt: SystemPrompt | None = None


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
    system: Any = None


class _Document(_Shape):
    messages: list[dict[str, Any]]
    system: Any = None
    systemPrompt: dict[str, str] | None = None  # noqa: N815 - as protobuf's JSON has it


def read_document(file: BinaryIO, conversation_id: str, form: Rendering | None = None) -> FileChat | Fault:
    """The messages of a file that is one JSON document, such as `abridged context` prints. Raises OSError."""
    text = file.read(LINE_BYTES_MAX + 1)
    if len(text) > LINE_BYTES_MAX:
        return Fault(1, "", f"is longer than {LINE_BYTES_MAX:,} bytes")
    try:
        found = _Document.model_validate_json(text.decode())
    except UnicodeDecodeError as error:
        return Fault(1, "", f"is not UTF-8: byte {error.start + 1}")
    except ValidationError as error:
        return Fault(1, "", _explained(error))
    # A document has a form of its own, not that of a line.
    entries = [_without_place(entry) for entry in found.messages]
    chat = _Chat(conversation_id=conversation_id, messages=entries, system=found.system)
    is_contract = all(str(entry.get("role", "")).startswith("ROLE_") for entry in entries)
    return (
        _contract_chat(chat, found.systemPrompt)
        if is_contract
        else _api_chat(1, chat, form or _form_of(chat) or Rendering.OPENAI)
    )


def read_chats(file: BinaryIO, form: Rendering | None = None) -> Iterator[FileChat | Fault]:
    """Yield the chats in order, and a Fault for a line without one. Skips empty lines. Raises OSError.

    The messages are those of the chat API `form`, if there is one, and members that the API does not know are kept too.
    """
    for number in count(1):
        line = file.readline(LINE_BYTES_MAX + 1)
        if not line:
            return
        if len(line) > LINE_BYTES_MAX:
            _leave_rest(file, line)
            yield Fault(number, "", f"is longer than {LINE_BYTES_MAX:,} bytes")
        elif line.strip():
            yield _read_line(number, line, form)


def _leave_rest(file: BinaryIO, begun: bytes) -> None:
    while begun and not begun.endswith(b"\n"):
        begun = file.readline(LINE_BYTES_MAX)


def _read_line(number: int, line: bytes, form: Rendering | None) -> FileChat | Fault:
    try:
        chat = _Chat.model_validate_json(line.decode().rstrip())
    except UnicodeDecodeError as error:
        return Fault(number, "", f"is not UTF-8: byte {error.start + 1}")
    except ValidationError as error:
        return Fault(number, "", _explained(error))
    form = form or _form_of(chat)
    return _api_chat(number, chat, form) if form else _own_chat(number, chat)


def _form_of(chat: _Chat) -> Rendering | None:
    """The API whose messages these are, if they have what only its messages have."""
    if chat.system is not None:
        return Rendering.ANTHROPIC
    has_parts = any(isinstance(raw.get("content"), list) for raw in chat.messages)
    calls = (call for raw in chat.messages if isinstance(raw.get("tool_calls"), list) for call in raw["tool_calls"])
    has_functions = any(isinstance(call, dict) and "function" in call for call in calls)
    return told_form(chat.messages) if has_parts or has_functions else None


def _api_chat(line: int, chat: _Chat, form: Rendering) -> FileChat | Fault:
    """The chat with all that its API's messages say."""
    named = [raw.get("id") for raw in chat.messages]
    bodies = [{name: value for name, value in raw.items() if name != "id"} for raw in chat.messages]
    whole = {"messages": bodies} if chat.system is None else {"messages": bodies, "system": chat.system}
    messages: list[Message] = []
    try:
        read = read_value(whole, form)
        for place, message in enumerate(read.messages):
            message_id = named[place] if len(read.messages) == len(named) and named[place] else f"m{place:05d}"
            messages.append(message._replace(id=str(message_id)))
    except NotMessages as error:
        return Fault(line, "", str(error))
    return FileChat(line, chat.conversation_id, tuple(messages), (), read.system_prompt)


def _contract_chat(chat: _Chat, prompt: dict[str, str] | None) -> FileChat | Fault:
    """The chat as the contract's JSON has its messages."""
    messages: list[Message] = []
    for place, raw in enumerate(chat.messages):
        try:
            messages.append(message_from_proto(ParseDict(raw, message_pb2.Message())))
        except ParseError as error:
            return Fault(1, "", f"messages.{place} {error}")
    named = SystemPrompt(prompt.get("content", ""), prompt.get("extraJson", "")) if prompt else None
    return FileChat(1, chat.conversation_id, tuple(messages), (), named)


def _without_place(entry: dict[str, Any]) -> dict[str, Any]:
    """The message of an entry of a window, which has its number and its tokens beside it."""
    message = entry.get("message")
    return message if isinstance(message, dict) and "role" not in entry else entry


def _own_chat(line: int, chat: _Chat) -> FileChat:
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
    return problems.replace("Invalid JSON:", NO_JSON).replace("at line 1 column", "at column")
