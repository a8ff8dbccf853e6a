"""A log in one SQLite file, owned by one process. Acknowledged means flushed: write-ahead log, synchronous = FULL.

One connection, on the writer's thread, writes and checkpoints; a few read-only connections read pages.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from abridged.eventlog.admission import require_expected
from abridged.eventlog.backend import Notice
from abridged.eventlog.chain import LogIdentity
from abridged.eventlog.errors import LogFull
from abridged.eventlog.log import Append, AppendHook, AppendResult, Outcome
from abridged.eventlog.sqlite.connection import BEGIN_IMMEDIATE, readers_of, transaction, writer_of
from abridged.eventlog.sqlite.database import has_tables, identity_of, make_tables, require_current, stored_identity
from abridged.eventlog.sqlite.errors import opening, translated
from abridged.eventlog.sqlite.file import (
    NO_ROOM,
    create_private,
    flush_recovered,
    has_room,
    journal_of,
    wal_of,
    wal_reset_notice,
)
from abridged.eventlog.sqlite.gaps import Gaps
from abridged.eventlog.sqlite.leftovers import without_leftover
from abridged.eventlog.sqlite.ownership import owned
from abridged.eventlog.sqlite.reader import SqliteReader
from abridged.eventlog.sqlite.wal import pages_in
from abridged.eventlog.sqlite.writer import SqliteWriter
from abridged.eventlog.stored_log import StoredEventLog

T = TypeVar("T")

_BLANK = "UPDATE events SET payload = ?, salt = ?, content_hash = ? WHERE position = ?"
_VERSION_AT = "SELECT max(version) FROM events WHERE stream = (SELECT stream FROM events WHERE position = ?)"
_BLANK_REQUESTS = (
    "UPDATE requests SET content_hash = x'' WHERE last_position >= ? AND first_position <= ? "
    "AND stream = (SELECT stream FROM events WHERE position = ?)"
)


class SqliteEventLog(StoredEventLog[SqliteWriter, SqliteReader]):
    """An EventLog in a file. Use `open` to create it; `notices` are for the operator."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        reader: SqliteReader,
        *,
        path: Path,
        identity: LogIdentity,
        hook: AppendHook | None,
        clock_us: Callable[[], int],
        on_fatal: Callable[[Exception], None] | None,
        notices: tuple[Notice, ...],
        flush_found: Callable[[], None] | None,
        gaps: Gaps,
        resources: ExitStack,
    ) -> None:
        self.notices = notices
        self._path = path
        self._gaps = gaps
        self._purging = threading.Lock()
        self._resources = resources
        self._namespace_heads: dict[str, int] = {}
        writer = SqliteWriter(
            connection,
            path=path,
            identity=identity,
            hook=hook,
            clock_us=clock_us,
            fatal=self._fail,
            flush_found=flush_found,
        )
        super().__init__(writer, reader, identity=identity, head=writer.head, on_fatal=on_fatal)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        clock_us: Callable[[], int],
        hook: AppendHook | None = None,
        check: Callable[[sqlite3.Connection], object] | None = None,
        prepare: Callable[[sqlite3.Connection], None] | None = None,
        on_fatal: Callable[[Exception], None] | None = None,
        log_id: str = "",
    ) -> Self:
        """Open or create the log; `log_id` is the id of one that is created, at random if empty.

        `check` reads a log that exists before anything is written to it, and raises what forbids to open it. `prepare`
        runs once in the opening transaction, so that the hook's owner can create its own tables. `on_fatal` is called
        on the writer's thread with an error after which every append is refused: the process should stop and restart,
        except after LogGone, which a restart would not fix.

        A log that exists is read on a full volume, and appends are refused with LogFull until there is room.

        Raises LogLocked, LogUnsafe, LogOlder, LogNewer, LogCorrupt, LogForeign, LogGone, LogFull or LogUnavailable, and
        has changed no byte of the log then.
        """
        path = path.resolve()
        with ExitStack() as resources, opening(path):
            lock = resources.enter_context(owned(path))
            is_new = not path.exists()
            _require_fit(path, check)
            create_private(path)
            if is_new:
                lock.hold(path)
            gaps = resources.enter_context(closing(Gaps(path)))
            flush_found = _flushed_or_due(path)
            connection, in_memory = _connected(path, resources)
            reader = SqliteReader(readers_of(path, index_in_memory=in_memory))
            resources.callback(reader.close)
            try:
                with transaction(connection, BEGIN_IMMEDIATE):
                    if not has_tables(connection, path):
                        make_tables(connection)
                    identity = identity_of(connection, clock_us=clock_us, log_id=log_id)
                    if prepare is not None:
                        prepare(connection)
            except BaseException:
                # The connection that closes last copies the write-ahead log into the file, unless it can only read.
                connection.close()
                raise
            notice = wal_reset_notice(sqlite3.sqlite_version_info)
            notices = () if notice is None else (notice,)
            return cls(
                connection,
                reader,
                path=path,
                identity=identity,
                hook=hook,
                clock_us=clock_us,
                on_fatal=on_fatal,
                notices=(*notices, *without_leftover(path)),
                flush_found=flush_found,
                gaps=gaps,
                resources=resources.pop_all(),
            )

    def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run `query` in one short read-only snapshot, for the tables of the hook's owner."""
        return self._reading().read(query)

    def write(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run `query` in a short transaction between two groups of appends, for the tables of the hook's owner."""
        with self._writing:
            self._reading()
            return self._writer.write(query)

    def _put_blanked(self, rows: Sequence[tuple[bytes, bytes, bytes, int]], expected_version: int | None) -> None:
        positions = [position for *_, position in rows]

        def written(connection: sqlite3.Connection) -> None:
            if expected_version is not None:
                ((version,),) = connection.execute(_VERSION_AT, (positions[0],))
                require_expected(expected_version, version)
            connection.executemany(_BLANK, rows)
            connection.execute(_BLANK_REQUESTS, (positions[0], positions[-1], positions[0]))

        self.write(written)

    def purge(self) -> bool:
        """See EventLog: the write-ahead log has older pages, and pages have old bytes in their gaps.

        Appends go on while the file's gaps are zeroed, because nothing is copied into it meanwhile. The pages that they
        wrote follow between two groups of appends.
        """
        with self._purging, ExitStack() as held:
            pin = held.enter_context(self._reading().pinned())
            with self._writing:
                if not self._writer.checkpoint():
                    return False
                pin()
            self._gaps.zero()
            with self._writing:
                written = pages_in(wal_of(self._path))
                held.close()
                return self._writer.purge(lambda: self._gaps.zero(written))

    def full(self) -> str:
        return "" if has_room(self._path) else f"{self._path.name} has no room on its volume"

    def head_of(self, namespace: str) -> int:
        reader = self._reading()
        head = self._namespace_heads.get(namespace)
        # A commit in the meantime has set a later one.
        return self._namespace_heads.setdefault(namespace, reader.head_of(namespace)) if head is None else head

    def _release(self) -> None:
        self._gaps.stop()
        with self._purging, self._writing:
            self._writer.close()
            self._resources.close()

    def _commit(self, appends: Sequence[Append]) -> Sequence[Outcome]:
        outcomes = super()._commit(appends)
        for append, outcome in zip(appends, outcomes, strict=True):
            if isinstance(outcome, AppendResult) and outcome.events:
                self._namespace_heads[append.stream.namespace] = outcome.last_position
        return outcomes

    def _committed(self) -> None:
        super()._committed()
        with self._writing:
            self._writer.bound_wal()

    def _idle(self) -> None:
        with self._writing:
            self._writer.checkpoint()


def _require_fit(path: Path, check: Callable[[sqlite3.Connection], object] | None) -> None:
    """Raise what forbids to open the log in `path`, if there is one, and write nothing.

    A journal means that the first transaction of a new file was cut off, which only a writer may take back.
    """
    if not path.exists() or not path.stat().st_size or journal_of(path).exists():
        return
    reader = SqliteReader(readers_of(path, makes_files=False))
    try:
        if reader.read(lambda connection: has_tables(connection, path)):
            reader.read(require_current)
            identity = reader.read(stored_identity)
            if identity is not None:
                reader.check_identity(identity)
            if check is not None:
                reader.read(check)
    finally:
        reader.close()


def _flushed_or_due(path: Path) -> Callable[[], None] | None:
    """Flush the pages that a killed process left; without room, return the function that does so later."""
    flush_found = partial(flush_recovered, path)
    try:
        flush_found()
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        return flush_found
    return None


def _connected(path: Path, resources: ExitStack) -> tuple[sqlite3.Connection, bool]:
    """The writing connection, and whether the index of its write-ahead log is in memory, for lack of room on disk."""
    for in_memory in (False, True):
        try:
            connection = writer_of(path, index_in_memory=in_memory)
        except sqlite3.Error as error:
            if in_memory or not isinstance(translated(error, has_room=partial(has_room, path)), LogFull):
                raise
            continue
        return resources.enter_context(closing(connection)), in_memory
    raise AssertionError("the second attempt returns or raises")
