"""The pieces of a namespace as the index keeps them: packed rows in blocks, which numpy compares a block at a time.

A row has what a search filters by and the signs of the piece's vector. A block has rows of one shelf alone, of
conversations with adjacent numbers, so that a search in one conversation reads few others.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from abridged.service.recall.passages import PIECES_MAX
from abridged.service.recall.vectors import Vector

SHELF_CONVERSATIONS = 16
"""Conversations of a shelf: a search in one reads the pieces of all; the last block of each shelf may be short."""

BLOCK_BYTES = 16_320
"""The most bytes of a block, so that it has a page to itself. Adding a row writes its block anew."""

CHUNK_BYTES = 1 << 19
"""The bytes that are compared at a time: they stay in a processor's cache, and bound the memory of a search."""

_HEAD = struct.Struct("<qqIBB?x")
_WORD = 8


class Row(NamedTuple):
    """A piece: its id and that of its conversation, and what can be filtered by."""

    id: int
    conversation: int
    time_us: int
    kind: int
    role: int
    superseded: bool


class Wanted(NamedTuple):
    """Filters on rows; an empty collection or 0 filters nothing.

    `either` has pairs of entries and conversations: a row must be of one of them, for each pair. `entries` are those
    that a row must be of, for each member; `unwanted` those that it must not be of. Without `with_superseded` a
    row must be one that no later record has superseded.
    """

    conversation: int = 0
    kinds: Collection[int] = ()
    roles: Collection[int] = ()
    since_us: int = 0
    until_us: int = 0
    either: Collection[tuple[Collection[int], Collection[int]]] = ()
    entries: Collection[Collection[int]] = ()
    unwanted: Collection[int] = ()
    with_superseded: bool = True


class Near(NamedTuple):
    """A piece's id, and in how many signs it differs."""

    id: int
    distance: int


def shelf_of(conversation: int) -> int:
    return conversation // SHELF_CONVERSATIONS


def packed(row: Row, vector: Vector) -> bytes:
    head = _HEAD.pack(row.id, row.time_us, row.conversation, row.kind, row.role, row.superseded)
    return head + _padded(vector.signs)


def row_bytes(dimension: int) -> int:
    """The size of a row, of a vector of `dimension` numbers."""
    return _HEAD.size + len(_padded(bytes(-(-dimension // 8))))


def rewritten(block: bytes, entries: Mapping[int, bool | None], *, dimension: int) -> tuple[bytes, int]:
    """The block, of vectors of `dimension` numbers, with the rows of these entries marked as superseded or not, or left
    out for None; and the number of these rows."""
    rows: list[bytes] = []
    found = 0
    size = row_bytes(dimension)
    for at in range(0, len(block), size):
        row = block[at : at + size]
        *head, _ = _HEAD.unpack_from(row)
        if (entry := head[0] // PIECES_MAX) in entries:
            found += 1
            superseded = entries[entry]
            row = b"" if superseded is None else _HEAD.pack(*head, superseded) + row[_HEAD.size :]
        rows.append(row)
    return b"".join(rows), found


def nearest(blocks: Iterable[bytes], signs: bytes, wanted: Wanted, limit: int) -> list[Near]:
    """The `limit` wanted rows, or fewer, whose signs differ least from `signs`, in no order."""
    import numpy as np

    words = np.frombuffer(_padded(signs), dtype="<u8")
    unwanted = np.array(sorted(wanted.unwanted), np.int64)
    form = np.dtype(
        [
            ("id", "<i8"),
            ("time_us", "<i8"),
            ("conversation", "<u4"),
            ("kind", "u1"),
            ("role", "u1"),
            ("superseded", "?"),
            ("unused", "V1"),
            ("signs", "<u8", (len(words),)),
        ]
    )
    ids, distances = np.empty(0, np.int64), np.empty(0, np.uint16)
    # No row that is as far as the farthest of enough nearer ones can be among the nearest.
    too_far = len(words) * 64 + 1
    for chunk in _chunks(blocks):
        rows = np.frombuffer(chunk, dtype=form)
        keep = _mask(rows, wanted, unwanted)
        if keep is not None:
            rows = rows[keep]
        found = np.zeros(len(rows), np.uint16)
        for place, word in enumerate(words):
            found += np.bitwise_count(rows["signs"][:, place] ^ word)
        nearer = np.flatnonzero(found < too_far)
        if not wanted.with_superseded:
            # Few rows are left to look at here.
            nearer = nearer[~rows["superseded"][nearer]]
        ids, distances = np.append(ids, rows["id"][nearer]), np.append(distances, found[nearer])
        if len(ids) > limit:
            best = np.argpartition(distances, limit)[:limit]
            ids, distances = ids[best], distances[best]
            too_far = int(distances.max())
    return [Near(*pair) for pair in zip(ids.tolist(), distances.tolist(), strict=True)]


def _padded(signs: bytes) -> bytes:
    return signs.ljust(-(-len(signs) // _WORD) * _WORD, b"\0")


def _chunks(blocks: Iterable[bytes]) -> Iterator[bytes]:
    held: list[bytes] = []
    length = 0
    for block in blocks:
        held.append(block)
        length += len(block)
        if length >= CHUNK_BYTES:
            yield b"".join(held)
            held, length = [], 0
    if held:
        yield b"".join(held)


def _mask(rows: Any, wanted: Wanted, unwanted: Any) -> Any:
    """Return the wanted rows as a mask; None for all. `unwanted` is an ascending array of the filter's."""
    import numpy as np

    conditions: list[Any] = []
    if wanted.conversation:
        conditions.append(rows["conversation"] == wanted.conversation)
    if wanted.kinds:
        conditions.append(np.isin(rows["kind"], list(wanted.kinds)))
    if wanted.roles:
        conditions.append(np.isin(rows["role"], list(wanted.roles)))
    if wanted.since_us:
        conditions.append(rows["time_us"] >= wanted.since_us)
    if wanted.until_us:
        conditions.append(rows["time_us"] < wanted.until_us)
    entry = rows["id"] // PIECES_MAX
    for entries, conversations in wanted.either:
        conditions.append(np.isin(entry, list(entries)) | np.isin(rows["conversation"], list(conversations)))
    conditions.extend(np.isin(entry, list(entries)) for entries in wanted.entries)
    if len(unwanted):
        places = np.minimum(np.searchsorted(unwanted, entry), len(unwanted) - 1)
        conditions.append(unwanted[places] != entry)
    return np.logical_and.reduce(conditions) if conditions else None
