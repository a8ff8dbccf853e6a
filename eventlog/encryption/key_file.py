"""Wrapped data keys in a file of their own, which no backup of the log contains.

An erasure writes zeros over a key in its place: the row keeps its size, so SQLite moves nothing and leaves no copy.
Each commit empties and flushes the journal, so that an erased key does not come back from it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from abridged.eventlog.encryption.key_store import DUE, REWRAPPED_AT_ONCE, StoredKey, replaced
from abridged.eventlog.errors import EventLogError, KeysUnusable, LogFull, LogUnavailable
from abridged.eventlog.event import StreamId

BUSY_S: Final = 10.0
FORMAT: Final = 1
APPLICATION_ID: Final = 0x61626B79

_MAKE: Final = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS data_keys (
  number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, wrapper BLOB NOT NULL, wrapped BLOB NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS data_keys_by_wrapper ON data_keys (wrapper);
CREATE TABLE IF NOT EXISTS current (wrapper BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS erasures (
  log_id TEXT NOT NULL, position INTEGER NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
  PRIMARY KEY (log_id, namespace, name)
) STRICT;
CREATE INDEX IF NOT EXISTS erasures_by_position ON erasures (log_id, position);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
COMMIT;
"""
_PRAGMAS: Final = (
    "PRAGMA secure_delete = ON",
    "PRAGMA journal_mode = TRUNCATE",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = 1",
)
_ADD = "INSERT INTO data_keys (id, wrapper, wrapped) VALUES (?, ?, ?)"
_GET = "SELECT id, wrapper, wrapped FROM data_keys WHERE id = ?"
_DROP = "DELETE FROM data_keys WHERE id = ?"
_ERASE = "UPDATE data_keys SET wrapper = zeroblob(length(wrapper)), wrapped = zeroblob(length(wrapped)) WHERE id = ?"
_ERASED: Final = """
INSERT INTO erasures (log_id, position, namespace, name) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET position = max(position % ?, excluded.position)
"""
_ERASED_AFTER = "SELECT namespace, name FROM erasures WHERE log_id = ? AND position > ? ORDER BY position"
_DUE = "UPDATE erasures SET position = position + ? WHERE log_id = ? AND position > ? AND position < ?"
_SETTLED = "UPDATE erasures SET position = position % ? WHERE log_id = ? AND namespace = ? AND name = ?"
_WRAPPERS = "SELECT DISTINCT wrapper FROM data_keys"
_ONE_OF = "SELECT id, wrapper, wrapped FROM data_keys WHERE wrapper = ? LIMIT 1"
_NEXT = "SELECT id, wrapper, wrapped FROM data_keys WHERE id > ? ORDER BY id LIMIT ?"
_REWRAP = "UPDATE data_keys SET wrapper = ?, wrapped = ? WHERE id = ?"


class KeyFile:
    """A KeyStore in the file `path`."""

    def __init__(self, path: Path) -> None:
        """Raises KeysUnusable if the file is not one of data keys."""
        self._path = path
        self._lock = threading.Lock()
        if not path.exists():
            with _translating(path):
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        with _translating(path):
            self._connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            is_made = self._require_own()
            for pragma in _PRAGMAS:
                self._connection.execute(pragma)
            if not is_made:
                self._connection.executescript(_MAKE)
        self._inode = path.stat().st_ino

    def __str__(self) -> str:
        return str(self._path)

    def current(self) -> bytes:
        with self._transaction(writes=False) as connection:
            row = connection.execute("SELECT wrapper FROM current").fetchone()
        return bytes(row[0]) if row is not None else b""

    def wrappers(self) -> set[bytes]:
        with self._transaction(writes=False) as connection:
            found = {wrapper for (wrapper,) in connection.execute(_WRAPPERS)}
        return {wrapper for wrapper in found if isinstance(wrapper, bytes) and any(wrapper)}

    def one_of(self, wrapper: bytes) -> StoredKey | None:
        return self._one(_ONE_OF, wrapper)

    def add(self, keys: Sequence[StoredKey]) -> bool:
        with self._transaction() as connection:
            row = connection.execute("SELECT wrapper FROM current").fetchone()
            if row is None:
                connection.execute("INSERT INTO current VALUES (?)", (keys[0].wrapper,))
            elif row[0] != keys[0].wrapper:
                return False
            connection.executemany(_ADD, keys)
        return True

    def get(self, key_id: bytes) -> StoredKey | None:
        return self._one(_GET, key_id)

    def drop(self, key_ids: Collection[bytes]) -> None:
        with self._transaction() as connection:
            connection.executemany(_DROP, [(key_id,) for key_id in key_ids])

    def erase(self, key_ids: Collection[bytes], log_id: str, stream: StreamId, position: int) -> None:
        with self._transaction() as connection:
            connection.executemany(_ERASE, [(key_id,) for key_id in key_ids])
            connection.execute(_ERASED, (log_id, position, *stream, DUE))

    def erased_after(self, log_id: str, position: int) -> list[StreamId]:
        with self._transaction() as connection:
            found = [StreamId(*row) for row in connection.execute(_ERASED_AFTER, (log_id, position))]
            if found:
                connection.execute(_DUE, (DUE, log_id, position, DUE))
        return found

    def settle(self, log_id: str, streams: Collection[StreamId]) -> None:
        with self._transaction() as connection:
            connection.executemany(_SETTLED, [(DUE, log_id, *stream) for stream in streams])

    def set_current(self, wrapper: bytes) -> None:
        with self._transaction() as connection:
            connection.execute("REINDEX data_keys_by_wrapper")  # a row that it does not fit bears no change
            connection.execute("DELETE FROM current")
            connection.execute("INSERT INTO current VALUES (?)", (wrapper,))

    def rewrap_some(self, rewrapped: Callable[[StoredKey], StoredKey | None], *, after: bytes) -> bytes | None:
        with self._transaction() as connection:
            rows = connection.execute(_NEXT, (after, REWRAPPED_AT_ONCE)).fetchall()
            new = replaced(map(_stored, rows), rewrapped)
            connection.executemany(_REWRAP, [(key.wrapper, key.wrapped, key.id) for key in new])
        return bytes(rows[-1][0]) if rows else None

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _one(self, query: str, parameter: bytes) -> StoredKey | None:
        with self._transaction(writes=False) as connection:
            row = connection.execute(query, (parameter,)).fetchone()
        return _stored(row) if row is not None else None

    def _require_own(self) -> bool:
        """Return whether the tables are there; an empty file has none. Raises KeysUnusable for another file, of which
        nothing is changed."""
        (found,) = self._connection.execute("PRAGMA application_id").fetchone()
        (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if found != APPLICATION_ID and (found or tables):
            raise KeysUnusable(f"{self._path} is no file of data keys")
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version > FORMAT:
            raise KeysUnusable(f"a newer version wrote {self._path}")
        return bool(tables)

    @contextmanager
    def _transaction(self, *, writes: bool = True) -> Iterator[sqlite3.Connection]:
        with self._lock, _translating(self._path):
            if writes and not (self._path.exists() and self._path.stat().st_ino == self._inode):
                raise KeysUnusable(f"{self._path} is not in its place")
            self._connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def _stored(row: Sequence[object]) -> StoredKey:
    """The data key of a row. What is no bytes, as a damaged page may have it, is empty, and nothing unwraps it."""
    return StoredKey(*(value if isinstance(value, bytes) else b"" for value in row))


@contextmanager
def _translating(path: Path) -> Iterator[None]:
    try:
        yield
    except EventLogError:
        raise
    except sqlite3.OperationalError as error:
        code = error.sqlite_errorcode & 0xFF
        if code == sqlite3.SQLITE_FULL:
            raise LogFull(f"{path} has no room on its volume") from error
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise LogUnavailable(f"{path} is in use") from error
        raise KeysUnusable(f"{path}: {error}") from error
    except (sqlite3.Error, OSError) as error:
        raise KeysUnusable(f"{path}: {error}") from error
