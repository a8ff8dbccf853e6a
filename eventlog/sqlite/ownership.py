"""Ownership of a log's file, and what forbids it: a file that is no log's, a write-ahead log that is another's."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from abridged.eventlog.errors import LogCorrupt, LogForeign
from abridged.eventlog.sqlite.connection import address_without_wal, unwritten
from abridged.eventlog.sqlite.database import has_tables
from abridged.eventlog.sqlite.file import MOUNTINFO, FileLock, journal_of, refuse_network_file_system, wal_of
from abridged.eventlog.sqlite.wal import is_begun, require_whole

_ANY_ID = "SELECT log_id FROM log NOT INDEXED"


@contextmanager
def owned(path: Path) -> Iterator[FileLock]:
    """Own the log in `path`, or the place of one, until the context ends; a file that is made there is to be held.

    Raises LogUnsafe, LogForeign, LogGone, LogLocked or LogCorrupt, in this order, and has changed no byte of the log
    then: the lock file beside it is all that may be new.
    """
    if MOUNTINFO.exists():
        refuse_network_file_system(path, MOUNTINFO.read_text(errors="surrogateescape"))
    refuse_foreign(path)
    with closing(FileLock(path)) as lock:
        require_whole(wal_of(path))
        refuse_anothers_wal(path)
        yield lock


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
            has_tables(connection, path)
    except sqlite3.Error as error:
        # A power cut may tear a page that a journal beside the file still has whole, or takes back.
        journals = (wal_of(path), journal_of(path))
        torn = any(journal.exists() and journal.stat().st_size > 0 for journal in journals)
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB and not torn:
            raise LogForeign(f"{path} is not an abridged log (not an SQLite file)") from error
    except UnicodeDecodeError:  # the driver's, of what SQLite says of a damaged schema
        pass


def refuse_anothers_wal(path: Path) -> None:
    """Raise LogCorrupt when the write-ahead log beside the file in `path` is another log's: SQLite would copy its pages
    over the file's."""
    if not path.exists() or not is_begun(wal_of(path)):
        return
    own, together = (_readable_id(address) for address in (address_without_wal(path), unwritten(path)))
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
