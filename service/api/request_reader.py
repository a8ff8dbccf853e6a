"""Reads a request's bytes into a message that keeps the contract's rules, in work that has a bound whatever they hold.

Two bytes can stand for an object of a hundred and for a rule that is broken, so the fields of a request that may have
too many are counted on the wire before anything is made of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from abridged.service.api.errors import CompressedRequest, InvalidRequest, RequestTooLarge
from abridged.service.api.validation import Validation

FIELDS_MAX = 16_384
"""Fields of one request, with those of its messages, settings and masks: 32 a message in the largest append."""

_FIELD_BYTES_MIN: Final = 2
_VARINT_BYTES_MAX: Final = 10
_COMPRESSED: Final = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
"""The first bytes of gzip and deflate. No message begins with them: it would be field 3 of no type, or field 15, which
no request has."""

_Nested = Mapping[int, Any]
"""The same of the message that a field holds, by the field's tag; without those that hold a few numbers and texts,
which cost little however often these come."""


class RequestReader:
    """Reads the requests of one method, of at most `bytes_max` each."""

    def __init__(self, deserialize: Callable[[bytes], Message], validation: Validation, bytes_max: int) -> None:
        self._deserialize = deserialize
        self._bytes_max = bytes_max
        self._validation = validation
        self._fields = deserialize(b"").DESCRIPTOR.fields_by_number
        self._nested = _nested(deserialize(b"").DESCRIPTOR)

    def sized(self, data: bytes) -> tuple[Message, int]:
        """The message, and how many bytes it came in. Raises as a call of the reader does."""
        return self(data), len(data)

    def __call__(self, data: bytes) -> Message:
        """The message. Raises InvalidRequest, RequestTooLarge, CompressedRequest, or MemoryError."""
        if len(data) > self._bytes_max:
            raise RequestTooLarge(size=len(data), limit=self._bytes_max, field=self._largest_field(data))
        if data.startswith(_COMPRESSED):
            raise CompressedRequest
        try:
            if len(data) > _FIELD_BYTES_MIN * FIELDS_MAX:
                _left(data, 0, len(data), self._nested, FIELDS_MAX)
            request = self._deserialize(data)
        except (IndexError, DecodeError) as error:
            if "alloc" in str(error):  # protobuf has one type for both
                raise MemoryError from error
            # Without protobuf's own words, which are for whoever wrote the server.
            raise InvalidRequest((("", "the request is no message of this method"),)) from error
        self._validation.check(request, fields=lambda: self._fields_of(data))
        return request

    def _fields_of(self, data: bytes) -> int:
        """The number of fields in a request that was parsed; the most there may be where a group hides it."""
        with suppress(IndexError):
            return FIELDS_MAX - _left(data, 0, len(data), self._nested, FIELDS_MAX)
        return FIELDS_MAX

    def _largest_field(self, data: bytes) -> str:
        """The name of the field that most bytes belong to, among the first fields; empty without any."""
        sizes: Counter[int] = Counter()
        at = 0
        with suppress(IndexError):
            for _ in range(FIELDS_MAX):
                tag, at = _varint(data, at)
                if tag & 7 != 2:
                    break
                size, at = _varint(data, at)
                sizes[tag >> 3] += size
                at += size
        known = [number for number, _ in sizes.most_common(1) if number in self._fields]
        return str(self._fields[known[0]].name) if known else ""


def _left(data: bytes, at: int, end: int, nested: _Nested, left: int) -> int:
    """Return how many of `left` fields remain after those of the message in `data[at:end]`.

    Raises InvalidRequest when there are more; IndexError when the bytes are no message.
    """
    while at < end:
        if not left:
            raise InvalidRequest((("", f"the request has more than {FIELDS_MAX} fields; send it in parts"),))
        left -= 1
        tag, at = (data[at], at + 1) if data[at] < 128 else _varint(data, at)
        kind = tag & 7
        if kind == 2:
            size, at = (data[at], at + 1) if data[at] < 128 else _varint(data, at)
            if tag in nested and at + size <= end:
                left = _left(data, at, at + size, nested[tag], left)
            at += size
        elif kind == 0:
            at = _varint(data, at)[1]
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise IndexError("a group, which no contract of today has, or no field at all")
    if at > end:
        raise IndexError("a field goes on behind its message")
    return left


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at `at`, and where it ends."""
    number = 0
    for place in range(_VARINT_BYTES_MAX):
        byte = data[at + place]
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return number, at + place + 1
    raise IndexError("a number of more than 64 bits")


def _nested(descriptor: Any) -> _Nested:
    return {
        field.number << 3 | 2: _nested(field.message_type)
        for field in descriptor.fields
        if field.message_type is not None and any(f.is_repeated or f.message_type for f in field.message_type.fields)
    }
