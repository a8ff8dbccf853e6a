"""Messages of protobuf put together from bytes, where an object of each would cost more than all the rest.

A message within a message is its bytes after a tag and a length
(https://protobuf.dev/programming-guides/encoding/).
"""

from __future__ import annotations

from functools import lru_cache

LENGTHS_KEPT = 4_096
"""Encoded lengths that are remembered: nearly all are those of short messages."""

VARINT, LENGTH_DELIMITED = 0, 2
"""Wire types."""


_LAST = [bytes((bits,)) for bits in range(1 << 7)]
CONTINUED = [bytes((bits | 0x80,)) for bits in range(1 << 7)]
"""The bytes of a varint: seven bits each, the lowest first; all but the last have the eighth bit set."""


def varint(number: int) -> bytes:
    """A number, not below zero, as it is on the wire."""
    return CONTINUED[number & 0x7F] + length(number >> 7) if number >> 7 else _LAST[number]


length = lru_cache(LENGTHS_KEPT)(varint)
"""The same, remembered."""


def tag(number: int, wire_type: int) -> bytes:
    """Return the bytes before the value of the field of that number."""
    return varint(number << 3 | wire_type)


def field(number: int, value: bytes) -> bytes:
    """The bytes of a message in which the field of that number, a message or a text, is `value`."""
    return b"".join((tag(number, LENGTH_DELIMITED), varint(len(value)), value))
