"""Contract messages as JSON for programs: canonical protobuf JSON on one line, every field of it.

Names are in lowerCamelCase and 64-bit numbers are strings, as any protobuf library reads them. Terminal control
characters are escaped.
"""

from __future__ import annotations

import json
import re
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from abridged.service.cli.terminal import escaped


def as_json(message: Message) -> str:
    """The message as one JSON object, on one line. Fields with presence are omitted if unset; others are included even
    if empty."""
    return json_text(MessageToDict(message, always_print_fields_with_no_presence=True))


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Any JSON value as text that is safe to print."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    # Half a surrogate pair is written as it is escaped: no encoding can carry it on.
    return escaped(re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text))


def word(message: Message, field: str) -> str:
    """The value of an enum field without its type's name: `COMPLETED` of `SUMMARIZATION_STATE_COMPLETED`."""
    number: int = getattr(message, field)
    enum = message.DESCRIPTOR.fields_by_name[field].enum_type
    assert enum is not None, "called for enum fields only"
    names = enum.values_by_number
    if number not in names:
        return str(number)
    prefix = names[0].name.removesuffix("UNSPECIFIED")
    return str(names[number].name.removeprefix(prefix))
