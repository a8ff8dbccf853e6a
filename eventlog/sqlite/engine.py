"""Connections to a log's file with the settings that its promises depend on; each is read back after it is set."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, Table, create_engine, event, insert, inspect, select, text
from sqlalchemy.pool import QueuePool, StaticPool

from abridged.eventlog.chain import LogIdentity
from abridged.eventlog.errors import LogCorrupt, LogForeign, LogFull, LogNewer, LogOlder, LogUnavailable, LogUnsafe
from abridged.eventlog.schema import HEAD_REVISION, METADATA, REVISION_TABLE, REVISIONS, log
from abridged.eventlog.sqlite.file import (
    MOUNTINFO,
    NO_ROOM,
    FileLock,
    create_like,
    journal_of,
    refuse_network_file_system,
    refuse_orphan,
    wal_index_of,
    wal_of,
)
from abridged.eventlog.sqlite.sql import driver_of
from abridged.eventlog.sqlite.wal import is_begun, require_whole
from abridged.eventlog.sqlite.writer import BEGIN_IMMEDIATE, BUSY_WAIT_MS, CHECKPOINT_PAGES

READERS_MAX = 4
READER_WAIT_S = 10.0
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
_NAMES = "SELECT name FROM sqlite_schema"
_ANY_ID = "SELECT log_id FROM log NOT INDEXED"
_KIND = "SELECT type FROM sqlite_schema WHERE name = ?"
_STORED_REVISION = f"SELECT version_num FROM {REVISION_TABLE}"  # noqa: S608 - of constants


def writer_engine(path: Path, *, index_in_memory: bool = False) -> Engine:
    """An engine with exactly one connection, whose transactions start with BEGIN IMMEDIATE.

    `index_in_memory` spares the room of the write-ahead log's index on the disk, and no other process can read the log
    meanwhile (https://sqlite.org/vfs.html, "unix-excl").
    """

    def connect() -> sqlite3.Connection:
        return _connected(address_of(path, "rwc", index_in_memory=index_in_memory), _WRITER_SETTINGS, uri=True)

    engine = create_engine("sqlite+pysqlite://", creator=connect, poolclass=StaticPool)
    event.listen(engine, "begin", _begin_immediate)
    return engine


def reader_engine(path: Path, *, makes_files: bool = True, index_in_memory: bool = False) -> Engine:
    """An engine with a few connections that can only read, and so never checkpoint.

    All connections are opened here, including the write-ahead log's file: later another file may be in its place.
    Readers that may make no files read as `unwritten` says, and nothing may write to the file meanwhile.
    `index_in_memory` is the writer's.
    """
    address = address_of(path, "ro", index_in_memory=index_in_memory) if makes_files else unwritten(path)

    def connect() -> sqlite3.Connection:
        connection = _connected(address, _READER_SETTINGS, uri=True)
        connection.execute(_ANY_READ).fetchall()
        return connection

    engine = create_engine(
        "sqlite+pysqlite://",
        creator=connect,
        poolclass=QueuePool,
        pool_size=READERS_MAX,
        max_overflow=0,
        pool_timeout=READER_WAIT_S,
    )
    event.listen(engine, "begin", _begin_snapshot)
    with ExitStack() as opened:
        for _ in range(READERS_MAX):
            opened.enter_context(engine.connect())
    return engine


@contextmanager
def owned(path: Path) -> Iterator[None]:
    """Own the log in `path`, or the place of one, until the context ends.

    Raises LogUnsafe, LogForeign, LogGone, LogLocked or LogCorrupt, in this order, and has changed no byte of the log
    then: the lock file beside it is all that may be new.
    """
    if MOUNTINFO.exists():
        refuse_network_file_system(path, MOUNTINFO.read_text(errors="surrogateescape"))
    refuse_foreign(path)
    with closing(FileLock(path)):
        require_whole(wal_of(path))
        refuse_anothers_wal(path)
        yield


def empty_wal(connection: Connection) -> None:
    """Copy the write-ahead log into the file and cut it to nothing; raise LogUnavailable when a reader prevents it."""
    (busy, *_) = driver_of(connection).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise LogUnavailable("another program reads the log")


def refuse_foreign(path: Path) -> None:
    """Raise LogForeign when the file in `path` is not regular or not SQLite's, or has tables and is no log.

    The call comes before anything is created or changed for the file, including its lock file and mode. A missing,
    empty or damaged file passes: opening it reveals more.
    """
    if not path.is_file():
        if path.exists() and not path.is_dir():
            raise LogForeign(f"{path} is not an abridged log (not a regular file)")
        return
    try:
        with closing(sqlite3.connect(unwritten(path), uri=True)) as connection:
            names = [name for (name,) in connection.execute(_NAMES)]
    except sqlite3.Error as error:
        # A power cut may tear a page that a journal beside the file still has whole, or takes back.
        journals = (wal_of(path), journal_of(path))
        torn = any(journal.exists() and journal.stat().st_size > 0 for journal in journals)
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB and not torn:
            raise LogForeign(f"{path} is not an abridged log (not an SQLite file)") from error
    except UnicodeDecodeError:  # the driver's, of what SQLite says of a damaged schema
        pass
    else:
        _require_own(names, path)


def refuse_anothers_wal(path: Path) -> None:
    """Raise LogCorrupt when the write-ahead log beside the file in `path` is another log's: SQLite would copy its pages
    over the file's."""
    if not path.exists() or not is_begun(wal_of(path)):
        return
    own, together = (_readable_id(address) for address in (_without_wal(path), unwritten(path)))
    if own and together and own != together:
        raise LogCorrupt(
            f"{wal_of(path)} is the write-ahead log of another log ({together[:8]}, and the file is {own[:8]}). No "
            "file was changed. Move it aside, and put the file's own in its place if there is one"
        )


def _readable_id(address: str) -> str:
    """The log's id at an address; empty where none can be read, which the checks of the whole find out."""
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            found = connection.execute(_ANY_ID).fetchone()
    except (sqlite3.Error, UnicodeDecodeError):
        return ""
    return found[0] if found and isinstance(found[0], str) else ""


def make_tables(connection: Connection) -> None:
    """Make the newest schema's tables in a file that has none.

    They are made at once: loading the migrations takes a third of the processor time of a start.
    """
    METADATA.create_all(connection)
    REVISIONS.create(connection)
    connection.execute(insert(REVISIONS).values(version_num=HEAD_REVISION))


def has_tables(connection: Connection, path: Path) -> bool:
    """Return whether the file in `path` has any tables. Raises LogForeign if they are not a log's."""
    names = [name for (name,) in connection.exec_driver_sql(_NAMES)]
    _require_own(names, path)
    return bool(names)


def require_current(connection: Connection) -> None:
    """Raise LogOlder when the schema is an older version's, LogNewer a newer one's, LogCorrupt when it is no log's."""
    tables = inspect(connection).get_table_names()
    stored: str | None = connection.execute(text(_STORED_REVISION)).scalar() if REVISION_TABLE in tables else None
    if stored is not None and stored > HEAD_REVISION:
        raise LogNewer(f"the file was written by a newer version (schema {stored}, known is {HEAD_REVISION})")
    if stored is not None and stored < HEAD_REVISION:
        raise LogOlder(
            "the file was written before the first release, which this version does not read; it is unchanged. Keep "
            "the version that wrote it for this file, or set log.path to a new one"
        )
    _require_schema(connection)


def stored_identity(connection: Connection) -> LogIdentity | None:
    """The identity in the log's file; None if it has not been written yet."""
    rows = connection.execute(select(log.c.log_id, log.c.key)).all()
    if len(rows) > 1:
        raise LogCorrupt("the file says that it is several logs")
    return LogIdentity(rows[0].log_id, rows[0].key) if rows else None


def is_as_made(connection: Connection, table: Table) -> bool:
    """Return whether the file's table has the columns of `table`: its own description may be damaged."""
    rows = connection.exec_driver_sql(f"PRAGMA table_info({table.name})").all()
    primary = [column.name for column in table.primary_key]
    expected = [
        (
            column.name,
            column.type.compile(connection.dialect),
            int(not column.nullable),
            primary.index(column.name) + 1 if column.primary_key else 0,
        )
        for column in table.columns
    ]
    return [(row.name, row.type, row.notnull, row.pk) for row in rows] == expected


def dropped(connection: Connection, name: str) -> None:
    """Drop the table or view of this name in the file, or the index of another table."""
    for row in connection.exec_driver_sql(_KIND, (name,)).all():
        connection.exec_driver_sql(f"DROP {row.type} {name}")


def _require_schema(connection: Connection) -> None:
    """Raise LogCorrupt when the tables are not those of the newest schema."""
    for table in METADATA.tables.values():
        if not is_as_made(connection, table):
            raise LogCorrupt(f"the table {table.name} is not as it was made")


def identity_of(connection: Connection, *, clock_us: Callable[[], int], log_id: str = "") -> LogIdentity:
    """The log's identity; a new file gets its secret here, and its id unless that is given."""
    stored = stored_identity(connection)
    if stored is not None:
        return stored
    identity = LogIdentity.new(log_id)
    connection.execute(insert(log).values(log_id=identity.log_id, key=identity.key, created_us=clock_us()))
    return identity


def _require_own(names: Collection[str], path: Path) -> None:
    if names and REVISION_TABLE not in names:
        raise LogForeign(f"{path} is an SQLite database of something else, not an abridged log (no {REVISION_TABLE})")


def unwritten(path: Path) -> str:
    """The address under which SQLite reads a file and changes no byte of it, its write-ahead log or that log's index.

    A write-ahead log without an index gets an empty one, which SQLite only needs to find. Raises LogFull if
    the volume takes no further file, and LogGone as `refuse_orphan` does.
    """
    refuse_orphan(path)
    if not is_begun(wal_of(path)):
        return _without_wal(path)
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


def _without_wal(path: Path) -> str:
    return f"file:{quote(str(path))}?mode=ro&immutable=1"


def address_of(path: Path, mode: str, *, index_in_memory: bool = False) -> str:
    """The address of a file for SQLite. The mode "ro" has SQLite read beside a process that writes, and neither write
    to the file nor checkpoint."""
    return f"file:{quote(str(path))}?mode={mode}" + ("&vfs=unix-excl" if index_in_memory else "")


def _connected(address: str, settings: dict[str, int | str], *, uri: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(
        address, uri=uri, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS_KEPT
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


def _begin_immediate(connection: Connection) -> None:
    driver_of(connection).execute(BEGIN_IMMEDIATE)


def _begin_snapshot(connection: Connection) -> None:
    driver_of(connection).execute("BEGIN")
