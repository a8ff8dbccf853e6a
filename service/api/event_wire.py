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

__all__ = ["EventEncoder", "field"]

TEXTS_KEPT = 1_024
"""Encoded names, types and times that are remembered: events that were written together share most of theirs."""

LENGTHS_KEPT = 4_096
"""Encoded lengths that are remembered: nearly all are those of short messages."""

_VARINT, _LENGTH_DELIMITED = 0, 2
"""Wire types."""


_LAST = [bytes((bits,)) for bits in range(1 << 7)]
_CONTINUED = [bytes((bits | 0x80,)) for bits in range(1 << 7)]
"""The bytes of a varint: seven bits each, the lowest first; all but the last have the eighth bit set."""


def _varint(number: int) -> bytes:
    return _CONTINUED[number & 0x7F] + _length(number >> 7) if number >> 7 else _LAST[number]


_length = lru_cache(LENGTHS_KEPT)(_varint)
"""The same, remembered."""


def _tag(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def field(number: int, value: bytes) -> bytes:
    """The bytes of a message in which the field of that number, a message or a text, is `value`."""
    return b"".join((_tag(number, _LENGTH_DELIMITED), _varint(len(value)), value))


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
    """Encodes events of one log: a payload as it is stored, and as today's contract has it unless a newer version wrote
    it."""

    def __init__(self, log_id: str) -> None:
        self._before_position = _Event(log_id=log_id).SerializeToString() + _POSITION

    def __call__(self, event: RecordedEvent) -> bytes:
        """The bytes of an `Event`."""
        return b"".join(self._parts(event))

    def repeated(self, number: int, events: Iterable[RecordedEvent]) -> bytes:
        """The bytes of a message in which the repeated field of that number has `events`."""
        tag = _tag(number, _LENGTH_DELIMITED)
        pieces: list[bytes] = []
        for event in events:
            fields, payload, body_tag, body = self._parts(event)
            size = _length(len(fields) + len(payload) + len(body_tag) + len(body))
            pieces += (tag, size, fields, payload, body_tag, body)
        return b"".join(pieces)

    def _parts(self, event: RecordedEvent) -> tuple[bytes, bytes, bytes, bytes]:
        """What joined is an event: all up to its payload, that, what says that a body comes, and the body."""
        position, stream, version, event_id, event_type, schema_version, time_us, trace_context, payload = event
        size = _length(len(payload))
        fields = b"".join(
            (
                self._before_position,
                _varint(position),
                _before_version(stream[1]),
                _varint(version),
                _EVENT_ID,
                hexlify(event_id),
                _kind(event_type, schema_version),
                _before_payload(time_us, trace_context),
                size,
            )
        )
        body = current_form(event_type, schema_version, payload)
        if body is None:
            return fields, payload, b"", b""
        return fields, payload, _BODIES[event_type] + (size if body is payload else _length(len(body))), body


@lru_cache(TEXTS_KEPT)
def _before_version(name: str) -> bytes:
    return _Event(conversation_id=name).SerializeToString() + _VERSION


@lru_cache(TEXTS_KEPT)
def _kind(event_type: str, schema_version: int) -> bytes:
    return _Event(type=event_type, schema_version=schema_version).SerializeToString()


@lru_cache(TEXTS_KEPT)
def _before_payload(time_us: int, trace_context: str) -> bytes:
    return _Event(time=timestamp(time_us), trace_context=trace_context).SerializeToString() + _PAYLOAD
