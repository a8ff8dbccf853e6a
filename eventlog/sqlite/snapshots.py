"""Snapshots in the log's file, each with a seal under the log's own secret."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import BigInteger, Column, Connection, LargeBinary, MetaData, String, Table
from sqlalchemy.schema import CreateTable

from abridged.eventlog.event import StreamId
from abridged.eventlog.snapshots import SET_ASIDE, NotSetAside, StoredSnapshot, seal_of
from abridged.eventlog.sqlite.engine import dropped, is_as_made
from abridged.eventlog.sqlite.errors import DATABASE_ERRORS, original
from abridged.eventlog.sqlite.sql import Run

T = TypeVar("T")


def _table(name: str, *, keeps_all: bool) -> Table:
    """A table of the newest snapshots, or one that keeps each version."""
    return Table(
        name,
        MetaData(),
        Column("namespace", String, primary_key=True),
        Column("id", String, primary_key=True),
        Column("event_version", BigInteger, primary_key=keeps_all, nullable=False),
        Column("position", BigInteger, nullable=False),
        Column("chain", LargeBinary, nullable=False),
        Column("codec", String, nullable=False),
        Column("state", LargeBinary, nullable=False),
        Column("seal", LargeBinary, nullable=False),
    )


_NEWEST = _table("snapshots", keeps_all=False)
ASIDE = _table(SET_ASIDE, keeps_all=True)


class SqliteSnapshots:
    """The Snapshots of a log in one file; without `write` they are only read."""

    def __init__(self, secret: bytes, read: Run, write: Run | None = None) -> None:
        """`secret` is the log's for PURPOSE; `read` and `write` are its own short snapshots and transactions."""
        self._secret = secret
        self._read = read
        self._write = write

    def of(self, key: StreamId) -> StoredSnapshot | None:
        row = self._row(key)
        if row is None or not self._is_sealed(row):
            return None
        return StoredSnapshot(key, row.event_version, row.position, row.chain, row.codec, row.state)

    def is_damaged(self, key: StreamId) -> bool:
        row = self._row(key)
        return row is not None and not self._is_sealed(row)

    def version_of(self, key: StreamId) -> int:
        row = self._row(key)
        return 0 if row is None else int(row.event_version)

    def put(self, snapshot: StoredSnapshot, *, unless: Callable[[], bool] = lambda: False) -> None:
        row = self._sealed(snapshot)
        self._writing(lambda connection: None if unless() else connection.exec_driver_sql(_PUT, row))

    def set_aside(self, key: StreamId, newer: StoredSnapshot | None = None) -> int:
        row = self._sealed(newer) if newer is not None else None
        return self._moving(lambda connection: _set_aside(connection, key, row))

    def set_aside_rest(self) -> int:
        def moved(connection: Connection) -> int:
            left = connection.exec_driver_sql(_KEYS.format(_NEWEST.name)).all() if has_snapshots(connection) else []
            for row in left:
                _set_aside(connection, StreamId(*row), None)
            return len(left)

        return self._moving(moved)

    def drop(self, key: StreamId) -> None:
        def dropped(connection: Connection) -> int:
            tables = [table for table in (_NEWEST, ASIDE) if is_as_made(connection, table)]
            return sum(connection.exec_driver_sql(_DROP_OF.format(table.name), tuple(key)).rowcount for table in tables)

        self._moving(dropped)

    def drop_proven(self, proven: Mapping[StreamId, int]) -> int:
        keys = [(*key, version) for key, version in proven.items()]
        return self._moving(
            lambda connection: (
                connection.exec_driver_sql(_DROP_UP_TO, keys).rowcount if has_snapshots(connection) else 0
            )
        )

    def _row(self, key: StreamId) -> Any:
        return self._read(lambda connection: connection.exec_driver_sql(_SELECT, tuple(key)).first())

    def _writing(self, change: Callable[[Connection], T]) -> T:
        assert self._write is not None, "these snapshots can only be read"
        done: T = self._write(change)
        return done

    def _moving(self, change: Callable[[Connection], int]) -> int:
        def moved(connection: Connection) -> int:
            # In place of the database's errors, which would stop the log: nothing that it needs is in doubt.
            with _not_set_aside():
                return change(connection)

        return self._writing(moved)

    def _sealed(self, snapshot: StoredSnapshot) -> tuple[Any, ...]:
        unsealed = (*snapshot.stream, *snapshot[1:])
        return (*unsealed, seal_of(self._secret, unsealed))

    def _is_sealed(self, row: Any) -> bool:
        *unsealed, seal = row
        return bool(seal == seal_of(self._secret, unsealed))


def prepare(connection: Connection) -> None:
    """Make the table in the transaction that opens the log, in the place of one that is not as this version makes it.

    Snapshots that a fault of the read table makes doubtful stay until the rebuild has read the events that they are
    states of.
    """
    if not has_snapshots(connection):
        dropped(connection, _NEWEST.name)
        connection.execute(CreateTable(_NEWEST))


def has_snapshots(connection: Connection) -> bool:
    """Return whether the file has the table, as this version makes it."""
    return is_as_made(connection, _NEWEST)


def carried(connection: Connection) -> None:
    """Copy the snapshots, set aside or not, from the file `main` to the one that is attached as `new`.

    Snapshots that a damaged page hides are left out, and the streams are then taken from the log's own table of them.
    """
    for table in (_NEWEST, ASIDE):
        if not is_as_made(connection, table):
            continue
        connection.execute(CreateTable(table.to_metadata(MetaData(), schema="new")))
        # All is read before anything is written, because a transaction in which a page was damaged cannot be trusted.
        keys = [key for key in _keys(connection, table.name) if _is_readable(connection, table.name, key)]
        connection.exec_driver_sql("BEGIN")
        for key in keys:
            connection.exec_driver_sql(_COPY.format(table.name), key)
        connection.exec_driver_sql("COMMIT")


@contextmanager
def _not_set_aside() -> Iterator[None]:
    try:
        yield
    except DATABASE_ERRORS as error:
        raise NotSetAside(str(original(error))) from error


def _set_aside(connection: Connection, key: StreamId, row: tuple[Any, ...] | None) -> int:
    if row is not None:
        connection.execute(CreateTable(ASIDE, if_not_exists=True))
        connection.exec_driver_sql(_KEEP, row)
    if has_snapshots(connection) and connection.exec_driver_sql(_HAS_ONE, tuple(key)).first():
        connection.execute(CreateTable(ASIDE, if_not_exists=True))
        connection.exec_driver_sql(_MOVE, tuple(key))
        connection.exec_driver_sql(_DROP, tuple(key))
    if not is_as_made(connection, ASIDE):
        return 0
    return int(connection.exec_driver_sql(_NEWEST_ASIDE, tuple(key)).scalar_one())


def _keys(connection: Connection, table: str) -> list[tuple[Any, ...]]:
    try:
        found = connection.exec_driver_sql(_KEYS.format(f"main.{table}")).all()
    except DATABASE_ERRORS:
        found = connection.exec_driver_sql(_STREAMS).all()
    return [tuple(row) for row in found]


def _is_readable(connection: Connection, table: str, key: tuple[Any, ...]) -> bool:
    try:
        connection.exec_driver_sql(_OF_ONE.format(table), key).all()
    except DATABASE_ERRORS:
        return False
    return True


_VALUES = ", ".join("?" for _ in _NEWEST.columns)
_SELECT = "SELECT * FROM snapshots WHERE namespace = ? AND id = ?"
_PUT = f"INSERT OR REPLACE INTO snapshots VALUES ({_VALUES})"  # noqa: S608 - of constants
_KEEP = f"INSERT OR REPLACE INTO snapshots_set_aside VALUES ({_VALUES})"  # noqa: S608 - of constants
_HAS_ONE = "SELECT 1 FROM snapshots WHERE namespace = ? AND id = ?"
_MOVE = "INSERT OR REPLACE INTO snapshots_set_aside SELECT * FROM snapshots WHERE namespace = ? AND id = ?"
_DROP_OF = "DELETE FROM {} WHERE namespace = ? AND id = ?"
_DROP = _DROP_OF.format(_NEWEST.name)
_DROP_UP_TO = f"{_DROP} AND event_version <= ?"
_NEWEST_ASIDE = "SELECT coalesce(max(event_version), 0) FROM snapshots_set_aside WHERE namespace = ? AND id = ?"
_KEYS = "SELECT DISTINCT namespace, id FROM {}"
_STREAMS = "SELECT namespace, name FROM main.streams NOT INDEXED"
_OF_ONE = "SELECT * FROM main.{0} WHERE namespace = ? AND id = ?"
_COPY = f"INSERT INTO new.{{0}} {_OF_ONE}"
