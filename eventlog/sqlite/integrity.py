"""SQLite's own check of a file: what is wrong with it, and whether that is in the log's own tables.

Read tables and free pages can be made again, so what is wrong with them alone costs nothing.
"""

from __future__ import annotations

from sqlalchemy import Connection

from eventlog.errors import LogCorrupt
from eventlog.schema import METADATA, REVISION_TABLE
from eventlog.sqlite.errors import DATABASE_ERRORS, original, translated

__all__ = ["FINDINGS_MAX", "findings", "own_findings"]

FINDINGS_MAX = 100
"""Findings that are named: a file with more is beyond repair."""

_OWN = (REVISION_TABLE, *METADATA.tables)


def findings(connection: Connection) -> list[str]:
    """At most FINDINGS_MAX of the whole file, a line each."""
    return _lines(connection, f"PRAGMA integrity_check({FINDINGS_MAX})")


def own_findings(connection: Connection) -> list[str]:
    """Those of the log's own tables and their indexes, at most FINDINGS_MAX of each."""
    there = {row.name for row in connection.exec_driver_sql("PRAGMA table_list") if row.schema == "main"}
    return [line for name in _OWN if name in there for line in _lines(connection, f"PRAGMA integrity_check({name})")]


def _lines(connection: Connection, check: str) -> list[str]:
    found: list[str] = []
    try:
        for (message,) in connection.exec_driver_sql(check):
            found += (line for line in str(message).splitlines() if line != "ok" and not line.startswith("***"))
    except DATABASE_ERRORS as error:  # it checks what rows say too, and ends where one cannot be read
        if not isinstance(translated(error), LogCorrupt):
            raise
        found.append(str(original(error)))
    return found
