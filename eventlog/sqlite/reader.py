"""Reads pages of a log's file, each in its own snapshot, so that none outlives its page or delays a checkpoint."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, TypeVar

from abridged.eventlog.admission import KnownEvent, KnownRequest, StreamState
from abridged.eventlog.errors import LogCorrupt
from abridged.eventlog.event import NUMBER_MAX, StreamId
from abridged.eventlog.event_reader import EventReader, Rows
from abridged.eventlog.event_rows import PAYLOAD, EventRows
from abridged.eventlog.log import Append
from abridged.eventlog.sqlite.connection import Readers
from abridged.eventlog.sqlite.errors import translating
from abridged.eventlog.sqlite.sql import (
    count_window,
    runs,
    select_known_events,
    select_known_requests,
    select_names,
    select_stream,
    select_window,
)
from abridged.eventlog.stored_event import Row

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

_COUNT = {backward: count_window(backward=backward) for backward in (False, True)}
_LAST_EVENT = (
    "SELECT e.position, s.namespace FROM events AS e NOT INDEXED LEFT JOIN streams AS s ON s.id = e.stream "
    "ORDER BY e.position DESC LIMIT 1"
)
_NAMESPACE_HEAD = (
    "SELECT coalesce(max("
    "(SELECT e.position FROM events AS e WHERE e.stream = s.id ORDER BY e.version DESC LIMIT 1)"
    "), 0) FROM streams AS s WHERE s.namespace = ?"
)

_PIN = "SELECT count(*) FROM sqlite_schema"
_FIRST_STREAMS = "SELECT s.namespace, s.name FROM streams AS s ORDER BY s.id LIMIT ?"

T = TypeVar("T")


class SqliteReader(EventReader):
    """Reads through a few read-only connections; safe in any thread."""

    def __init__(self, readers: Readers) -> None:
        super().__init__(EventRows(partial(self._names, of_types=False), partial(self._names, of_types=True)))
        self._readers = readers
        self._has_one_namespace = True

    def stream_rows(self, stream: StreamId, *, after: int, limit: int, backward: bool, bytes_max: int) -> Rows:
        if backward:
            return self._rows(_STREAM_BACKWARD, (*stream, after or NUMBER_MAX, limit), bytes_max)
        return self._rows(_STREAM_FORWARD, (*stream, after, limit), bytes_max)

    def window_rows(
        self, start: int, end: int, *, namespace: str | None, limit: int, backward: bool, bytes_max: int
    ) -> Rows:
        if namespace is None or self._has_one_namespace:
            rows, whole = self._rows(_WINDOWS[backward], (start, end, limit), bytes_max)
            if namespace is None or self._event_rows.are_of(namespace, rows):
                return rows, whole
            # From now on SQLite leaves out what is another namespace's, which costs each row more.
            self._has_one_namespace = False
        return self._rows(_OF_NAMESPACE[backward], (start, end, namespace, limit), bytes_max)

    def count_between(self, start: int, end: int, *, backward: bool) -> int:
        with self._cursor() as cursor:
            parameters = (start, end, end if backward else start, end - start)
            return int(cursor.execute(_COUNT[backward], parameters).fetchone()[0])

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

    def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run `query` in one short snapshot."""
        with translating(), self._readers.snapshot() as connection:
            return query(connection)

    @contextmanager
    def pinned(self) -> Iterator[Callable[[], None]]:
        """Yield a function that keeps the file as it is from its call until the end of the context: SQLite copies
        nothing into a file of which a snapshot has no page from the write-ahead log, which must be empty then."""
        with translating(), self._readers.snapshot() as connection:
            yield lambda: connection.execute(_PIN).close()

    def first_streams(self, limit: int) -> list[StreamId]:
        with self._cursor() as cursor:
            return [StreamId(*row) for row in cursor.execute(_FIRST_STREAMS, (limit,))]

    def close(self) -> None:
        self._readers.close()

    def _rows(self, statement: str, parameters: Sequence[Any], bytes_max: int) -> Rows:
        """Rows after those that the bytes allow are never read."""
        with self._cursor() as cursor:
            rows: list[Row] = []
            room = bytes_max
            for row in cursor.execute(statement, parameters):
                # The log writes payloads of bytes alone; the check of the row refuses another.
                if isinstance(payload := row[PAYLOAD], bytes):
                    room -= len(payload)
                if room < 0 and rows:
                    return rows, False
                rows.append(row)
            return rows, True

    def _names(self, numbers: Collection[Any], *, of_types: bool) -> list[tuple[Any, Any, Any]]:
        with self._cursor() as cursor:
            found: list[tuple[Any, Any, Any]] = []
            for size, parameters in runs([(number,) for number in numbers]):
                found += cursor.execute(select_names(size, of_types=of_types), parameters)
            return found

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        with translating(), self._readers.lent() as connection, closing(connection.cursor()) as cursor:
            yield cursor


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
