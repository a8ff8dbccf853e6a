"""The read table of conversations in the log's database, and how damage to it is recognized.

Every row has a seal. Missing rows, which seals cannot reveal, show because the table's index, the log's own table of
streams and the positions of both have to agree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.schema import CreateIndex, CreateTable, DropIndex

from eventlog.errors import LogCorrupt, LogNewer, LogUnavailable, StreamCorrupt
from eventlog.event import StreamId
from eventlog.log import Committed
from eventlog.sqlite.engine import dropped
from eventlog.sqlite.errors import DATABASE_ERRORS, original
from eventlog.sqlite.sql import insert_into, runs
from service.codec.values import settings_to_bytes
from service.conversations.row import Row, checked, sealed
from service.conversations.table import (
    Attention,
    EncodedSettings,
    Held,
    ListQuery,
    Standing,
    nothing_held,
    projected_rows,
    row_of,
    taught_by,
)
from service.conversations.table_schema import (
    CONVERSATIONS,
    PROJECTIONS,
    VERSION,
    Fault,
    require_same_head,
    table_fault,
)
from service.domain.conversation import Conversation
from service.domain.profiles.profile import HeldBy
from service.domain.tokens import Taught

T = TypeVar("T")
_Execute = Callable[..., Any]

Read = Callable[[Callable[[Connection], Any]], Any]
"""Runs a query in a short snapshot and returns its result."""

STREAMS_PAGE = 256
"""Streams per read while rows are rebuilt."""


class SqlConversationTable:
    """Rows in the log's database. Neither read nor written until they are all there (`is_complete`)."""

    def __init__(self, *, held: Held = nothing_held) -> None:
        self._held = held
        self._encoded = EncodedSettings()
        self._read: Read | None = None
        self._left_out: Mapping[StreamId, int] = {}
        self.is_complete = True

    def check(self, connection: Connection) -> Fault | None:
        """Why the table has to be made again, if it has to; nothing is written.

        Raises LogNewer if a newer version made the table, LogCorrupt if it is not as this version made it or knows of
        events that are missing.
        """
        fault = table_fault(connection)
        if fault is Fault.NEWER:
            raise LogNewer(f"the read table {fault}; `abridged log rebuild` makes it again for this one")
        if fault is Fault.DAMAGED:
            raise LogCorrupt(f"the read table {fault}; `abridged log rebuild` makes it again")
        require_same_head(connection)
        return fault

    def prepare(self, connection: Connection) -> None:
        """Open the table in the transaction that opens the log, and empty it if it has a fault.

        `is_complete` is then false until its rows are rebuilt. Raises what `check` raises.
        """
        fault = self.check(connection)
        if fault is not None:
            for index in CONVERSATIONS.indexes:
                connection.execute(DropIndex(index, if_exists=True))
            connection.execute(CreateTable(PROJECTIONS, if_not_exists=True))
            dropped(connection, CONVERSATIONS.name)
            connection.execute(CreateTable(CONVERSATIONS))
            self.is_complete = not connection.exec_driver_sql(_ANY_STREAM).scalar()
            connection.exec_driver_sql(_OPENED, (CONVERSATIONS.name, VERSION, int(self.is_complete)))
        for index in CONVERSATIONS.indexes:
            connection.execute(CreateIndex(index, if_not_exists=True))

    def read_through(self, read: Read) -> None:
        """Use this for reads from now on: the log's own short snapshots."""
        self._read = read

    def streams(self, after: int) -> dict[int, StreamId]:
        """The next STREAMS_PAGE streams of the log by number, all of which should have rows; also those that the index
        of names has lost."""
        found = self._snapshot(lambda execute: execute(_NEXT_STREAMS, (after, STREAMS_PAGE)).fetchall())
        return {number: StreamId(namespace, name) for number, namespace, name in found}

    def stream_count(self) -> int:
        """The log's number of streams, counted in their table without an index."""
        return int(self._snapshot(lambda execute: execute(_STREAM_COUNT).fetchone()[0]))

    def insert(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Write rebuilt rows."""
        for size, parameters in runs([sealed(row) for row in rows]):
            _driver(connection).execute(_upsert(size), parameters)

    def row_of(self, stream: StreamId, state: Conversation, position: int) -> Row:
        """The conversation's row as a commit would write it; `position` is its last event's."""
        return row_of(stream, state, position, settings_to_bytes(state.settings), self._held(state))

    def complete(self, connection: Connection, *, left_out: Mapping[StreamId, int]) -> None:
        """The rows are all there but those of streams that could not be read, with the versions of their damaged
        events: these are refused, and the next start makes the table again.
        """
        connection.exec_driver_sql(_COMPLETED, (int(not left_out), CONVERSATIONS.name))
        self._left_out = dict(left_out)
        self.is_complete = True

    def project(self, transaction: Any, committed: Sequence[Committed]) -> None:
        """See ConversationTable."""
        self._require_complete()
        reached_s = time.perf_counter()
        rows = [sealed(row) for row in projected_rows(committed, self._encoded, self._held).values()]
        # On the driver, for SQLAlchemy would look at every parameter; in one statement, for each call of SQLite hands
        # the interpreter's lock over and waits to get it back.
        execute = transaction.connection.driver_connection.execute
        for size, parameters in runs(rows):
            execute(_upsert(size), parameters)
        projected_s = time.perf_counter()
        for commit in committed:
            commit.projected.reached_s, commit.projected.projected_s = reached_s, projected_s

    def row(self, key: StreamId) -> Row | None:
        """See ConversationTable."""
        if key in self._left_out:
            what = "the conversation could not be read when the read table was made"
            raise StreamCorrupt(what, key, self._left_out[key])
        found = self._through(lambda execute: execute(_ROW, key).fetchone())
        return None if found is None else checked(found)

    def page(self, query: ListQuery) -> list[Row]:
        """See ConversationTable.

        Conversations are counted in both tables where a list begins and where it ends, which costs its length; between
        these pages a row that is missing is found at the end.
        """

        def read(execute: _Execute) -> list[Row]:
            found: list[Row] = []
            for row in _by_change(execute, query.namespace, query.before or _END):
                if query.accepts(row):
                    found.append(row)
                if len(found) == query.limit:
                    break
            if not query.before or len(found) < query.limit:
                _require_all(execute, query.namespace)
            return found

        return self._through(read)

    def attention(self) -> list[Attention]:
        """See ConversationTable."""
        found: list[Attention] = []
        for key in self._through(lambda execute: execute(_ATTENTION).fetchall()):
            row = self._undamaged(StreamId(*key))
            if row is not None:
                found.append(Attention.of(row))
        return found

    def calibrations(self) -> dict[tuple[str, str], Taught]:
        """See ConversationTable."""
        keys = self._through(lambda execute: execute(_REPORTED).fetchall())
        return taught_by(row for key in keys if (row := self._undamaged(StreamId(*key))) is not None)

    def standing(self) -> Standing:
        """See ConversationTable."""
        self._require_complete()
        over_budget, held = self._reading(
            lambda connection: (
                connection.exec_driver_sql(_OVER_BUDGET).scalar_one(),
                connection.exec_driver_sql(_HELD).all(),
            )
        )
        try:
            return Standing(over_budget, {HeldBy(held_by): count for held_by, count in held})
        except ValueError as error:
            raise LogCorrupt("a row of the read table is not what was written") from error

    def _undamaged(self, key: StreamId) -> Row | None:
        try:
            return self.row(key)
        except LogCorrupt:
            return None

    def _through(self, query: Callable[[_Execute], T]) -> T:
        """The result of `query` on the rows in one short snapshot."""
        self._require_complete()
        return self._snapshot(query)

    def _snapshot(self, query: Callable[[_Execute], T]) -> T:
        """On the driver, since rows are checked and made here."""
        return self._reading(lambda connection: query(_driver(connection).execute))

    def _reading(self, query: Callable[[Connection], T]) -> T:
        assert self._read is not None, "read_through comes first"
        try:
            answer: T = self._read(query)
        except DATABASE_ERRORS as error:
            # The statements were right for the table as it was made.
            raise LogCorrupt(f"the read table is not as it was made: {original(error)}") from error
        return answer

    def _require_complete(self) -> None:
        if not self.is_complete:
            raise LogUnavailable("the read table is being made again")


_COLUMNS = ", ".join(column.name for column in CONVERSATIONS.columns)
_END = (1 << 63) - 1

_ROW = f"SELECT {_COLUMNS} FROM conversations WHERE namespace = ? AND id = ?"  # noqa: S608 - of constants
_CHANGES = (
    "SELECT namespace, id, position FROM conversations INDEXED BY conversations_by_change "
    "WHERE namespace = ? AND position < ? ORDER BY position DESC"
)
_STREAMS = "SELECT count(*) FROM streams WHERE namespace = ?"
_ATTENTION = "SELECT namespace, id FROM conversations WHERE pending_pass <> '' OR wait_until_us <> 0 OR fallback <> 0"
_REPORTED = "SELECT namespace, id FROM conversations WHERE usage_reports > 0 AND model <> ''"
# The conditions are those of the indexes, word for word: SQLite takes a partial index for no others.
_OVER_BUDGET = "SELECT count(*) FROM conversations WHERE ratio > 1 AND closed = 0"
_HELD = "SELECT held_by, count(*) FROM conversations WHERE held_by <> '' GROUP BY held_by"
_ANY_STREAM = "SELECT 1 FROM streams LIMIT 1"
_STREAM_COUNT = "SELECT count(*) FROM streams NOT INDEXED"
_NEXT_STREAMS = "SELECT id, namespace, name FROM streams NOT INDEXED WHERE id > ? ORDER BY id LIMIT ?"
_OPENED = "INSERT OR REPLACE INTO projections (name, version, log_id, complete) SELECT ?, ?, log_id, ? FROM log"
_COMPLETED = "UPDATE projections SET complete = ? WHERE name = ?"


def _by_change(execute: _Execute, namespace: str, before: int) -> Iterator[Row]:
    """The rows of a namespace, newest change first, each as the index and the table have it."""
    for *key, position in execute(_CHANGES, (namespace, before)):
        columns = execute(_ROW, key).fetchone()
        if columns is None or columns[2] != position:
            raise LogCorrupt("the read table and its index contradict each other")
        yield checked(columns)


def _require_all(execute: _Execute, namespace: str) -> None:
    """Raise LogCorrupt unless every stream of the namespace has its row, in listing order."""
    entries = execute(_CHANGES, (namespace, _END)).fetchall()
    positions = [position for its_namespace, _, position in entries if its_namespace == namespace]
    (streams,) = execute(_STREAMS, (namespace,)).fetchone()
    numbers = all(isinstance(position, int) for position in positions)
    if len(positions) != streams or not numbers or any(newer <= older for newer, older in pairwise(positions)):
        raise LogCorrupt(f"{streams} conversations are in the log and {len(positions)} in its read table")


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection


@cache
def _upsert(rows: int) -> str:
    changed = ", ".join(f"{c.name} = excluded.{c.name}" for c in CONVERSATIONS.columns if not c.primary_key)
    return f"{insert_into(CONVERSATIONS, rows)} ON CONFLICT (namespace, id) DO UPDATE SET {changed}"
