"""Stored events as bytes of the contract's `Event`, and answers around them.

A message within a message is its bytes after a tag and a length
(https://protobuf.dev/programming-guides/encoding/), so a stored payload becomes the `body` of an event without being
parsed: the log has checked it against its seal.
"""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Iterable
from functools import lru_cache

from abridged.v1 import event_pb2
from eventlog.event import EVENT_ID_BYTES, RecordedEvent
from service.codec.events import current_form
from service.codec.values import timestamp

__all__ = ["EventEncoder", "event_bytes", "field", "repeated"]

TEXTS_KEPT = 1_024
"""Encoded names, types and times that are remembered: events that were written together share most of theirs."""

_VARINT, _LENGTH_DELIMITED = 0, 2
"""Wire types."""


def _varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; all but the last byte have the eighth bit set."""
    if number < 1 << 7:
        return bytes((number,))
    if number < 1 << 14:
        return bytes((number & 0x7F | 0x80, number >> 7))
    if number < 1 << 21:
        return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14))
    return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14 & 0x7F | 0x80)) + _varint(number >> 21)


def _tag(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def field(number: int, value: bytes) -> bytes:
    """The bytes of a message in which the field of that number, a message or a text, is `value`."""
    return b"".join((_tag(number, _LENGTH_DELIMITED), _varint(len(value)), value))


def repeated(number: int, messages: Iterable[bytes]) -> bytes:
    """The bytes of a message in which the repeated field of that number has `messages`."""
    tag = _tag(number, _LENGTH_DELIMITED)
    return b"".join([part for message in messages for part in (tag, _varint(len(message)), message)])


_Event = event_pb2.Event
_POSITION = _tag(_Event.POSITION_FIELD_NUMBER, _VARINT)
_VERSION = _tag(_Event.VERSION_FIELD_NUMBER, _VARINT)
_EVENT_ID = field(_Event.EVENT_ID_FIELD_NUMBER, bytes(2 * EVENT_ID_BYTES))[: -2 * EVENT_ID_BYTES]
_PAYLOAD = _tag(_Event.PAYLOAD_FIELD_NUMBER, _LENGTH_DELIMITED)
_BODIES = {
    f.message_type.name: _tag(f.number, _LENGTH_DELIMITED)
    for f in _Event.DESCRIPTOR.oneofs_by_name["body"].fields
    if f.message_type
}


class EventEncoder:
    """Encodes events of one log."""

    def __init__(self, log_id: str) -> None:
        self._log_id = _Event(log_id=log_id).SerializeToString()

    def __call__(self, event: RecordedEvent) -> bytes:
        """The bytes of an `Event`: the payload as it is stored, and as today's contract has it unless a newer version
        wrote it."""
        position, stream, version, event_id, event_type, schema_version, time_us, trace_context, payload = event
        size = _varint(len(payload))
        body = current_form(event_type, schema_version, payload)
        parts = (
            self._log_id,
            _POSITION,
            _varint(position),
            _conversation(stream.name),
            _VERSION,
            _varint(version),
            _EVENT_ID,
            hexlify(event_id),
            _kind(event_type, schema_version),
            _origin(time_us, trace_context),
            _PAYLOAD,
            size,
            payload,
        )
        if body is None:
            return b"".join(parts)
        return b"".join((*parts, _BODIES[event_type], size if body is payload else _varint(len(body)), body))


@lru_cache(TEXTS_KEPT)
def _conversation(name: str) -> bytes:
    return _Event(conversation_id=name).SerializeToString()


@lru_cache(TEXTS_KEPT)
def _kind(event_type: str, schema_version: int) -> bytes:
    return _Event(type=event_type, schema_version=schema_version).SerializeToString()


@lru_cache(TEXTS_KEPT)
def _origin(time_us: int, trace_context: str) -> bytes:
    return _Event(time=timestamp(time_us), trace_context=trace_context).SerializeToString()


def event_bytes(event: RecordedEvent) -> int:
    """About what an event takes in an answer: its payload is in it as bytes and as a message."""
    return 2 * len(event.payload)
