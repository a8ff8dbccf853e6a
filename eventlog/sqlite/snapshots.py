"""Snapshots in the log's file, each with a seal under the log's own secret."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from abridged.eventlog.event import StreamId
from abridged.eventlog.snapshots import SET_ASIDE, NotSetAside, StoredSnapshot, seal_of
from abridged.eventlog.sqlite.connection import transaction
from abridged.eventlog.sqlite.database import dropped, is_as_made
from abridged.eventlog.sqlite.sql import Run
from abridged.eventlog.sqlite.table import Column, Table

T = TypeVar("T")


def _table(name: str, *, keeps_all: bool) -> Table:
    """A table of the newest snapshots, or one that keeps each version."""
    return Table(
        name,
        (
            Column("namespace", "VARCHAR"),
            Column("id", "VARCHAR"),
            Column("event_version", "BIGINT"),
            Column("position", "BIGINT"),
            Column("chain", "BLOB"),
            Column("codec", "VARCHAR"),
            Column("state", "BLOB"),
            Column("seal", "BLOB"),
        ),
        key=("namespace", "id", "event_version") if keeps_all else ("namespace", "id"),
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
        _, _, *kept, _ = row
        return StoredSnapshot(key, *kept)

    def is_damaged(self, key: StreamId) -> bool:
        row = self._row(key)
        return row is not None and not self._is_sealed(row)

    def version_of(self, key: StreamId) -> int:
        row = self._read(lambda connection: connection.execute(_VERSION, key).fetchone())
        return 0 if row is None else int(row[0])

    def put(self, snapshot: StoredSnapshot, *, unless: Callable[[], bool] = lambda: False) -> None:
        row = self._sealed(snapshot)
        self._writing(lambda connection: None if unless() else connection.execute(_PUT, row))

    def set_aside(self, key: StreamId, newer: StoredSnapshot | None = None) -> int:
        row = self._sealed(newer) if newer is not None else None
        return self._moving(lambda connection: _set_aside(connection, key, row))

    def set_aside_rest(self) -> int:
        def moved(connection: sqlite3.Connection) -> int:
            left = connection.execute(_KEYS.format(_NEWEST.name)).fetchall() if has_snapshots(connection) else []
            for row in left:
                _set_aside(connection, StreamId(*row), None)
            return len(left)

        return self._moving(moved)

    def drop(self, key: StreamId) -> None:
        def dropped(connection: sqlite3.Connection) -> int:
            tables = [table for table in (_NEWEST, ASIDE) if is_as_made(connection, table)]
            return sum(connection.execute(_DROP_OF.format(table.name), key).rowcount for table in tables)

        self._moving(dropped)

    def drop_proven(self, proven: Mapping[StreamId, int]) -> int:
        keys = [(*key, version) for key, version in proven.items()]
        return self._moving(
            lambda connection: connection.executemany(_DROP_UP_TO, keys).rowcount if has_snapshots(connection) else 0
        )

    def _row(self, key: StreamId) -> Any:
        return self._read(lambda connection: connection.execute(_SELECT, key).fetchone())

    def _writing(self, change: Callable[[sqlite3.Connection], T]) -> T:
        assert self._write is not None, "these snapshots can only be read"
        done: T = self._write(change)
        return done

    def _moving(self, change: Callable[[sqlite3.Connection], int]) -> int:
        def moved(connection: sqlite3.Connection) -> int:
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


def prepare(connection: sqlite3.Connection) -> None:
    """Make the table in the transaction that opens the log, in the place of one that is not as this version makes it.

    Snapshots that a fault of the read table makes doubtful stay until the rebuild has read the events that they are
    states of.
    """
    if not has_snapshots(connection):
        dropped(connection, _NEWEST.name)
        connection.execute(_NEWEST.creation())


def has_snapshots(connection: sqlite3.Connection) -> bool:
    """Return whether the file has the table, as this version makes it."""
    return is_as_made(connection, _NEWEST)


def carried(connection: sqlite3.Connection) -> None:
    """Copy the snapshots, set aside or not, from the file `main` to the one that is attached as `new`.

    Snapshots that a damaged page hides are left out, and the streams are then taken from the log's own table of them.
    """
    for table in (_NEWEST, ASIDE):
        if not is_as_made(connection, table):
            continue
        connection.execute(table.creation(schema="new"))
        # All is read before anything is written, because a transaction in which a page was damaged cannot be trusted.
        keys = [key for key in _keys(connection, table.name) if _is_readable(connection, table.name, key)]
        with transaction(connection):
            connection.executemany(_COPY.format(table.name), keys)


@contextmanager
def _not_set_aside() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise NotSetAside(str(error)) from error


def _set_aside(connection: sqlite3.Connection, key: StreamId, row: tuple[Any, ...] | None) -> int:
    if row is not None:
        connection.execute(ASIDE.creation(if_not_exists=True))
        connection.execute(_KEEP, row)
    if has_snapshots(connection) and connection.execute(_HAS_ONE, key).fetchone():
        connection.execute(ASIDE.creation(if_not_exists=True))
        connection.execute(_MOVE, key)
        connection.execute(_DROP, key)
    if not is_as_made(connection, ASIDE):
        return 0
    return int(connection.execute(_NEWEST_ASIDE, key).fetchone()[0])


def _keys(connection: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    try:
        return connection.execute(_KEYS.format(f"main.{table}")).fetchall()
    except sqlite3.Error:
        return connection.execute(_STREAMS).fetchall()


def _is_readable(connection: sqlite3.Connection, table: str, key: tuple[Any, ...]) -> bool:
    try:
        connection.execute(_OF_ONE.format(table), key).fetchall()
    except sqlite3.Error:
        return False
    return True


_VALUES = ", ".join("?" for _ in _NEWEST.columns)
_SELECT = "SELECT * FROM snapshots WHERE namespace = ? AND id = ?"
_VERSION = "SELECT event_version FROM snapshots WHERE namespace = ? AND id = ?"
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
