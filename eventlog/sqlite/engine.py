"""Connections to a log's file with the settings that its promises depend on; each is read back after it is set."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from abridged.eventlog.chain import LogIdentity
from abridged.eventlog.errors import LogCorrupt, LogForeign, LogFull, LogNewer, LogOlder, LogUnavailable, LogUnsafe
from abridged.eventlog.sqlite.connection import Readers, transaction
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
from abridged.eventlog.sqlite.schema import HEAD_REVISION, REVISION_TABLE, REVISIONS, TABLES, log
from abridged.eventlog.sqlite.sql import insert_into
from abridged.eventlog.sqlite.table import Table
from abridged.eventlog.sqlite.wal import is_begun, require_whole
from abridged.eventlog.sqlite.writer import BUSY_WAIT_MS, CHECKPOINT_PAGES

READERS_MAX = 4
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
_COLUMNS = 'SELECT name, type, "notnull", pk FROM pragma_table_info(?)'
_IDENTITY = "SELECT log_id, key FROM log"
_STORED_REVISION = f"SELECT version_num FROM {REVISION_TABLE}"  # noqa: S608 - of constants


def writer_of(path: Path, *, index_in_memory: bool = False) -> sqlite3.Connection:
    """The connection that writes. Its transactions begin with BEGIN_IMMEDIATE.

    `index_in_memory` spares the room of the write-ahead log's index on the disk, and no other process can read the log
    meanwhile (https://sqlite.org/vfs.html, "unix-excl").
    """
    return _connected(address_of(path, "rwc", index_in_memory=index_in_memory), _WRITER_SETTINGS, uri=True)


def readers_of(path: Path, *, makes_files: bool = True, index_in_memory: bool = False) -> Readers:
    """A few connections that can only read, and so never checkpoint.

    All connections are opened here, including the write-ahead log's file: later another file may be in its place.
    Readers that may make no files read as `unwritten` says, and nothing may write to the file meanwhile.
    `index_in_memory` is the writer's.
    """
    address = address_of(path, "ro", index_in_memory=index_in_memory) if makes_files else unwritten(path)
    with ExitStack() as opened:
        connections = [
            opened.enter_context(closing(_connected(address, _READER_SETTINGS, uri=True))) for _ in range(READERS_MAX)
        ]
        for connection in connections:
            connection.execute(_ANY_READ).fetchall()
        opened.pop_all()
    return Readers(connections)


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


def empty_wal(connection: sqlite3.Connection) -> None:
    """Copy the write-ahead log into the file and cut it to nothing; raise LogUnavailable when a reader prevents it."""
    (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
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


def make_tables(connection: sqlite3.Connection) -> None:
    """Make the newest schema's tables in a file that has none.

    They are made at once: loading the migrations takes a third of the processor time of a start.
    """
    for table in (*TABLES, REVISIONS):
        connection.execute(table.creation())
    connection.execute(insert_into(REVISIONS, 1), (HEAD_REVISION,))


def make_file(path: Path) -> None:
    """Make the newest schema's tables in the empty file in `path`."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection, transaction(connection):
        make_tables(connection)


def has_tables(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the file in `path` has any tables. Raises LogForeign if they are not a log's."""
    names = [name for (name,) in connection.execute(_NAMES)]
    _require_own(names, path)
    return bool(names)


def require_current(connection: sqlite3.Connection) -> None:
    """Raise LogOlder when the schema is an older version's, LogNewer a newer one's, LogCorrupt when it is no log's."""
    is_there = connection.execute(_KIND, (REVISION_TABLE,)).fetchone() == ("table",)
    stored: str | None = None
    if is_there and (found := connection.execute(_STORED_REVISION).fetchone()):
        (stored,) = found
    if stored is not None and stored > HEAD_REVISION:
        raise LogNewer(f"the file was written by a newer version (schema {stored}, known is {HEAD_REVISION})")
    if stored is not None and stored < HEAD_REVISION:
        raise LogOlder(
            "the file was written before the first release, which this version does not read; it is unchanged. Keep "
            "the version that wrote it for this file, or set log.path to a new one"
        )
    _require_schema(connection)


def stored_identity(connection: sqlite3.Connection) -> LogIdentity | None:
    """The identity in the log's file; None if it has not been written yet."""
    rows = connection.execute(_IDENTITY).fetchall()
    if len(rows) > 1:
        raise LogCorrupt("the file says that it is several logs")
    return LogIdentity(*rows[0]) if rows else None


def is_as_made(connection: sqlite3.Connection, table: Table) -> bool:
    """Return whether the file's table has the columns of `table`: its own description may be damaged."""
    expected = [
        (name, kind, int(not is_nullable), table.key.index(name) + 1 if name in table.key else 0)
        for name, kind, is_nullable in table.columns
    ]
    return connection.execute(_COLUMNS, (table.name,)).fetchall() == expected


def dropped(connection: sqlite3.Connection, name: str) -> None:
    """Drop the table or view of this name in the file, or the index of another table."""
    for (kind,) in connection.execute(_KIND, (name,)).fetchall():
        connection.execute(f"DROP {kind} {name}")


def _require_schema(connection: sqlite3.Connection) -> None:
    """Raise LogCorrupt when the tables are not those of the newest schema."""
    for table in TABLES:
        if not is_as_made(connection, table):
            raise LogCorrupt(f"the table {table.name} is not as it was made")


def identity_of(connection: sqlite3.Connection, *, clock_us: Callable[[], int], log_id: str = "") -> LogIdentity:
    """The log's identity; a new file gets its secret here, and its id unless that is given."""
    stored = stored_identity(connection)
    if stored is not None:
        return stored
    identity = LogIdentity.new(log_id)
    connection.execute(insert_into(log, 1), (identity.log_id, identity.key, clock_us()))
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
