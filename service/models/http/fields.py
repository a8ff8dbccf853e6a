"""Strict reading of server responses: bounded JSON objects, valid counts, valid names.

Invariant: no response, whatever its bytes, raises anything but `NotAnObject`, blocks the event loop for longer than it
takes to read OBJECT_BYTES_MAX, or yields text that cannot be encoded.
"""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

OBJECT_BYTES_MAX = 1_000_000
"""A list of more than two thousand models, or a whole answer in one line; takes at most about 30 ms to read."""

CONTAINERS_MAX = 32_768
"""Opening brackets, including those in strings: an empty list takes a hundred times the memory of its three bytes."""

COUNT_MAX = 100_000_000
"""The contract's maximum for a context length."""

SECONDS_MAX = 86_400

NAME_CHARS_MAX = 256

# Bounds nesting, refuses lone surrogates and invalid UTF-8, and raises one type for all of these.
_OBJECT = TypeAdapter(dict[str, Any])


class NotAnObject(Exception):
    """The bytes are not an acceptable JSON object; the message says which rule they break and never quotes them."""


def read_object(
    data: bytes, *, bytes_max: int = OBJECT_BYTES_MAX, containers_max: int = CONTAINERS_MAX
) -> dict[str, Any]:
    """The JSON object in `data`. Raises NotAnObject, unchained, because a parser's error contains what it read."""
    if len(data) > bytes_max or data.count(b"[") + data.count(b"{") > containers_max:
        raise NotAnObject("is larger than any answer")
    try:
        return _OBJECT.validate_json(data)
    except ValidationError as error:
        kind = error.errors(include_url=False, include_context=False, include_input=False)[0]["type"]
    raise NotAnObject("is not JSON" if kind == "json_invalid" else "is not a JSON object")


def count_of(value: object) -> int | None:
    """The value as a count, including 0; None if it is negative, not an integer, or above COUNT_MAX."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= COUNT_MAX:
        return value
    return None


def seconds_of(nanoseconds: object) -> float | None:
    """The duration in seconds; None if it is not positive, not an integer, or longer than a day."""
    if isinstance(nanoseconds, int) and not isinstance(nanoseconds, bool) and 0 < nanoseconds <= SECONDS_MAX * 10**9:
        return nanoseconds / 1e9
    return None


def name_of(value: object) -> str:
    """The value as a model's or capability's name; empty if it is not a string, too long, or has blanks or controls."""
    if isinstance(value, str) and len(value) <= NAME_CHARS_MAX and value.isprintable() and " " not in value:
        return value
    return ""
