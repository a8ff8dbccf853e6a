"""Copies a log's file whole: into a backup while a process may be writing it, and from a backup into a log's place.

A copy has the pages of one commit, read in one transaction; commits go on meanwhile, in the write-ahead log. The copy
is made beside its place, checked there, and only then takes that name, so that a process may be killed at any step.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from abridged.eventlog.errors import LogFull, LogLocked, LogUnsafe
from abridged.eventlog.sqlite.connection import BUSY_WAIT_MS, address_of, unwritten
from abridged.eventlog.sqlite.copy import made_beside
from abridged.eventlog.sqlite.errors import opening, translating
from abridged.eventlog.sqlite.file import (
    NO_ROOM,
    PRIVATE_MODE,
    FileLock,
    copy_of,
    flush_folder,
    give_like,
    has_room,
    refuse_empty,
    replaced_of,
    wal_index_of,
    wal_of,
)
from abridged.eventlog.sqlite.ownership import owned, refuse_foreign

PAGES_AT_ONCE = 2_048
"""Pages between two flushes of a copy, 8 MiB: more that waits for the disk would hold up the log's own flushes."""

_COPY_SETTINGS = ("PRAGMA journal_mode = off", "PRAGMA synchronous = off")
"""A copy that fails is removed, and a complete one is flushed before it takes its name."""

_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
"""The system's errors for a hard link on a volume without any."""

_BEGIN = ("BEGIN", "SELECT count(*) FROM sqlite_schema")
"""The transaction reads from its first read on."""


class Copying(NamedTuple):
    """The caller's part of a copy: `check` raises what forbids the file that was made, `copied` is called with the
    pages that are copied, and their total."""

    check: Callable[[Path], None]
    copied: Callable[[int, int], None]


def backed_up(path: Path, to: Path, copying: Copying) -> None:
    """See SqliteBackend.backup."""
    path, to = path.resolve(), to.resolve()
    if to.exists():
        raise FileExistsError(f"there is a file {to}")
    if to == copy_of(path):
        raise LogUnsafe(f"copies of the log are made at {to}: give the backup another name")
    with made_beside(to) as (new, descriptor):
        with opening(path), _read_whole(path) as log:
            _copy(log, new, descriptor, copying.copied)
        copying.check(new)
        _link(new, to)
        flush_folder(to)


def restored(path: Path, backup: Path, copying: Copying, *, replaces: bool) -> None:
    """See SqliteBackend.restore."""
    path, backup = path.resolve(), backup.resolve(strict=True)
    refuse_empty(backup)
    with ExitStack() as resources:
        with opening(path):
            refuse_foreign(path)
            resources.enter_context(closing(FileLock(path)))
        _require_place(path, replaces=replaces)
        new, descriptor = resources.enter_context(made_beside(path))
        if not os.geteuid():
            # Root may restore the logs of other users.
            give_like(descriptor, path if path.exists() else path.parent)
        with opening(backup), owned(backup), _reading(unwritten(backup)) as source:
            _copy(source, new, descriptor, copying.copied)
        copying.check(new)
        _require_place(path, replaces=replaces)
        _put_in_place(new, path)


def _link(new: Path, to: Path) -> None:
    """Give the file `new` the name `to`, too. Raises FileExistsError for a file that has it by now, and LogUnsafe on a
    volume without hard links, where it would be taken from that file."""
    try:
        os.link(new, to)
    except FileExistsError as error:
        raise FileExistsError(f"there is a file {to}") from error
    except OSError as error:
        if error.errno in _NO_LINKS:
            raise LogUnsafe(f"the volume of {to.parent} has no hard links: make the backup on another one") from error
        raise


def _require_place(path: Path, *, replaces: bool) -> None:
    """Raise FileExistsError for a log that is not to be replaced, and where one that was replaced before still is."""
    there = [file for file in (path, wal_of(path)) if file.exists() and file.stat().st_size]
    if there and not replaces:
        raise FileExistsError(f"there is a log: {there[0]}")
    kept = [file for file in (replaced_of(path), wal_of(replaced_of(path))) if file.exists()]
    # Where only the write-ahead log is left, an interrupted restore has moved the rest.
    if path in there and kept:
        raise FileExistsError(f"there is a log that was replaced before: {kept[0]}")


def _put_in_place(new: Path, path: Path) -> None:
    """Give `new` the place of the log in `path`, which is kept beside it with its write-ahead log.

    No two files can change their names at once, and SQLite would copy the old write-ahead log into the new file. A
    write-ahead log, an empty one at last, is there as long as the log's own file is away: a start is refused then. An
    empty file is not kept, since a log that was replaced before may be.
    """
    wal, kept = wal_of(path), replaced_of(path)
    if path.exists() and path.stat().st_size:
        wal.touch(PRIVATE_MODE)
        flush_folder(path)
        path.replace(kept)
        flush_folder(path)
    if wal.exists() and wal.stat().st_size:
        if not (wal_of(kept).exists() and wal_of(kept).samefile(wal)):
            os.link(wal, wal_of(kept))
        empty = wal_of(new)
        empty.touch(PRIVATE_MODE)
        empty.replace(wal)
        flush_folder(path)
    new.replace(path)
    flush_folder(path)
    for beside in (wal, wal_index_of(path)):
        beside.unlink(missing_ok=True)
    flush_folder(path)


@contextmanager
def _read_whole(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection that reads the log in `path` as of now, whether or not a process owns it.

    A log that no process owns is owned meanwhile, and no byte of it is changed.
    """
    with ExitStack() as resources:
        try:
            resources.enter_context(owned(path))
        except LogLocked:
            address = address_of(path, "ro")
        else:
            address = unwritten(path)
        yield resources.enter_context(_reading(address))


@contextmanager
def _reading(address: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(address, uri=True, isolation_level=None, timeout=BUSY_WAIT_MS / 1_000)) as connection:
        for statement in _BEGIN:
            connection.execute(statement).fetchall()
        yield connection


def _copy(source: sqlite3.Connection, new: Path, descriptor: int, copied: Callable[[int, int], None]) -> None:
    """Write every page that the transaction of `source` sees into the file `new`, and flush it.

    Raises LogFull without room.
    """
    began = time.monotonic()

    def flushed(_status: int, left: int, pages: int) -> None:
        nonlocal began
        os.fdatasync(descriptor)
        copied(pages - left, pages)
        # A process that writes the log gets the disk for as long as this one had it.
        time.sleep(time.monotonic() - began)
        began = time.monotonic()

    try:
        with translating(has_room=partial(has_room, new)), closing(sqlite3.connect(new, isolation_level=None)) as copy:
            for setting in _COPY_SETTINGS:
                copy.execute(setting).fetchall()
            # Page by page without the transaction, it would begin again after every commit of another process.
            source.backup(copy, pages=PAGES_AT_ONCE, progress=flushed)
        os.fsync(descriptor)
    except LogFull as error:
        raise _no_room(new, error) from error
    except OSError as error:
        if error.errno in NO_ROOM:
            raise _no_room(new, os.strerror(error.errno or errno.ENOSPC)) from error
        raise


def _no_room(new: Path, cause: object) -> LogFull:
    return LogFull(f"the volume of {new.parent} has no room for the copy ({cause}); nothing is there")
