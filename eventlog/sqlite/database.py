"""The database in a log's file: whether its tables are a log's, of which schema, and the identity that it has."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from abridged.eventlog.chain import LogIdentity
from abridged.eventlog.errors import LogCorrupt, LogForeign, LogNewer, LogOlder
from abridged.eventlog.sqlite.connection import transaction
from abridged.eventlog.sqlite.schema import (
    HEAD_REVISION,
    READ_REVISIONS,
    REVISION_TABLE,
    REVISIONS,
    TABLES,
    log,
)
from abridged.eventlog.sqlite.sql import insert_into
from abridged.eventlog.sqlite.table import Table

_NAMES = "SELECT name FROM sqlite_schema"
_KIND = "SELECT type FROM sqlite_schema WHERE name = ?"
_COLUMNS = 'SELECT name, type, "notnull", pk FROM pragma_table_info(?)'
_IN_TEXT = "SELECT 1 FROM sqlite_schema WHERE name = ? AND instr(sql, ?)"
_REFERENCES = 'SELECT "from", "table", "to" FROM pragma_foreign_key_list(?) ORDER BY 1'
_IDENTITY = "SELECT log_id, key FROM log"
_STORED_REVISION = f"SELECT version_num FROM {REVISION_TABLE}"  # noqa: S608 - of constants
_RAISED_REVISION = f"UPDATE {REVISION_TABLE} SET version_num = ?"  # noqa: S608 - of constants


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
    if names and REVISION_TABLE not in names:
        raise LogForeign(f"{path} is an SQLite database of something else, not an abridged log (no {REVISION_TABLE})")
    return bool(names)


def require_current(connection: sqlite3.Connection) -> None:
    """Raise LogOlder when the schema is an older version's, LogNewer a newer one's, LogCorrupt when it is no log's."""
    is_there = connection.execute(_KIND, (REVISION_TABLE,)).fetchone() == ("table",)
    stored: str | None = None
    if is_there and (found := connection.execute(_STORED_REVISION).fetchone()):
        (stored,) = found
    if stored is not None and stored > HEAD_REVISION:
        raise LogNewer(f"the file was written by a newer version (schema {stored}, known is {HEAD_REVISION})")
    if stored is not None and stored not in READ_REVISIONS:
        raise LogOlder(
            "the file was written before the first release, which this version does not read; it is unchanged. Keep "
            "the version that wrote it for this file, or set log.path to a new one"
        )
    _require_schema(connection)


def has_newest_revision(connection: sqlite3.Connection) -> bool:
    """Return whether a version that does not know the newest revision refuses the file."""
    return bool(connection.execute(_STORED_REVISION).fetchone() == (HEAD_REVISION,))


def raise_revision(connection: sqlite3.Connection) -> None:
    """Have versions that do not know the newest revision refuse the file from the transaction on."""
    connection.execute(_RAISED_REVISION, (HEAD_REVISION,))


def stored_identity(connection: sqlite3.Connection) -> LogIdentity | None:
    """The identity in the log's file; None if it has not been written yet."""
    rows = connection.execute(_IDENTITY).fetchall()
    if len(rows) > 1:
        raise LogCorrupt("the file says that it is several logs")
    return LogIdentity(*rows[0]) if rows else None


def identity_of(connection: sqlite3.Connection, *, clock_us: Callable[[], int], log_id: str = "") -> LogIdentity:
    """The log's identity; a new file gets its secret here, and its id unless that is given."""
    stored = stored_identity(connection)
    if stored is not None:
        return stored
    identity = LogIdentity.new(log_id)
    connection.execute(insert_into(log, 1), (identity.log_id, identity.key, clock_us()))
    return identity


def is_as_made(connection: sqlite3.Connection, table: Table) -> bool:
    """Return whether the file's table has the columns of `table`, its conditions and its references: its own
    description may be damaged, and SQLite reads some of that only to write a row."""
    columns = [
        (name, kind, int(not is_nullable), table.key.index(name) + 1 if name in table.key else 0)
        for name, kind, is_nullable in table.columns
    ]
    references = sorted((column, referred, "id") for _, column, referred in table.references)
    if connection.execute(_COLUMNS, (table.name,)).fetchall() != columns:
        return False
    if connection.execute(_REFERENCES, (table.name,)).fetchall() != references:
        return False
    return all(connection.execute(_IN_TEXT, (table.name, check.text)).fetchone() for check in table.checks)


def dropped(connection: sqlite3.Connection, name: str) -> None:
    """Drop the table or view of this name in the file, or the index of another table."""
    for (kind,) in connection.execute(_KIND, (name,)).fetchall():
        connection.execute(f"DROP {kind} {name}")


def _require_schema(connection: sqlite3.Connection) -> None:
    """Raise LogCorrupt when the tables are not those of the newest schema."""
    for table in TABLES:
        if not is_as_made(connection, table):
            raise LogCorrupt(f"the table {table.name} is not as it was made")
