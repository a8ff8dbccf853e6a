"""Rows beside the events in the log's file, and how damage to them is recognized.

Every row has a seal. Missing rows, which seals cannot reveal, show because the table's index, the log's own table of
streams and the positions of both have to agree.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Generic, TypeVar

from abridged.eventlog.errors import LogCorrupt, LogNewer, LogUnavailable, StreamCorrupt
from abridged.eventlog.event import NUMBER_MAX, StreamId
from abridged.eventlog.row_columns import KEY, columns_of, conditions_of, index_of
from abridged.eventlog.rows import FINISHED, FIRST, FOR_NOW, UNFINISHED, Fault, R, RowTable, seal_of
from abridged.eventlog.sqlite.database import dropped, is_as_made
from abridged.eventlog.sqlite.errors import translated
from abridged.eventlog.sqlite.sql import Run, insert_into, runs
from abridged.eventlog.sqlite.table import Column, Index, Table

T = TypeVar("T")
_Execute = Callable[..., Any]

_TYPES: Mapping[type, str] = {str: "VARCHAR", int: "BIGINT", float: "FLOAT", bytes: "BLOB"}

STREAMS_PAGE = 256
"""Streams per read while rows are rebuilt."""

PROJECTIONS = Table(
    "projections",
    (Column("name", "TEXT"), Column("version", "INTEGER"), Column("log_id", "TEXT"), Column("complete", "INTEGER")),
    key=("name",),
    options=("STRICT",),
)
"""The version that made a table of rows, the log that they are of, and whether it was made to its end: see FINISHED."""


class SqliteRows(Generic[R]):
    """StoredRows of one table in the log's file. Nobody reads or writes them until they are all there
    (`is_complete`)."""

    def __init__(self, table: RowTable[R]) -> None:
        self._spec = table
        self._table = _table_of(table)
        self._sql = _Statements(table, self._table)
        self._read: Run | None = None
        self._write: Run | None = None
        self._left_out: Mapping[StreamId, int] = {}
        self.is_complete = True

    def check(self, connection: sqlite3.Connection) -> Fault | None:
        """The reason why the table has to be made again, if it has to; nothing is written.

        Raises LogNewer if a newer version made the table, LogCorrupt if it is not as this version made it or knows of
        events that are missing.
        """
        fault = self.fault(connection)
        if fault is Fault.NEWER:
            raise LogNewer(f"the read table {fault}; `abridged log rebuild` makes it again for this one")
        if fault is Fault.DAMAGED:
            raise LogCorrupt(f"the read table {fault}; `abridged log rebuild` makes it again")
        self.require_same_head(connection)
        return fault

    def prepare(self, connection: sqlite3.Connection) -> None:
        """Open the table in the transaction that opens the log, and empty it if it has a fault, or rows for now.

        `is_complete` is then false until its rows are rebuilt. Raises what `check` raises.
        """
        fault = self.check(connection)
        if fault is not None or connection.execute(_STORED, (self._table.name,)).fetchone()[1] == FOR_NOW:
            for index in self._table.indexes:
                connection.execute(f"DROP INDEX IF EXISTS {index.name}")
            connection.execute(PROJECTIONS.creation(if_not_exists=True))
            dropped(connection, self._table.name)
            connection.execute(self._table.creation())
            self.is_complete = connection.execute(_ANY_STREAM).fetchone() is None
            connection.execute(_OPENED, (self._table.name, self._spec.version, int(self.is_complete)))
        for statement in self._table.index_creations():
            connection.execute(statement)

    def through(self, read: Run, write: Run | None = None) -> None:
        """Use the log's own short snapshots and transactions from now on."""
        self._read, self._write = read, write

    def streams(self) -> Iterator[StreamId]:
        last = 0
        while found := self._snapshot(lambda execute: execute(_NEXT_STREAMS, (last, STREAMS_PAGE)).fetchall()):  # noqa: B023 - called at once
            for number, namespace, name in found:
                if number <= last:
                    raise LogCorrupt(f"streams after number {last} repeat, or are not in order")
                last = number
                yield StreamId(namespace, name)

    def stream_count(self) -> int:
        return int(self._snapshot(lambda execute: execute(_STREAM_COUNT).fetchone()[0]))

    def insert(self, rows: Sequence[R]) -> None:
        self._writing(lambda connection: self._put(connection.execute, rows))

    def complete(self, *, left_out: Mapping[StreamId, int], for_now: bool = False) -> None:
        made = UNFINISHED if left_out else FOR_NOW if for_now else FINISHED
        self._writing(lambda connection: connection.execute(_COMPLETED, (made, self._table.name)))
        self._left_out = dict(left_out)
        self.is_complete = True

    def require_complete(self) -> None:
        if not self.is_complete:
            raise LogUnavailable("the read table is being made again")

    def put(self, transaction: sqlite3.Connection, rows: Sequence[R]) -> None:
        self._put(transaction.execute, rows)

    def row(self, key: StreamId) -> R | None:
        if key in self._left_out:
            what = "the conversation could not be read when the read table was made"
            raise StreamCorrupt(what, key, self._left_out[key])
        found = self._through(lambda execute: execute(self._sql.row, key).fetchone())
        return None if found is None else self._checked(found)

    def page(self, namespace: str, *, before: int, limit: int, accepts: Callable[[R], bool]) -> list[R]:
        """See Rows.

        Streams are counted in both tables where a list begins and where it ends, which costs its length; between these
        pages a row that is missing is found at the end.
        """

        def read(execute: _Execute) -> list[R]:
            found: list[R] = []
            for row in self._by_change(execute, namespace, before or NUMBER_MAX):
                if accepts(row):
                    found.append(row)
                if len(found) == limit:
                    break
            if not before or len(found) < limit:
                self._require_all(execute, namespace)
            return found

        return self._through(read)

    def namespaces(self) -> list[str]:
        return [name for (name,) in self._through(lambda execute: execute(self._sql.namespaces).fetchall())]

    def marked(self, mark: str, *, after: StreamId = FIRST, limit: int = NUMBER_MAX) -> list[R]:
        found: list[R] = []
        for key in self.marked_streams(mark, after=after, limit=limit):
            try:
                row = self.row(key)
            except LogCorrupt:
                continue
            if row is not None:
                found.append(row)
        return found

    def marked_streams(self, mark: str, *, after: StreamId = FIRST, limit: int = NUMBER_MAX) -> list[StreamId]:
        keys = self._through(lambda execute: execute(self._sql.marked(mark), (*after, limit)).fetchall())
        return [StreamId(*key) for key in keys]

    def having(self, mark: str, namespace: str, value: Any) -> list[StreamId]:
        keys = self._through(lambda execute: execute(self._sql.having(mark), (namespace, value)).fetchall())
        return [StreamId(*key) for key in keys]

    def values(self, mark: str) -> dict[StreamId, Any]:
        """See Rows. A row that is as written has to agree, so damage to the index does not hide it either."""
        (column,) = self._spec.marks[mark]
        place = self._table.names.index(column)

        def read(execute: _Execute) -> dict[StreamId, Any]:
            found: dict[StreamId, Any] = {}
            for *key, value in execute(self._sql.values(mark)).fetchall():
                columns = execute(self._sql.row, key).fetchone()
                if columns is None or (columns[place] != value and _is_sealed(columns)):
                    raise LogCorrupt("the read table and its index contradict each other")
                found[StreamId(*key)] = value
            return found

        return self._through(read)

    def tally(self, mark: str) -> Counter[Any]:
        return Counter(dict(self._through(lambda execute: execute(self._sql.tally(mark)).fetchall())))

    def fault(self, connection: sqlite3.Connection) -> Fault | None:
        """Return the fault of the table as a whole; None when its rows can be read."""
        try:
            return self._found_fault(connection)
        except sqlite3.Error as error:
            if not isinstance(translated(error), LogCorrupt):
                raise
            return Fault.DAMAGED

    def refuse_lost_end(self, connection: sqlite3.Connection) -> None:
        """Raise LogCorrupt when events are missing that the table knows of; one that cannot be read knows of none."""
        try:
            self.require_same_head(connection)
        except sqlite3.Error as error:
            if not isinstance(translated(error), LogCorrupt):
                raise

    def require_same_head(self, connection: sqlite3.Connection) -> None:
        """Raise LogCorrupt when events are missing that the table knows of: positions would be given out again.

        Rows whose seal does not hold know of nothing.
        """
        columns = _columns(connection, self._table.name)
        if "position" not in columns:
            return
        listed, written = connection.execute(self._sql.heads).fetchone()
        if listed is not None and not (isinstance(listed, int) and listed <= (written or 0)):
            if columns == list(self._table.names):
                beyond = connection.execute(self._sql.beyond, (written or 0,)).fetchall()
                if not any(map(_is_sealed, beyond)):
                    return
            raise LogCorrupt(f"events up to position {listed} were written, and {written or 0} is the last one there")

    def _found_fault(self, connection: sqlite3.Connection) -> Fault | None:
        if not _columns(connection, self._table.name):
            return Fault.MISSING
        if not _columns(connection, PROJECTIONS.name):
            return Fault.OLDER
        if not is_as_made(connection, PROJECTIONS):
            return Fault.DAMAGED
        stored = connection.execute(_STORED, (self._table.name,)).fetchall()
        if not stored:
            return Fault.OLDER
        version, is_complete, is_this_logs = stored[0]
        if len(stored) > 1 or not isinstance(version, int):
            return Fault.DAMAGED
        if version < self._spec.version:
            return Fault.OLDER
        if version > self._spec.version:
            return Fault.NEWER
        if not is_this_logs:
            return Fault.FOREIGN
        if not is_complete:
            return Fault.INTERRUPTED
        whole = is_as_made(connection, self._table) and self._indexes_are_ours(connection)
        return None if whole else Fault.DAMAGED

    def _indexes_are_ours(self, connection: sqlite3.Connection) -> bool:
        """Return whether nothing else has the name of an index; one that is missing is made at the next start."""
        for index in self._table.indexes:
            named = connection.execute(_NAMED, (index.name,)).fetchone()
            if named is None:
                continue
            columns = tuple(name for (name,) in connection.execute(_COLUMNS_OF_INDEX, (index.name,)))
            if named != (self._table.name,) or columns != index.columns:
                return False
        return True

    def _put(self, execute: _Execute, rows: Sequence[R]) -> None:
        # In one statement, for each call of SQLite hands the interpreter's lock over and waits to get it back.
        for size, parameters in runs([(*row, seal_of(row)) for row in rows]):
            execute(self._sql.upsert(size), parameters)

    def _by_change(self, execute: _Execute, namespace: str, before: int) -> Iterator[R]:
        """The rows of a namespace, newest change first, each as the index and the table have it."""
        for *key, position in execute(self._sql.changes, (namespace, before)):
            columns = execute(self._sql.row, key).fetchone()
            if columns is None or columns[2] != position:
                raise LogCorrupt("the read table and its index contradict each other")
            yield self._checked(columns)

    def _require_all(self, execute: _Execute, namespace: str) -> None:
        """Raise LogCorrupt unless every stream of the namespace has its row, in listing order."""
        entries = execute(self._sql.changes, (namespace, NUMBER_MAX)).fetchall()
        positions = [position for its_namespace, _, position in entries if its_namespace == namespace]
        (streams,) = execute(_STREAMS, (namespace,)).fetchone()
        numbers = all(isinstance(position, int) for position in positions)
        if len(positions) != streams or not numbers or any(newer <= older for newer, older in pairwise(positions)):
            raise LogCorrupt(f"{streams} conversations are in the log and {len(positions)} in its read table")

    def _checked(self, columns: Sequence[Any]) -> R:
        *values, seal = columns
        if seal != seal_of(values):
            raise LogCorrupt("a row of the read table is not what was written")
        return self._spec.row(*values)

    def _through(self, query: Callable[[_Execute], T]) -> T:
        """The result of `query` on the rows in one short snapshot."""
        self.require_complete()
        return self._snapshot(query)

    def _snapshot(self, query: Callable[[_Execute], T]) -> T:
        """The answer to `query` in one short snapshot."""
        assert self._read is not None, "`through` comes first"
        try:
            answer: T = self._read(lambda connection: query(connection.execute))
        except sqlite3.Error as error:
            # The statements were right for the table as it was made.
            raise LogCorrupt(f"the read table cannot be read: {error}") from error
        return answer

    def _writing(self, change: Callable[[sqlite3.Connection], object]) -> None:
        assert self._write is not None, "`through` comes first"
        self._write(change)


_STREAMS = "SELECT count(*) FROM streams WHERE namespace = ?"
_ANY_STREAM = "SELECT 1 FROM streams LIMIT 1"
_STREAM_COUNT = "SELECT count(*) FROM streams NOT INDEXED"
_NEXT_STREAMS = "SELECT id, namespace, name FROM streams NOT INDEXED WHERE id > ? ORDER BY id LIMIT ?"
_OPENED = "INSERT OR REPLACE INTO projections (name, version, log_id, complete) SELECT ?, ?, log_id, ? FROM log"
_COMPLETED = "UPDATE projections SET complete = ? WHERE name = ?"
_NAMED = "SELECT tbl_name FROM sqlite_schema WHERE name = ?"
_COLUMNS_OF_TABLE = "SELECT name FROM pragma_table_info(?)"
_COLUMNS_OF_INDEX = "SELECT name FROM pragma_index_info(?)"
_STORED = "SELECT version, complete, log_id = (SELECT log_id FROM log) FROM projections WHERE name = ?"


class _Statements:
    """The statements on one table, as text for the driver."""

    def __init__(self, spec: RowTable[Any], table: Table) -> None:
        self._table = table
        self._spec = spec
        self._conditions = conditions_of(spec)
        name = table.name
        columns = ", ".join(table.names)
        self.row = f"SELECT {columns} FROM {name} WHERE namespace = ? AND id = ?"  # noqa: S608 - of constants
        self.changes = (
            f"SELECT namespace, id, position FROM {name} INDEXED BY {name}_by_change "  # noqa: S608 - of constants
            "WHERE namespace = ? AND position < ? ORDER BY position DESC"
        )
        self.namespaces = f"SELECT DISTINCT namespace FROM {name} ORDER BY namespace"  # noqa: S608 - of constants
        self.beyond = f"SELECT * FROM {name} WHERE NOT (typeof(position) = 'integer' AND position <= ?)"  # noqa: S608 - of constants
        self.heads = f"SELECT (SELECT max(position) FROM {name}), (SELECT max(position) FROM events)"  # noqa: S608 - of constants
        changed = ", ".join(f"{name} = excluded.{name}" for name in table.names if name not in KEY)
        self._conflict = f" ON CONFLICT (namespace, id) DO UPDATE SET {changed}"

    def upsert(self, rows: int) -> str:
        return insert_into(self._table, rows) + self._conflict

    def marked(self, mark: str) -> str:
        return (
            f"SELECT namespace, id FROM {self._table.name} "  # noqa: S608 - of constants
            f"WHERE ({self._conditions[mark]}) AND (namespace, id) > (?, ?) ORDER BY namespace, id LIMIT ?"
        )

    def values(self, mark: str) -> str:
        (column,) = self._spec.marks[mark]
        return f"SELECT namespace, id, {column} FROM {self._of_index(mark)} WHERE {self._conditions[mark]}"  # noqa: S608 - of constants

    def having(self, mark: str) -> str:
        (column,) = self._spec.marks[mark]
        return (
            f"SELECT namespace, id FROM {self._of_index(mark)} "  # noqa: S608 - of constants
            f"WHERE ({self._conditions[mark]}) AND namespace = ? AND {column} = ? ORDER BY id"
        )

    def _of_index(self, mark: str) -> str:
        return f"{self._table.name} INDEXED BY {self._table.name}_{mark}"

    def tally(self, mark: str) -> str:
        (column,) = self._spec.marks[mark]
        return f"SELECT {column}, count(*) FROM {self._table.name} WHERE {self._conditions[mark]} GROUP BY {column}"  # noqa: S608 - of constants


def _table_of(spec: RowTable[Any]) -> Table:
    columns = (Column(name, _TYPES[of], is_nullable) for name, of, is_nullable in columns_of(spec))
    # Of a mark only the rows that have it, so that a count reads them and no others, and most appends write to none; in
    # the order of pages, so that a page reads no other.
    conditions = conditions_of(spec)
    marks = (Index(f"{spec.name}_{name}", index_of(mark), conditions[name]) for name, mark in spec.marks.items())
    by_change = Index(f"{spec.name}_by_change", ("namespace", "position"))
    return Table(spec.name, tuple(columns), key=KEY, options=("WITHOUT ROWID",), indexes=(by_change, *marks))


def _is_sealed(columns: Sequence[Any]) -> bool:
    return bool(columns[-1] == seal_of(columns[:-1]))


def _columns(connection: sqlite3.Connection, name: str) -> list[str]:
    return [column for (column,) in connection.execute(_COLUMNS_OF_TABLE, (name,))]
