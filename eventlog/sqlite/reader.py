"""Reads pages of a log's file, each in its own snapshot, so that none outlives its page or delays a checkpoint.

What a damaged index or page hides is not skipped: as far as a page can tell, it has neither gaps nor a hidden end;
otherwise reading raises LogCorrupt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine

from abridged.eventlog.admission import KnownEvent, KnownRequest, StreamState
from abridged.eventlog.chain import LogIdentity, envelope, genesis, link
from abridged.eventlog.errors import LogCorrupt, StreamCorrupt
from abridged.eventlog.event import RecordedEvent, SealedEvent, StreamId
from abridged.eventlog.log import PAGE_BYTES_MAX, SCAN_EVENTS_MAX, Append, EventFilter, Page
from abridged.eventlog.paging import up_to_bytes
from abridged.eventlog.sqlite.errors import translating
from abridged.eventlog.sqlite.sql import (
    PAYLOAD,
    Row,
    recorded,
    runs,
    sealed,
    select_known_events,
    select_known_requests,
    select_stream,
    select_window,
)

_STREAM_FORWARD = select_stream("e.version > ?", "e.version")
_STREAM_BACKWARD = select_stream("e.version < ?", "e.version DESC")
_WINDOWS = {backward: select_window(backward=backward, of_namespace=False) for backward in (False, True)}
_OF_NAMESPACE = {backward: select_window(backward=backward, of_namespace=True) for backward in (False, True)}
_STREAM_VERSION = (
    "SELECT coalesce(max(e.version), 0) FROM streams AS s JOIN events AS e ON e.stream = s.id "
    "WHERE s.namespace = ? AND s.name = ?"
)
_OWN_ROW = (
    "SELECT s.id, t.namespace, t.name FROM streams AS s CROSS JOIN streams AS t NOT INDEXED ON t.id = s.id "
    "WHERE s.namespace = ? AND s.name = ?"
)
"""The index of names leads to a stream's number, and the table confirms whose number that is."""

_EVENTS_BETWEEN = "SELECT count(*) FROM events NOT INDEXED WHERE position > ? AND position <= ?"
_LAST_EVENT = (
    "SELECT e.position, s.namespace FROM events AS e NOT INDEXED LEFT JOIN streams AS s ON s.id = e.stream "
    "ORDER BY e.position DESC LIMIT 1"
)
_NAMESPACE_HEAD = (
    "SELECT coalesce(max("
    "(SELECT e.position FROM events AS e WHERE e.stream = s.id ORDER BY e.version DESC LIMIT 1)"
    "), 0) FROM streams AS s WHERE s.namespace = ?"
)
_END = (1 << 63) - 1

IDENTITY_STREAMS = 8
"""Streams whose first events confirm the log's identity."""

_FIRST_STREAMS = "SELECT s.namespace, s.name FROM streams AS s ORDER BY s.id LIMIT ?"

T = TypeVar("T")


class SqliteReader:
    """Reads through a pool of read-only connections; safe in any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def read_stream(
        self, stream: StreamId, *, after: int, limit: int, backward: bool, bytes_max: int
    ) -> list[RecordedEvent]:
        with _of(stream):
            if not backward:
                events, _ = self._page(_STREAM_FORWARD, (*stream, after, limit), recorded, bytes_max)
                _require_gapless((event.version for event in events), after=after, stream=stream)
                return events
            events, whole = self._page(_STREAM_BACKWARD, (*stream, after or _END, limit), recorded, bytes_max)
            versions = [event.version for event in events]
            if versions:
                # Only the reader knows whether it begins at the stream's end; it ends at the first event or at a limit.
                first = 0 if whole and len(versions) < limit else versions[-1] - 1
                _require_gapless(reversed(versions), after=first, stream=stream)
            return events

    def read_all(self, *, after: int, limit: int, backward: bool, head: int) -> list[RecordedEvent]:
        """`head` was committed before this call."""
        start, end = _window(after, min(limit, SCAN_EVENTS_MAX), head, backward)
        events, whole = self._page(_WINDOWS[backward], (start, end, end - start), recorded)
        if not whole:
            start, end = (events[-1].position - 1, end) if backward else (start, events[-1].position)
        _require_gapless(sorted(event.position for event in events), after=start, up_to=end)
        return events

    def scan(self, *, after: int, limit: int, matching: EventFilter, head: int, backward: bool, bytes_max: int) -> Page:
        """`head` was committed before this call, so nothing up to there may be missing.

        An event is checked before a filter skips it, because the column that fails to match may be damaged.
        """
        start, end = _window(after, SCAN_EVENTS_MAX, head, backward)
        if start == end:
            return Page((), end + 1 if backward else after, head if backward else max(head, after))
        namespace = matching.stream.namespace if matching.stream is not None else matching.namespace
        # Where each row matches, those that the page has no room for need not be read.
        by_row = matching.stream is not None or matching.types
        rows_max, read_max = (SCAN_EVENTS_MAX, PAGE_BYTES_MAX) if by_row else (limit, bytes_max)
        if namespace is None:
            looked_at, whole = self._page(_WINDOWS[backward], (start, end, rows_max), recorded, read_max)
        else:
            looked_at, whole = self._page(
                _OF_NAMESPACE[backward], (start, end, namespace, rows_max), recorded, read_max
            )
        places = islice((place for place, event in enumerate(looked_at) if matching.accepts(event)), limit)
        found, all_fit = up_to_bytes(places, lambda place: len(looked_at[place].payload), bytes_max=bytes_max)
        is_full = len(found) == limit or not all_fit
        if is_full:
            looked_at = looked_at[: found[-1] + 1]
        if looked_at and (is_full or len(looked_at) == rows_max or not whole):
            last = looked_at[-1].position
            start, end = (last - 1, end) if backward else (start, last)
        if len(looked_at) < end - start:
            self._require_all_between(start, end)
        return Page(tuple(looked_at[place] for place in found), start + 1 if backward else end, head)

    def read_sealed(self, stream: StreamId, *, after: int, limit: int) -> list[SealedEvent]:
        with _of(stream):
            return self._page(_STREAM_FORWARD, (*stream, after, limit), sealed)[0]

    def known(self, append: Append) -> StreamState:
        """The stream with what it knows of the append's event ids and request key."""
        state = StreamState(0, b"")
        with self._cursor() as cursor:
            number = _number(cursor, append.stream)
            if number is None:
                return state
            # The key first: what its request wrote is then there for the look-up of the events.
            if append.request is not None:
                for _, key, *first in cursor.execute(select_known_requests(1), (number, append.request.key)):
                    state.requests[key] = KnownRequest(*first)
            state.events = _events_known(cursor, number, {event.event_id: None for event in append.events})
        return state

    def known_ids(self, stream: StreamId, event_ids: Collection[bytes]) -> dict[bytes, int]:
        with self._cursor() as cursor:
            number = _number(cursor, stream)
            known = {} if number is None else _events_known(cursor, number, event_ids)
        return {event_id: event.position for event_id, event in known.items()}

    def stream_version(self, stream: StreamId) -> int:
        with self._cursor() as cursor:
            version: int = cursor.execute(_STREAM_VERSION, stream).fetchone()[0]
            return version

    def head_of(self, namespace: str) -> int:
        """Asks each stream of the namespace for its last event, unless the log's last event belongs to the
        namespace."""
        with self._cursor() as cursor:
            # By its place first, because an index may have lost the end.
            last = cursor.execute(_LAST_EVENT).fetchone()
            if last is not None and last[1] == namespace:
                return int(last[0])
            head: int = cursor.execute(_NAMESPACE_HEAD, (namespace,)).fetchone()[0]
            return head

    def read(self, query: Callable[[Connection], T]) -> T:
        """Run `query` in one short snapshot."""
        with translating(), self._engine.begin() as connection:
            return query(connection)

    def check_identity(self, identity: LogIdentity) -> None:
        """Raise LogCorrupt if no stream begins like one of this log: its id is not as written.

        A few streams are asked, so that damage to one of them does not condemn the log.
        """
        with self._cursor() as cursor:
            streams = [StreamId(*row) for row in cursor.execute(_FIRST_STREAMS, (IDENTITY_STREAMS,))]
        if streams and not any(self._begins(stream, identity.log_id) for stream in streams):
            raise LogCorrupt("no stream begins as one of this log: the log's id is damaged, or the streams are")

    def close(self) -> None:
        self._engine.dispose()

    def _begins(self, stream: StreamId, log_id: str) -> bool:
        try:
            first = self.read_sealed(stream, after=0, limit=1)
            return any(link(genesis(log_id, stream), envelope(s.event), s.commitment) == s.chain for s in first)
        except (LogCorrupt, AttributeError):  # a name that is no text
            return False

    def _require_all_between(self, start: int, end: int) -> None:
        with self._cursor() as cursor:
            (there,) = cursor.execute(_EVENTS_BETWEEN, (start, end)).fetchone()
        if there != end - start:
            raise LogCorrupt(f"{end - start - there} of the positions from {start + 1} to {end} cannot be read")

    def _page(
        self, statement: str, parameters: Sequence[Any], read: Callable[[Row], T], bytes_max: int = PAGE_BYTES_MAX
    ) -> tuple[list[T], bool]:
        """Apply `read` to the rows up to `bytes_max` of payload; the flag tells whether the byte limit left the page
        whole.

        Rows after the page are never read. Checks run after the snapshot has ended, because hashing takes longer.
        """
        with self._cursor() as cursor:
            rows, whole = up_to_bytes(cursor.execute(statement, parameters), _payload_bytes, bytes_max=bytes_max)
        return [read(row) for row in rows], whole

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        with (
            translating(),
            closing(self._engine.raw_connection()) as pooled,
            closing(pooled.cursor()) as cursor,
        ):
            yield cursor


@contextmanager
def _of(stream: StreamId) -> Iterator[None]:
    """Have damage that is met while the stream is read name it."""
    try:
        yield
    except StreamCorrupt:
        raise
    except LogCorrupt as error:
        raise StreamCorrupt(str(error), stream) from error


def _number(cursor: Any, stream: StreamId) -> int | None:
    """The stream's number; None if it does not exist."""
    found = cursor.execute(_OWN_ROW, stream).fetchone()
    if found is None:
        return None
    number, *own = found
    if tuple(own) != stream:
        raise LogCorrupt("a stream is not in the table that its name was found for")
    return int(number)


def _events_known(cursor: Any, number: int, event_ids: Collection[bytes]) -> dict[bytes, KnownEvent]:
    """Looked up as the writer does: a walk along the index would pass entries that a look-up misses."""
    known: dict[bytes, KnownEvent] = {}
    for size, parameters in runs([(number, event_id) for event_id in event_ids]):
        for at, event_id, position, version, digest in cursor.execute(select_known_events(size), parameters):
            if at == number:
                known[event_id] = KnownEvent(position, version, digest)
    return known


def _window(after: int, size: int, head: int, backward: bool) -> tuple[int, int]:
    """A window (start, end] of this many positions after `after`, or before it (0: from the head), up to the head."""
    if backward:
        end = min(after - 1, head) if after else head
        return max(0, end - size), end
    return after, max(after, min(after + size, head))


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


def _payload_bytes(row: Row) -> int:
    payload = row[PAYLOAD]
    return len(payload) if isinstance(payload, bytes) else 0
