"""Makes a log's file as the copy of another log: beside its place first, and in it when all of it is on disk."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from abridged.eventlog.errors import LogLocked, LogUnsafe
from abridged.eventlog.log import EventLog
from abridged.eventlog.sqlite.connection import empty_wal, writer_of
from abridged.eventlog.sqlite.errors import opening
from abridged.eventlog.sqlite.file import (
    PRIVATE_MODE,
    copy_of,
    flush_folder,
    flush_recovered,
    lock_of,
    mark_of,
    refuse_orphan,
    wal_index_of,
    wal_of,
)
from abridged.eventlog.sqlite.log import SqliteEventLog
from abridged.eventlog.sqlite.ownership import owned


def copied(path: Path, log_id: str, fill: Callable[[EventLog], None], check: Callable[[Path], None]) -> None:
    """See StoredBackend.copy."""
    with placing(path.resolve()) as new:
        with closing(SqliteEventLog.open(new, clock_us=lambda: time.time_ns() // 1_000, log_id=log_id)) as log:
            fill(log)
        check(new)


@contextmanager
def placing(path: Path) -> Iterator[Path]:
    """Yield where a log is made, and put it in its place when the context ends well.

    Raises FileExistsError for a log that is there, and what opening one raises; nothing is in its place then.
    """
    with ExitStack() as resources:
        with opening(path):
            resources.enter_context(owned(path))
        refuse_orphan(path)
        new, _ = resources.enter_context(made_beside(path))
        # A backup to this place owns no more than its copy.
        if path.exists() and path.stat().st_size:
            raise FileExistsError(os.fspath(path))
        yield new
        with opening(path):
            settle(new)
            new.replace(path)
            flush_folder(path)


def settle(path: Path) -> None:
    """Put all of the write-ahead log into the file, and remove it: beside another file it would be taken for its."""
    flush_recovered(path)
    with closing(writer_of(path)) as connection:
        empty_wal(connection)
    for beside in (wal_of(path), wal_index_of(path)):
        beside.unlink(missing_ok=True)
    flush_folder(path)


@contextmanager
def made_beside(place: Path) -> Iterator[tuple[Path, int]]:
    """Yield an empty file for the copy that is to have `place`, and its descriptor. The file loses its name afterwards,
    and what SQLite has made beside it is removed.

    Raises LogLocked while another process makes one, and LogUnsafe for a file that no process was making there; takes
    over what a killed one has left.
    """
    new, mark = copy_of(place), mark_of(place)
    beside = (wal_of(new), wal_index_of(new), lock_of(new))
    with ExitStack() as resources:
        with opening(new):
            descriptor = _locked(new)
        resources.callback(os.close, descriptor)
        if os.fstat(descriptor).st_size and not mark.exists():
            raise LogUnsafe(f"{new} is where the copy is to be made, and no process was making it: move it away")
        mark.touch(PRIVATE_MODE)
        flush_folder(mark)
        for file in (mark, new, *beside):
            resources.callback(file.unlink, missing_ok=True)
        for file in beside:
            file.unlink(missing_ok=True)
        os.fchmod(descriptor, PRIVATE_MODE)
        os.ftruncate(descriptor, 0)
        yield new, descriptor


def _locked(new: Path) -> int:
    """Open or create the file `new`, which has no other name, and lock it; return its descriptor. Raises LogLocked."""
    while True:
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise LogLocked(f"another process makes the copy {new}") from error
        # Whoever had the lock may have given the file another name: it is complete then, and not to be written.
        with suppress(FileNotFoundError):
            opened = os.fstat(descriptor)
            if os.path.samestat(opened, new.stat()):
                if opened.st_nlink == 1:
                    return descriptor
                new.unlink()
        os.close(descriptor)
