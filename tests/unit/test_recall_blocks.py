"""Blocks of several shelves in one table: no write of a block takes another one away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from abridged.service.recall.blocks import mark, rewrite, shelve
from abridged.service.recall.file import Connection, create_tables_of, opened, piece_id
from abridged.service.recall.passages import PIECES_MAX
from abridged.service.recall.pieces import BLOCK_BYTES, SHELF_CONVERSATIONS, Row, Wanted, nearest, row_bytes
from abridged.service.recall.vectors import Vector

SIGNS = bytes(992)
"""Signs of a vector so long that the pieces of one entry fill a block."""

OLD = range(1, 41)
"""Entries that an archive gives back."""


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    """An empty index with one namespace."""
    assert BLOCK_BYTES // row_bytes(8 * len(SIGNS)) == PIECES_MAX
    connection = opened(tmp_path / "index", "log", 0, report=print)
    create_tables_of(connection, 1)
    connection.execute("INSERT INTO made VALUES('dimension', ?)", (str(8 * len(SIGNS)),))
    yield connection
    connection.close()


def add(connection: Connection, entry: int, shelf: int) -> None:
    rows = [Row(piece_id(entry, place), shelf * SHELF_CONVERSATIONS, 1, 1, 1, False) for place in range(PIECES_MAX)]
    shelve(connection, 1, [(row, Vector(SIGNS, b"")) for row in rows])


def entries_in(connection: Connection, *, with_superseded: bool = True) -> list[int]:
    """The entries whose pieces are all there."""
    blocks = [rows for (rows,) in connection.execute("SELECT rows FROM blocks_1")]
    near = sorted(each.id for each in nearest(blocks, SIGNS, Wanted(with_superseded=with_superseded), 10_000))
    entries = sorted({piece // PIECES_MAX for piece in near})
    assert near == [piece_id(entry, place) for entry in entries for place in range(PIECES_MAX)]
    return entries


def test_what_an_archive_gives_back_to_a_full_shelf_leaves_the_blocks_of_others(connection):
    """Entries of two shelves came in turns: the new blocks of one do not get the id of another's."""
    for entry in range(101, 105):
        add(connection, entry, entry % 2)
    for entry in OLD:
        add(connection, entry, 1)

    assert entries_in(connection) == [*OLD, *range(101, 105)]


def test_a_new_shelf_leaves_the_blocks_of_what_an_archive_gave_back(connection):
    """The ids of those have risen past that of the entry which begins the shelf."""
    add(connection, 101, 1)
    for entry in OLD:
        add(connection, entry, 1)
    for entry in (102, 103):
        add(connection, entry, entry)

    assert entries_in(connection) == [*OLD, 101, 102, 103]


def test_pieces_are_marked_and_removed_wherever_their_blocks_are(connection):
    """Entries that an archive gave back are in blocks behind those of newer ones."""
    for entry in (101, *OLD, 102):
        add(connection, entry, 1)
    connection.execute("INSERT INTO vectors VALUES(?, '')", (piece_id(3, 0),))

    mark(connection, 1, SHELF_CONVERSATIONS, {3: True})
    rewrite(connection, 1, SHELF_CONVERSATIONS, {2: None, 102: None}, 2 * PIECES_MAX)

    assert entries_in(connection) == [1, *range(3, 41), 101]
    assert entries_in(connection, with_superseded=False) == [1, *range(4, 41), 101]
