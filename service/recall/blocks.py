"""Keeps the pieces of a namespace in the blocks of the index's file (`service/recall/pieces.py`).

Ids of blocks ascend as the blocks are made, over all shelves. A block's id is that of its first piece, or higher where
that piece is older than the newest block, as those of entries that an archive has given back are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from abridged.eventlog.event import NUMBER_MAX
from abridged.service.recall.file import Connection, blocks_table, piece_id
from abridged.service.recall.passages import PIECES_MAX
from abridged.service.recall.pieces import BLOCK_BYTES, Row, packed, rewritten, shelf_of
from abridged.service.recall.vectors import Vector


def shelve(connection: Connection, namespace: int, added: Sequence[tuple[Row, Vector]]) -> None:
    """Add the pieces of an entry to the last block of their shelf, or to a new one where it is full."""
    first = added[0][0]
    table, shelf = blocks_table(namespace), shelf_of(first.conversation)
    more = b"".join(packed(row, vector) for row, vector in added)
    last = connection.execute(f"SELECT id, rows FROM {table} WHERE shelf = ? ORDER BY id DESC LIMIT 1", (shelf,))
    for block, rows in last.fetchall():
        if len(rows) + len(more) <= BLOCK_BYTES:
            connection.execute(f"UPDATE {table} SET rows = ? WHERE id = ?", (rows + more, block))
            return
    connection.execute(
        f"INSERT INTO {table} VALUES(max(?, coalesce((SELECT max(id) FROM {table}), 0) + 1), ?, ?)",
        (first.id, shelf, more),
    )


def mark(connection: Connection, namespace: int, conversation: int, superseded: Mapping[int, bool | None]) -> None:
    """Mark the pieces of these records as superseded or not."""
    ((pieces,),) = connection.execute(
        "SELECT count(*) FROM json_each(?) e CROSS JOIN vectors v ON v.id >= e.value AND v.id < e.value + ?",
        (json.dumps([piece_id(entry, 0) for entry in superseded]), PIECES_MAX),
    ).fetchall()
    rewrite(connection, namespace, conversation, superseded, pieces)


def rewrite(
    connection: Connection, namespace: int, conversation: int, entries: Mapping[int, bool | None], pieces: int
) -> None:
    """Mark the `pieces` pieces of these entries as superseded or not, or remove them for None.

    Blocks of a shelf follow each other by id, as entries get vectors, but for those of entries that an archive has
    given back: where some are missing, all blocks are looked at.
    """
    if pieces:
        bounds = piece_id(min(entries), 0), piece_id(max(entries) + 1, 0)
        if _rewritten(connection, namespace, conversation, entries, *bounds) < pieces:
            _rewritten(connection, namespace, conversation, entries, 0, NUMBER_MAX)


def _rewritten(
    connection: Connection,
    namespace: int,
    conversation: int,
    entries: Mapping[int, bool | None],
    first: int,
    end: int,
) -> int:
    """Mark or remove the pieces of these entries in the blocks from `first` to `end`; return the number of pieces."""
    table = blocks_table(namespace)
    ((dimension,),) = connection.execute("SELECT value FROM made WHERE name = 'dimension'").fetchall()
    blocks = connection.execute(
        f"SELECT id, rows FROM {table} WHERE shelf = ?1 AND id < ?3 AND id >= coalesce("
        f"(SELECT max(id) FROM {table} WHERE shelf = ?1 AND id <= ?2), 0)",
        (shelf_of(conversation), first, end),
    ).fetchall()
    pieces = 0
    for block, rows in blocks:
        left, of_entries = rewritten(rows, entries, dimension=int(dimension))
        if not left:
            connection.execute(f"DELETE FROM {table} WHERE id = ?", (block,))
        elif left != rows:
            connection.execute(f"UPDATE {table} SET rows = ? WHERE id = ?", (left, block))
        pieces += of_entries
    return pieces
