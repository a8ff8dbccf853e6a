"""Reads messages in the JSON of chat APIs: OpenAI-style chat completions and Anthropic's Messages.

The mirror of `service.domain.render_json`. Parts of a message that its fields cannot say stay in its form
(`service.domain.message_form`), so that it is rendered for its own API as it came.
"""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from abridged.service.domain.events import SystemPrompt
from abridged.service.domain.message import Attachment, Message, Role, ToolCall
from abridged.service.domain.message_form import FROM, Form, compact, filled, form_of, has_hole_name, hole
from abridged.service.domain.render_json import Rendering, openai_body
from abridged.service.text import nested_json

ANY_IMAGE: Final = "image/*"
"""The media type of an image whose address does not name its type."""

VALUES_MAX: Final = 500_000
"""Bounds the memory that JSON takes when it is parsed, by the signs that come before a value."""

NAME_CHARS: Final = 64
"""Characters of an unknown member's name that a refusal quotes."""

_JOINER: Final = "\n"
"""Stands between two texts of one message."""

_OPENAI_ROLES: Final[Mapping[str, Role]] = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}
_ANTHROPIC_BLOCKS: Final = frozenset(
    [
        "tool_use",
        "tool_result",
        "thinking",
        "redacted_thinking",
        "server_tool_use",
        "document",
        "image",
        "search_result",
        "container_upload",
        "mcp_tool_use",
        "mcp_tool_result",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
    ]
)
"""Types of blocks that only Anthropic's messages have."""


class NotMessages(ValueError):
    """JSON that is not of the form it is said to be. `place` is that of the fault: `messages[3].content[0]`."""

    def __init__(self, place: str, what: str) -> None:
        super().__init__(f"{place} {what}".lstrip())
        self.place = place
        self.what = what


class Read(NamedTuple):
    """The messages, without ids, and the system prompt beside them; None if the JSON names none."""

    messages: tuple[Message, ...]
    system_prompt: SystemPrompt | None = None


def read_json(text: str, rendering: Rendering, *, messages_max: int | None = None) -> Read:
    """The messages of a JSON text: one message, a list, or an object with `messages` and for Anthropic `system`.

    Raises NotMessages, also for more than `messages_max`. Ollama's messages have no ids of calls, and are not read.
    """
    if sum(map(nested_json.outline(text).count, "[{,")) > VALUES_MAX:
        raise NotMessages("", f"has more than {VALUES_MAX:,} values")
    try:
        value = nested_json.strictly_parsed(text)
    except ValueError as error:
        raise NotMessages("", f"is not JSON: {error}") from None
    return read_value(value, rendering, messages_max=messages_max)


def read_value(value: Any, rendering: Rendering, *, messages_max: int | None = None) -> Read:
    """The messages of parsed JSON, as `read_json` reads them of a text."""
    if rendering is Rendering.OLLAMA:
        raise NotMessages("", "can be read as OpenAI's or Anthropic's messages, not as Ollama's")
    if has_hole_name(value):
        raise NotMessages("", f"has a member named {FROM}, which is not taken")
    system = None
    is_whole = isinstance(value, dict) and "messages" in value
    if is_whole:
        if unknown := value.keys() - {"messages", "system"}:
            raise NotMessages(ascii(min(unknown))[:NAME_CHARS], "belongs to a request, not to its messages")
        if "system" in value:
            if rendering is not Rendering.ANTHROPIC:
                raise NotMessages("system", "is a message of its own in OpenAI's form")
            system = _system(value["system"])
        value = value["messages"]
    bodies = [value] if isinstance(value, dict) and not is_whole else value
    if not isinstance(bodies, list):
        raise NotMessages("messages", "must be a list")
    read = _openai if rendering is Rendering.OPENAI else _anthropic
    every = (m for i, body in enumerate(bodies) for m in _each(body, f"messages[{i}]", read))
    messages = tuple(every if messages_max is None else islice(every, messages_max + 1))
    if messages_max is not None and len(messages) > messages_max:
        raise NotMessages("messages", f"are more than {messages_max}")
    return Read(messages, system)


def told_form(bodies: list[Any]) -> Rendering:
    """The form of messages that do not name it: Anthropic's if any has a block that only those have, else OpenAI's."""
    for body in bodies:
        content = body.get("content") if isinstance(body, dict) else None
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") in _ANTHROPIC_BLOCKS:
                return Rendering.ANTHROPIC
    return Rendering.OPENAI


def _each(body: Any, place: str, read: Callable[[dict[str, Any], str], Iterator[Message]]) -> Iterator[Message]:
    if not isinstance(body, dict):
        raise NotMessages(place, "must be an object")
    for message in read(body, place):
        _require_text(message, place)
        yield message


class _Parts:
    """The texts, attachments and calls of a message, as they are found; each method returns what takes their place in
    the form."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._end = 0
        self.attachments: list[Attachment] = []
        self.calls: list[ToolCall] = []

    @property
    def content(self) -> str:
        return _JOINER.join(self._texts)

    def text(self, text: str) -> Any:
        if not text:
            return ""
        start = self._end + (len(_JOINER) if self._texts else 0)
        self._texts.append(text)
        self._end = start + len(text)
        return hole("content", start, self._end)

    def attached(self, field: str, attachment: Attachment) -> dict[str, Any]:
        self.attachments.append(attachment)
        return hole(field, len(self.attachments) - 1)

    def called(self, call: ToolCall) -> Callable[[str], dict[str, Any]]:
        self.calls.append(call)
        return lambda field: hole(field, len(self.calls) - 1)

    def message(self, role: Role, **fields: Any) -> Message:
        return Message(
            id="",
            role=role,
            content=self.content,
            attachments=tuple(self.attachments),
            tool_calls=tuple(self.calls),
            **fields,
        )


def _whole(body: Any, content: str) -> Any:
    """The body with its one text as the whole content, which also fits a text that is shortened later."""
    span = hole("content", 0, len(content))
    if isinstance(body, dict):
        return hole("content") if body == span else {name: _whole(item, content) for name, item in body.items()}
    return [_whole(item, content) for item in body] if isinstance(body, list) else body


def _with_form(message: Message, form: Form) -> Message:
    return message._replace(extra_json=form._replace(body=_whole(form.body, message.content)).text())


def _openai(body: dict[str, Any], place: str) -> Iterator[Message]:
    role = _role(body, place, _OPENAI_ROLES)
    parts, form = _Parts(), dict(body)
    name = _text_at(body, "name", place)
    match body.get("content"):
        case None:
            pass
        case str() as text:
            form["content"] = parts.text(text)
        case list() as items:
            form["content"] = [_openai_part(parts, item, f"{place}.content[{i}]") for i, item in enumerate(items)]
        case _:
            raise NotMessages(f"{place}.content", "must be text or a list of parts")
    if not parts.content and isinstance(body.get("refusal"), str):
        form["refusal"] = parts.text(body["refusal"])
    call_id = _openai_calls(body, form, parts, role, place)
    message = parts.message(role, name=name, tool_call_id=call_id)
    _require_text(message, place)
    if openai_body(message) == body:
        yield message
        return
    if name and role is not Role.TOOL:
        form["name"] = name
    yield _with_form(message, Form(Rendering.OPENAI.value, form))


def _openai_calls(body: dict[str, Any], form: dict[str, Any], parts: _Parts, role: Role, place: str) -> str:
    """Read the calls that a message makes, and return the id of the one that it answers."""
    called = body.get("tool_calls")
    if called is not None:
        if not isinstance(called, list) or role is not Role.ASSISTANT:
            raise NotMessages(f"{place}.tool_calls", "must be a list, in a message of the assistant")
        form["tool_calls"] = [_openai_call(parts, call, f"{place}.tool_calls[{i}]") for i, call in enumerate(called)]
    function = body.get("function_call")
    if function is not None:
        if not isinstance(function, dict) or role is not Role.ASSISTANT or called:
            raise NotMessages(f"{place}.function_call", "must be an object, in an assistant's message without others")
        name = _text_at(function, "name", f"{place}.function_call", required=True)
        arguments = _text_at(function, "arguments", f"{place}.function_call")
        at = parts.called(ToolCall(f"function:{name}", name, arguments))
        form["function_call"] = {**function, "arguments": at("arguments")}
    if body["role"] == "function":
        return f"function:{_text_at(body, 'name', place, required=True)}"
    if role is Role.TOOL:
        form["tool_call_id"] = hole("tool_call_id")
        return _text_at(body, "tool_call_id", place, required=True)
    return ""


def _openai_call(parts: _Parts, call: Any, place: str) -> dict[str, Any]:
    if not isinstance(call, dict):
        raise NotMessages(place, "must be an object")
    kind = call.get("type", "function")
    text = {"function": "arguments", "custom": "input"}.get(kind if isinstance(kind, str) else "")
    if text is None:
        raise NotMessages(f"{place}.type", "must be function or custom")
    function = call.get(kind)
    if not isinstance(function, dict):
        raise NotMessages(f"{place}.{kind}", "must be an object")
    name = _text_at(function, "name", f"{place}.{kind}", required=True)
    arguments = _text_at(function, text, f"{place}.{kind}")
    at = parts.called(ToolCall(_text_at(call, "id", place, required=True), name, arguments))
    made = {**function, "name": at("call_name")}
    if text in function:
        made[text] = at("arguments")
    return {**call, "id": at("call_id"), kind: made}


def _openai_part(parts: _Parts, part: Any, place: str) -> Any:
    if not isinstance(part, dict):
        raise NotMessages(place, "must be an object")
    kind = part.get("type")
    if not isinstance(kind, str):
        raise NotMessages(f"{place}.type", "must be text")
    if kind in _ANTHROPIC_BLOCKS:
        raise NotMessages(f"{place}.type", f"{kind} is of Anthropic's messages")
    if kind in ("text", "refusal"):
        return {**part, kind: parts.text(_text_at(part, kind, place, required=True, may_be_empty=True))}
    inner: Any = part.get(kind)
    if kind in ("image_url", "input_audio", "file") and not isinstance(inner, dict):
        raise NotMessages(f"{place}.{kind}", "must be an object")
    match kind, inner:
        case "image_url", {"url": str(url)} if url:
            return {**part, kind: {**inner, "url": parts.attached("uri", Attachment(url, _image_type(url)))}}
        case "image_url", _:
            raise NotMessages(f"{place}.image_url.url", "must be text")
        case "input_audio", {"data": str(data), "format": str(audio)} if _is_token(audio):
            attachment = Attachment(f"data:audio/{audio};base64,{data}", f"audio/{audio}")
            return {**part, kind: {**inner, "data": parts.attached("data", attachment)}}
        case "input_audio", _:
            raise NotMessages(f"{place}.input_audio", "must have data and format")
        case "file", {"file_data": str(data)} if data:
            name = inner.get("filename")
            attachment = Attachment(data, name=name if isinstance(name, str) else "")
            return {**part, kind: {**inner, "file_data": parts.attached("uri", attachment)}}
    return part


def _anthropic(body: dict[str, Any], place: str) -> Iterator[Message]:
    role = _role(body, place, {"user": Role.USER, "assistant": Role.ASSISTANT})
    members = {name: value for name, value in body.items() if name not in ("role", "content")}
    content = body.get("content")
    if isinstance(content, str):
        form = Form(Rendering.ANTHROPIC.value, hole("content"), members=members)
        yield Message(id="", role=role, content=content, extra_json=form.text())
        return
    if not isinstance(content, list):
        raise NotMessages(f"{place}.content", "must be text or a list of blocks")
    parts, continues = _Parts(), False
    blocks: list[Any] = []

    def piece(message: Message, body: Any) -> Message:
        nonlocal continues, members
        made = _with_form(message, Form(Rendering.ANTHROPIC.value, body, continues, members))
        continues, members = True, {}
        return made

    for i, block in enumerate(content):
        at = f"{place}.content[{i}]"
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise NotMessages(at, "must be an object with a type")
        if block["type"] == "tool_result":
            if role is not Role.USER:
                raise NotMessages(at, "a tool's result is in a message of the user")
            if blocks:
                yield piece(parts.message(role), blocks)
                parts, blocks = _Parts(), []
            yield piece(*_tool_result(block, at))
        else:
            blocks.append(_anthropic_block(parts, block, at, role))
    if blocks or not continues:
        yield piece(parts.message(role), blocks)


def _tool_result(block: dict[str, Any], place: str) -> tuple[Message, list[Any]]:
    parts, form = _Parts(), {**block, "tool_use_id": hole("tool_call_id")}
    match block.get("content"):
        case None:
            pass
        case str() as text:
            form["content"] = parts.text(text)
        case list() as items:
            form["content"] = [
                _anthropic_block(parts, item, f"{place}.content[{i}]", Role.TOOL) for i, item in enumerate(items)
            ]
        case _:
            raise NotMessages(f"{place}.content", "must be text or a list of blocks")
    call_id = _text_at(block, "tool_use_id", place, required=True)
    return parts.message(Role.TOOL, tool_call_id=call_id), [form]


def _anthropic_block(parts: _Parts, block: Any, place: str, role: Role) -> dict[str, Any]:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        raise NotMessages(place, "must be an object with a type")
    if kind in ("image_url", "input_audio", "file"):
        raise NotMessages(f"{place}.type", f"{kind} is of OpenAI's messages")
    if kind == "text":
        return {**block, "text": parts.text(_text_at(block, "text", place, required=True, may_be_empty=True))}
    if kind == "tool_use":
        if role is not Role.ASSISTANT or not isinstance(block.get("input"), dict):
            raise NotMessages(place, "a call has an object as its input, and is in a message of the assistant")
        call = ToolCall(
            _text_at(block, "id", place, required=True),
            _text_at(block, "name", place, required=True),
            compact(block["input"]),
        )
        at = parts.called(call)
        return {**block, "id": at("call_id"), "name": at("call_name"), "input": at("input")}
    if kind in ("image", "document"):
        if not isinstance(block.get("source"), dict):
            raise NotMessages(f"{place}.source", "must be an object")
        return {**block, "source": _source(parts, block, kind)}
    return dict(block)


def _source(parts: _Parts, block: dict[str, Any], kind: str) -> dict[str, Any]:
    source, title = block["source"], block.get("title")
    name = title if isinstance(title, str) else ""
    match source:
        case {"type": "base64", "media_type": str(media_type), "data": str(data)} if _is_media_type(media_type):
            attachment = Attachment(f"data:{media_type};base64,{data}", media_type, name=name)
            return {**source, "data": parts.attached("data", attachment)}
        case {"type": "url", "url": str(url)} if url:
            media_type = _image_type(url) if kind == "image" else "application/pdf"
            return {**source, "url": parts.attached("uri", Attachment(url, media_type, name=name))}
        case {"type": "text", "media_type": "text/plain", "data": str(text)} if _is_encodable(text):
            encoded = base64.b64encode(text.encode()).decode()
            attachment = Attachment(f"data:text/plain;base64,{encoded}", "text/plain", name=name)
            return {**source, "data": parts.attached("document", attachment)}
    return dict(source)


def _system(value: Any) -> SystemPrompt:
    if isinstance(value, str):
        _require_text(Message("", Role.SYSTEM, value), "system")
        return SystemPrompt(value)
    if not isinstance(value, list):
        raise NotMessages("system", "must be text or a list of blocks")
    parts = _Parts()
    blocks = []
    for i, block in enumerate(value):
        if not isinstance(block, dict) or block.get("type") != "text":
            raise NotMessages(f"system[{i}]", "must be a block of text")
        blocks.append(_anthropic_block(parts, block, f"system[{i}]", Role.SYSTEM))
    message = _with_form(parts.message(Role.SYSTEM), Form(Rendering.ANTHROPIC.value, blocks))
    _require_text(message, "system")
    return SystemPrompt(message.content, message.extra_json)


def _role(body: Mapping[str, Any], place: str, roles: Mapping[str, Role]) -> Role:
    role = body.get("role")
    if not isinstance(role, str) or role not in roles:
        raise NotMessages(f"{place}.role", f"must be one of {', '.join(roles)}")
    return roles[role]


def _text_at(
    body: Mapping[str, Any], name: str, place: str, *, required: bool = False, may_be_empty: bool = False
) -> str:
    value = body.get(name)
    if value is None and not required:
        return ""
    if not isinstance(value, str) or (required and not value and not may_be_empty):
        raise NotMessages(f"{place}.{name}", "must be text")
    return value


def _require_text(message: Message, place: str) -> None:
    """Raise NotMessages for a half of a surrogate pair, which no text of ours can hold, and for a form that is not that
    of its message."""
    calls = (text for call in message.tool_calls for text in (call.id, call.name, call.arguments))
    attached = (text for one in message.attachments for text in (one.uri, one.media_type, one.name))
    for text in (message.content, message.name, message.tool_call_id, *calls, *attached):
        if not _is_encodable(text):
            raise NotMessages(place, "has half a surrogate pair, which is no character")


def require_own_form(message: Message) -> None:
    """Raise ValueError unless the message's form, filled with its values, is read as this message."""
    form = form_of(message)
    if form is None:
        return
    body = filled(form, message)
    if form.api == Rendering.ANTHROPIC.value and message.role is Role.SYSTEM:
        read: tuple[Message, ...] = (_system(body).message,)
    elif form.api == Rendering.ANTHROPIC.value:
        role = "assistant" if message.role is Role.ASSISTANT else "user"
        read = read_value([{**form.members, "role": role, "content": body}], Rendering.ANTHROPIC).messages
    elif form.api == Rendering.OPENAI.value:
        read = read_value([body], Rendering.OPENAI).messages
    else:
        raise ValueError("is of an API that is not read")
    if len(read) != 1 or _said(read[0]) != _said(message):
        raise ValueError("says another message")


def _said(message: Message) -> tuple[Any, ...]:
    attached = tuple(attachment.uri for attachment in message.attachments)
    return message.role, message.name, message.content, message.tool_calls, message.tool_call_id, attached


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _image_type(url: str) -> str:
    """The media type of an image by its address; ANY_IMAGE if that does not say. A `data:` URI names it itself."""
    if url[:5].lower() == "data:":
        return ""
    guessed = mimetypes.guess_type(url.partition("?")[0])[0] or ""
    return guessed if guessed.startswith("image/") else ANY_IMAGE


def _is_token(text: str) -> bool:
    return text.isascii() and text.isalnum()


def _is_media_type(text: str) -> bool:
    return len(text) <= 256 and text.isascii() and text.isprintable() and not set(text) & set(";, ")
