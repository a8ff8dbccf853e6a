"""Removes the copy that a killed process has left beside a log: an erasure would not reach its text."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from abridged.eventlog.backend import Notice
from abridged.eventlog.errors import EventLogError
from abridged.eventlog.sqlite.connection import unwritten
from abridged.eventlog.sqlite.file import FileLock, copy_of, flush_folder, lock_of, wal_index_of, wal_of

_IDENTITY = "SELECT log_id FROM log NOT INDEXED"
_HEAD = "SELECT coalesce(max(position), 0) FROM events"


def without_leftover(path: Path, connection: sqlite3.Connection) -> tuple[Notice, ...]:
    """Remove the copy beside the log in `path`, which the caller owns and has open. Return a notice of one that stays:
    another process makes it, or it may be more than a copy, as another log, or one with later events."""
    new = copy_of(path)
    if not new.exists():
        return ()
    try:
        if new.samefile(path):  # a backup that was killed after it gave the copy its second name
            new.unlink()
        elif not _is_copy(new, connection):
            return (_notice(new, "it is a log of its own"),)
        else:
            with _nobodys(new):
                for file in (wal_of(new), wal_index_of(new), lock_of(new), new):
                    file.unlink(missing_ok=True)
        flush_folder(path)
    except (OSError, EventLogError) as error:
        return (_notice(new, str(error)),)
    return ()


def _is_copy(new: Path, connection: sqlite3.Connection) -> bool:
    """Return whether all that is in a file is in the log, too, or no process has opened it as a log."""
    try:
        with closing(sqlite3.connect(unwritten(new), uri=True)) as copy:
            (own,), (found,) = (each.execute(_IDENTITY).fetchone() for each in (connection, copy))
            (head,), (last,) = (each.execute(_HEAD).fetchone() for each in (connection, copy))
    except (sqlite3.Error, UnicodeDecodeError, TypeError):
        return not lock_of(new).exists()
    return bool((found, True) == (own, last <= head))


@contextmanager
def _nobodys(new: Path) -> Iterator[None]:
    """Own the file `new` until the context ends. Raises LogLocked or BlockingIOError while another process does."""
    with ExitStack() as resources:
        if lock_of(new).exists():
            resources.enter_context(closing(FileLock(new)))
        descriptor = os.open(new, os.O_RDWR | os.O_CLOEXEC)
        resources.callback(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def _notice(new: Path, why: str) -> Notice:
    return Notice("leftover_copy", f"{new} stays ({why}): no erasure reaches the text in it; move it away or remove it")
