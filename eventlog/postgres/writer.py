"""The one connection of a process that writes, used by one thread at a time.

A group of appends is one transaction in two round trips: the first locks the log's row and reads what the group needs
to know, the second writes and commits. The seals, which bind each event to its position, are made between them. The
process trusts nothing that it keeps in memory between groups without the lock, for other processes write too; but the
numbers of event types, which never change once a commit that follows them is acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from abridged.eventlog.admission import Admitted, KnownEvent, KnownRequest, StreamState, admit
from abridged.eventlog.chain import HASH_BYTES, LogIdentity, genesis
from abridged.eventlog.errors import EventLogError, LogCorrupt, LogGone
from abridged.eventlog.event import StreamId
from abridged.eventlog.log import Append, AppendHook, Outcome
from abridged.eventlog.postgres import sql
from abridged.eventlog.postgres.connections import Connection, Cursor, arrays, ask
from abridged.eventlog.postgres.database import LIMITS, acknowledged, taken_back, transaction
from abridged.eventlog.postgres.errors import translated
from abridged.eventlog.postgres.watch import Channel
from abridged.eventlog.stored_event import event_row

T = TypeVar("T")

_EVENT_COLUMNS = (
    "position",
    "stream",
    "version",
    "event_id",
    "type",
    "schema_version",
    "time_us",
    "trace_context",
    "content_hash",
    "commitment",
    "chain",
    "salt",
    "payload",
)
_REQUEST_COLUMNS = ("stream", "key", "content_hash", "first_position", "last_position", "last_version")


class _Known(NamedTuple):
    """The log under its lock: its head, and what it knows of a group's types, streams, events and requests."""

    head: int
    types: dict[str, int]
    numbers: dict[StreamId, int]
    states: dict[StreamId, StreamState]


class _HookRefused(Exception):
    """The hook raised its own error, which is neither the database's nor the log's."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class PostgresWriter:
    """Commits groups of appends, and connects again after a failure."""

    def __init__(
        self,
        connection: Connection,
        *,
        connect: Callable[[], Connection],
        log: int,
        identity: LogIdentity,
        hook: AppendHook | None,
        clock_us: Callable[[], int],
        channel: Channel,
    ) -> None:
        self._connection = connection
        self._connect = connect
        self._log = {"log": log}
        self._identity = identity
        self._hook = hook
        self._clock_us = clock_us
        self._notify = {"channel": channel.name, "sender": channel.sender}
        self._types: dict[str, int] = {}
        self.head: int = 0

    def commit(self, appends: Sequence[Append]) -> Sequence[Outcome]:
        """Write the admissible appends of the group; returns one outcome per append, in order.

        A group that failed has written nothing, unless its connection broke during the commit: a retry with the same
        ids then finds out.
        """
        try:
            return self._transaction(appends)
        except _HookRefused as refused:
            return [refused.reason] if len(appends) == 1 else self._one_by_one(appends)
        except (LogCorrupt, psycopg.DataError, psycopg.IntegrityError) as error:
            if len(appends) > 1:
                return self._one_by_one(appends)
            if isinstance(error, psycopg.IntegrityError):
                return [LogCorrupt(f"the log's indexes contradict each other: {error.sqlstate}")]
            return [error]
        except EventLogError as error:
            return [copy(error) for _ in appends]
        except psycopg.Error as error:
            outcome = translated(error)
            return [error if outcome is None else copy(outcome) for _ in appends]

    def write(self, query: Callable[[Connection], T]) -> T:
        """Run `query` in its own transaction. Raises what an append would fail with."""
        connection = self._connected()
        try:
            with transaction(connection):
                return query(connection)
        except psycopg.Error as error:
            outcome = translated(error)
            if outcome is None:
                raise
            raise outcome from error

    def confirm(self) -> None:
        """Commit nothing under the log's lock, which is a write: the standby then has whatever was read before."""
        self.write(lambda connection: self._require_own(ask(connection, sql.LOCK, self._log)))

    def wake(self) -> None:
        """Have the watches of all processes look around; without a connection they do so by themselves."""
        if not self._connection.closed:
            try:
                self._connection.execute(sql.NOTIFY, self._notify)
            except psycopg.Error:
                self._connection.close()

    def close(self) -> None:
        self._connection.close()

    def _one_by_one(self, appends: Sequence[Append]) -> Sequence[Outcome]:
        return [outcome for append in appends for outcome in self.commit([append])]

    def _connected(self) -> Connection:
        if self._connection.closed:
            self._connection = self._connect()
            # Another server may be there now, without a commit that this one was never acknowledged.
            self._types = {}
        return self._connection

    def _transaction(self, appends: Sequence[Append]) -> Sequence[Outcome]:
        known = self._begun(appends)
        connection = self._connection
        try:
            admitted = admit(
                appends,
                known.states,
                head=known.head,
                time_us=self._clock_us(),
                identity=self._identity,
                # A sidecar of an older version may share the log, and looks at no revision while it runs.
                seal_bytes=HASH_BYTES,
            )
            types = known.types | _new_types(known.types, admitted)
            with acknowledged(connection) as commits, connection.pipeline():
                self._write(connection, known, types, admitted)
                if self._hook is not None and admitted.committed:
                    self._call_hook(self._hook, connection, admitted)
                commits.append(connection.execute(sql.COMMIT))
                if admitted.events:
                    # After it: a commit that notifies has the lock of all notifications of the server while it waits
                    # for the disk, and so keeps out those of every other log.
                    connection.execute(sql.NOTIFY, self._notify)
        except BaseException:
            _taken_back(connection)
            raise
        self._types = types
        self.head = known.head + len(admitted.events)
        return admitted.outcomes

    def _begun(self, appends: Sequence[Append]) -> _Known:
        """Begin a transaction under the log's lock; on a new connection if this one has broken since the last group."""
        try:
            return self._locked(self._connected(), appends)
        except psycopg.OperationalError:
            if not self._connection.closed:
                raise
            return self._locked(self._connected(), appends)

    def _locked(self, connection: Connection, appends: Sequence[Append]) -> _Known:
        """Take the log's lock, and read in one round trip what the group needs to know under it."""
        try:
            return self._looked_up(connection, appends)
        except BaseException:
            _taken_back(connection)
            raise

    def _looked_up(self, connection: Connection, appends: Sequence[Append]) -> _Known:
        streams = list({append.stream: None for append in appends})
        ids = list({(*append.stream, event.event_id): None for append in appends for event in append.events})
        keys = list({(*each.stream, each.request.key.encode()): None for each in appends if each.request is not None})
        types = {event.type for append in appends for event in append.events}

        def asked(statement: str, **parameters: Any) -> Cursor:
            return ask(connection, statement, {**self._log, **parameters})

        with connection.pipeline():
            connection.execute(sql.BEGIN)
            connection.execute(sql.LIMITS, LIMITS)
            locked = asked(sql.LOCK)
            ends = asked(sql.ENDS)
            tips = asked(sql.TIPS, **arrays(("namespaces", "names"), streams))
            events = asked(sql.KNOWN_EVENTS, **arrays(("namespaces", "names", "event_ids"), ids))
            requests = asked(sql.KNOWN_REQUESTS, **arrays(("namespaces", "names", "keys"), keys)) if keys else None
            types_there = asked(sql.TYPES) if types - self._types.keys() else None
        self._require_own(locked)
        numbered = self._types if types_there is None else dict(types_there.fetchall())
        head, last_stream = ends.fetchone() or (0, 0)
        numbers, states = self._tips(streams, tips.fetchall(), last_stream)
        by_number = {number: states[stream] for stream, number in numbers.items()}
        for number, event_id, *known_event in events.fetchall():
            by_number[number].events[event_id] = KnownEvent(*known_event)
        for number, key, *first in requests.fetchall() if requests is not None else ():
            by_number[number].requests[key.decode()] = KnownRequest(*first)
        return _Known(head, numbered, numbers, states)

    def _require_own(self, locked: Cursor) -> None:
        if locked.fetchone() != (self._identity.log_id, self._identity.key):
            raise LogGone("the log is not in its database any more, or another is in its place")

    def _tips(
        self, streams: Sequence[StreamId], rows: Sequence[tuple[Any, ...]], last_stream: int
    ) -> tuple[dict[StreamId, int], dict[StreamId, StreamState]]:
        """Number and state of each stream; new streams get the next numbers."""
        numbers: dict[StreamId, int] = {}
        states: dict[StreamId, StreamState] = {}
        for namespace, name, number, version, chain, time_us in rows:
            numbers[StreamId(namespace, name)] = number
            states[StreamId(namespace, name)] = StreamState(version, chain, time_us=time_us)
        for stream in streams:
            if stream not in numbers:
                last_stream += 1
                numbers[stream] = last_stream
                states[stream] = StreamState(0, genesis(self._identity.log_id, stream))
        return numbers, states

    def _write(self, connection: Connection, known: _Known, types: dict[str, int], admitted: Admitted) -> None:
        numbers = known.numbers

        def insert(statement: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
            if rows:
                connection.execute(statement.encode(), {**self._log, **arrays(names, rows)})

        new = [(number, name) for name, number in types.items() if name not in known.types]
        insert(sql.INSERT_TYPES, ("ids", "names"), new)
        begun = [sealed.event.stream for sealed in admitted.events if sealed.event.version == 1]
        insert(sql.INSERT_STREAMS, ("ids", "namespaces", "names"), [(numbers[stream], *stream) for stream in begun])
        rows = [event_row(each, numbers[each.event.stream], types[each.event.type]) for each in admitted.events]
        insert(sql.INSERT_EVENTS, _EVENT_COLUMNS, rows)
        first_uses = [(numbers[stream], key.encode(), *first) for stream, key, first in admitted.requests]
        insert(sql.INSERT_REQUESTS, _REQUEST_COLUMNS, first_uses)

    def _call_hook(self, hook: AppendHook, connection: Connection, admitted: Admitted) -> None:
        try:
            hook(connection, admitted.committed)
        except psycopg.Error:
            raise
        except Exception as error:  # whatever the hook raises is the outcome of its appends, not of the other appends
            raise _HookRefused(error) from error


def _new_types(known: dict[str, int], admitted: Admitted) -> dict[str, int]:
    """Numbers of the types that are new to the log."""
    new = sorted({sealed.event.type for sealed in admitted.events} - known.keys())
    first = max(known.values(), default=0) + 1
    return {name: first + place for place, name in enumerate(new)}


def _taken_back(connection: Connection) -> None:
    """Roll the group back. A connection whose group was aborted is closed: its driver takes for prepared what the
    server never read, and would fail each later group."""
    if connection.info.transaction_status is TransactionStatus.INERROR:
        connection.close()
    else:
        taken_back(connection)
