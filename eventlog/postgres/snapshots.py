"""Snapshots in the log's database, each with a seal under the log's own secret."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import psycopg
from sqlalchemy import BigInteger, Column, LargeBinary, MetaData, SmallInteger, Table

from abridged.eventlog.event import StreamId
from abridged.eventlog.postgres.connections import Connection, Run, ask
from abridged.eventlog.postgres.database import described, execute_each, is_as_made, lock_tables
from abridged.eventlog.postgres.schema import TEXT, created, dropped
from abridged.eventlog.snapshots import SET_ASIDE, NotSetAside, StoredSnapshot, seal_of

T = TypeVar("T")


def _table(name: str, *, keeps_all: bool) -> Table:
    """A table of the newest snapshots, or one that keeps each version."""
    return Table(
        name,
        MetaData(),
        Column("log", SmallInteger, primary_key=True, autoincrement=False),
        Column("namespace", TEXT, primary_key=True),
        Column("id", TEXT, primary_key=True),
        Column("event_version", BigInteger, primary_key=keeps_all, nullable=False, autoincrement=False),
        Column("position", BigInteger, nullable=False),
        Column("chain", LargeBinary, nullable=False),
        Column("codec", TEXT, nullable=False),
        Column("state", LargeBinary, nullable=False),
        Column("seal", LargeBinary, nullable=False),
    )


_NEWEST = _table("snapshots", keeps_all=False)
_ASIDE = _table(SET_ASIDE, keeps_all=True)
TABLES = (_NEWEST, _ASIDE)


class PostgresSnapshots:
    """The Snapshots of one log; without `write` they are only read."""

    def __init__(self, log: int, secret: bytes, read: Run, write: Run | None = None) -> None:
        """`secret` is the log's for PURPOSE; `read` and `write` use its own connections."""
        self._log = log
        self._secret = secret
        self._read = read
        self._write = write

    def of(self, key: StreamId) -> StoredSnapshot | None:
        row = self._row(key)
        return StoredSnapshot(key, *row[2:-1]) if row is not None and self._is_sealed(row) else None

    def is_damaged(self, key: StreamId) -> bool:
        row = self._row(key)
        return row is not None and not self._is_sealed(row)

    def version_of(self, key: StreamId) -> int:
        row = self._row(key)
        return 0 if row is None else int(row[2])

    def put(self, snapshot: StoredSnapshot, *, unless: Callable[[], bool] = lambda: False) -> None:
        row = self._sealed(snapshot)
        self._writing(lambda connection: None if unless() else connection.execute(_PUT, row))

    def set_aside(self, key: StreamId, newer: StoredSnapshot | None = None) -> int:
        def moved(connection: Connection) -> int:
            if newer is not None:
                connection.execute(_KEEP, self._sealed(newer))
            connection.execute(_MOVE, self._of(key))
            found = connection.execute(_NEWEST_ASIDE, self._of(key)).fetchone()
            return int(found[0]) if found is not None else 0

        return self._moving(moved)

    def set_aside_rest(self) -> int:
        return self._moving(lambda connection: connection.execute(_MOVE_ALL, {"log": self._log}).rowcount)

    def drop(self, key: StreamId) -> None:
        self._moving(lambda connection: sum(connection.execute(each, self._of(key)).rowcount for each in _DROP))

    def drop_proven(self, proven: Mapping[StreamId, int]) -> int:
        parameters = {
            "log": self._log,
            "namespaces": [key.namespace for key in proven],
            "ids": [key.name for key in proven],
            "versions": list(proven.values()),
        }
        return self._moving(lambda connection: connection.execute(_DROP_UP_TO, parameters).rowcount)

    def _row(self, key: StreamId) -> tuple[Any, ...] | None:
        found: tuple[Any, ...] | None = self._read(
            lambda connection: ask(connection, _SELECT, self._of(key)).fetchone()
        )
        return found

    def _of(self, key: StreamId) -> dict[str, Any]:
        return {"log": self._log, "namespace": key.namespace, "id": key.name}

    def _writing(self, change: Callable[[Connection], T]) -> T:
        assert self._write is not None, "these snapshots can only be read"
        done: T = self._write(change)
        return done

    def _moving(self, change: Callable[[Connection], int]) -> int:
        def moved(connection: Connection) -> int:
            try:
                return change(connection)
            except psycopg.Error as error:
                raise NotSetAside(str(error.diag.message_primary or error)) from error

        return self._writing(moved)

    def _sealed(self, snapshot: StoredSnapshot) -> dict[str, Any]:
        values = (*snapshot.stream, *snapshot[1:])
        return {
            **self._of(snapshot.stream),
            **snapshot._asdict(),
            "seal": seal_of(self._secret, values),
        }

    def _is_sealed(self, row: tuple[Any, ...]) -> bool:
        *unsealed, seal = row
        return bool(seal == seal_of(self._secret, unsealed))


def prepare(connection: Connection, log: int) -> None:
    """Make the tables in the transaction that opens the log, in the place of those that are not as this version makes
    them."""
    if _unmade(connection):
        lock_tables(connection, log)
        # Another process may have made them in between.
        for table in _unmade(connection):
            execute_each(connection, [dropped(table), *created(table)])


def _unmade(connection: Connection) -> list[Table]:
    found = described(connection, [table.name for table in TABLES])
    return [table for table in TABLES if not is_as_made(found.get(table.name), table)]


def has_snapshots(connection: Connection) -> bool:
    """Return whether the database has the table, as this version makes it."""
    return is_as_made(described(connection, [_NEWEST.name]).get(_NEWEST.name), _NEWEST)


_SELECT = b"""
SELECT namespace, id, event_version, position, chain, codec, state, seal FROM snapshots
WHERE log = %(log)b AND namespace = %(namespace)b AND id = %(id)b
"""

_PUT = b"""
INSERT INTO snapshots (log, namespace, id, event_version, position, chain, codec, state, seal)
VALUES (
    %(log)b, %(namespace)b, %(id)b, %(event_version)b, %(position)b, %(chain)b, %(codec)b, %(state)b, %(seal)b
)
ON CONFLICT (log, namespace, id) DO UPDATE SET
    event_version = excluded.event_version, position = excluded.position, chain = excluded.chain,
    codec = excluded.codec, state = excluded.state, seal = excluded.seal
WHERE snapshots.event_version <= excluded.event_version
"""
"""The newest stays, whichever process folded it."""

_KEEP = b"""
INSERT INTO snapshots_set_aside (log, namespace, id, event_version, position, chain, codec, state, seal)
VALUES (
    %(log)b, %(namespace)b, %(id)b, %(event_version)b, %(position)b, %(chain)b, %(codec)b, %(state)b, %(seal)b
)
ON CONFLICT (log, namespace, id, event_version) DO UPDATE SET
    position = excluded.position, chain = excluded.chain, codec = excluded.codec, state = excluded.state,
    seal = excluded.seal
"""

_MOVE_WHERE = """
WITH moved AS (
    DELETE FROM snapshots WHERE {} RETURNING log, namespace, id, event_version, position, chain, codec, state, seal
)
INSERT INTO snapshots_set_aside (log, namespace, id, event_version, position, chain, codec, state, seal)
SELECT * FROM moved
ON CONFLICT (log, namespace, id, event_version) DO UPDATE SET
    position = excluded.position, chain = excluded.chain, codec = excluded.codec, state = excluded.state,
    seal = excluded.seal
"""
_MOVE = _MOVE_WHERE.format("log = %(log)b AND namespace = %(namespace)b AND id = %(id)b").encode()
_MOVE_ALL = _MOVE_WHERE.format("log = %(log)b").encode()

_NEWEST_ASIDE = b"""
SELECT coalesce(max(event_version), 0) FROM snapshots_set_aside
WHERE log = %(log)b AND namespace = %(namespace)b AND id = %(id)b
"""

_DROP = tuple(
    f"DELETE FROM {table.name} WHERE log = %(log)b AND namespace = %(namespace)b AND id = %(id)b".encode()  # noqa: S608 - of constants
    for table in TABLES
)

_DROP_UP_TO = b"""
DELETE FROM snapshots AS s
USING unnest(%(namespaces)b::text[], %(ids)b::text[], %(versions)b::bigint[]) AS proven (namespace, id, version)
WHERE s.log = %(log)b AND s.namespace = proven.namespace AND s.id = proven.id AND s.event_version <= proven.version
"""
