"""Connections to a log's file: their settings, which its promises depend on, and their transactions.

Each setting is read back after it is set. One connection writes; the few that read are lent one at a time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from queue import Empty, LifoQueue
from urllib.parse import quote

from abridged.eventlog.errors import LogClosed, LogFull, LogUnavailable, LogUnsafe
from abridged.eventlog.event_reader import READER_WAIT_S
from abridged.eventlog.sqlite.file import NO_ROOM, create_like, refuse_orphan, wal_index_of, wal_of
from abridged.eventlog.sqlite.wal import is_begun

BEGIN_IMMEDIATE = "BEGIN IMMEDIATE"

CHECKPOINT_PAGES = 2_000
"""SQLite copies the write-ahead log back into the file at the first commit past this many pages (PASSIVE)."""

BUSY_WAIT_MS = 5_000
READERS_MAX = 4
STATEMENTS_KEPT = 256
CACHE_KIB_WRITER = 16_384
CACHE_KIB_READER = 2_048

_SETTINGS: dict[str, int | str] = {
    "mmap_size": 0,  # an I/O error in mapped memory is a signal, which ends the process without a word
    "busy_timeout": BUSY_WAIT_MS,
    "foreign_keys": 1,
}
_WRITER_SETTINGS: dict[str, int | str] = {
    # Zeros in the place of whatever is deleted or overwritten, so that no text outlives its row in free pages.
    "secure_delete": 1,
    "journal_mode": "wal",
    "synchronous": 2,
    **_SETTINGS,
    "fullfsync": 1,  # both matter on macOS alone, where a plain fsync leaves data in the drive's cache
    "checkpoint_fullfsync": 1,
    "wal_autocheckpoint": CHECKPOINT_PAGES,
    "cache_size": -CACHE_KIB_WRITER,
}
_READER_SETTINGS: dict[str, int | str] = _SETTINGS | {
    "query_only": 1,
    "wal_autocheckpoint": 0,
    "cache_size": -CACHE_KIB_READER,
}
_ANY_READ = "SELECT count(*) FROM sqlite_schema"


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str = "BEGIN") -> Iterator[sqlite3.Connection]:
    """Run the block in a transaction, which is committed unless the block or the commit raises. Raises sqlite3.Error,
    too, when SQLite has rolled back by itself meanwhile."""
    connection.execute(begin)
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise


class Readers:
    """Connections that only read. The last one given back is lent first: it has pages and statements in memory."""

    def __init__(self, connections: Sequence[sqlite3.Connection], *, wait_s: float = READER_WAIT_S) -> None:
        self._wait_s = wait_s
        self._free: LifoQueue[sqlite3.Connection | None] = LifoQueue()
        for connection in connections:
            self._free.put(connection)
        self._is_closed = False

    @contextmanager
    def lent(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection until the context ends. Raises LogUnavailable when others keep all of them for `wait_s`,
        and LogClosed once this is closed, at once also in a thread that waits."""
        try:
            connection = self._free.get(timeout=self._wait_s)
        except Empty:
            raise LogUnavailable("too many reads are waiting") from None
        try:
            if connection is None or self._is_closed:
                raise LogClosed("the log is closed")
            yield connection
        finally:
            self._free.put(connection)
            if self._is_closed:
                self._close_free()

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection whose reads see the file as it is at the first of them."""
        with self.lent() as connection, transaction(connection):
            yield connection

    def close(self) -> None:
        """Close the connections, those that are lent when they are given back."""
        self._is_closed = True
        self._close_free()

    def _close_free(self) -> None:
        """Close what nobody has. None is left in its place: it wakes a thread that waits, which gives it back."""
        with suppress(Empty):
            while True:
                if (connection := self._free.get_nowait()) is not None:
                    connection.close()
        self._free.put(None)


def writer_of(path: Path, *, index_in_memory: bool = False) -> sqlite3.Connection:
    """The connection that writes. Its transactions begin with BEGIN_IMMEDIATE.

    `index_in_memory` spares the room of the write-ahead log's index on the disk, and no other process can read the log
    meanwhile (https://sqlite.org/vfs.html, "unix-excl").
    """
    return _connected(address_of(path, "rwc", index_in_memory=index_in_memory), _WRITER_SETTINGS)


def readers_of(path: Path, *, makes_files: bool = True, index_in_memory: bool = False) -> Readers:
    """A few connections that can only read, and so never checkpoint.

    All connections are opened here, including the write-ahead log's file: later another file may be in its place.
    Readers that may make no files read as `unwritten` says, and nothing may write to the file meanwhile.
    `index_in_memory` is the writer's.
    """
    address = address_of(path, "ro", index_in_memory=index_in_memory) if makes_files else unwritten(path)
    with ExitStack() as opened:
        connections = [opened.enter_context(closing(_connected(address, _READER_SETTINGS))) for _ in range(READERS_MAX)]
        for connection in connections:
            connection.execute(_ANY_READ).fetchall()
        opened.pop_all()
    return Readers(connections)


def empty_wal(connection: sqlite3.Connection) -> None:
    """Copy the write-ahead log into the file and cut it to nothing; raise LogUnavailable when a reader prevents it."""
    (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise LogUnavailable("another program reads the log")


def address_of(path: Path, mode: str, *, index_in_memory: bool = False) -> str:
    """The address of a file for SQLite. The mode "ro" has SQLite read beside a process that writes, and neither write
    to the file nor checkpoint."""
    return f"file:{quote(str(path))}?mode={mode}" + ("&vfs=unix-excl" if index_in_memory else "")


def unwritten(path: Path) -> str:
    """The address under which SQLite reads a file and changes no byte of it, its write-ahead log or that log's index.

    A write-ahead log without an index gets an empty one, which SQLite only needs to find. Raises LogFull if
    the volume takes no further file, and LogGone as `refuse_orphan` does.
    """
    refuse_orphan(path)
    if not is_begun(wal_of(path)):
        return address_without_wal(path)
    try:
        with suppress(FileExistsError):
            create_like(wal_index_of(path), like=path)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise LogFull(
            f"cannot read {path}: its volume takes no further file, and its write-ahead log has no index. The log is "
            "as it was; make room, then try again"
        ) from error
    return f"file:{quote(str(path))}?mode=ro&readonly_shm=1"


def address_without_wal(path: Path) -> str:
    """The address of a file as it is without its write-ahead log; SQLite takes it for one that never changes."""
    return f"file:{quote(str(path))}?mode=ro&immutable=1"


def _connected(address: str, settings: dict[str, int | str]) -> sqlite3.Connection:
    connection = sqlite3.connect(
        address, uri=True, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS_KEPT
    )
    try:
        for name, value in settings.items():
            connection.execute(f"PRAGMA {name} = {value}").fetchall()
            stands = connection.execute(f"PRAGMA {name}").fetchone()
            if stands is None or stands[0] != value:
                raise LogUnsafe(f"SQLite did not accept {name} = {value}")
    except BaseException:
        connection.close()
        raise
    return connection
