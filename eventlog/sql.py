"""What the SQL backends have in common: statements, row shapes, and rows read back as events.

Statements are rendered once, as text for the driver: at the rates of a log, building them again costs more than running
them. Writes go in as few statements as possible, since each one hands the interpreter's lock over and back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any

from sqlalchemy import Table

from eventlog.chain import check_commitment
from eventlog.errors import LogCorrupt
from eventlog.event import RecordedEvent, SealedEvent, StreamId
from eventlog.log import PAGE_BYTES_MAX
from eventlog.paging import up_to_bytes
from eventlog.schema import events

__all__ = [
    "event_row",
    "insert_into",
    "recorded",
    "runs",
    "sealed",
    "select_known_events",
    "select_known_requests",
    "select_page",
    "select_streams",
    "within_bytes",
]

Row = tuple[Any, ...]

STATEMENT_ROWS_MAX = 256
"""Rows of one statement at most: 14 columns of them stay under the 32,766 parameters of SQLite and PostgreSQL."""

_EVENT_COLUMNS = ", ".join(column.name for column in events.columns)
_READ_COLUMNS = (
    "e.position, s.namespace, s.name, e.version, e.event_id, e.type, e.schema_version, e.time_us, e.trace_context, "
    "e.payload, e.salt, e.commitment"
)
_PAYLOAD = 9
"""The place of the payload among the columns that are read."""

_SEAL_COLUMNS = ", e.content_hash, e.chain"


def runs(rows: Sequence[Row]) -> Iterator[tuple[int, list[Any]]]:
    """Cut `rows` into runs, each with the rows of the statement that takes it and that statement's parameters.

    Statements have 1, 2, 4 ... 256 rows, so that few of them serve every number of rows; a run that is shorter is
    filled up with NULLs, which every statement here passes over.
    """
    for start in range(0, len(rows), STATEMENT_ROWS_MAX):
        run = rows[start : start + STATEMENT_ROWS_MAX]
        size = 1 << (len(run) - 1).bit_length()
        parameters = list(chain.from_iterable(run))
        parameters.extend([None] * (len(run[0]) * (size - len(run))))
        yield size, parameters


def _values(columns: int, rows: int) -> str:
    row = "(" + ", ".join(["?"] * columns) + ")"
    return ", ".join([row] * rows)


@cache
def insert_into(table: Table, rows: int) -> str:
    """Insert so many rows with every column of `table` in order; a row whose first column is NULL is passed over."""
    columns = ", ".join(column.name for column in table.columns)
    values = _values(len(table.columns), rows)
    return f"INSERT INTO {table.name} ({columns}) SELECT * FROM (VALUES {values}) WHERE column1 IS NOT NULL"  # noqa: S608 - of constants


@cache
def select_known_events(rows: int) -> str:
    """Of that many (stream, event_id): those on disk as (stream, event_id, position, version, content_hash)."""
    return (
        f"WITH asked (stream, event_id) AS (VALUES {_values(2, rows)}) "  # noqa: S608 - of constants
        "SELECT e.stream, e.event_id, e.position, e.version, e.content_hash "
        "FROM asked CROSS JOIN events AS e ON e.stream = asked.stream AND e.event_id = asked.event_id"
    )


@cache
def select_known_requests(rows: int) -> str:
    """Of that many (stream, key): those on disk as (stream, key, content_hash, first, last, last_version)."""
    return (
        f"WITH asked (stream, key) AS (VALUES {_values(2, rows)}) "  # noqa: S608 - of constants
        "SELECT r.stream, r.key, r.content_hash, r.first_position, r.last_position, r.last_version "
        "FROM asked CROSS JOIN requests AS r ON r.stream = asked.stream AND r.key = asked.key"
    )


@cache
def select_streams(rows: int) -> str:
    """Of that many (namespace, name): those on disk as (namespace, name, id, version, chain of the newest event)."""
    return (
        f"WITH asked (namespace, name) AS (VALUES {_values(2, rows)}) "  # noqa: S608 - of constants
        "SELECT s.namespace, s.name, s.id, e.version, e.chain "
        "FROM asked CROSS JOIN streams AS s ON s.namespace = asked.namespace AND s.name = asked.name "
        "CROSS JOIN events AS e ON e.stream = s.id "
        "AND e.version = (SELECT max(version) FROM events WHERE stream = s.id)"
    )


@cache
def select_page(*conditions: str, order: str, seals: bool = False) -> str:
    """A page of events in `order` that meet `conditions`; its last parameter is the number of rows.

    By position, events come first in the join: begun at the streams, it would read and sort all that they hold.
    """
    join = "CROSS JOIN" if order.startswith("e.position") else "JOIN"
    where = " AND ".join(conditions)
    columns = _READ_COLUMNS + _SEAL_COLUMNS if seals else _READ_COLUMNS
    return (
        f"SELECT {columns} FROM events AS e {join} streams AS s ON s.id = e.stream "  # noqa: S608 - of constants
        f"WHERE {where} ORDER BY {order} LIMIT ?"
    )


def within_bytes(rows: Iterable[Row]) -> tuple[list[Row], bool]:
    """The first rows of a page up to PAGE_BYTES_MAX of payload, at least one; and whether those were all."""
    return up_to_bytes(rows, lambda row: len(row[_PAYLOAD] or b""), bytes_max=PAGE_BYTES_MAX)


def event_row(sealed_event: SealedEvent, stream: int) -> Row:
    """A row of `events` in the order of its columns."""
    event = sealed_event.event
    return (
        event.position,
        stream,
        event.version,
        event.event_id,
        event.stream.namespace,
        event.type,
        event.schema_version,
        event.time_us,
        event.trace_context,
        sealed_event.content_hash,
        sealed_event.commitment,
        sealed_event.chain,
        sealed_event.salt,
        event.payload,
    )


def recorded(row: Row) -> RecordedEvent:
    """The event of a row of a page; raise LogCorrupt when it is not what was written."""
    event = _event(row)
    check_commitment(event, row[10], row[11])
    return event


def sealed(row: Row) -> SealedEvent:
    """The event of a row of a page with seals, unchecked."""
    return SealedEvent(_event(row), row[12], row[10], row[11], row[13])


def _event(row: Row) -> RecordedEvent:
    position, namespace, name, version, event_id, event_type, schema_version, time_us, trace_context, payload = row[:10]
    if payload is None:
        raise LogCorrupt(f"position {position} has no payload")
    return RecordedEvent(
        position,
        StreamId(namespace, name),
        version,
        event_id,
        event_type,
        schema_version,
        time_us,
        trace_context,
        payload,
    )
