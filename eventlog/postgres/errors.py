"""Translates PostgreSQL's errors into the log's, by SQLSTATE (https://www.postgresql.org/docs/current/errcodes-appendix.html)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from abridged.eventlog.errors import EventLogError, LogCorrupt, LogFull, LogGone, LogUnavailable, LogUnsafe

LOCK_NOT_AVAILABLE = "55P03"
LOST = "no connection"
"""The cause of an error without a state."""

DUPLICATE_OBJECT = "42710"
DUPLICATE_TABLE = "42P07"
UNIQUE_VIOLATION = "23505"

_BY_STATE: dict[str, type[EventLogError]] = {
    "08": LogUnavailable,  # the connection broke, or a pooler has lost its server
    "25006": LogUnavailable,  # a primary that was demoted while it was in use
    "25P03": LogUnavailable,  # idle in a transaction for too long, as after a pause of this process
    "3F000": LogGone,  # no such schema
    "40001": LogUnavailable,  # not serializable, which other databases of the same protocol may answer
    "40003": LogUnavailable,  # unknown whether it was committed
    "40P01": LogUnavailable,  # a deadlock
    "42501": LogUnsafe,  # the role may not do this
    "42P01": LogGone,  # no such table
    "53100": LogFull,  # the disk
    "53": LogUnavailable,  # memory, connections
    "55P03": LogUnavailable,  # the lock was not granted in time
    "57014": LogUnavailable,  # a statement ran for too long, or somebody cancelled it
    "57P": LogUnavailable,  # shutdown, crash, start
    "58": LogUnavailable,  # an error of the server's own system
    "XX001": LogCorrupt,  # data
    "XX002": LogCorrupt,  # an index
}
"""The longest beginning of a state decides. A refused connection has none."""

_BY_STATE_AT_START: dict[str, type[EventLogError]] = {
    "08P01": LogUnsafe,  # a pooler that gives each statement another session
}

_WAYS_OUT = {
    "08P01": "connect to the server itself, or through a pooler that gives a transaction one session",
    "42501": "let the role create tables in its schema, and own those of the log",
    "53100": "make room on the server's disk",
}


def translated(error: psycopg.Error, *, is_opening: bool = False) -> EventLogError | None:
    """The log's error for the driver's; None for a programming error, which must surface unchanged.

    An error without a state means that the driver itself has lost the connection, or never had one. No message has the
    password.
    """
    if (state := error.sqlstate) is None:
        return of_cause(LogUnavailable(_text(error)), LOST) if isinstance(error, psycopg.OperationalError) else None
    by_state = {**_BY_STATE, **_BY_STATE_AT_START} if is_opening else _BY_STATE
    kind = next((by_state[state[:size]] for size in (5, 3, 2) if state[:size] in by_state), None)
    way_out = f"; {_WAYS_OUT[state]}" if kind is not LogUnavailable and state in _WAYS_OUT else ""
    return None if kind is None else of_cause(kind(f"{state}: {_text(error)}{way_out}"), state)


def of_cause(error: EventLogError, cause: str) -> EventLogError:
    """The error with its cause."""
    error.cause = cause
    return error


@contextmanager
def translating(*, is_opening: bool = False) -> Iterator[None]:
    """Raise the log's errors for those of the driver."""
    try:
        yield
    except psycopg.Error as error:
        outcome = translated(error, is_opening=is_opening)
        if outcome is None:
            raise
        raise outcome from error


def _text(error: psycopg.Error) -> str:
    """The message in one line, without the statement."""
    return " ".join((error.diag.message_primary or str(error)).split())
