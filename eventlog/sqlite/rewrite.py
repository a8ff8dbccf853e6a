"""Writes a log's file anew, without its read table, whose damaged pages may point at those of the events.

The log's own tables are copied into a file beside it, which takes its place when all of it is on disk. The file is only
read until then: a process that is killed leaves it as it was, and the next one begins again. Read tables are left out,
since the caller makes them again in the copy; what cannot be made again, it carries over. A log that is itself damaged
is refused, because a copy would hide what index and table say against each other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from abridged.eventlog.errors import LogCorrupt, LogFull
from abridged.eventlog.sqlite.connection import unwritten
from abridged.eventlog.sqlite.copy import made_beside, settle
from abridged.eventlog.sqlite.database import make_file, require_current
from abridged.eventlog.sqlite.errors import opening
from abridged.eventlog.sqlite.file import flush_folder, give_like, refuse_empty
from abridged.eventlog.sqlite.integrity import own_findings
from abridged.eventlog.sqlite.ownership import owned

ROOM_SHARE = 16
"""The part of the file's used pages that a copy may take beyond them: its indexes are filled in another order. Measured
with 500,000 events: 1.02 of a file that SQLite had just packed."""

_STEPS_BETWEEN_LOOKS = 100_000
"""Instructions of SQLite between two looks at whether to go on: about a millisecond."""

_CACHE_KIB = 65_536

_COPIED = (
    "INSERT INTO new.log (log_id, key, created_us) SELECT log_id, key, created_us FROM main.log",
    "INSERT INTO new.streams (id, namespace, name) SELECT id, namespace, name FROM main.streams NOT INDEXED",
    "INSERT INTO new.types (id, name) SELECT id, name FROM main.types",
    (
        "INSERT INTO new.requests (stream, key, content_hash, first_position, last_position, last_version) "
        "SELECT stream, key, content_hash, first_position, last_position, last_version FROM main.requests"
    ),
)
_COPIED_EVENTS = """
INSERT INTO new.events (position, stream, version, event_id, type, schema_version, time_us, trace_context, content_hash,
    commitment, chain, salt, payload)
SELECT position, stream, version, event_id, type, schema_version, time_us, trace_context, content_hash,
    commitment, chain, salt, payload
FROM main.events NOT INDEXED ORDER BY position
"""
_EVENTS = "SELECT count(*) FROM main.events NOT INDEXED"
_SIZES = ("PRAGMA main.page_count", "PRAGMA main.freelist_count", "PRAGMA main.page_size")
_ATTACH = "ATTACH ? AS new"
_NEW_SETTINGS = (
    "PRAGMA new.journal_mode = off",  # a copy that fails is removed
    "PRAGMA new.synchronous = full",
    "PRAGMA fullfsync = 1",
    f"PRAGMA new.cache_size = -{_CACHE_KIB}",
)


class Rewrite(NamedTuple):
    """The caller's part of a rewrite; the functions run in the caller's thread.

    `check` looks at the file before anything is copied, and raises what forbids it. `free_bytes` returns what may still
    be written on the volume of a file. `goes_on` is called every few milliseconds. `carry` copies other tables that are
    kept, from the schema `main` to `new`, after the log's own. `fill` opens the complete copy, and raises what forbids
    it the place of the file.
    """

    check: Callable[[sqlite3.Connection], None]
    free_bytes: Callable[[Path], int]
    goes_on: Callable[[], bool] = lambda: True
    carry: Callable[[sqlite3.Connection], None] = lambda _: None
    fill: Callable[[Path], None] = lambda _: None


def rewritten(path: Path, rewrite: Rewrite) -> bool:
    """Rewrite the log in `path`. Returns False, and leaves the file unchanged, if it was stopped.

    Raises LogLocked when a process owns the log, LogForeign for another program's file, LogOlder or LogNewer for one of
    another schema, LogCorrupt when the log's own tables are damaged, LogFull when the volume has no room for the copy.
    """
    path = path.resolve(strict=True)
    with ExitStack() as resources, opening(path):
        refuse_empty(path)
        resources.enter_context(owned(path))
        new, descriptor = resources.enter_context(made_beside(path))
        give_like(descriptor, path)
        if not _copied(path, new, rewrite):
            return False
        rewrite.fill(new)
        for file in (new, path):
            settle(file)
        new.replace(path)
        flush_folder(path)
        return True


def _copied(path: Path, new: Path, rewrite: Rewrite) -> bool:
    """Copy the log in `path` to the file `new`; False if it was not to go on."""
    try:
        with closing(_reading(path, rewrite.goes_on)) as connection:
            require_current(connection)
            rewrite.check(connection)
            if damages := own_findings(connection):
                raise LogCorrupt(f"the log itself is damaged ({damages[0]}); `abridged log verify` says more")
            _require_room(connection, path, rewrite.free_bytes)
            make_file(new)
            connection.execute(_ATTACH, (str(new),))
            for setting in _NEW_SETTINGS:
                connection.execute(setting)
            _copy_rows(connection, rewrite)
            return True
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            return False
        raise


def _copy_rows(connection: sqlite3.Connection, rewrite: Rewrite) -> None:
    total = int(connection.execute(_EVENTS).fetchone()[0])
    for statement in _COPIED:
        connection.execute(statement)
    done = connection.execute(_COPIED_EVENTS).rowcount
    if done != total:
        raise LogCorrupt(f"of {total} events {done} can be copied; `abridged log verify` says more")
    rewrite.carry(connection)


def _require_room(connection: sqlite3.Connection, path: Path, free_bytes: Callable[[Path], int]) -> None:
    pages, unused, page_bytes = (int(connection.execute(ask).fetchone()[0]) for ask in _SIZES)
    used = max(0, pages - unused) * page_bytes
    needed, free = used + used // ROOM_SHARE, free_bytes(path)
    if free < needed:
        raise LogFull(
            f"{path} is to be written anew, which needs {_mib(needed)} beside it for a while, and {_mib(free)} are free"
        )


def _reading(path: Path, goes_on: Callable[[], bool]) -> sqlite3.Connection:
    connection = sqlite3.connect(unwritten(path), uri=True, isolation_level=None, check_same_thread=False)
    connection.set_progress_handler(lambda: not goes_on(), _STEPS_BETWEEN_LOOKS)
    return connection


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"
