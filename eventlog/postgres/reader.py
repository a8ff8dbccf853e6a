"""Reads pages of a log's database through a few connections that reads share, each page in one statement."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from abridged.eventlog.admission import KnownEvent, KnownRequest, StreamState
from abridged.eventlog.event import NUMBER_MAX, StreamId
from abridged.eventlog.event_reader import EventReader, Rows
from abridged.eventlog.event_rows import EventRows, payload_bytes
from abridged.eventlog.log import Append
from abridged.eventlog.paging import up_to_bytes
from abridged.eventlog.postgres import sql
from abridged.eventlog.postgres.connections import Connection, Readers, ask
from abridged.eventlog.stored_event import Row

T = TypeVar("T")


class PostgresReader(EventReader):
    """Reads one log; safe in any thread."""

    def __init__(self, readers: Readers, log: int) -> None:
        super().__init__(
            EventRows(
                lambda numbers: self.ask(sql.STREAM_NAMES, numbers=list(numbers)),
                lambda numbers: self.ask(sql.TYPE_NAMES, numbers=list(numbers)),
            )
        )
        self._readers = readers
        self._log = {"log": log}

    def stream_rows(self, stream: StreamId, *, after: int, limit: int, backward: bool, bytes_max: int) -> Rows:
        start = after or NUMBER_MAX if backward else after
        return self._rows(
            sql.STREAM[backward], bytes_max, namespace=stream.namespace, name=stream.name, after=start, limit=limit
        )

    def window_rows(
        self, start: int, end: int, *, namespace: str | None, limit: int, backward: bool, bytes_max: int
    ) -> Rows:
        if namespace is None:
            return self._rows(sql.WINDOW[backward], bytes_max, start=start, end=end, limit=limit)
        statement = sql.NAMESPACE_WINDOW[backward]
        return self._rows(statement, bytes_max, start=start, end=end, limit=limit, namespace=namespace)

    def count_between(self, start: int, end: int, *, backward: bool) -> int:  # noqa: ARG002 - PostgreSQL plans its way
        return self._number(sql.COUNT_BETWEEN, start=start, end=end)

    def first_streams(self, limit: int) -> list[StreamId]:
        return [StreamId(*row) for row in self.ask(sql.FIRST_STREAMS, limit=limit)]

    def known(self, append: Append) -> StreamState:
        """The stream with what it knows of the append's event ids and request key."""
        state = StreamState(0, b"")
        stream = append.stream
        # The key first: what its request wrote is then there for the look-up of the events.
        if append.request is not None:
            asked = {"namespaces": [stream.namespace], "names": [stream.name], "keys": [append.request.key.encode()]}
            for _, key, *first in self.ask(sql.KNOWN_REQUESTS, **asked):
                state.requests[key.decode()] = KnownRequest(*first)
        state.events = self._events_known(stream, {event.event_id: None for event in append.events})
        return state

    def known_ids(self, stream: StreamId, event_ids: Collection[bytes]) -> dict[bytes, int]:
        return {event_id: event.position for event_id, event in self._events_known(stream, event_ids).items()}

    def stream_version(self, stream: StreamId) -> int:
        return self._number(sql.STREAM_VERSION, namespace=stream.namespace, name=stream.name)

    def head(self) -> int:
        """The last committed position."""
        return self._number(sql.HEAD)

    def head_of(self, namespace: str) -> int:
        """The position of a namespace's last event: each of its streams is asked for its own."""
        return self._number(sql.NAMESPACE_HEAD, namespace=namespace)

    def head_of_since(self, namespace: str, start: int, end: int) -> int:
        """The position of a namespace's last event if it is after `start` and not after `end`; else 0."""
        return self._number(sql.NAMESPACE_HEAD_SINCE, namespace=namespace, start=start, end=end)

    def read(self, query: Callable[[Connection], T]) -> T:
        """Run `query`, each of whose statements sees the commits of its own time."""
        return self._readers.run(query)

    def ask(self, statement: str, **parameters: Any) -> Sequence[Row]:
        """The rows of a statement on the log."""

        return self._readers.run(lambda connection: ask(connection, statement, {**self._log, **parameters}).fetchall())

    def close(self) -> None:
        self._readers.close()

    def _events_known(self, stream: StreamId, event_ids: Collection[bytes]) -> dict[bytes, KnownEvent]:
        ids = list(event_ids)
        rows = self.ask(
            sql.KNOWN_EVENTS,
            namespaces=[stream.namespace] * len(ids),
            names=[stream.name] * len(ids),
            event_ids=ids,
        )
        return {event_id: KnownEvent(*known) for _, event_id, *known in rows}

    def _rows(self, statement: str, bytes_max: int, **parameters: Any) -> Rows:
        rows = self.ask(statement, bytes_max=bytes_max, **parameters)
        return up_to_bytes(rows, payload_bytes, bytes_max=bytes_max)

    def _number(self, statement: str, **parameters: Any) -> int:
        return int(self.ask(statement, **parameters)[0][0])
