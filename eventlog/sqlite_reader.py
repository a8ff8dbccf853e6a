"""Pages of a log's file. Each is one statement, so that no snapshot outlives its page and none delays a checkpoint."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine

from eventlog.event import RecordedEvent, SealedEvent, StreamId
from eventlog.log import SCAN_EVENTS_MAX, EventFilter, Page
from eventlog.sql import recorded, sealed, select_page, within_bytes
from eventlog.sqlite_errors import translating

__all__ = ["SqliteReader"]

_END = (1 << 63) - 1

_STREAM = ("s.namespace = ?", "s.name = ?")
_STREAM_FORWARD = select_page(*_STREAM, "e.version > ?", order="e.version")
_STREAM_BACKWARD = select_page(*_STREAM, "e.version < ?", order="e.version DESC")
_STREAM_SEALED = select_page(*_STREAM, "e.version > ?", order="e.version", seals=True)
_ALL_FORWARD = select_page("e.position > ?", order="e.position")
_ALL_BACKWARD = select_page("e.position < ?", order="e.position DESC")
_NAMESPACE_FORWARD = select_page("e.namespace = ?", "e.position > ?", order="e.position")
_NAMESPACE_BACKWARD = select_page("e.namespace = ?", "e.position < ?", order="e.position DESC")
_STREAM_VERSION = (
    "SELECT coalesce(max(e.version), 0) FROM streams AS s JOIN events AS e ON e.stream = s.id "
    "WHERE s.namespace = ? AND s.name = ?"
)
_WINDOW = ("e.position > ?", "e.position <= ?")

T = TypeVar("T")


class SqliteReader:
    """Reads through a pool of connections that cannot write; safe in any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def read_stream(self, stream: StreamId, *, after: int, limit: int, backward: bool) -> list[RecordedEvent]:
        if backward:
            parameters = (stream.namespace, stream.name, after or _END, limit)
            return [recorded(row) for row in self._rows(_STREAM_BACKWARD, parameters)]
        return [recorded(row) for row in self._rows(_STREAM_FORWARD, (stream.namespace, stream.name, after, limit))]

    def read_all(self, *, after: int, limit: int, namespace: str | None, backward: bool) -> list[RecordedEvent]:
        if backward:
            after = after or _END
        if namespace is None:
            rows = self._rows(_ALL_BACKWARD if backward else _ALL_FORWARD, (after, limit))
        else:
            rows = self._rows(_NAMESPACE_BACKWARD if backward else _NAMESPACE_FORWARD, (namespace, after, limit))
        return [recorded(row) for row in rows]

    def scan(self, *, after: int, limit: int, matching: EventFilter, head: int) -> Page:
        """`head` was committed before this call, so that what the page does not hold up to there does not match."""
        conditions, parameters = _conditions(matching)
        window = after + SCAN_EVENTS_MAX
        statement = select_page(*_WINDOW, *conditions, order="e.position")
        rows, whole = self._taken(statement, (after, window, *parameters, limit), within_bytes)
        found = tuple(recorded(row) for row in rows)
        last = found[-1].position if found else after
        if len(found) == limit or not whole:
            return Page(found, last, max(head, last))
        return Page(found, max(last, min(window, head)), max(head, last))

    def read_sealed(self, stream: StreamId, *, after: int, limit: int) -> list[SealedEvent]:
        return [sealed(row) for row in self._rows(_STREAM_SEALED, (stream.namespace, stream.name, after, limit))]

    def stream_version(self, stream: StreamId) -> int:
        version: int = self._taken(_STREAM_VERSION, (stream.namespace, stream.name), _only_value)
        return version

    def read(self, query: Callable[[Connection], T]) -> T:
        """Run `query` in one short snapshot."""
        with translating(), self._engine.connect() as connection:
            return query(connection)

    def close(self) -> None:
        self._engine.dispose()

    def _rows(self, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._taken(statement, parameters, within_bytes)[0]

    def _taken(self, statement: str, parameters: Sequence[Any], take: Callable[[sqlite3.Cursor], T]) -> T:
        """What `take` makes of the rows; those that it does not ask for are never read."""
        with (
            translating(),
            closing(self._engine.raw_connection()) as pooled,
            closing(pooled.cursor()) as cursor,
        ):
            return take(cursor.execute(statement, parameters))


def _only_value(rows: sqlite3.Cursor) -> Any:
    return rows.fetchone()[0]


def _conditions(matching: EventFilter) -> tuple[list[str], list[str]]:
    conditions: list[str] = []
    parameters: list[str] = []
    if matching.namespace is not None:
        conditions.append("e.namespace = ?")
        parameters.append(matching.namespace)
    if matching.stream is not None:
        conditions.extend(_STREAM)
        parameters.extend((matching.stream.namespace, matching.stream.name))
    if matching.types:
        conditions.append(f"e.type IN ({', '.join('?' * len(matching.types))})")
        parameters.extend(sorted(matching.types))
    return conditions, parameters
