"""Rows beside the events in the log's database, each with a seal."""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Self, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    text,
)

from abridged.eventlog.errors import LogCorrupt, LogNewer, LogUnavailable, StreamCorrupt
from abridged.eventlog.event import NUMBER_MAX, StreamId
from abridged.eventlog.postgres.connections import Connection, Run, ask, is_direct
from abridged.eventlog.postgres.database import described, execute_each, is_as_made, lock_tables, snapshot
from abridged.eventlog.postgres.schema import created, dropped, quoted, remade_indexes, type_of
from abridged.eventlog.row_columns import KEY, columns_of, conditions_of, index_of
from abridged.eventlog.rows import FINISHED, FIRST, FOR_NOW, UNFINISHED, Fault, R, RowTable, seal_of

T = TypeVar("T")

STREAMS_PAGE = 256
"""Streams per read while rows are rebuilt."""

LOOK_ROWS = 64
"""Rows of a read of a page, of which some may not be wanted."""

NO_LOG = 0
"""The number of no log: rows that are of none yet."""

_TYPES: Mapping[type, Any] = {str: String, int: BigInteger, float: Float, bytes: LargeBinary}

_ESCAPED = re.compile(r"\\[0\\]")

PROJECTIONS = Table(
    "projections",
    MetaData(),
    Column("log", SmallInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("version", SmallInteger, nullable=False),
    Column("complete", SmallInteger, nullable=False),
    PrimaryKeyConstraint("log", "name", name="pk_projections"),
)
"""The version that made a table of rows, and whether to its end: 1, or the number of the process that makes them again,
which is negative; 0 after a rebuild that left out streams, 2 after one that made rows for now."""


class PostgresRows(Generic[R]):
    """StoredRows of one table and one log, which `of` names when it is opened. Nobody reads or writes them until they
    are all there (`is_complete`)."""

    def __init__(self, table: RowTable[R]) -> None:
        self._spec = table
        self._table = _table_of(table)
        self._sql = _Statements(table, self._table)
        self._log: dict[str, Any] = {"log": NO_LOG, "table": table.name}
        self._read: Run | None = None
        self._write: Run | None = None
        self._left_out: Mapping[StreamId, int] = {}
        self._is_for_now = False
        self._maker = -1 - secrets.randbelow(1 << 15)
        self.is_complete = True

    def of(self, log: int) -> Self:
        """Take the rows of the log of this number from now on."""
        self._log["log"] = log
        return self

    def prepare(self, connection: Connection) -> None:
        """Open the table in the transaction that opens the log, and empty it under the log's lock if it has a fault, or
        rows for now.

        `is_complete` is then false until its rows are rebuilt. Raises LogNewer if a newer version made the table,
        LogCorrupt if it is not as this version made it or knows of events that are missing, LogUnavailable while
        another process rebuilds it.
        """
        if (fault := self._due(connection)) is not None:
            lock_tables(connection, self._log["log"])
            # Another process may have made it in between.
            fault = self._due(connection)
        if fault is Fault.NEWER:
            raise LogNewer(f"the read table {fault}; `abridged log rebuild` makes it again for this one")
        if fault is Fault.DAMAGED:
            raise LogCorrupt(f"the read table {fault}; `abridged log rebuild` makes it again")
        if fault is None:
            self.require_same_head(connection)
            return
        self._empty(connection)
        (streams,) = _one(connection, _ANY_STREAM, self._log)
        self.is_complete = not streams
        # Behind a pooler the lock would be of nobody's session. There the number tells whose the rows are.
        if streams and is_direct(connection) and not _one(connection, _MAKING, self._log)[0]:
            raise LogUnavailable("another process is making the read table again: start when it is done")
        complete = 1 if self.is_complete else self._maker
        connection.execute(_OPENED, {**self._log, "version": self._spec.version, "complete": complete})

    def through(self, read: Run, write: Run | None = None) -> None:
        """Use the log's own connections from now on."""
        self._read, self._write = read, write

    def streams(self) -> Iterator[StreamId]:
        last = 0
        while found := self._all(_NEXT_STREAMS, after=last, limit=STREAMS_PAGE):
            yield from (StreamId(namespace, name) for _, namespace, name in found)
            last = found[-1][0]

    def stream_count(self) -> int:
        return int(self._all(_STREAM_COUNT)[0][0])

    def insert(self, rows: Sequence[R]) -> None:
        self._writing(lambda connection: self.put(connection, rows))

    def complete(self, *, left_out: Mapping[StreamId, int], for_now: bool = False) -> None:
        def completed(connection: Connection) -> None:
            complete = UNFINISHED if left_out else FOR_NOW if for_now else FINISHED
            made = {**self._log, "complete": complete, "maker": self._maker}
            if connection.execute(_COMPLETED, made).rowcount != 1:
                raise LogUnavailable("another process has begun to make the read table again")

        self._writing(completed)
        # After the commit, or another process would find rows that are not complete and nobody who makes them. A
        # connection that has broken holds no lock.
        with suppress(LogUnavailable):
            self._writing(lambda connection: connection.execute(_MADE) if is_direct(connection) else None)
        self._left_out = dict(left_out)
        self._is_for_now = for_now
        self.is_complete = True

    def require_complete(self) -> None:
        if not self.is_complete:
            raise LogUnavailable("the read table is being made again")

    def put(self, transaction: Connection, rows: Sequence[R]) -> None:
        # One row a stream: a statement may write none twice. A row that is made again replaces none that is newer.
        newest = {row[:2]: (*row[:2], *map(_stored, row[2:]), seal_of(row)) for row in rows}
        if newest:
            columns = map(list, zip(*newest.values(), strict=True))
            transaction.execute(
                self._sql.upsert, {**self._log, **dict(zip(self._sql.parameters, columns, strict=True))}
            )

    def row(self, key: StreamId) -> R | None:
        if key in self._left_out:
            what = "the conversation could not be read when the read table was made"
            raise StreamCorrupt(what, key, self._left_out[key])
        self.require_complete()
        found = self._all(self._sql.row, namespace=key.namespace, id=key.name)
        if not found:
            self._reading(self._require_standing)
        return self._checked(found[0]) if found else None

    def page(self, namespace: str, *, before: int, limit: int, accepts: Callable[[R], bool]) -> list[R]:
        """See Rows. Rows are counted where a list begins and where it ends, which costs its length."""
        self.require_complete()

        def read(connection: Connection) -> list[R]:
            with snapshot(connection):
                return looked_up(connection)

        def looked_up(connection: Connection) -> list[R]:
            found: list[R] = []
            cursor = before or NUMBER_MAX
            while len(found) < limit and cursor:
                asked = {**self._log, "namespace": namespace, "before": cursor, "limit": LOOK_ROWS}
                rows = [self._checked(row) for row in _many(connection, self._sql.changes, asked)]
                found.extend(row for row in rows if accepts(row))
                cursor = rows[-1][2] if len(rows) == LOOK_ROWS else 0
            if not before or len(found) < limit:
                self._require_all(connection, namespace)
            return found[:limit]

        return self._reading(read)

    def namespaces(self) -> list[str]:
        self.require_complete()
        return [name for (name,) in self._all(self._sql.namespaces)]

    def marked(self, mark: str, *, after: StreamId = FIRST, limit: int = NUMBER_MAX) -> list[R]:
        self.require_complete()
        found: list[R] = []
        for row in self._all(self._sql.marked(mark), namespace=after.namespace, id=after.name, limit=limit):
            try:
                found.append(self._checked(row))
            except LogCorrupt:
                continue
        return found

    def marked_streams(self, mark: str, *, after: StreamId = FIRST, limit: int = NUMBER_MAX) -> list[StreamId]:
        self.require_complete()
        keys = self._all(self._sql.marked_streams(mark), namespace=after.namespace, id=after.name, limit=limit)
        return [StreamId(*key) for key in keys]

    def having(self, mark: str, namespace: str, value: Any) -> list[StreamId]:
        keys = self._all_standing(self._sql.having(mark), namespace=namespace, value=_stored(value))
        return [StreamId(*key) for key in keys]

    def values(self, mark: str) -> dict[StreamId, Any]:
        return {StreamId(*key): _given(value) for *key, value in self._all_standing(self._sql.values(mark))}

    def tally(self, mark: str) -> Counter[Any]:
        self.require_complete()
        return Counter({_given(value): count for value, count in self._all(self._sql.tally(mark))})

    def fault(self, connection: Connection) -> Fault | None:
        """Return the fault of the table as a whole; None when its rows can be read."""
        found = described(connection, [self._table.name, PROJECTIONS.name])
        if self._table.name not in found:
            return Fault.MISSING
        if PROJECTIONS.name not in found:
            return Fault.OLDER
        if not is_as_made(found[PROJECTIONS.name], PROJECTIONS):
            return Fault.DAMAGED
        stored = _many(connection, _STORED, self._log)
        if not stored or stored[0][0] < self._spec.version:
            return Fault.OLDER
        version, complete = stored[0]
        if version > self._spec.version:
            return Fault.NEWER
        if complete not in (FINISHED, FOR_NOW):
            return Fault.INTERRUPTED
        return None if is_as_made(found[self._table.name], self._table) else Fault.DAMAGED

    def _due(self, connection: Connection) -> Fault | None:
        """The reason why a start makes the table again; None if it does not."""
        fault = self.fault(connection)
        if fault is None and _many(connection, _STORED, self._log)[0][1] == FOR_NOW:
            return Fault.INTERRUPTED
        return fault

    def require_same_head(self, connection: Connection) -> None:
        """Raise LogCorrupt when events are missing that the table knows of: positions would be given out again."""
        listed, written = _one(connection, self._sql.heads, self._log)
        if listed > written:
            raise LogCorrupt(f"events up to position {listed} were written, and {written} is the last one there")

    def forget(self, connection: Connection) -> None:
        """Empty the table of this log's rows, whichever version made them: the next opening has them made again."""
        if not is_as_made(described(connection, [PROJECTIONS.name]).get(PROJECTIONS.name), PROJECTIONS):
            execute_each(connection, [dropped(PROJECTIONS), *created(PROJECTIONS)])
        self._empty(connection)
        connection.execute(_FORGOTTEN_OF_LOG, self._log)

    def _empty(self, connection: Connection) -> None:
        """Have the table empty of this log's rows; a table with other columns is made again, empty for every log."""
        found = described(connection, [self._table.name, PROJECTIONS.name])
        if PROJECTIONS.name not in found:
            execute_each(connection, created(PROJECTIONS))
        if is_as_made(found.get(self._table.name), self._table):
            connection.execute(self._sql.delete, self._log)
            execute_each(connection, remade_indexes(self._table))
            return
        execute_each(connection, [dropped(self._table), *created(self._table)])
        connection.execute(_FORGOTTEN, self._log)

    def _require_standing(self, connection: Connection, *, made: Collection[int] = (FINISHED, FOR_NOW)) -> None:
        """Raise LogUnavailable while another process makes the rows again, so that some are missing, and where one has
        made rows for now unless that is among `made`."""
        stored = _many(connection, _STORED, self._log)
        if stored in [[(self._spec.version, each)] for each in made] or self._left_out:
            return
        if stored == [(self._spec.version, FOR_NOW)]:
            raise LogUnavailable("another process made the read table where a data key is lost: restart this one")
        raise LogUnavailable("the read table is being made again")

    def _require_all(self, connection: Connection, namespace: str) -> None:
        """Raise LogCorrupt unless every stream of the namespace has its row."""
        rows, streams = _one(connection, self._sql.counts, {**self._log, "namespace": namespace})
        if rows != streams:
            self._require_standing(connection)
            raise LogCorrupt(f"{streams} conversations are in the log and {rows} in its read table")

    def _checked(self, columns: Sequence[Any]) -> R:
        namespace, name, *stored, seal = columns
        values = (namespace, name, *map(_given, stored))
        if seal != seal_of(values):
            raise LogCorrupt("a row of the read table is not what was written")
        return self._spec.row(*values)

    def _all(self, statement: bytes, **parameters: Any) -> list[tuple[Any, ...]]:
        return self._reading(lambda connection: _many(connection, statement, {**self._log, **parameters}))

    def _all_standing(self, statement: bytes, **parameters: Any) -> list[tuple[Any, ...]]:
        """The rows of a statement whose caller acts on what is not there. The process that made rows for now knows of
        what they do not have."""
        self.require_complete()
        found = self._all(statement, **parameters)
        made = (FINISHED, FOR_NOW) if self._is_for_now else (FINISHED,)
        self._reading(partial(self._require_standing, made=made))
        return found

    def _reading(self, query: Callable[[Connection], T]) -> T:
        assert self._read is not None, "`through` comes first"
        answer: T = self._read(query)
        return answer

    def _writing(self, change: Callable[[Connection], object]) -> None:
        assert self._write is not None, "`through` comes first"
        self._write(change)


_ANY_STREAM = b"SELECT EXISTS (SELECT 1 FROM streams WHERE log = %(log)b)"
_STREAM_COUNT = b"SELECT count(*) FROM streams WHERE log = %(log)b"
_NEXT_STREAMS = (
    b"SELECT id, namespace, name FROM streams WHERE log = %(log)b AND id > %(after)b ORDER BY id LIMIT %(limit)b"
)
_STORED = b"SELECT version, complete FROM projections WHERE log = %(log)b AND name = %(table)b"
_OPENED = (
    b"INSERT INTO projections (log, name, version, complete) "
    b"VALUES (%(log)b, %(table)b, %(version)b, %(complete)b) "
    b"ON CONFLICT (log, name) DO UPDATE SET version = excluded.version, complete = excluded.complete"
)
_COMPLETED = (
    b"UPDATE projections SET complete = %(complete)b WHERE log = %(log)b AND name = %(table)b AND complete = %(maker)b"
)
_MAKING = b"SELECT pg_try_advisory_lock('projections'::regclass::oid::integer, hashtext(%(log)b::text || %(table)b))"
_MADE = b"SELECT pg_advisory_unlock_all()"
_FORGOTTEN = b"DELETE FROM projections WHERE name = %(table)b"
_FORGOTTEN_OF_LOG = b"DELETE FROM projections WHERE log = %(log)b AND name = %(table)b"


class _Statements:
    """The statements on one table."""

    def __init__(self, spec: RowTable[Any], table: Table) -> None:
        self._table = table
        self._spec = spec
        self._conditions = conditions_of(spec)
        (name,) = quoted([table.name])
        own = [column for column in table.columns if column.name != "log"]
        names = quoted(column.name for column in own)
        columns = ", ".join(names)
        self.parameters = [f"column_{place}" for place in range(len(own))]
        arrays = ", ".join(f"%({at})b::{type_of(column)}[]" for at, column in zip(self.parameters, own, strict=True))
        changed = ", ".join(
            f"{at} = excluded.{at}" for at, column in zip(names, own, strict=True) if not column.primary_key
        )
        self.upsert = (
            f"INSERT INTO {name} (log, {columns}) SELECT %(log)b, * FROM unnest({arrays}) "  # noqa: S608 - of constants
            f"ON CONFLICT (log, namespace, id) DO UPDATE SET {changed} WHERE {name}.position <= excluded.position"
        ).encode()
        self._select = f"SELECT {columns} FROM {name} WHERE log = %(log)b"  # noqa: S608 - of constants
        self.row = f"{self._select} AND namespace = %(namespace)b AND id = %(id)b".encode()
        self.changes = (
            f"{self._select} AND namespace = %(namespace)b AND position < %(before)b "
            "ORDER BY position DESC LIMIT %(limit)b"
        ).encode()
        self.namespaces = (
            f"SELECT DISTINCT namespace FROM {name} WHERE log = %(log)b ORDER BY namespace"  # noqa: S608 - of constants
        ).encode()
        self.counts = (
            f"SELECT (SELECT count(*) FROM {name} WHERE log = %(log)b AND namespace = %(namespace)b), "  # noqa: S608 - of constants
            "(SELECT count(*) FROM streams WHERE log = %(log)b AND namespace = %(namespace)b)"
        ).encode()
        self.heads = (
            f"SELECT (SELECT coalesce(max(position), 0) FROM {name} WHERE log = %(log)b), "  # noqa: S608 - of constants
            "(SELECT coalesce(max(position), 0) FROM events WHERE log = %(log)b)"
        ).encode()
        self.delete = f"DELETE FROM {name} WHERE log = %(log)b".encode()  # noqa: S608 - of constants

    def marked(self, mark: str) -> bytes:
        return (self._select + self._page_of(mark)).encode()

    def marked_streams(self, mark: str) -> bytes:
        return (f"SELECT namespace, id FROM {self._table.name} WHERE log = %(log)b" + self._page_of(mark)).encode()  # noqa: S608 - of constants

    def _page_of(self, mark: str) -> str:
        where = self._conditions[mark]
        return f" AND ({where}) AND (namespace, id) > (%(namespace)b, %(id)b) ORDER BY namespace, id LIMIT %(limit)b"

    def values(self, mark: str) -> bytes:
        (column,) = self._spec.marks[mark]
        where = self._conditions[mark]
        return f"SELECT namespace, id, {column} FROM {self._table.name} WHERE log = %(log)b AND ({where})".encode()  # noqa: S608 - of constants

    def having(self, mark: str) -> bytes:
        (column,) = self._spec.marks[mark]
        where = self._conditions[mark]
        return (
            f"SELECT namespace, id FROM {self._table.name} "  # noqa: S608 - of constants
            f"WHERE log = %(log)b AND ({where}) AND namespace = %(namespace)b AND {column} = %(value)b ORDER BY id"
        ).encode()

    def tally(self, mark: str) -> bytes:
        (column,) = self._spec.marks[mark]
        where = self._conditions[mark]
        return (
            f"SELECT {column}, count(*) FROM {self._table.name} "  # noqa: S608 - of constants
            f"WHERE log = %(log)b AND ({where}) GROUP BY {column}"
        ).encode()


def _table_of(spec: RowTable[Any]) -> Table:
    columns = (
        Column(name, _TYPES[of], primary_key=name in KEY, nullable=is_nullable)
        for name, of, is_nullable in columns_of(spec)
    )
    table = Table(
        spec.name,
        MetaData(),
        Column("log", SmallInteger, primary_key=True, autoincrement=False),
        *columns,
        Index(f"{spec.name}_by_change", "log", "namespace", "position"),
    )
    conditions = conditions_of(spec)
    for name, mark in spec.marks.items():
        # Only of the rows with the mark, so that a count reads them and no others, and most appends write to none; in
        # the order of pages, so that a page reads no other.
        where = text(conditions[name])
        Index(f"{spec.name}_{name}", *(table.c[column] for column in ("log", *index_of(mark))), postgresql_where=where)
    return table


def _stored(value: Any) -> Any:
    """A value as its column holds it: no text of PostgreSQL has a NUL, which a title may have."""
    return value.replace("\\", r"\\").replace("\0", r"\0") if isinstance(value, str) else value


def _given(value: Any) -> Any:
    """The value that `_stored` was given."""
    return _ESCAPED.sub(lambda found: "\0" if found[0] == r"\0" else "\\", value) if isinstance(value, str) else value


def _one(connection: Connection, statement: bytes, parameters: Mapping[str, Any]) -> tuple[Any, ...]:
    (row,) = _many(connection, statement, parameters)
    return row


def _many(connection: Connection, statement: bytes, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return ask(connection, statement, parameters).fetchall()
