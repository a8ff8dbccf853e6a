"""A conversation from its stream alone: every event read, checked, decoded and folded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from eventlog.errors import LogCorrupt
from eventlog.event import RecordedEvent, StreamId
from eventlog.log import EventLog
from service.codec.events import decode
from service.domain.conversation import Conversation
from service.domain.events import Event
from service.domain.fold import fold

__all__ = ["PAGE_EVENTS", "Replayed", "recorded_events", "replayed", "require_known"]

PAGE_EVENTS = 500


class Replayed(NamedTuple):
    """The fold of a stream, and the positions of its events by their ids: both empty when there is no stream."""

    state: Conversation
    positions: Mapping[bytes, int]

    @property
    def position(self) -> int:
        """That of the last event; 0 without one."""
        return max(self.positions.values(), default=0)


def replayed(log: EventLog, key: StreamId, *, head: int = 0) -> Replayed:
    """The conversation as its stream tells it, which has `head` events at least.

    Raises LogCorrupt when the stream is not what was written or ends before that, UnknownEvent when a newer version of
    the program wrote one of its events. Memory grows with the conversation's window and its number of events.
    """
    positions: dict[bytes, int] = {}

    def events() -> Iterator[tuple[Event, int]]:
        for recorded in recorded_events(log, key, head=head):
            positions[recorded.event_id] = recorded.position
            yield decode(recorded.type, recorded.schema_version, recorded.payload), recorded.time_us

    return Replayed(fold(events()), positions)


def recorded_events(log: EventLog, key: StreamId, *, head: int = 0, after: int = 0) -> Iterator[RecordedEvent]:
    """Every event of the stream behind version `after`; raises LogCorrupt when it has fewer than `head` events."""
    while page := log.read_stream(key, after=after, limit=PAGE_EVENTS):
        yield from page
        after = page[-1].version
    if after < head:
        raise LogCorrupt(f"a stream of {head} events ends at {after}")


def require_known(log: EventLog, key: StreamId, positions: Mapping[bytes, int]) -> None:
    """Raise LogCorrupt when repeats of the stream's events would not all be known for what they are."""
    if log.known_ids(key, positions) != positions:
        raise LogCorrupt("the index of event ids is not what was written")
