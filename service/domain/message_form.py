"""The form of a message that came as a chat API's own JSON: all that the fields of Message do not say.

A form is that JSON with holes. A text, the data of an attachment, an id or a call's arguments stand in the message's
fields; in their place the form names the field, as `{"$from": [field, ...]}`. A message is thus stored once, is
rendered for its own API as it came, and for any other by its fields.

    {"api": "openai", "body": {"role": "developer", "content": {"$from": ["content"]}}}
    {"api": "anthropic", "body": [{"type": "thinking", ...}, {"type": "text", "text": {"$from": ["content", 0, 5]}}]}

Anthropic's messages are lists of blocks, and each tool result among them is a message of its own here; a form with
`continues` is that of a later part of the same message. `members` are the members of that message beside its role and
its content.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from abridged.service.domain.attachments import data_of, text_of
from abridged.service.domain.message import Message
from abridged.service.text import nested_json

FROM: Final = "$from"
"""The one member of a hole."""

_SCAFFOLD: Final = frozenset({"role", "type", "id", "name", "media_type", "format", "detail"})
"""Members whose texts say how a message is made, not what it says."""


class Form(NamedTuple):
    """A form as it is parsed. `body` is the message, or for Anthropic its content: blocks or a text."""

    api: str
    body: Any
    continues: bool = False
    members: Mapping[str, Any] = {}

    def text(self) -> str:
        """Compact JSON, as Message.extra_json has it."""
        form: dict[str, Any] = {"api": self.api, "body": self.body}
        if self.continues:
            form["continues"] = True
        if self.members:
            form["members"] = self.members
        return compact(form)


def form_of(message: Message) -> Form | None:
    """The message's form; None without one. Raises ValueError if its `extra_json` is not a form."""
    if not message.extra_json:
        return None
    raw = nested_json.strictly_parsed(message.extra_json)
    if not isinstance(raw, dict) or not isinstance(raw.get("api"), str) or "body" not in raw:
        raise ValueError("is no form of a message")
    members = raw.get("members", {})
    is_own = isinstance(members, dict) and not members.keys() & {"role", "content"}
    if raw.keys() - {"api", "body", "continues", "members"} or not is_own:
        raise ValueError("is no form of a message")
    return Form(raw["api"], raw["body"], raw.get("continues") is True, members)


def hole(field: str, *where: int) -> dict[str, Any]:
    """The place of a field: `content`, or its characters from one place to another; of `uri`, `data`, `document`,
    `call_id`, `call_name`, `arguments` and `input` that of the attachment or call with this index; `tool_call_id`."""
    return {FROM: [field, *where]}


def filled(form: Form, message: Message) -> Any:
    """The form's body with the message's own values. Raises ValueError if they do not fit it.

    The text of a message may have been shortened since; it fits where the form has one place for all of it.
    """
    spans = [where for where in _holes(form.body) if where[0] == "content"]
    whole = spans == [["content"]]
    if not whole and (spans or message.content) and (not spans or spans[-1][2:] != [len(message.content)]):
        raise ValueError("does not fit the content")
    return _filled(form.body, message)


def extra_text(message: Message) -> str:
    """The texts that only the form has, such as a model's reasoning: they are sent too, and cost tokens."""
    form = form_of(message)
    return "" if form is None else "\n".join((*_texts(form.body), *_texts(form.members)))


def has_hole_name(value: Any) -> bool:
    """Return whether JSON from outside has a member that a form would take for a hole."""
    if isinstance(value, dict):
        return FROM in value or any(has_hole_name(item) for item in value.values())
    return isinstance(value, list) and any(has_hole_name(item) for item in value)


def compact(value: Any) -> str:
    """Compact JSON. Half a surrogate pair, which JSON may escape, stays escaped, and with it what is beside it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text


def _filled(value: Any, message: Message) -> Any:
    if isinstance(value, list):
        return [_filled(item, message) for item in value]
    if not isinstance(value, dict):
        return value
    if FROM in value:
        return _value(message, value[FROM])
    return {name: _filled(item, message) for name, item in value.items()}


_INDEXED: Final[Mapping[str, Callable[[Message, int], Any]]] = {
    "uri": lambda message, i: message.attachments[i].uri,
    "data": lambda message, i: data_of(message.attachments[i].uri),
    "document": lambda message, i: text_of(message.attachments[i].uri),
    "call_id": lambda message, i: message.tool_calls[i].id,
    "call_name": lambda message, i: message.tool_calls[i].name,
    "arguments": lambda message, i: message.tool_calls[i].arguments,
    "input": lambda message, i: nested_json.strictly_parsed(message.tool_calls[i].arguments),
}


def _value(message: Message, where: Any) -> Any:
    match where:
        case ["content"]:
            return message.content
        case ["content", int(first), int(end)] if 0 <= first <= end <= len(message.content):
            return message.content[first:end]
        case ["tool_call_id"]:
            return message.tool_call_id
        case [str(field), int(i)] if field in _INDEXED and i >= 0:
            try:
                return _INDEXED[field](message, i)
            except IndexError:
                raise ValueError(f"has no {field} {i}") from None
    raise ValueError("names no field of the message")


def _holes(value: Any) -> Iterator[list[Any]]:
    if isinstance(value, list):
        for item in value:
            yield from _holes(item)
    elif isinstance(value, dict):
        if FROM in value:
            yield value[FROM] if value[FROM] and isinstance(value[FROM], list) else [None]
        else:
            for item in value.values():
                yield from _holes(item)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict) and FROM not in value:
        for name, item in value.items():
            if not (name in _SCAFFOLD and isinstance(item, str)):
                yield from _texts(item)
