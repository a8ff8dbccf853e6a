"""A message of the contract from a mapping; a refusal names the message, the field, and what the field takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from abridged.v1.message_pb2 import Message, Role

_ROLES = {name.removeprefix("ROLE_").lower(): number for name, number in Role.items() if number}
_BY_FORM = 'a message as an API has it is taken with form="openai" or form="anthropic"'
_MUST_BE = {
    "content": f"must be text; {_BY_FORM}",
    "tool_calls": f"must be mappings of id, name and arguments, each a text, the last one of JSON; {_BY_FORM}",
    "attachments": "must be mappings with a uri, and perhaps media_type, token_count and name",
    "labels": "must be a mapping of texts to texts",
    "flows": "must be a list of texts",
    "tools": "must be a list of texts",
    "create_time": "must be a Timestamp of protobuf",
    "token_count": "must be a whole number of at most 32 bits",
    "sentiment": "must be a number",
    "pinned": "must be True or False",
    "is_continuation": "must be True or False",
}
"""Fields that take no plain text, and the content, which other APIs have in parts."""


def message_of(place: int, message: Any) -> Message:
    """The message at this place of an append. Raises TypeError for what is neither a Message nor a mapping, ValueError
    for a mapping that is no message."""
    if isinstance(message, Message):
        return message
    if not isinstance(message, Mapping):
        raise TypeError(f"messages[{place}]: must be a Message or a mapping of its fields; {_BY_FORM}")
    role = message.get("role")
    if not isinstance(role, str) or role.lower() not in _ROLES:
        raise ValueError(f"messages[{place}].role: must be one of {', '.join(_ROLES)}")
    fields = {**message, "role": _ROLES[role.lower()]}
    try:
        return Message(**fields)
    except (TypeError, ValueError) as error:
        raise ValueError(f"messages[{place}].{_refused(fields)}") from error


def _refused(fields: Mapping[str, Any]) -> str:
    """The first field that protobuf does not take, and what it must be."""
    for name, value in fields.items():
        if name not in Message.DESCRIPTOR.fields_by_name:
            return f"{name}: a message has no such field; {_BY_FORM}"
        try:
            Message(**{name: value})
        except UnicodeError:
            return f"{name}: is text that UTF-8 does not have"
        except (TypeError, ValueError):
            return f"{name}: {_MUST_BE.get(name, 'must be text')}"
    raise AssertionError("protobuf takes each field of a message by itself, and refuses them together")
