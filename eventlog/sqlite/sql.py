"""The statements of the SQLite log.

Statements are rendered once, as text for the driver: at a log's rates, building them costs more than running them.
Writes use as few statements as possible, because each hands over the interpreter's lock and waits for it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any

from abridged.eventlog.event_rows import ROW_COLUMNS
from abridged.eventlog.sqlite.table import Table
from abridged.eventlog.stored_event import SEAL_COLUMNS, Row

Run = Callable[[Callable[[sqlite3.Connection], Any]], Any]
"""Runs a function in a short snapshot, or in a transaction between two groups of appends, and returns its result."""

STATEMENT_ROWS_MAX = 256
"""Most rows of one statement: 13 columns of them stay under the 32,766 parameters of SQLite and PostgreSQL."""

_NAME_IN_INDEX = (
    "EXISTS (SELECT 1 FROM streams AS i INDEXED BY sqlite_autoindex_streams_1 "
    "WHERE i.namespace = s.namespace AND i.name = s.name AND i.id = e.stream)"
)
_PLACE_IN_INDEX = (
    "EXISTS (SELECT 1 FROM events AS i INDEXED BY sqlite_autoindex_events_1 "
    "WHERE i.stream = e.stream AND i.version = e.version AND i.position = e.position)"
)


def runs(rows: Sequence[Row]) -> Iterator[tuple[int, list[Any]]]:
    """Cut `rows` into runs, each with the row count of its statement and that statement's parameters.

    Statements have 1, 2, 4 ... 256 rows, so a few of them fit any number of rows; a shorter run is padded with NULLs,
    which every statement here skips.
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
    """Insert `rows` rows with every column of `table` in order; a row whose first column is NULL is skipped."""
    columns = ", ".join(table.names)
    values = _values(len(table.columns), rows)
    return f"INSERT INTO {table.name} ({columns}) SELECT * FROM (VALUES {values}) WHERE column1 IS NOT NULL"  # noqa: S608 - of constants


@cache
def select_known_events(rows: int) -> str:
    """The query for `rows` pairs (stream, event_id): those on disk as (stream, event_id, position, version,
    content_hash)."""
    return (
        f"WITH asked (stream, event_id) AS (VALUES {_values(2, rows)}) "  # noqa: S608 - of constants
        "SELECT e.stream, e.event_id, e.position, e.version, e.content_hash "
        "FROM asked CROSS JOIN events AS e ON e.stream = asked.stream AND e.event_id = asked.event_id"
    )


@cache
def select_known_requests(rows: int) -> str:
    """The query for `rows` pairs (stream, key): those on disk as (stream, key, content_hash, first, last,
    last_version)."""
    return (
        f"WITH asked (stream, key) AS (VALUES {_values(2, rows)}) "  # noqa: S608 - of constants
        "SELECT r.stream, r.key, r.content_hash, r.first_position, r.last_position, r.last_version "
        "FROM asked CROSS JOIN requests AS r ON r.stream = asked.stream AND r.key = asked.key"
    )


@cache
def select_streams(rows: int) -> str:
    """The query for `rows` pairs (namespace, name): those on disk as (namespace, name, id, version, chain of the newest
    event)."""
    return (
        f"WITH asked (namespace, name) AS (VALUES {_values(2, rows)}) "  # noqa: S608 - of constants
        "SELECT s.namespace, s.name, s.id, e.version, e.chain "
        "FROM asked CROSS JOIN streams AS s ON s.namespace = asked.namespace AND s.name = asked.name "
        "CROSS JOIN events AS e ON e.stream = s.id "
        "AND e.version = (SELECT max(version) FROM events WHERE stream = s.id)"
    )


@cache
def select_names(rows: int, *, of_types: bool) -> str:
    """The query for `rows` numbers: those that streams have on disk, or types, as (number, namespace, name)."""
    table, columns = ("types", "id, NULL, name") if of_types else ("streams", "id, namespace, name")
    return f"SELECT {columns} FROM {table} NOT INDEXED WHERE id IN (VALUES {_values(1, rows)})"  # noqa: S608 - of constants


@cache
def select_stream(condition: str, order: str) -> str:
    """Events of the stream (namespace, name) that meet `condition`, in `order`, with their seals; then the limit."""
    return (
        f"SELECT {ROW_COLUMNS}{SEAL_COLUMNS} FROM streams AS s JOIN events AS e ON e.stream = s.id "  # noqa: S608 - of constants
        f"WHERE s.namespace = ? AND s.name = ? AND {condition} ORDER BY {order} LIMIT ?"
    )


@cache
def select_window(*, backward: bool, of_namespace: bool) -> str:
    """Events with position > and <= the first two parameters; with `of_namespace`, of the third; then the limit.

    They are read from the table itself, and an event counts as another namespace's only if the indexes agree with the
    tables on its stream and that stream's name: what a page of either has lost or changed must not be skipped silently.
    """
    source, where = "events AS e NOT INDEXED", "e.position > ? AND e.position <= ?"
    if of_namespace:
        source += " LEFT JOIN streams AS s ON s.id = e.stream"
        # Alternatives, since SQLite stops at the first that holds; of an AND whose result may be NULL it computes all.
        where += f" AND (s.namespace IS ? OR s.namespace IS NULL OR NOT {_NAME_IN_INDEX} OR NOT {_PLACE_IN_INDEX})"
    return (
        f"SELECT {ROW_COLUMNS} FROM {source} "  # noqa: S608 - of constants
        f"WHERE {where} ORDER BY e.position {'DESC' if backward else ''} LIMIT ?"
    )


@cache
def count_window(*, backward: bool) -> str:
    """The number of events with positions > and <= the first two parameters, each counted once; then the bound where
    SQLite begins, and the limit.

    SQLite walks the table as `select_window` has it walk, since a damaged page may hide from one direction what the
    other meets. It looks at the bound where it begins only to find a place, so an expression compares each row with it.
    DISTINCT compares least where numbers rise.
    """
    number, is_inside, order = ("-position", "<=", "DESC") if backward else ("position", ">", "")
    return (
        f"SELECT count(DISTINCT {number}) FROM (SELECT position FROM events NOT INDEXED "  # noqa: S608 - of constants
        f"WHERE position > ? AND position <= ? AND +position {is_inside} ? ORDER BY position {order} LIMIT ?)"
    )
