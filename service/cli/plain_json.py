"""Contract messages as JSON for programs: every field, in order, with numbers as numbers and enum values as words.

Canonical protobuf JSON writes 64-bit numbers as strings, which shells and jq cannot compute with; none of ours comes
near 2^53, up to which JSON numbers are exact. Terminal control characters are escaped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from abridged.service.cli.terminal import escaped


def as_json(message: Message, *, indent: int | None = None) -> str:
    """The message as one JSON object, on one line unless indented."""
    return json_text(as_plain(message), indent=indent)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Any JSON value as text that is safe to print."""
    return escaped(json.dumps(value, ensure_ascii=False, indent=indent))


def as_plain(message: Message) -> dict[str, Any]:
    """The fields by name. Fields with presence are omitted if unset; others are included even if empty."""
    return {
        field.name: _value(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def word(message: Message, field: str) -> str:
    """The value of an enum field without its type's name: `COMPLETED` of `SUMMARIZATION_STATE_COMPLETED`."""
    value: int = getattr(message, field)
    return _enum_word(message.DESCRIPTOR.fields_by_name[field], value)


def _value(field: Any, value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if field.is_repeated:
        return [_single(field, item) for item in value]
    return _single(field, value)


def _single(field: Any, value: Any) -> Any:
    if isinstance(value, Timestamp | Duration):
        return _time_text(value)
    if isinstance(value, Message):
        return as_plain(value)
    if field.enum_type is not None:
        return _enum_word(field, value)
    if isinstance(value, bytes):
        return value.hex()
    return value


def _time_text(value: Timestamp | Duration) -> Any:
    """Format a time as protobuf's JSON does, or return its fields: logs of earlier versions hold times out of range."""
    try:
        return value.ToJsonString()
    except ValueError:
        return as_plain(value)


def _enum_word(field: Any, number: int) -> str:
    assert field.enum_type is not None, "called for enum fields only"
    names = field.enum_type.values_by_number
    if number not in names:
        return str(number)
    prefix = names[0].name.removesuffix("UNSPECIFIED")
    return str(names[number].name.removeprefix(prefix))
