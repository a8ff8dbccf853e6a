"""The read table of conversations in the database of the log, and what a damaged one is known by.

Every row has a seal. What the seal cannot tell, rows that are gone, the table's index, the log's own table of streams
and the positions of both tell of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    text,
)
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable

from eventlog.errors import LogCorrupt
from eventlog.event import StreamId
from eventlog.log import Committed
from eventlog.sqlite.sql import insert_into, runs
from service.conversations.row import Row, checked, sealed
from service.conversations.table import Attention, Held, ListQuery, Standing, projected_rows
from service.domain.conversation import Conversation
from service.domain.profiles.profile import HeldBy

__all__ = ["SqlConversationTable"]

T = TypeVar("T")
_Execute = Callable[..., Any]

Read = Callable[[Callable[[Connection], Any]], Any]
"""Runs a query in a short snapshot and returns what it returns."""

_METADATA = MetaData()
_CONVERSATIONS = Table(
    "conversations",
    _METADATA,
    Column("namespace", String, primary_key=True),
    Column("id", String, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("event_version", BigInteger, nullable=False),
    Column("ratio", Float, nullable=False),
    Column("labels", String, nullable=False),
    Column("pending", Integer, nullable=False),
    Column("wait_until_us", BigInteger, nullable=False),
    Column("fallback", Integer, nullable=False),
    Column("model", String, nullable=False),
    Column("calibration_factor", Float, nullable=False),
    Column("usage_reports", Integer, nullable=False),
    Column("view", LargeBinary, nullable=False),
    Column("held_by", String, nullable=False, server_default=""),
    Column("seal", LargeBinary, nullable=False, server_default=""),
    Index("conversations_by_change", "namespace", "position"),
    Index("conversations_attention", "pending", "wait_until_us", "fallback"),
    # Only of those that are counted, so that a count reads them and no others, and most appends write to neither.
    Index("conversations_over_budget", "ratio", sqlite_where=text("ratio > 1")),
    Index("conversations_held", "held_by", sqlite_where=text("held_by <> ''")),
    sqlite_with_rowid=False,
)


assert Row._fields == tuple(column.name for column in _CONVERSATIONS.columns), "rows are written and read by place"


class SqlConversationTable:
    """Rows in the database of the log."""

    def __init__(self, view: Callable[[Conversation], bytes], *, held: Held = lambda _state: None) -> None:
        self._view = view
        self._held = held
        self._read: Read | None = None

    @staticmethod
    def prepare(connection: Connection) -> None:
        """Make the table, or add what one of an older version lacks, in the transaction that opens the log."""
        # By statements of our own: SQLAlchemy's inspection parses the schema's text, and breaks where that is damaged.
        connection.execute(CreateTable(_CONVERSATIONS, if_not_exists=True))
        columns = connection.exec_driver_sql(f"PRAGMA table_info({_CONVERSATIONS.name})")
        there = {column.name for column in columns}
        for column in _CONVERSATIONS.columns:
            if column.name not in there:
                connection.execute(text(f"ALTER TABLE {_CONVERSATIONS.name} ADD COLUMN {CreateColumn(column)}"))
        for index in _CONVERSATIONS.indexes:
            connection.execute(CreateIndex(index, if_not_exists=True))
        if "seal" not in there:
            _seal_all(connection)
        _require_same_head(connection)

    def read_through(self, read: Read) -> None:
        """Read by this from now on: the log's own short snapshots."""
        self._read = read

    def project(self, transaction: Any, committed: Sequence[Committed]) -> None:
        """See ConversationTable."""
        rows = [sealed(row) for row in projected_rows(committed, self._view, self._held).values()]
        # On the driver, for SQLAlchemy would look at every parameter; in one statement, for each call of SQLite hands
        # the interpreter's lock over and waits to get it back.
        execute = transaction.connection.driver_connection.execute
        for size, parameters in runs(rows):
            execute(_upsert(size), parameters)

    def row(self, key: StreamId) -> Row | None:
        """See ConversationTable."""
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
                found.append(Attention(row.namespace, row.id, bool(row.pending), row.wait_until_us, bool(row.fallback)))
        return found

    def calibrations(self) -> dict[tuple[str, str], float]:
        """See ConversationTable."""
        keys = self._through(lambda execute: execute(_REPORTED).fetchall())
        rows = [row for key in keys if (row := self._undamaged(StreamId(*key))) is not None]
        return {
            (row.namespace, row.model): row.calibration_factor
            for row in sorted(rows, key=lambda row: row.usage_reports)
        }

    def standing(self) -> Standing:
        """See ConversationTable."""
        assert self._read is not None, "read_through comes first"
        over_budget, held = self._read(
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
        """What `query` makes of one short snapshot; on the driver, since rows are checked and made here."""
        assert self._read is not None, "read_through comes first"
        answer: T = self._read(lambda connection: query(_driver(connection).execute))
        return answer


_COLUMNS = ", ".join(column.name for column in _CONVERSATIONS.columns)
_END = (1 << 63) - 1

_ROW = f"SELECT {_COLUMNS} FROM conversations WHERE namespace = ? AND id = ?"  # noqa: S608 - of constants
_CHANGES = (
    "SELECT namespace, id, position FROM conversations INDEXED BY conversations_by_change "
    "WHERE namespace = ? AND position < ? ORDER BY position DESC"
)
_STREAMS = "SELECT count(*) FROM streams WHERE namespace = ?"
_ATTENTION = "SELECT namespace, id FROM conversations WHERE pending <> 0 OR wait_until_us <> 0 OR fallback <> 0"
_REPORTED = "SELECT namespace, id FROM conversations WHERE usage_reports > 0 AND model <> ''"
# The conditions are those of the indexes, word for word: SQLite takes a partial index for no others.
_OVER_BUDGET = "SELECT count(*) FROM conversations WHERE ratio > 1"
_HELD = "SELECT held_by, count(*) FROM conversations WHERE held_by <> '' GROUP BY held_by"
_HEADS = "SELECT (SELECT max(position) FROM conversations), (SELECT max(position) FROM events)"


def _by_change(execute: _Execute, namespace: str, before: int) -> Iterator[Row]:
    """The rows of a namespace, newest change first, each as the index and the table have it."""
    for *key, position in execute(_CHANGES, (namespace, before)):
        columns = execute(_ROW, key).fetchone()
        if columns is None or columns[2] != position:
            raise LogCorrupt("the read table and its index contradict each other")
        yield checked(columns)


def _require_all(execute: _Execute, namespace: str) -> None:
    """Raise LogCorrupt unless every stream of the namespace has its row, in the order in which rows are listed."""
    entries = execute(_CHANGES, (namespace, _END)).fetchall()
    positions = [position for its_namespace, _, position in entries if its_namespace == namespace]
    (streams,) = execute(_STREAMS, (namespace,)).fetchone()
    numbers = all(isinstance(position, int) for position in positions)
    if len(positions) != streams or not numbers or any(newer <= older for newer, older in pairwise(positions)):
        raise LogCorrupt(f"{streams} conversations are in the log and {len(positions)} in its read table")


def _require_same_head(connection: Connection) -> None:
    """Raise LogCorrupt when events are missing that the read table knows of: positions would be given out again."""
    if not connection.exec_driver_sql("PRAGMA table_info(events)").all():
        return
    listed, written = connection.exec_driver_sql(_HEADS).one()
    if listed is not None and not (isinstance(listed, int) and listed <= (written or 0)):
        raise LogCorrupt(f"events up to position {listed} were written, and {written or 0} is the last one there")


def _seal_all(connection: Connection) -> None:
    """Seal the rows of an older version, which had no seals."""
    execute = _driver(connection).execute
    for columns in execute(f"SELECT {_COLUMNS} FROM conversations").fetchall():  # noqa: S608 - of constants
        row = sealed(Row(*columns))
        execute("UPDATE conversations SET seal = ? WHERE namespace = ? AND id = ?", (row.seal, row.namespace, row.id))


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection


@cache
def _upsert(rows: int) -> str:
    changed = ", ".join(f"{c.name} = excluded.{c.name}" for c in _CONVERSATIONS.columns if not c.primary_key)
    return f"{insert_into(_CONVERSATIONS, rows)} ON CONFLICT (namespace, id) DO UPDATE SET {changed}"
