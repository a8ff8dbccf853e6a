"""Says which entries a search may find: as conditions of SQL on rows of words, and on pieces for their blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from abridged.service.recall.file import ROLE_NUMBERS, Connection, Kind, Scope, words_table
from abridged.service.recall.pieces import Wanted
from abridged.service.recall.search import Search

_GONE = """
SELECT e.id FROM json_each(?) gone CROSS JOIN entries e ON e.conversation = ? AND e.kind = ?
AND e.exchange BETWEEN coalesce(
    (SELECT max(exchange) FROM entries WHERE conversation = ? AND kind = ? AND exchange <= gone.value ->> 0), 0
) AND gone.value ->> 1
AND e.first BETWEEN gone.value ->> 0 AND gone.value ->> 1
"""
"""The messages in ranges. Exchanges are in the order of their messages, and the index has them in this order: that of a
range's first message is the last to begin before it."""

_NOT_SUPERSEDED = (
    "NOT EXISTS (SELECT 1 FROM entries s INDEXED BY entries_superseded WHERE s.superseded AND s.id = w.rowid)"
)
"""Each row looks itself up by its id: superseded records may be many."""


class Where(NamedTuple):
    """Conditions on an entry, the table to join for them, and their values."""

    join: str
    sql: str
    values: tuple[Any, ...]


def scope_of(connection: Connection, search: Search) -> Scope | None:
    """Return where to search; None where nothing is indexed yet."""
    namespace = connection.execute("SELECT id FROM namespaces WHERE name = ?", (search.namespace,)).fetchone()
    if namespace is None or not search.conversation:
        return None if namespace is None else Scope(namespace[0], 0)
    conversation = _number_of(connection, namespace[0], search.conversation)
    return None if conversation is None else Scope(namespace[0], conversation)


def where_of(connection: Connection, search: Search, scope: Scope) -> Where:
    """The filters, as conditions on the entry of a row of words; without any the entry is not even looked up."""
    conditions: list[str] = []
    values: list[Any] = []
    for column, wanted in (("kind", search.kinds), ("role", _role_numbers(search))):
        if wanted:
            conditions.append(f"e.{column} IN ({', '.join('?' * len(wanted))})")
            values += wanted
    if search.since_us:
        conditions.append("e.time_us >= ?")
        values.append(search.since_us)
    if search.until_us:
        conditions.append("e.time_us < ?")
        values.append(search.until_us)
    for label in (search.labels or {}).items():
        conditions.append(
            "(e.id IN (SELECT entry FROM entry_labels WHERE name = ? AND value = ?)"
            " OR conversation IN (SELECT conversation FROM conversation_labels WHERE name = ? AND value = ?))"
        )
        values += [*label, *label]
    join = " CROSS JOIN entries e ON e.id = w.rowid" if conditions else ""
    if search.records is None:
        conditions.append(_NOT_SUPERSEDED)
    for selection, of_selection in _left_out(connection, search, scope):
        conditions.append(f"w.rowid NOT IN ({selection})")
        values += of_selection
    return Where(join, "".join(f" AND {condition}" for condition in conditions), tuple(values))


def wanted(connection: Connection, search: Search, scope: Scope) -> Wanted:
    """The filters, phrases too, as conditions on pieces."""

    def found(sql: str, *values: object) -> list[int]:
        return [number for (number,) in connection.execute(sql, values)]

    namespace, conversation = scope
    table = words_table(namespace)
    return Wanted(
        conversation=conversation,
        kinds=search.kinds,
        roles=_role_numbers(search),
        since_us=search.since_us,
        until_us=search.until_us,
        either=[
            (
                found("SELECT entry FROM entry_labels WHERE name = ? AND value = ?", *label),
                found("SELECT conversation FROM conversation_labels WHERE name = ? AND value = ?", *label),
            )
            for label in (search.labels or {}).items()
        ],
        entries=[
            found(f"SELECT rowid FROM {table} WHERE {table} MATCH ?", in_scope(scope, phrase))
            for phrase in search.query.phrases
        ],
        with_superseded=search.records is not None,
        unwanted=[
            entry for selection, values in _left_out(connection, search, scope) for entry in found(selection, *values)
        ],
    )


def in_scope(scope: Scope, expression: str) -> str:
    """An FTS5 query for texts of the scope: our own words alone, all of them quoted."""
    within = f'scope : "c{scope.conversation}" AND ' if scope.conversation else ""
    return f"{within}text : ({expression})"


def _left_out(connection: Connection, search: Search, scope: Scope) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Selections of the entries in the scope that are not to be found, and their values, but for superseded records:
    those may be many, and each is known by its own mark."""
    namespace, conversation = scope
    within, of_scope = (" AND conversation = ?", (conversation,)) if conversation else ("", ())
    if search.records is not None:
        others = "SELECT id FROM entries WHERE kind IN (?, ?) AND source NOT IN (SELECT value FROM json_each(?))"
        records = (Kind.SUMMARY, Kind.EPISODE, json.dumps(sorted(search.records)))
        yield others + within, (*records, *of_scope)
    for name, ranges in search.gone.items():
        of_messages = (_number_of(connection, namespace, name), Kind.MESSAGE)
        yield _GONE, (json.dumps([(r.first, r.last) for r in ranges]), *of_messages, *of_messages)


def _number_of(connection: Connection, namespace: int, conversation: str) -> int | None:
    row = connection.execute(
        "SELECT id FROM conversations WHERE namespace = ? AND name = ?", (namespace, conversation)
    ).fetchone()
    return None if row is None else int(row[0])


def _role_numbers(search: Search) -> list[int]:
    return [ROLE_NUMBERS[role] for role in search.roles]
