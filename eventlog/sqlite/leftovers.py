"""Removes the copy that a killed process has left beside a log: an erasure would not reach its text."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from abridged.eventlog.backend import Notice
from abridged.eventlog.errors import EventLogError
from abridged.eventlog.sqlite.file import FileLock, copy_of, flush_folder, lock_of, mark_of, wal_index_of, wal_of


def without_leftover(path: Path) -> tuple[Notice, ...]:
    """Remove the copy that was in the making beside the log in `path`, which the caller owns.

    Return a notice of a file that stays: another process makes it, or it is no copy, perhaps the only one of its kind.
    """
    new, mark = copy_of(path), mark_of(path)
    try:
        if new.exists() and new.samefile(path):
            new.unlink()  # a backup that was killed behind its last step: the log has two names
        elif new.exists():
            if new.stat().st_size and not mark.exists():
                return (_notice(new, "it was not in the making"),)
            with _nobodys(new):
                for file in (wal_of(new), wal_index_of(new), lock_of(new), new):
                    file.unlink(missing_ok=True)
        mark.unlink(missing_ok=True)
        flush_folder(path)
    except (OSError, EventLogError) as error:
        return (_notice(new, str(error)),)
    return ()


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
