"""Snapshots of conversations whose events do not prove them, kept in the log's file for whoever salvages it.

They lie in a table of their own, as they were written, and no fold begins from one. Nothing removes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, LargeBinary, MetaData, String, Table
from sqlalchemy.schema import CreateTable

from eventlog.errors import EventLogError
from eventlog.event import StreamId
from eventlog.sqlite.engine import is_as_made
from eventlog.sqlite.errors import DATABASE_ERRORS, original
from service.conversations.snapshots import SNAPSHOTS, has_snapshots

SET_ASIDE = Table(
    "snapshots_set_aside",
    MetaData(),
    Column("namespace", String, primary_key=True),
    Column("id", String, primary_key=True),
    Column("event_version", BigInteger, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("chain", LargeBinary, nullable=False),
    Column("codec", String, nullable=False),
    Column("state", LargeBinary, nullable=False),
    Column("seal", LargeBinary, nullable=False),
)

assert [c.name for c in SET_ASIDE.columns] == [c.name for c in SNAPSHOTS.columns], "rows are moved by place"


class NotSetAside(EventLogError):
    """Snapshots could not be moved, for lack of room or because a page is damaged: they are where they were."""


@contextmanager
def _moving() -> Iterator[None]:
    # In place of the database's errors, which would stop the log: nothing that it needs is in doubt.
    try:
        yield
    except DATABASE_ERRORS as error:
        raise NotSetAside(str(original(error))) from error


def set_aside(connection: Connection, key: StreamId, row: tuple[Any, ...] | None = None) -> int:
    """Set the conversation's snapshot aside, if it has one, in a transaction of the caller; and beside it `row`, which
    is that of a newer one that was never written.

    Returns the version of the newest that is set aside, 0 without any. Raises NotSetAside.
    """
    with _moving():
        if row is not None:
            connection.execute(CreateTable(SET_ASIDE, if_not_exists=True))
            connection.exec_driver_sql(_KEEP, row)
        if has_snapshots(connection) and connection.exec_driver_sql(_HAS_ONE, tuple(key)).first():
            connection.execute(CreateTable(SET_ASIDE, if_not_exists=True))
            connection.exec_driver_sql(_SET_ASIDE, tuple(key))
            connection.exec_driver_sql(_DROP, tuple(key))
        if not is_as_made(connection, SET_ASIDE):
            return 0
        return int(connection.exec_driver_sql(_NEWEST, tuple(key)).scalar_one())


def set_aside_rest(connection: Connection) -> int:
    """Set every snapshot aside that is left, in a transaction of the caller; returns how many. Raises NotSetAside."""
    with _moving():
        left = connection.exec_driver_sql(_KEYS.format(SNAPSHOTS.name)).all() if has_snapshots(connection) else []
        for row in left:
            set_aside(connection, StreamId(*row))
        return len(left)


def drop_proven(connection: Connection, proven: Mapping[StreamId, int]) -> int:
    """Drop the snapshots up to the versions to which their whole streams were folded, in a transaction of the caller.

    Returns how many. Raises NotSetAside.
    """
    with _moving():
        if not has_snapshots(connection):
            return 0
        return connection.exec_driver_sql(_DROP_UP_TO, [(*key, version) for key, version in proven.items()]).rowcount


def carried(connection: Connection) -> None:
    """Copy the snapshots, set aside or not, from the file `main` to the one that is attached as `new`.

    What a damaged page hides is left out, and the conversations are then taken from the log's own table of streams.
    """
    for table in (SNAPSHOTS, SET_ASIDE):
        if not is_as_made(connection, table):
            continue
        connection.execute(CreateTable(table.to_metadata(MetaData(), schema="new")))
        # All is read before anything is written, because a transaction in which a page was damaged cannot be trusted.
        keys = [key for key in _keys(connection, table.name) if _is_readable(connection, table.name, key)]
        connection.exec_driver_sql("BEGIN")
        for key in keys:
            connection.exec_driver_sql(_COPY.format(table.name), key)
        connection.exec_driver_sql("COMMIT")


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


_HAS_ONE = "SELECT 1 FROM snapshots WHERE namespace = ? AND id = ?"
_SET_ASIDE = "INSERT OR REPLACE INTO snapshots_set_aside SELECT * FROM snapshots WHERE namespace = ? AND id = ?"
_DROP = "DELETE FROM snapshots WHERE namespace = ? AND id = ?"
_DROP_UP_TO = f"{_DROP} AND event_version <= ?"
_NEWEST = "SELECT coalesce(max(event_version), 0) FROM snapshots_set_aside WHERE namespace = ? AND id = ?"
_KEYS = "SELECT DISTINCT namespace, id FROM {}"
_STREAMS = "SELECT namespace, name FROM main.streams NOT INDEXED"
_OF_ONE = "SELECT * FROM main.{0} WHERE namespace = ? AND id = ?"
_COPY = f"INSERT INTO new.{{0}} {_OF_ONE}"
_KEEP = f"INSERT OR REPLACE INTO snapshots_set_aside VALUES ({', '.join('?' for _ in SET_ASIDE.columns)})"  # noqa: S608 - of constants
