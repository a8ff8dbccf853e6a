"""Pieces in blocks: the nearest of those that are wanted, against a look at each one."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from abridged.service.recall.passages import PIECES_MAX
from abridged.service.recall.pieces import CHUNK_BYTES, Row, Wanted, nearest, packed, rewritten
from abridged.service.recall.vectors import Vector

SIGN_BYTES = 9
"""The bytes of 72 signs: more than a word, and no whole words."""

numbers = st.integers(1, 4)
some = st.frozensets(numbers, max_size=3)
signs = st.binary(min_size=SIGN_BYTES, max_size=SIGN_BYTES)
rows = st.builds(Row, st.just(0), numbers, numbers, numbers, st.integers(0, 4), st.booleans())
wanted = st.builds(
    Wanted,
    conversation=st.integers(0, 4),
    kinds=some,
    roles=some,
    since_us=st.integers(0, 4),
    until_us=st.integers(0, 4),
    either=st.lists(st.tuples(some, some), max_size=2),
    entries=st.lists(some, max_size=2),
    unwanted=some,
    with_superseded=st.booleans(),
)


def is_wanted(row: Row, by: Wanted) -> bool:
    """Each filter in plain words."""
    entry = row.id // PIECES_MAX
    return (
        by.conversation in (0, row.conversation)
        and (not by.kinds or row.kind in by.kinds)
        and (not by.roles or row.role in by.roles)
        and row.time_us >= by.since_us
        and (not by.until_us or row.time_us < by.until_us)
        and all(entry in entries or row.conversation in conversations for entries, conversations in by.either)
        and all(entry in entries for entries in by.entries)
        and entry not in by.unwanted
        and (by.with_superseded or not row.superseded)
    )


@given(
    pieces=st.lists(st.tuples(rows, signs), max_size=40),
    query=signs,
    by=wanted | st.just(Wanted()),
    limit=st.integers(1, 12),
    block=st.integers(1, 7),
)
def test_the_nearest_pieces_are_those_that_a_look_at_each_one_finds(pieces, query, by, limit, block):
    """The distances are the same, too; of pieces that are as far the choice is free."""
    known = {}
    packs = []
    for place, (row, of_row) in enumerate(pieces):
        # Up to 8 pieces of an entry: entries 0 to 4.
        row = row._replace(id=place // 8 * PIECES_MAX + place % 8)
        known[row.id] = (row, of_row)
        packs.append(packed(row, Vector(of_row, b"")))
    blocks = [b"".join(packs[at : at + block]) for at in range(0, len(packs), block)]

    found = nearest(blocks, query, by, limit)

    distances = {at: distance(query, of_row) for at, (row, of_row) in known.items() if is_wanted(row, by)}
    assert all(distances[near.id] == near.distance for near in found)
    assert len({near.id for near in found}) == len(found)
    assert sorted(near.distance for near in found) == sorted(distances.values())[:limit]


def distance(one: bytes, other: bytes) -> int:
    """Count the bits in which two texts of bytes differ."""
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).bit_count()


def test_the_nearest_is_found_wherever_it_lies_among_many_blocks():
    """A comparison takes a part of them at a time."""
    far, near = Vector(b"\xff" * 8, b""), Vector(bytes(8), b"")
    blocks = [packed(Row(number, 1, 1, 1, 2, False), far) * 100 for number in range(3 * CHUNK_BYTES // 4_000)]
    for place in (0, len(blocks) // 2, len(blocks) - 1):
        changed: list[Any] = [*blocks]
        changed[place] += packed(Row(7_777_777, 1, 1, 1, 2, False), near)

        assert (7_777_777, 0) in nearest(changed, near.signs, Wanted(), 5)


@given(
    rows=st.lists(rows, max_size=30),
    changed=st.dictionaries(numbers, st.none() | st.booleans()),
)
def test_a_block_is_written_anew_without_some_entries_and_with_others_marked(rows, changed):
    """The rows of all others keep their order, byte for byte."""

    def block_of(rows: list[Row]) -> bytes:
        return b"".join(packed(row, Vector(bytes([row.conversation] * SIGN_BYTES), b"")) for row in rows)

    # Up to 4 entries, each with several pieces.
    rows = [row._replace(id=(1 + place % 4) * PIECES_MAX + place // 4) for place, row in enumerate(rows)]
    of_changed = [row for row in rows if row.id // PIECES_MAX in changed]

    block, count = rewritten(block_of(rows), changed, dimension=8 * SIGN_BYTES)

    marks = {row.id: changed.get(row.id // PIECES_MAX, row.superseded) for row in rows}
    kept = [row._replace(superseded=mark) for row in rows if (mark := marks[row.id]) is not None]
    assert (block, count) == (block_of(kept), len(of_changed))
