"""What a server says, read strictly: JSON objects within bounds, counts that are counts, names that are names.

Invariant: no answer, whatever its bytes, raises anything but `NotAnObject`, keeps the event loop for longer than
OBJECT_BYTES_MAX take to read, or yields a text that cannot be encoded.
"""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

__all__ = ["OBJECT_BYTES_MAX", "NotAnObject", "count_of", "name_of", "read_object", "seconds_of"]

OBJECT_BYTES_MAX = 1_000_000
"""A list of more than two thousand models, or a whole answer in one line: read in some 30 ms at worst."""

CONTAINERS_MAX = 32_768
"""Brackets that open, those in texts too: empty lists cost a hundred times the memory of their three bytes."""

COUNT_MAX = 100_000_000
"""As much as a context length may be in the contract."""

SECONDS_MAX = 86_400

NAME_CHARS_MAX = 256

# Bounds nesting, refuses lone surrogates and bytes that are no UTF-8, and raises one type for all of it.
_OBJECT = TypeAdapter(dict[str, Any])


class NotAnObject(Exception):
    """The bytes are no JSON object that is read here; the text says which rule they break, never what they are."""


def read_object(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`. Raises NotAnObject, chained to nothing: a parser's error holds what it read."""
    if len(data) > OBJECT_BYTES_MAX or data.count(b"[") + data.count(b"{") > CONTAINERS_MAX:
        raise NotAnObject("is larger than any answer")
    try:
        return _OBJECT.validate_json(data)
    except ValidationError as error:
        kind = error.errors(include_url=False, include_context=False, include_input=False)[0]["type"]
    raise NotAnObject("is not JSON" if kind == "json_invalid" else "is not a JSON object")


def count_of(value: object) -> int | None:
    """A count of things, 0 included; None for what is none: negative, no integer, or beyond COUNT_MAX."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= COUNT_MAX:
        return value
    return None


def seconds_of(nanoseconds: object) -> float | None:
    """A duration in seconds; None for what is none: not positive, no integer, or longer than a day."""
    if isinstance(nanoseconds, int) and not isinstance(nanoseconds, bool) and 0 < nanoseconds <= SECONDS_MAX * 10**9:
        return nanoseconds / 1e9
    return None


def name_of(value: object) -> str:
    """A name of a model or an ability; empty for what is none: no text, too long, or with blanks or controls."""
    if isinstance(value, str) and len(value) <= NAME_CHARS_MAX and value.isprintable() and " " not in value:
        return value
    return ""
