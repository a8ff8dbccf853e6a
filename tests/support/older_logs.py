"""Log files as the first schema's version left them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

__all__ = ["OF_0001", "older", "older_and_long"]

OF_0001 = Path(__file__).parents[1] / "golden" / "schema-0001.sql"

_CLEARED = ("DELETE FROM requests", "DELETE FROM events", "DELETE FROM streams", "DELETE FROM log")
_COPIED = (
    "INSERT INTO log SELECT * FROM now.log",
    "INSERT INTO streams SELECT * FROM now.streams",
    (
        "INSERT INTO events SELECT position, stream, version, event_id, s.namespace, t.name, schema_version, time_us, "
        "trace_context, wider(content_hash), commitment, chain, salt, payload "
        "FROM now.events AS e JOIN now.streams AS s ON s.id = e.stream JOIN now.types AS t ON t.id = e.type"
    ),
    (
        "INSERT INTO requests SELECT stream, key, wider(content_hash), first_position, last_position, "
        "last_version FROM now.requests"
    ),
)
_LONG = (
    "INSERT INTO streams VALUES (1, 'default', 'c')",
    (
        "INSERT INTO events WITH RECURSIVE n(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n WHERE at < ?) "
        "SELECT at, 1, at, randomblob(16), 'default', 'MessageAppended', 1, at, '', zeroblob(32), zeroblob(32), "
        "zeroblob(32), zeroblob(16), zeroblob(400) FROM n"
    ),
)


def older(path: Path, now: Path) -> Path:
    """The log in the file `now`, without its read table, as a file of the first schema in `path`."""
    with closing(_of_0001(path)) as database:
        database.execute("ATTACH ? AS now", (str(now),))
        for statement in (*_CLEARED, *_COPIED):
            database.execute(statement)
    return path


def older_and_long(path: Path, events: int) -> Path:
    """A file of the first schema that takes a while to copy; its events say nothing."""
    with closing(_of_0001(path)) as database:
        database.execute("PRAGMA synchronous = off")
        for statement in _CLEARED[:-1]:
            database.execute(statement)
        database.execute(_LONG[0])
        database.execute(_LONG[1], (events,))
    return path


def _of_0001(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = wal")
    database.create_function("wider", 1, lambda digest: digest + bytes(16))
    database.executescript(OF_0001.read_text())
    return database
