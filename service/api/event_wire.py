"""Stored events as bytes of the contract's `Event`, and the responses that carry them.

A stored payload becomes the `body` of an event without being parsed: the log has checked it against its seal.
"""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Iterable
from functools import lru_cache

from abridged.eventlog.event import EVENT_ID_BYTES, RecordedEvent
from abridged.service.codec.events import current_form
from abridged.service.codec.values import timestamp
from abridged.service.codec.wire_format import LENGTH_DELIMITED, VARINT, field, length, tag, varint
from abridged.v1 import event_pb2

TEXTS_KEPT = 1_024
"""Encoded names, types and times that are remembered: events that were written together share most of theirs."""

_Event = event_pb2.Event
_POSITION = tag(_Event.POSITION_FIELD_NUMBER, VARINT)
_VERSION = tag(_Event.VERSION_FIELD_NUMBER, VARINT)
_EVENT_ID = field(_Event.EVENT_ID_FIELD_NUMBER, bytes(2 * EVENT_ID_BYTES))[: -2 * EVENT_ID_BYTES]
_PAYLOAD = tag(_Event.PAYLOAD_FIELD_NUMBER, LENGTH_DELIMITED)
_BODIES = {
    f.message_type.name: tag(f.number, LENGTH_DELIMITED)
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
        before = tag(number, LENGTH_DELIMITED)
        pieces: list[bytes] = []
        for event in events:
            fields, payload, body_tag, body = self._parts(event)
            size = length(len(fields) + len(payload) + len(body_tag) + len(body))
            pieces += (before, size, fields, payload, body_tag, body)
        return b"".join(pieces)

    def _parts(self, event: RecordedEvent) -> tuple[bytes, bytes, bytes, bytes]:
        """Four pieces that, joined, are an event: all up to its payload, the payload, the header of a body, and the
        body."""
        position, stream, version, event_id, event_type, schema_version, time_us, trace_context, payload = event
        size = length(len(payload))
        fields = b"".join(
            (
                self._before_position,
                varint(position),
                _before_version(stream[1]),
                varint(version),
                _EVENT_ID,
                hexlify(event_id),
                _kind(event_type, schema_version),
                _before_payload(time_us, trace_context),
                _PAYLOAD + size if payload else b"",
            )
        )
        body = current_form(event_type, schema_version, payload)
        if body is None:
            return fields, payload, b"", b""
        return fields, payload, _BODIES[event_type] + (size if body is payload else length(len(body))), body


@lru_cache(TEXTS_KEPT)
def _before_version(name: str) -> bytes:
    return _Event(conversation_id=name).SerializeToString() + _VERSION


@lru_cache(TEXTS_KEPT)
def _kind(event_type: str, schema_version: int) -> bytes:
    return _Event(type=event_type, schema_version=schema_version).SerializeToString()


@lru_cache(TEXTS_KEPT)
def _before_payload(time_us: int, trace_context: str) -> bytes:
    return _Event(time=timestamp(time_us), trace_context=trace_context).SerializeToString()
