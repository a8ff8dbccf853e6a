"""Pages of a log that a database keeps, whichever it is: where they end, and what must not be missing from them.

Damage that hides events is not skipped: as far as a page can tell, it has neither gaps nor repeats nor a hidden end;
otherwise reading raises LogCorrupt.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from operator import lt

from abridged.eventlog.admission import StreamState
from abridged.eventlog.chain import LogIdentity, Verified, envelope, genesis, link, verify_chain
from abridged.eventlog.errors import LogCorrupt, StreamCorrupt
from abridged.eventlog.event import RecordedEvent, SealedEvent, StreamId
from abridged.eventlog.event_rows import EventRows
from abridged.eventlog.log import PAGE_BYTES_MAX, PAGE_EVENTS_MAX, SCAN_EVENTS_MAX, Append, EventFilter, Page
from abridged.eventlog.paging import up_to_bytes
from abridged.eventlog.stored_event import Row

READER_WAIT_S = 10.0
"""The longest that a read waits for one of the connections that reads share; it is then refused as LogUnavailable."""

IDENTITY_STREAMS = 8
"""Streams whose first events confirm the log's identity."""

Rows = tuple[list[Row], bool]
"""Rows up to a number of bytes of payload, at least one if there is one, and whether the bytes left them whole."""


class EventReader(ABC):
    """Reads pages in any thread, each in a snapshot of its own. A subclass asks its database for the rows, and makes
    its `event_rows`, which know their names."""

    def __init__(self, event_rows: EventRows) -> None:
        self._event_rows = event_rows

    @abstractmethod
    def stream_rows(self, stream: StreamId, *, after: int, limit: int, backward: bool, bytes_max: int) -> Rows:
        """The stream's rows with their seals, by version: after `after`, or `backward` before it (0: from the end)."""

    @abstractmethod
    def window_rows(
        self, start: int, end: int, *, namespace: str | None, limit: int, backward: bool, bytes_max: int
    ) -> Rows:
        """Rows with positions > `start` and <= `end`, of one namespace unless it is None, by position."""

    @abstractmethod
    def count_between(self, start: int, end: int, *, backward: bool) -> int:
        """The number of events with positions > `start` and <= `end`, as a read in this direction meets them. An event
        that it meets twice is one."""

    @abstractmethod
    def known(self, append: Append) -> StreamState:
        """The stream with what it knows of the append's event ids and request key."""

    @abstractmethod
    def known_ids(self, stream: StreamId, event_ids: Collection[bytes]) -> dict[bytes, int]:
        """Positions, by id, of those of `event_ids` that the stream has."""

    @abstractmethod
    def stream_version(self, stream: StreamId) -> int:
        """The version of the stream's last event; 0 if it does not exist."""

    @abstractmethod
    def first_streams(self, limit: int) -> list[StreamId]:
        """The log's first streams, by their numbers."""

    def check_identity(self, identity: LogIdentity) -> None:
        """Raise LogCorrupt if no stream begins like one of this log: its id is not as written.

        A few streams are asked, so that damage to one of them does not condemn the log.
        """
        streams = self.first_streams(IDENTITY_STREAMS)
        if streams and not any(self._begins(stream, identity.log_id) for stream in streams):
            raise LogCorrupt("no stream begins as one of this log: the log's id is damaged, or the streams are")

    def verified_pages(self, stream: StreamId, *, log_id: str) -> Iterator[Sequence[SealedEvent]]:
        """The stream's events in order, in pages. Raises LogCorrupt at the first that does not follow from those before
        it."""
        verified = Verified(0, genesis(log_id, stream))
        while page := self.read_sealed(stream, after=verified.version, limit=PAGE_EVENTS_MAX):
            verified = verify_chain(page, after=verified)
            yield page

    def read_stream(
        self, stream: StreamId, *, after: int, limit: int, backward: bool, bytes_max: int
    ) -> list[RecordedEvent]:
        with _of(stream):
            rows, whole = self.stream_rows(stream, after=after, limit=limit, backward=backward, bytes_max=bytes_max)
            # Checks run after the snapshot has ended, because hashing takes longer.
            events = self._event_rows.recorded(rows, stream)
            versions = [event.version for event in events]
            if not backward:
                _require_gapless(versions, after=after, stream=stream)
            elif versions:
                # Only the reader knows whether it begins at the stream's end; it ends at the first event or at a limit.
                first = 0 if whole and len(versions) < limit else versions[-1] - 1
                _require_gapless(reversed(versions), after=first, stream=stream)
            return events

    def read_sealed(self, stream: StreamId, *, after: int, limit: int) -> list[SealedEvent]:
        with _of(stream):
            rows, _ = self.stream_rows(stream, after=after, limit=limit, backward=False, bytes_max=PAGE_BYTES_MAX)
            return self._event_rows.sealed(rows, stream)

    def read_all(self, *, after: int, limit: int, backward: bool, head: int) -> list[RecordedEvent]:
        """`head` was committed before this call."""
        start, end = _window(after, min(limit, SCAN_EVENTS_MAX), head, backward)
        rows, whole = self.window_rows(
            start, end, namespace=None, limit=end - start, backward=backward, bytes_max=PAGE_BYTES_MAX
        )
        events = self._event_rows.recorded(rows)
        if not whole:
            start, end = (events[-1].position - 1, end) if backward else (start, events[-1].position)
        _require_gapless(_ascending(events, backward), after=start, up_to=end)
        return events

    def scan(self, *, after: int, limit: int, matching: EventFilter, head: int, backward: bool, bytes_max: int) -> Page:
        """`head` was committed before this call, so nothing up to there may be missing.

        An event is checked before a filter skips it, because the column that fails to match may be damaged.
        """
        namespace = matching.stream.namespace if matching.stream is not None else matching.namespace
        # Where each row matches, those that the page has no room for need not be read.
        by_row = matching.stream is not None or matching.types
        size = SCAN_EVENTS_MAX if by_row or namespace is not None else min(limit, SCAN_EVENTS_MAX)
        start, end = _window(after, size, head, backward)
        if start == end:
            return Page((), end + 1 if backward else after, head if backward else max(head, after))
        rows_max, read_max = (SCAN_EVENTS_MAX, PAGE_BYTES_MAX) if by_row else (limit, bytes_max)
        rows, whole = self.window_rows(
            start, end, namespace=namespace, limit=rows_max, backward=backward, bytes_max=read_max
        )
        looked_at = self._event_rows.recorded(rows)
        _require_order(_ascending(looked_at, backward), start, end)
        if by_row:
            places = islice((place for place, event in enumerate(looked_at) if matching.accepts(event)), limit)
            fitting, all_fit = up_to_bytes(places, lambda place: len(looked_at[place].payload), bytes_max=bytes_max)
            found = [looked_at[place] for place in fitting]
            is_full = len(found) == limit or not all_fit
            if is_full:
                looked_at = looked_at[: fitting[-1] + 1]
        else:
            found = [event for event in looked_at if namespace is None or event.stream.namespace == namespace]
            is_full = False
        if looked_at and (is_full or len(looked_at) == rows_max or not whole):
            last = looked_at[-1].position
            start, end = (last - 1, end) if backward else (start, last)
        if len(looked_at) < end - start:
            self._require_all_between(start, end, backward=backward)
        return Page(tuple(found), start + 1 if backward else end, head)

    def _begins(self, stream: StreamId, log_id: str) -> bool:
        try:
            first = self.read_sealed(stream, after=0, limit=1)
            return any(link(genesis(log_id, stream), envelope(s.event), s.commitment) == s.chain for s in first)
        except (LogCorrupt, AttributeError):  # a name that is no text
            return False

    def _require_all_between(self, start: int, end: int, *, backward: bool) -> None:
        there = self.count_between(start, end, backward=backward)
        if there != end - start:
            raise LogCorrupt(f"{end - start - there} of the positions from {start + 1} to {end} cannot be read")


@contextmanager
def _of(stream: StreamId) -> Iterator[None]:
    """Have damage that is met while the stream is read name it."""
    try:
        yield
    except StreamCorrupt:
        raise
    except LogCorrupt as error:
        raise StreamCorrupt(str(error), stream) from error


def _window(after: int, size: int, head: int, backward: bool) -> tuple[int, int]:
    """A window (start, end] of this many positions after `after`, or before it (0: from the head), up to the head."""
    if backward:
        end = min(after - 1, head) if after else head
        return max(0, end - size), end
    return after, max(after, min(after + size, head))


def _ascending(events: Sequence[RecordedEvent], backward: bool) -> list[int]:
    positions = [event.position for event in events]
    if backward:
        positions.reverse()
    return positions


def _require_order(positions: Sequence[int], start: int, end: int) -> None:
    """Raise LogCorrupt unless each position is after the one before it, all of them after `start` and none after `end`.

    A damaged inner page leads to one leaf twice, or to another's leaf.
    """
    if not all(map(lt, (start, *positions), (*positions, end + 1))):
        raise LogCorrupt(f"positions after {start} repeat, or are not in order")


def _require_gapless(numbers: Iterable[int], *, after: int, up_to: int = 0, stream: StreamId | None = None) -> None:
    last = after
    for number in numbers:
        if number != last + 1:
            break
        last = number
    else:
        if last >= up_to:
            return
    if stream is None:
        raise LogCorrupt(f"position {last + 1} is missing")
    raise StreamCorrupt(f"version {last + 1} is missing", stream, last + 1)
