"""Reads from the log what an entry of the index says: the index itself has no text."""

from __future__ import annotations

import zlib

from abridged.eventlog.errors import KeyLost
from abridged.eventlog.event import StreamId
from abridged.eventlog.log import EventLog
from abridged.service.codec.events import decoded
from abridged.service.domain.events import Event, MessageAppended, SummarizationCompleted
from abridged.service.recall.passages import text_of_message, text_of_record


def event_at(log: EventLog, stream: StreamId, position: int, version: int) -> Event | None:
    """The event of an entry as the log has it now; None where the log has it no longer, as in an archive, or where its
    key is lost."""
    try:
        events = log.read_stream(stream, after=version - 1, limit=1)
    except KeyLost:
        return None
    return decoded(events[0]) if events and events[0].position == position else None


def checksum(text: str) -> int:
    """The number by which an entry knows its text again: 31 bits, which SQLite keeps in four bytes."""
    return zlib.crc32(text.encode()) >> 1


def text_of(event: Event | None) -> str:
    """Return the searchable text of an event; empty for one that says nothing."""
    match event:
        case MessageAppended():
            return text_of_message(event.message)
        case SummarizationCompleted():
            return text_of_record(event.record)
        case _:
            return ""
