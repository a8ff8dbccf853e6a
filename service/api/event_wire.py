"""Stored events as bytes of the contract's `Event`, and the responses that carry them.

A stored payload becomes the `body` of an event without being parsed: the log has checked it against its seal.
"""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Iterable
from functools import lru_cache

from google.protobuf.timestamp_pb2 import Timestamp

from abridged.eventlog.event import EVENT_ID_BYTES, RecordedEvent
from abridged.service.codec.events import ERASED, current_form, is_current
from abridged.service.codec.wire_format import CONTINUED, LENGTH_DELIMITED, VARINT, field, length, tag, varint
from abridged.v1 import event_pb2

TEXTS_KEPT = 1_024
"""Encoded names, types and times that are remembered: events that were written together share most of theirs."""

_Event = event_pb2.Event
_POSITION = tag(_Event.POSITION_FIELD_NUMBER, VARINT)
_VERSION = tag(_Event.VERSION_FIELD_NUMBER, VARINT)
_EVENT_ID = field(_Event.EVENT_ID_FIELD_NUMBER, bytes(2 * EVENT_ID_BYTES))[: -2 * EVENT_ID_BYTES]
_TIME = tag(_Event.TIME_FIELD_NUMBER, LENGTH_DELIMITED)
_NANOS = tag(Timestamp.NANOS_FIELD_NUMBER, VARINT)
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
        return b"".join(self._pieces((event,), b"")[0][2:])

    def repeated(self, number: int, events: Iterable[RecordedEvent], *, after: bytes = b"", within: int = 0) -> bytes:
        """The bytes of a message in which the repeated field of that number has `events`, with the fields `after`
        them; of the message whose field `within` that one is, if it is given."""
        pieces, size = self._pieces(events, tag(number, LENGTH_DELIMITED))
        pieces.append(after)
        if within:
            pieces[:0] = tag(within, LENGTH_DELIMITED), varint(size + len(after))
        return b"".join(pieces)

    def _pieces(self, events: Iterable[RecordedEvent], before: bytes) -> tuple[list[bytes], int]:
        """Pieces that, joined, are the events, each after `before` and its length; and the length of all."""
        # Catching up spends its time here and where events are read: what they share is made once, and `varint` is
        # written out.
        pieces: list[bytes] = []
        size_of_all = 0
        before_position = self._before_position
        for event in events:
            position, stream, version, event_id, event_type, schema_version, time_us, trace_context, payload = event
            before_payload, before_body, as_stored = _alike(event_type, schema_version, time_us, trace_context)
            size = length(len(payload))
            fields = b"".join(
                (
                    before_position,
                    CONTINUED[position & 0x7F] + length(position >> 7) if position > 0x7F else length(position),
                    _before_version(stream[1]),
                    CONTINUED[version & 0x7F] + length(version >> 7) if version > 0x7F else length(version),
                    _EVENT_ID,
                    hexlify(event_id),
                    before_payload,
                    _PAYLOAD + size if payload else b"",
                )
            )
            if payload == ERASED:
                before_body = body_size = body = b""
            elif as_stored:
                body, body_size = payload, size
            elif (form := current_form(event_type, schema_version, payload)) is not None:
                body, body_size = form, length(len(form))
            else:
                before_body = body_size = body = b""
            total = len(fields) + len(payload) + len(before_body) + len(body_size) + len(body)
            header = length(total)
            size_of_all += len(before) + len(header) + total
            pieces += (before, header, fields, payload, before_body, body_size, body)
        return pieces, size_of_all


@lru_cache(TEXTS_KEPT)
def _before_version(name: str) -> bytes:
    return _Event(conversation_id=name).SerializeToString() + _VERSION


@lru_cache(TEXTS_KEPT)
def _alike(event_type: str, schema_version: int, time_us: int, trace_context: str) -> tuple[bytes, bytes, bool]:
    """The shared part of events of one type, time and trace: their fields between id and payload, the tag of their
    body, and whether the payload is the body."""
    kind, before_body, as_stored = _kind(event_type, schema_version)
    seconds, nanos = _second(time_us // 1_000_000), time_us % 1_000_000 * 1_000
    time = seconds + _NANOS + varint(nanos) if nanos else seconds
    trace = field(_Event.TRACE_CONTEXT_FIELD_NUMBER, trace_context.encode()) if trace_context else b""
    return b"".join((kind, _TIME, length(len(time)), time, trace)), before_body, as_stored


@lru_cache(TEXTS_KEPT)
def _kind(event_type: str, schema_version: int) -> tuple[bytes, bytes, bool]:
    fields = _Event(type=event_type, schema_version=schema_version).SerializeToString()
    return fields, _BODIES.get(event_type, b""), is_current(event_type, schema_version)


@lru_cache(TEXTS_KEPT)
def _second(seconds: int) -> bytes:
    return Timestamp(seconds=seconds).SerializeToString()
