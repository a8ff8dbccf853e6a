"""Makes a log's file as the copy of another log: beside its place first, and in it when all of it is on disk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from abridged.eventlog.log import EventLog
from abridged.eventlog.sqlite.engine import owned
from abridged.eventlog.sqlite.errors import opening
from abridged.eventlog.sqlite.file import copy_of, flush_folder, lock_of, refuse_orphan, wal_index_of, wal_of
from abridged.eventlog.sqlite.log import SqliteEventLog
from abridged.eventlog.sqlite.rewrite import settle


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
        if path.exists() and path.stat().st_size:
            raise FileExistsError(os.fspath(path))
        new = copy_of(path)
        for beside in (new, wal_of(new), wal_index_of(new), lock_of(new)):
            beside.unlink(missing_ok=True)
            resources.callback(beside.unlink, missing_ok=True)
        yield new
        with opening(path):
            settle(new)
            new.replace(path)
            flush_folder(path)
