"""A log in one SQLite file, with whatever is kept beside its events."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from abridged.eventlog.backend import Backend, Kept, Notice, Opened, StoredBackend
from abridged.eventlog.errors import LogUnsafe
from abridged.eventlog.log import AppendHook, EventLog
from abridged.eventlog.rows import R, RowTable
from abridged.eventlog.salvage import Meaning, Salvaged
from abridged.eventlog.snapshots import PURPOSE
from abridged.eventlog.sqlite.backup import Copying, backed_up, restored
from abridged.eventlog.sqlite.copy import copied
from abridged.eventlog.sqlite.file import (
    MOUNTINFO,
    refuse_network_file_system,
    refuse_orphan,
    size_bytes,
    volume_free_bytes,
    wal_reset_notice,
)
from abridged.eventlog.sqlite.log import SqliteEventLog
from abridged.eventlog.sqlite.rewrite import Rewrite, rewritten
from abridged.eventlog.sqlite.rows import SqliteRows
from abridged.eventlog.sqlite.salvage import salvaged
from abridged.eventlog.sqlite.snapshots import SqliteSnapshots, carried
from abridged.eventlog.sqlite.snapshots import prepare as prepare_snapshots
from abridged.eventlog.sqlite.verification import SqliteVerification, log_id_of


class SqliteBackend:
    """A StoredBackend: the log in the file `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def rows(self, table: RowTable[R]) -> SqliteRows[R]:
        return SqliteRows(table)

    def open(
        self,
        rows: SqliteRows[Any],
        *,
        clock_us: Callable[[], int],
        hook: AppendHook,
        on_fatal: Callable[[Exception], None] | None = None,
    ) -> Opened:
        def prepare(connection: sqlite3.Connection) -> None:
            rows.prepare(connection)
            prepare_snapshots(connection)

        log = SqliteEventLog.open(
            self._path, clock_us=clock_us, hook=hook, check=rows.check, prepare=prepare, on_fatal=on_fatal
        )
        rows.through(log.read, log.write)
        kept = Kept(rows, SqliteSnapshots(log.secret(PURPOSE), log.read, log.write))
        return Opened(log, kept, log.notices)

    def names(self) -> list[str]:
        return []

    def size_bytes(self) -> int:
        return size_bytes(self._path)

    def log_id(self) -> str:
        refuse_orphan(self._path)
        return log_id_of(self._path) if self._path.exists() and self._path.stat().st_size else ""

    def hazards(self) -> list[Notice]:
        found: list[Notice] = []
        try:
            refuse_network_file_system(self._path, MOUNTINFO.read_text(encoding="utf-8", errors="replace"))
        except LogUnsafe as error:
            found.append(Notice("unsafe_disk", str(error), "set log.path to a local disk", is_refused=True))
        except OSError:
            # A platform without that file; a start cannot tell there either.
            found.append(
                Notice(
                    "unknown_disk",
                    "this platform does not say whether the disk of the log is local",
                    "use a local disk",
                )
            )
        notice = wal_reset_notice(sqlite3.sqlite_version_info)
        return found if notice is None else [*found, notice]

    def verification(
        self, rows: SqliteRows[Any], *, is_owned: bool = True
    ) -> AbstractContextManager[SqliteVerification]:
        return SqliteVerification.opened(self._path, rows, is_owned=is_owned)

    def copy(self, log_id: str, fill: Callable[[EventLog], None], check: Callable[[Backend], None]) -> None:
        copied(self._path, log_id, fill, lambda new: check(SqliteBackend(new)))

    def backup(self, to: Path, check: Callable[[StoredBackend], None], copied: Callable[[int, int], None]) -> None:
        """Make the file `to` as a copy of the log's, whole or not at all, while a process may go on writing the log.
        The copy has every event that was acknowledged before the call, and none without those before it.

        `check` looks at the copy and raises what forbids it; `copied` is called with the pages that are done, and their
        total. Raises FileExistsError for a file that is there or comes meanwhile, LogFull without room for it,
        LogLocked while another process makes it, LogUnsafe for a volume without hard links, and for the name of the
        log's own copies.
        """
        backed_up(self._path, to, Copying(lambda new: check(SqliteBackend(new)), copied))

    def restore(
        self,
        backup: Path,
        check: Callable[[StoredBackend], None],
        copied: Callable[[int, int], None],
        *,
        replaces: bool,
    ) -> None:
        """Give a copy of the file `backup` the place of the log, whole or not at all, after `check`, as for `backup`.

        A log that is there is kept beside the new one if it `replaces` it; otherwise, and where one is kept so already,
        FileExistsError is raised. Raises LogLocked while a process owns either file, LogForeign for a backup that is no
        log, LogFull without room for it.
        """
        restored(self._path, backup, Copying(lambda new: check(SqliteBackend(new)), copied), replaces=replaces)

    def salvage(
        self,
        damaged: Path,
        meaning: Meaning,
        check: Callable[[StoredBackend], None],
        *,
        pages: Callable[[int, int], None],
        positions: Callable[[int, int], None],
    ) -> Salvaged:
        """Make a log here of what the one in `damaged` proves, whole or not at all; its remnants go to a file beside.

        No byte of `damaged` is changed, and no file is made beside it. `check` is that of `copy`. `pages` and
        `positions` get the progress. Raises FileExistsError for a log or remnants that are here, LogLocked while a
        process owns the damaged log, LogCorrupt if nothing in it proves to be an event, and what `open` raises.
        """
        return salvaged(
            damaged, self._path, meaning, lambda new: check(SqliteBackend(new)), pages=pages, positions=positions
        )

    def rewrite(
        self,
        rows: SqliteRows[Any],
        fill: Callable[[Backend], None] = lambda _: None,
        *,
        goes_on: Callable[[], bool] = lambda: True,
    ) -> bool:
        def filled(new: Path) -> None:
            fill(SqliteBackend(new))

        return rewritten(self._path, Rewrite(rows.refuse_lost_end, volume_free_bytes, goes_on, carried, filled))
