"""Wrapped data keys in a PostgreSQL database that has no log: a dump of the log's own database would contain the keys.

The server keeps the old row that an UPDATE leaves of an erased key until the table is vacuumed, and in its archives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Final

from abridged.eventlog.encryption.key_store import DUE, REWRAPPED_AT_ONCE, StoredKey, replaced
from abridged.eventlog.errors import KeysUnusable
from abridged.eventlog.event import StreamId
from abridged.eventlog.postgres.connections import Address, Connection, Cursor
from abridged.eventlog.postgres.database import transaction
from abridged.eventlog.postgres.errors import translating
from abridged.eventlog.postgres.schema import REVISION_TABLE

_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(7420001073)"
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS data_keys (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id bytea NOT NULL UNIQUE, wrapper bytea NOT NULL,
    wrapped bytea NOT NULL
);
CREATE INDEX IF NOT EXISTS data_keys_by_wrapper ON data_keys (wrapper);
CREATE TABLE IF NOT EXISTS data_keys_current (one boolean PRIMARY KEY CHECK (one), wrapper bytea NOT NULL);
CREATE TABLE IF NOT EXISTS data_keys_erasures (
    log_id text NOT NULL, namespace text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, position bigint NOT NULL,
    PRIMARY KEY (log_id, namespace, name)
);
"""
_HAS_KEYS = "SELECT to_regclass('data_keys') IS NOT NULL"
_HAS_LOG = "SELECT EXISTS (SELECT FROM pg_catalog.pg_class WHERE relname = %s)"
_CURRENT = "SELECT wrapper FROM data_keys_current"
_BEGIN_CURRENT = "INSERT INTO data_keys_current VALUES (true, %s) ON CONFLICT DO NOTHING"
_HOLD_CURRENT = f"{_CURRENT} FOR SHARE"
_SET_CURRENT = (
    "INSERT INTO data_keys_current VALUES (true, %s) ON CONFLICT (one) DO UPDATE SET wrapper = excluded.wrapper"
)
_WRAPPERS = "SELECT DISTINCT wrapper FROM data_keys"
_ADD = "INSERT INTO data_keys (id, wrapper, wrapped) SELECT * FROM unnest(%s::bytea[], %s::bytea[], %s::bytea[])"
_GET = "SELECT id, wrapper, wrapped FROM data_keys WHERE id = %s"
_DROP = "DELETE FROM data_keys WHERE id = ANY (%s)"
_ERASE = (
    "UPDATE data_keys SET wrapper = decode(repeat('00', length(wrapper)), 'hex'), "
    "wrapped = decode(repeat('00', length(wrapped)), 'hex') WHERE id = ANY (%s)"
)
_ERASED: Final = """
INSERT INTO data_keys_erasures AS e VALUES (%s, %s, %s, %s) ON CONFLICT (log_id, namespace, name)
DO UPDATE SET position = greatest(mod(e.position, %s), excluded.position)
"""
_ERASED_AFTER = "SELECT namespace, name FROM data_keys_erasures WHERE log_id = %s AND position > %s ORDER BY position"
_SET_DUE = (
    "UPDATE data_keys_erasures SET position = position + %s WHERE log_id = %s AND position > %s AND position < %s"
)
_SETTLED: Final = """
UPDATE data_keys_erasures AS e SET position = mod(e.position, %s)
FROM unnest(%s::text[], %s::text[]) AS s (namespace, name)
WHERE e.log_id = %s AND e.namespace = s.namespace AND e.name = s.name
"""
_ONE_OF = "SELECT id, wrapper, wrapped FROM data_keys WHERE wrapper = %s LIMIT 1"
_NEXT = "SELECT id, wrapper, wrapped FROM data_keys WHERE id > %s ORDER BY id LIMIT %s FOR UPDATE"
_REWRAP = (
    "UPDATE data_keys AS k SET wrapper = n.wrapper, wrapped = n.wrapped "
    "FROM unnest(%s::bytea[], %s::bytea[], %s::bytea[]) AS n (id, wrapper, wrapped) WHERE k.id = n.id"
)


class PostgresKeyStore:
    """A KeyStore in the database at a URL, in the first schema of the role's search path."""

    def __init__(self, url: str) -> None:
        """Raises KeysUnusable for a database that has a log, LogUnsafe, and LogUnavailable."""
        self._address = Address(url)
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        with ExitStack() as failing, self._transaction() as connection:
            failing.callback(connection.close)
            if _is_true(connection.execute(_HAS_LOG, (REVISION_TABLE,))):
                raise KeysUnusable(f"{self} has a log, whose dumps would have the keys with it: name another database")
            connection.execute(_ONE_AT_A_TIME)
            connection.execute(_TABLES.encode())
            failing.pop_all()

    def __str__(self) -> str:
        return str(self._address)

    @classmethod
    def exists(cls, url: str) -> bool:
        """Return whether the database has data keys."""
        with translating(), closing(Address(url).connect()) as connection:
            return _is_true(connection.execute(_HAS_KEYS))

    def current(self) -> bytes:
        with self._transaction() as connection:
            row = connection.execute(_CURRENT).fetchone()
        return bytes(row[0]) if row is not None else b""

    def wrappers(self) -> set[bytes]:
        with self._transaction() as connection:
            found = {bytes(row[0]) for row in connection.execute(_WRAPPERS)}
        return {wrapper for wrapper in found if any(wrapper)}

    def one_of(self, wrapper: bytes) -> StoredKey | None:
        return self._one(_ONE_OF, wrapper)

    def add(self, keys: Sequence[StoredKey]) -> bool:
        with self._transaction() as connection:
            connection.execute(_BEGIN_CURRENT, (keys[0].wrapper,))
            row = connection.execute(_HOLD_CURRENT.encode()).fetchone()
            if row is None or bytes(row[0]) != keys[0].wrapper:
                return False
            connection.execute(_ADD, _columns(keys))
        return True

    def get(self, key_id: bytes) -> StoredKey | None:
        return self._one(_GET, key_id)

    def drop(self, key_ids: Collection[bytes]) -> None:
        with self._transaction() as connection:
            connection.execute(_DROP, (list(key_ids),))

    def erase(self, key_ids: Collection[bytes], log_id: str, stream: StreamId, position: int) -> None:
        with self._transaction() as connection:
            connection.execute(_ERASE, (list(key_ids),))
            connection.execute(_ERASED, (log_id, *stream, position, DUE))

    def erased_after(self, log_id: str, position: int) -> list[StreamId]:
        with self._transaction() as connection:
            found = [StreamId(*row) for row in connection.execute(_ERASED_AFTER, (log_id, position))]
            if found:
                connection.execute(_SET_DUE, (DUE, log_id, position, DUE))
        return found

    def settle(self, log_id: str, streams: Collection[StreamId]) -> None:
        namespaces, names = [each.namespace for each in streams], [each.name for each in streams]
        with self._transaction() as connection:
            connection.execute(_SETTLED, (DUE, namespaces, names, log_id))

    def set_current(self, wrapper: bytes) -> None:
        with self._transaction() as connection:
            connection.execute(_SET_CURRENT, (wrapper,))

    def rewrap_some(self, rewrapped: Callable[[StoredKey], StoredKey | None], *, after: bytes) -> bytes | None:
        with self._transaction() as connection:
            rows = connection.execute(_NEXT, (after, REWRAPPED_AT_ONCE)).fetchall()
            new = replaced((StoredKey(*map(bytes, row)) for row in rows), rewrapped)
            connection.execute(_REWRAP, _columns(new))
        return bytes(rows[-1][0]) if rows else None

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()

    def _one(self, query: str, parameter: bytes) -> StoredKey | None:
        with self._transaction() as connection:
            row = connection.execute(query.encode(), (parameter,)).fetchone()
        return StoredKey(*map(bytes, row)) if row is not None else None

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """Yield the one connection in a transaction, and connect anew if it broke."""
        with self._lock, translating():
            if self._connection is None or self._connection.closed:
                self._connection = self._address.connect()
            with transaction(self._connection):
                yield self._connection


def _is_true(cursor: Cursor) -> bool:
    row = cursor.fetchone()
    return row is not None and bool(row[0])


def _columns(keys: Sequence[StoredKey]) -> tuple[list[bytes], list[bytes], list[bytes]]:
    return [key.id for key in keys], [key.wrapper for key in keys], [key.wrapped for key in keys]
