"""`abridged log stats`: the figures of a log, of which none has a text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from heapq import nlargest
from typing import Any, NamedTuple

from abridged.eventlog.backend import StoredBackend
from abridged.eventlog.encryption.framing import is_encrypted
from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.eventlog.log import PAGE_EVENTS_MAX
from abridged.eventlog.verification import LogVerification
from abridged.service.cli.terminal import number_of, say
from abridged.service.conversations.log_copy import Walked
from abridged.service.conversations.row import READ_TABLE
from abridged.service.domain.events import MessageAppended

LARGEST = 10
"""Conversations that are named."""

_TYPE = "{:<24} {:>12} {:>12}"
_CONVERSATION = "{:>10} {:>10} {:>12}  {}"


class Sum(NamedTuple):
    """Events, those of messages and those that are encrypted among them, and the bytes of their payloads."""

    events: int = 0
    messages: int = 0
    payload_bytes: int = 0
    encrypted: int = 0

    def with_event(self, event: RecordedEvent) -> Sum:
        """Return the sum with one more event."""
        is_message = event.type == MessageAppended.__name__
        size, encrypted = len(event.payload), is_encrypted(event.payload)
        return Sum(self.events + 1, self.messages + is_message, self.payload_bytes + size, self.encrypted + encrypted)


class Stats(NamedTuple):
    """The figures of a log: by type and by conversation, the times of its first and last event (0 without one), and the
    bytes that it takes, by the name of each part."""

    log_id: str
    types: dict[str, Sum]
    conversations: dict[StreamId, Sum]
    first_us: int
    last_us: int
    sizes: dict[str, int]

    @property
    def total(self) -> Sum:
        """The sum of all events."""
        return Sum(*map(sum, zip(*self.types.values(), strict=True))) if self.types else Sum()

    @property
    def largest(self) -> list[tuple[StreamId, Sum]]:
        """The conversations with the most bytes."""
        return nlargest(LARGEST, self.conversations.items(), key=lambda each: (each[1].payload_bytes, each[0]))


def stats_of(backend: StoredBackend, walked: Walked) -> Stats:
    """Read every event once, beside whoever writes the log. Raises an EventLogError, and OSError without a log.

    Memory holds a page of events and three numbers of each conversation.
    """
    types: dict[str, Sum] = {}
    conversations: dict[StreamId, Sum] = {}
    first_us = last_us = 0
    with backend.verification(backend.rows(READ_TABLE), is_owned=False) as log:
        for event in _events(log, walked):
            types[event.type] = types.get(event.type, Sum()).with_event(event)
            conversations[event.stream] = conversations.get(event.stream, Sum()).with_event(event)
            first_us, last_us = first_us or event.time_us, event.time_us
        return Stats(log.log_id, types, conversations, first_us, last_us, log.sizes())


def print_stats(stats: Stats, place: str) -> None:
    """Print the figures for people."""
    total = stats.total
    say(f"log {stats.log_id[:8]} at {place}")
    conversations, messages = number_of(len(stats.conversations), "conversation"), number_of(total.messages, "message")
    payload = f"{_size(total.payload_bytes)} of payload"
    say(f"{number_of(total.events, 'event')} in {conversations} with {messages}, {payload}")
    if total.encrypted:
        say(f"{total.encrypted:,} events are encrypted, {total.events - total.encrypted:,} in clear or erased")
    if total.events:
        say(f"from {_time(stats.first_us)} to {_time(stats.last_us)}")
    say(", ".join(f"{name} {_size(size)}" for name, size in stats.sizes.items()))
    say()
    say(_TYPE.format("TYPE", "EVENTS", "BYTES"))
    for name, each in sorted(stats.types.items(), key=lambda item: -item[1].payload_bytes):
        say(_TYPE.format(name, f"{each.events:,}", f"{each.payload_bytes:,}"))
    say()
    say(_CONVERSATION.format("EVENTS", "MESSAGES", "BYTES", "CONVERSATION"))
    for stream, each in stats.largest:
        where = f"{stream.namespace}/{stream.name}"
        say(_CONVERSATION.format(f"{each.events:,}", f"{each.messages:,}", f"{each.payload_bytes:,}", where))


def plain_stats(stats: Stats) -> dict[str, Any]:
    """The figures as a JSON object, for programs."""
    return {
        "logId": stats.log_id,
        "conversations": len(stats.conversations),
        **_plain(stats.total),
        "firstTime": _time(stats.first_us) if stats.first_us else None,
        "lastTime": _time(stats.last_us) if stats.last_us else None,
        "bytes": stats.sizes,
        "types": {
            name: {"events": each.events, "payloadBytes": each.payload_bytes} for name, each in stats.types.items()
        },
        "largest": [
            {"namespace": stream.namespace, "conversationId": stream.name, **_plain(each)}
            for stream, each in stats.largest
        ],
    }


def _events(log: LogVerification, walked: Walked) -> Iterator[RecordedEvent]:
    count, done = log.event_count(), 0
    while page := log.read_all(after=done, limit=PAGE_EVENTS_MAX):
        yield from page
        done = page[-1].position
        walked(done, count)


def _plain(each: Sum) -> dict[str, int]:
    plain = {"events": each.events, "messages": each.messages, "payloadBytes": each.payload_bytes}
    return {**plain, "encrypted": each.encrypted}


def _size(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"


def _time(us: int) -> str:
    return datetime.fromtimestamp(us / 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
