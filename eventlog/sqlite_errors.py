"""SQLite's errors in the log's words, by their primary result code."""

from __future__ import annotations

import sqlite3

from eventlog.errors import EventLogError, LogCorrupt, LogFailed, LogFull, LogUnavailable

__all__ = ["translated"]

_PRIMARY = 0xFF

_NO_SPACE = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE})
"""Growing the shared-memory file on a full disk is reported as an I/O error of its own."""

_BY_CODE: dict[int, type[EventLogError]] = {
    sqlite3.SQLITE_BUSY: LogUnavailable,
    sqlite3.SQLITE_LOCKED: LogUnavailable,
    sqlite3.SQLITE_INTERRUPT: LogUnavailable,
    sqlite3.SQLITE_NOMEM: LogUnavailable,
    sqlite3.SQLITE_CORRUPT: LogCorrupt,
    sqlite3.SQLITE_NOTADB: LogCorrupt,
    sqlite3.SQLITE_IOERR: LogFailed,
    sqlite3.SQLITE_CANTOPEN: LogFailed,
    sqlite3.SQLITE_READONLY: LogFailed,
    sqlite3.SQLITE_PERM: LogFailed,
    sqlite3.SQLITE_PROTOCOL: LogFailed,
}


def translated(error: sqlite3.Error) -> EventLogError | None:
    """The log's error for SQLite's; None when it is a mistake of the program, which must surface as it is."""
    code = getattr(error, "sqlite_errorcode", None)  # errors that the driver itself raises carry no code
    if code is None:
        return None
    name = f"{error.sqlite_errorname}: {error}"
    if code in _NO_SPACE:
        return LogFull(name)
    kind = _BY_CODE.get(code & _PRIMARY)
    return None if kind is None else kind(name)
