"""Rewrites a log's file: one of an older version in this version's schema, or one with a damaged read table.

The log's own tables are copied into a file beside it, which takes its place when all of it is on disk. Until then the
file is only read: a process that is killed leaves it as it was, and the next one begins again. Read tables are left
out, since they can be made again; what cannot, the caller carries over. A log that is itself damaged is refused,
because a copy would hide what index and table say against each other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import StaticPool

from eventlog.errors import LogCorrupt, LogFull
from eventlog.schema import HEAD_REVISION, REVISION_TABLE
from eventlog.sqlite.engine import empty_wal, refuse_foreign, refuse_newer, unwritten, writer_engine
from eventlog.sqlite.errors import opening, original
from eventlog.sqlite.file import (
    MOUNTINFO,
    FileLock,
    create_like,
    flush_folder,
    flush_recovered,
    refuse_empty,
    refuse_network_file_system,
    side_files,
    wal_of,
)
from eventlog.sqlite.integrity import own_findings
from eventlog.sqlite.wal import require_whole

__all__ = ["BATCH_EVENTS", "ROOM_SHARE", "Rewrite", "Rewritten", "is_older", "rewritten"]

BATCH_EVENTS = 5_000
"""Events of one transaction, after which it is on disk."""

ROOM_SHARE = 16
"""The copy takes at most so much of the file's used pages more than they do: its indexes are filled in another order.
Measured with 500,000 events: 1.02 of a file that SQLite had just packed, 0.84 of one of schema 0001."""

_STEPS_BETWEEN_LOOKS = 100_000
"""Instructions of SQLite between two looks at whether to go on: about a millisecond."""

_CACHE_KIB = 65_536

_COPY_EVENTS = """
INSERT INTO new.events (position, stream, version, event_id, type, schema_version, time_us, trace_context, content_hash,
    commitment, chain, salt, payload)
SELECT {columns} WHERE e.position > ? ORDER BY e.position LIMIT ?
"""
_COLUMNS = (
    "e.position, e.stream, e.version, e.event_id, {type}, e.schema_version, e.time_us, e.trace_context, "
    "{content_hash}, e.commitment, e.chain, e.salt, e.payload FROM main.events AS e"
)
_COPY_REQUESTS = """
INSERT INTO new.requests (stream, key, content_hash, first_position, last_position, last_version)
SELECT stream, key, {content_hash}, first_position, last_position, last_version FROM main.requests
"""


class _Copy(NamedTuple):
    """How the tables of one schema become those of the newest; `log` and `streams` are the same in all."""

    types: str
    events: str
    requests: str


_OF_0001 = _Copy(
    "INSERT INTO new.types (id, name) SELECT row_number() OVER (ORDER BY type), type "
    "FROM (SELECT DISTINCT type FROM main.events)",
    _COPY_EVENTS.format(
        columns=_COLUMNS.format(type="t.id", content_hash="substr(e.content_hash, 1, 16)")
        + " CROSS JOIN new.types AS t ON t.name = e.type"
    ),
    _COPY_REQUESTS.format(content_hash="substr(content_hash, 1, 16)"),
)
_OF_0002 = _Copy(
    "INSERT INTO new.types (id, name) SELECT id, name FROM main.types",
    _COPY_EVENTS.format(columns=_COLUMNS.format(type="e.type", content_hash="e.content_hash")),
    _COPY_REQUESTS.format(content_hash="content_hash"),
)
_COPIES = {"0001": _OF_0001, "0002": _OF_0002}
_COPY_LOG = "INSERT INTO new.log (log_id, key, created_us) SELECT log_id, key, created_us FROM main.log"
_COPY_STREAMS = "INSERT INTO new.streams (id, namespace, name) SELECT id, namespace, name FROM main.streams NOT INDEXED"
_EVENTS = "SELECT count(*) FROM main.events NOT INDEXED"
_REVISION = f"SELECT version_num FROM {REVISION_TABLE}"  # noqa: S608 - of constants
_SIZES = ("PRAGMA main.page_count", "PRAGMA main.freelist_count", "PRAGMA main.page_size")
_ATTACH = "ATTACH ? AS new"
_NEW_SETTINGS = (
    "PRAGMA new.journal_mode = off",  # a copy that fails is removed
    "PRAGMA new.synchronous = full",
    "PRAGMA fullfsync = 1",
    f"PRAGMA new.cache_size = -{_CACHE_KIB}",
)
_LAST_COPIED = "SELECT max(position) FROM new.events"
_BEFORE_ALL = -(1 << 63)


class Rewrite(NamedTuple):
    """What a rewrite asks of its caller, in its own thread.

    `check` looks at the file before anything is copied, and raises what forbids it. `free_bytes` returns what may still
    be written on the volume of a file. `walked` is called with the events copied and their total, `goes_on` every few
    milliseconds. `carry` copies other tables that are kept, from the schema `main` to `new`, after the log's own.
    """

    check: Callable[[Connection], None]
    free_bytes: Callable[[Path], int]
    walked: Callable[[int, int], None] = lambda _done, _total: None
    goes_on: Callable[[], bool] = lambda: True
    carry: Callable[[Connection], None] = lambda _: None


class Rewritten(NamedTuple):
    """How many events were copied, and the file's size before and after, in bytes."""

    events: int
    bytes_before: int
    bytes_after: int


def is_older(path: Path) -> bool:
    """Whether the file in `path` has an older version's schema. What is no log is not older: opening it says more."""
    if not path.is_file():
        return False
    try:
        with closing(sqlite3.connect(unwritten(path.resolve()), uri=True)) as connection:
            (revision,) = connection.execute(_REVISION).fetchone() or (None,)
    except (sqlite3.Error, UnicodeDecodeError):  # the latter is the driver's, of what SQLite says of a damaged schema
        return False
    return revision in _COPIES and revision != HEAD_REVISION


def rewritten(path: Path, rewrite: Rewrite) -> Rewritten | None:
    """Rewrite the log in `path`. Returns None, and leaves the file unchanged, if it was stopped.

    Raises LogLocked when a process owns the log, LogForeign when it is none, LogNewer when a newer version wrote it,
    LogCorrupt when the log's own tables are damaged, LogFull when the volume has no room for the copy.
    """
    path = path.resolve(strict=True)
    with ExitStack() as resources, opening(path):
        if MOUNTINFO.exists():
            refuse_network_file_system(path, MOUNTINFO.read_text(errors="surrogateescape"))
        refuse_foreign(path)
        refuse_empty(path)
        resources.callback(FileLock(path.with_name(f"{path.name}.lock")).release)
        require_whole(wal_of(path))
        new = path.with_name(f"{path.name}.new")
        new.unlink(missing_ok=True)
        resources.callback(new.unlink, missing_ok=True)
        events = _copied(path, new, rewrite)
        if events is None:
            return None
        _settle(path)
        bytes_before = path.stat().st_size
        new.replace(path)
        flush_folder(path)
        return Rewritten(events, bytes_before, path.stat().st_size)


def _settle(path: Path) -> None:
    """Put all of the write-ahead log into the file, and remove it: beside the new file it would be taken for its."""
    flush_recovered(path)
    engine = writer_engine(path)
    try:
        with engine.connect() as connection:
            empty_wal(connection)
    finally:
        engine.dispose()
    for beside in side_files(path):
        beside.unlink(missing_ok=True)
    flush_folder(path)


def _copied(path: Path, new: Path, rewrite: Rewrite) -> int | None:
    """Copy the log in `path` to the file `new` and return how many events it has; None when it was not to go on."""
    engine = create_engine("sqlite+pysqlite://", creator=lambda: _reading(path, rewrite.goes_on), poolclass=StaticPool)
    try:
        with engine.connect() as connection:
            copy = _copy_of(connection)
            rewrite.check(connection)
            if damages := own_findings(connection):
                raise LogCorrupt(f"the log itself is damaged ({damages[0]}); `abridged log verify` says more")
            _require_room(connection, path, rewrite.free_bytes)
            _make(new, like=path)
            connection.exec_driver_sql(_ATTACH, (str(new),))
            for setting in _NEW_SETTINGS:
                connection.exec_driver_sql(setting)
            return _copied_rows(connection, copy, rewrite)
    except OperationalError as error:
        if getattr(original(error), "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            return None
        raise
    finally:
        engine.dispose()


def _copied_rows(connection: Connection, copy: _Copy, rewrite: Rewrite) -> int:
    total = int(connection.exec_driver_sql(_EVENTS).scalar_one())
    for statement in (_COPY_LOG, _COPY_STREAMS, copy.types):
        connection.exec_driver_sql(statement)
    last, done = _BEFORE_ALL, 0
    while copied := connection.exec_driver_sql(copy.events, (last, BATCH_EVENTS)).rowcount:
        last = connection.exec_driver_sql(_LAST_COPIED).scalar_one()
        done += copied
        rewrite.walked(done, total)
    if done != total:
        raise LogCorrupt(f"of {total} events {done} can be copied; `abridged log verify` says more")
    connection.exec_driver_sql(copy.requests)
    rewrite.carry(connection)
    return done


def _copy_of(connection: Connection) -> _Copy:
    revision = connection.exec_driver_sql(_REVISION).scalar()
    refuse_newer(revision)
    if revision not in _COPIES:
        raise LogCorrupt("the schema's revision is none")
    return _COPIES[revision]


def _require_room(connection: Connection, path: Path, free_bytes: Callable[[Path], int]) -> None:
    pages, unused, page_bytes = (int(connection.exec_driver_sql(ask).scalar_one()) for ask in _SIZES)
    used = max(0, pages - unused) * page_bytes
    needed, free = used + used // ROOM_SHARE, free_bytes(path)
    if free < needed:
        raise LogFull(
            f"{path} is to be written anew, which needs {_mib(needed)} beside it for a while, and {_mib(free)} are free"
        )


def _make(new: Path, *, like: Path) -> None:
    """The new file with the newest schema's tables and nothing in them."""
    create_like(new, like)
    from eventlog.migrations import upgrade  # alembic takes half a second to import and is seldom needed

    engine = create_engine(f"sqlite+pysqlite:///{new}")
    try:
        with engine.begin() as connection:
            upgrade(connection)
    finally:
        engine.dispose()


def _reading(path: Path, goes_on: Callable[[], bool]) -> sqlite3.Connection:
    connection = sqlite3.connect(unwritten(path), uri=True, isolation_level=None, check_same_thread=False)
    connection.set_progress_handler(lambda: not goes_on(), _STEPS_BETWEEN_LOOKS)
    return connection


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"
