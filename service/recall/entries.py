"""Keeps the entries of the index's file: their rows, words, vectors and labels, and which records are superseded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from abridged.eventlog.event import RecordedEvent
from abridged.service.domain.message import Role
from abridged.service.recall.blocks import mark, rewrite, shelve
from abridged.service.recall.file import ROLE_NUMBERS, Connection, Kind, Scope, piece_id, words_table
from abridged.service.recall.pieces import Row
from abridged.service.recall.query import spelled
from abridged.service.recall.standing import forget_standing
from abridged.service.recall.texts import checksum
from abridged.service.recall.vectors import Vector


class NewEntry(NamedTuple):
    """The stored part of a text beside its place in the log. A message has no `source`, and a record no `role`."""

    kind: Kind
    role: Role | None
    first: int
    last: int
    source: str
    text: str
    labels: Mapping[str, str] = {}


class Embedding(NamedTuple):
    """The vectors of an entry's pieces, by their places; a piece without words has none."""

    id: int
    vectors: Mapping[int, Vector]


def add(connection: Connection, scope: Scope, recorded: RecordedEvent, entry: NewEntry) -> None:
    """Add the entry of an event; a record supersedes the earlier ones of its kind whose messages it covers."""
    connection.execute(
        "INSERT INTO entries VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?)",
        (
            *(recorded.position, *scope, recorded.version, entry.kind, ROLE_NUMBERS[entry.role]),
            *(entry.first, entry.last, _exchange_of(connection, scope, entry), entry.source, recorded.time_us),
            checksum(entry.text),
        ),
    )
    connection.execute(
        f"INSERT INTO {words_table(scope.namespace)}(rowid, text, scope) VALUES(?, ?, ?)",
        (recorded.position, spelled(entry.text), f"c{scope.conversation}"),
    )
    for name, value in entry.labels.items():
        connection.execute("INSERT INTO entry_labels VALUES(?, ?, ?)", (name, value, recorded.position))
    if entry.kind is not Kind.MESSAGE:
        superseded = connection.execute(
            "UPDATE entries SET superseded = 1 WHERE conversation = ? AND kind = ? AND exchange = 0 AND first >= ?"
            " AND last <= ? AND id < ? AND NOT superseded RETURNING id, superseded",
            (scope.conversation, entry.kind, entry.first, entry.last, recorded.position),
        )
        mark(connection, *scope, dict(superseded))


def supersede_again(connection: Connection, scope: Scope) -> None:
    """Mark anew the records of the conversation whose messages a later one of their kind covers."""
    marked_anew = connection.execute(
        "UPDATE entries SET superseded = EXISTS(SELECT 1 FROM entries later"
        " WHERE later.conversation = entries.conversation AND later.kind = entries.kind AND later.exchange = 0"
        " AND later.first <= entries.first AND later.last >= entries.last AND later.id > entries.id)"
        " WHERE conversation = ? AND kind IN (?, ?) RETURNING id, superseded",
        (scope.conversation, Kind.SUMMARY, Kind.EPISODE),
    )
    mark(connection, *scope, dict(marked_anew))


def label(connection: Connection, scope: Scope, labels: Mapping[str, str]) -> None:
    """Give the conversation these labels and no others."""
    connection.execute("DELETE FROM conversation_labels WHERE conversation = ?", (scope.conversation,))
    for name, value in labels.items():
        connection.execute("INSERT INTO conversation_labels VALUES(?, ?, ?)", (name, value, scope.conversation))


def embed(connection: Connection, embedding: Embedding) -> None:
    """Keep the vectors of an entry. One that was forgotten since it was read has no row, and gets none."""
    rows = connection.execute(
        "UPDATE entries SET has_vectors = 1 WHERE id = ? RETURNING namespace, conversation, time_us, kind, role,"
        " superseded",
        (embedding.id,),
    ).fetchall()
    for namespace, *what in rows:
        added = [
            (Row(piece_id(embedding.id, place), *what), vector) for place, vector in sorted(embedding.vectors.items())
        ]
        for row, vector in added:
            connection.execute("INSERT INTO vectors VALUES(?, ?)", (row.id, vector.steps))
        if added:
            shelve(connection, namespace, added)


def forget(connection: Connection, scope: Scope, which: str, *values: object) -> None:
    """Remove the conversation's entries for which a condition is true: words, vectors, labels and standing rules."""
    rows = connection.execute(
        f"SELECT id FROM entries WHERE conversation = ? AND {which}", (scope.conversation, *values)
    )
    entries = {entry for (entry,) in rows}
    pieces = sum(_remove(connection, scope.namespace, entry) for entry in entries)
    forget_standing(connection, scope.conversation, entries)
    if entries:
        connection.execute("UPDATE namespaces SET has_tombstones = 1 WHERE id = ?", (scope.namespace,))
    rewrite(connection, *scope, dict.fromkeys(entries), pieces)


def _exchange_of(connection: Connection, scope: Scope, entry: NewEntry) -> int:
    """Return the number of the message that the exchange of an entry begins with: a user's, or the first of all."""
    if entry.kind is not Kind.MESSAGE:
        return 0
    newest = connection.execute(
        "SELECT max(exchange) FROM entries WHERE conversation = ? AND kind = ?", (scope.conversation, Kind.MESSAGE)
    ).fetchone()[0]
    return entry.first if newest is None or entry.role == Role.USER else int(newest)


def _remove(connection: Connection, namespace: int, entry: int) -> int:
    """Remove an entry but for its pieces and what stands of it; return the number of pieces."""
    connection.execute(f"DELETE FROM {words_table(namespace)} WHERE rowid = ?", (entry,))
    of_entry = (piece_id(entry, 0), piece_id(entry + 1, 0))
    connection.execute("DELETE FROM vectors WHERE id >= ? AND id < ?", of_entry)
    pieces: int = connection.changes()
    connection.execute("DELETE FROM entry_labels WHERE entry = ?", (entry,))
    connection.execute("DELETE FROM entries WHERE id = ?", (entry,))
    return pieces
