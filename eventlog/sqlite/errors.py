"""Translates SQLite's errors into the log's, by primary result code."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from abridged.eventlog.errors import EventLogError, LogCorrupt, LogFailed, LogFull, LogUnavailable
from abridged.eventlog.sqlite.file import NO_ROOM, has_room

_PRIMARY = 0xFF

_NO_SPACE = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE})
"""Codes of a full disk, on which growing the shared-memory file fails with a special I/O error."""

_PERHAPS_NO_SPACE = frozenset({sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_CANTOPEN})
"""SQLite's codes also for a quota, a largest size of files, and a volume that takes no further file."""

_NO_TEXT = "Could not decode to UTF-8"

_BY_CODE: dict[int, type[EventLogError]] = {
    sqlite3.SQLITE_BUSY: LogUnavailable,
    sqlite3.SQLITE_LOCKED: LogUnavailable,
    sqlite3.SQLITE_INTERRUPT: LogUnavailable,
    sqlite3.SQLITE_NOMEM: LogUnavailable,
    sqlite3.SQLITE_CORRUPT: LogCorrupt,
    sqlite3.SQLITE_TOOBIG: LogCorrupt,  # nothing that was written is
    sqlite3.SQLITE_NOTADB: LogCorrupt,
    sqlite3.SQLITE_IOERR: LogFailed,
    sqlite3.SQLITE_CANTOPEN: LogFailed,
    sqlite3.SQLITE_READONLY: LogFailed,
    sqlite3.SQLITE_PERM: LogFailed,
    sqlite3.SQLITE_PROTOCOL: LogFailed,
}


def is_read_only(error: sqlite3.Error) -> bool:
    """Return whether a write failed because the file can only be read."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & _PRIMARY == sqlite3.SQLITE_READONLY


def translated(error: sqlite3.Error, *, has_room: Callable[[], bool] = lambda: True) -> EventLogError | None:
    """The log's error for the database's; None for a programming error, which must surface unchanged.

    `has_room` is called after a failed write: for lack of room, the error is no defect and leaves nothing in doubt.
    """
    code = getattr(error, "sqlite_errorcode", None)  # errors that the driver itself raises carry no code
    if code is None and isinstance(error, sqlite3.OperationalError) and str(error).startswith(_NO_TEXT):
        return LogCorrupt("a stored text is not UTF-8")  # the driver's message has the text
    if code is None:
        return None
    name = f"{error.sqlite_errorname}: {error}"
    if code in _NO_SPACE or (code in _PERHAPS_NO_SPACE and not has_room()):
        return LogFull(name)
    kind = _BY_CODE.get(code & _PRIMARY)
    return None if kind is None else kind(name)


@contextmanager
def translating(*, has_room: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Raise the log's errors for those of the database; `has_room` as for `translated`."""
    try:
        yield
    except UnicodeDecodeError as error:  # the driver's, of what SQLite says of a damaged schema
        raise LogCorrupt("the schema's text is not UTF-8") from error
    except sqlite3.Error as error:
        outcome = translated(error, has_room=has_room)
        if outcome is None:
            raise
        raise outcome from error


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Translate what opening a file can raise."""
    try:
        with translating(has_room=partial(has_room, path)):
            yield
    except LogFull as error:
        raise _cannot_open(path, error) from error
    except sqlite3.Error as error:
        raise LogCorrupt(f"cannot read {path}: {error}") from error
    except OSError as error:
        if error.errno in NO_ROOM:
            raise _cannot_open(path, error.strerror) from error
        if not path.absolute().parent.is_dir():
            raise LogUnavailable(f"cannot open {path}: there is no folder {path.parent}") from error
        raise LogUnavailable(f"cannot open {path}: {error.strerror}") from error


def no_room(path: Path, cause: object) -> LogFull:
    """The refusal of a write to the log in `path` for lack of room."""
    return LogFull(
        f"{path.name} has no room on its volume ({cause}): nothing was written, and reads go on. Make room, and send "
        "it again with the same ids; no restart is needed"
    )


def _cannot_open(path: Path, cause: object) -> LogFull:
    return LogFull(
        f"cannot open {path}: its volume has no room ({cause}). The log is as it was; make room, then start again"
    )
