"""Events as rows of a database: the columns that are read and written, and rows read back as events.

A row is checked when it is read, so that no event is served that is not as it was written.
"""

from __future__ import annotations

import struct
from typing import Any

from abridged.eventlog.chain import check_commitment, envelope
from abridged.eventlog.errors import LogCorrupt, StreamCorrupt
from abridged.eventlog.event import RecordedEvent, SealedEvent, StreamId

Row = tuple[Any, ...]

READ_COLUMNS = (
    "e.position, s.namespace, s.name, e.version, e.event_id, t.name, e.schema_version, e.time_us, e.trace_context, "
    "e.payload, e.salt, e.commitment"
)
"""The columns of a row, where `e` are events, `s` their streams and `t` their types."""

PAYLOAD = 9
"""The payload's index among the columns that are read."""

SEAL_COLUMNS = ", e.content_hash, e.chain"
"""The further columns of a row that is read with its seals."""

NOT_AS_WRITTEN = (AttributeError, TypeError, ValueError, OverflowError, struct.error)
"""Errors from a row whose columns do not even have the right types."""


def event_row(sealed_event: SealedEvent, stream: int, event_type: int) -> Row:
    """A row of `events` in the order of its columns."""
    event = sealed_event.event
    return (
        event.position,
        stream,
        event.version,
        event.event_id,
        event_type,
        event.schema_version,
        event.time_us,
        event.trace_context,
        sealed_event.content_hash,
        sealed_event.commitment,
        sealed_event.chain,
        sealed_event.salt,
        event.payload,
    )


def recorded(row: Row) -> RecordedEvent:
    """The event of a row. Raises StreamCorrupt if it is not as written."""
    try:
        event = _event(row)
        check_commitment(event, row[10], row[11])
    except NOT_AS_WRITTEN as error:
        raise _damaged(row, "is not what was written") from error
    return event


def sealed(row: Row) -> SealedEvent:
    """The event of a row with its seals, unchecked except for the types of its columns."""
    try:
        event = _event(row)
        envelope(event)
        return SealedEvent(event, bytes(row[12]), bytes(row[10]), bytes(row[11]), bytes(row[13]))
    except NOT_AS_WRITTEN as error:
        raise _damaged(row, "is not what was written") from error


def _event(row: Row) -> RecordedEvent:
    if row[PAYLOAD] is None:
        raise _damaged(row, "has no payload")
    # As a tuple makes itself: by its own constructor a named tuple costs twice as much, and this runs for every event.
    stream = tuple.__new__(StreamId, (row[1], row[2]))
    fields = (row[0], stream, row[3], row[4], row[5], row[6], row[7], row[8], row[9])
    return tuple.__new__(RecordedEvent, fields)


def _damaged(row: Row, what: str) -> LogCorrupt:
    """The error for a row, which names its stream and version as far as they can be read."""
    position, namespace, name, version, *_ = row
    if not (isinstance(namespace, str) and isinstance(name, str) and isinstance(version, int)):
        return LogCorrupt(f"position {position} {what}")
    return StreamCorrupt(f"position {position} {what}", StreamId(namespace, name), version)
