"""SQLite's own check of a file: what is wrong with it, and whether that is in the log's own tables.

Read tables and free pages can be made again, so what is wrong with them alone costs nothing. A check raises what SQLite
raises where it cannot go on.
"""

from __future__ import annotations

import sqlite3

from abridged.eventlog.sqlite.schema import REVISION_TABLE, TABLES, events, log

FINDINGS_MAX = 100
"""Findings that are named: a file with more is beyond repair."""

_OWN = (REVISION_TABLE, *(table.name for table in TABLES))
_TABLES = "SELECT name FROM pragma_table_list WHERE schema = 'main'"
_NOT_APPENDED_TO = {REVISION_TABLE, log.name, events.name}
"""Events go to their table's end, and a writer that finds the last one there reads no other page to add one."""


def findings(connection: sqlite3.Connection) -> list[str]:
    """The findings of the whole file, at most FINDINGS_MAX, a line each."""
    return _lines(connection, f"PRAGMA integrity_check({FINDINGS_MAX})")


def own_findings(connection: sqlite3.Connection) -> list[str]:
    """The findings of the log's own tables and their indexes, at most FINDINGS_MAX of each."""
    there = _tables(connection)
    return [line for name in _OWN if name in there for line in findings_of(connection, name)]


def findings_of(connection: sqlite3.Connection, table: str) -> list[str]:
    """The findings of one table and its indexes, at most FINDINGS_MAX."""
    return _lines(connection, f"PRAGMA integrity_check({table})")


def appended_to(connection: sqlite3.Connection) -> list[str]:
    """The tables that an append writes anywhere but at their ends, also those of read tables."""
    return [name for name in _tables(connection) if name not in _NOT_APPENDED_TO and not name.startswith("sqlite_")]


def _tables(connection: sqlite3.Connection) -> list[str]:
    return sorted(name for (name,) in connection.execute(_TABLES))


def _lines(connection: sqlite3.Connection, check: str) -> list[str]:
    found = [str(message) for (message,) in connection.execute(check) if message != "ok"]
    lines = [line for message in found for line in message.splitlines() if not line.startswith("***")]
    return lines[:FINDINGS_MAX]
