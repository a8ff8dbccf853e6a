"""Zeros in the gaps of pages: in all gaps, nowhere else, and in no page that is damaged."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from abridged.eventlog.errors import LogClosed, LogUnavailable
from abridged.eventlog.sqlite.gaps import PAGES_MAX, Gaps

LOOKALIKE = b"\x0d\0\0\0\1\x01\0\0\x0f\xf0" + b"no gap " * 400
"""A payload that is a leaf page to the eye, at the place where an overflow page begins."""


def _database(path: Path, *, page_bytes: int, auto_vacuum: int = 0, seed: int = 0) -> None:
    """Tables and indexes of all kinds, with rows of all sizes, changed at random."""
    chance = random.Random(seed)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA page_size = {page_bytes}")
        db.execute(f"PRAGMA auto_vacuum = {auto_vacuum}")
        db.execute("CREATE TABLE named(id TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID")
        db.execute("CREATE TABLE numbered(id INTEGER PRIMARY KEY, value BLOB)")
        db.execute("CREATE INDEX by_value ON numbered(value)")
        db.execute("BEGIN")
        for _ in range(1_500):
            number = chance.randint(1, 400)
            size = chance.choice((0, 1, 2, 20, 100, 400, 900, 5 * page_bytes))
            value = (LOOKALIKE * (1 + size // len(LOOKALIKE)))[chance.randint(0, 4) :][:size]
            db.execute("INSERT OR REPLACE INTO named VALUES (?, ?)", (f"{number}" + "k" * (number % 60), "v" * size))
            db.execute("INSERT OR REPLACE INTO numbered VALUES (?, ?)", (number * number, value))
            if chance.random() < 0.3:
                db.execute("DELETE FROM numbered WHERE id = ?", (chance.randint(1, 400) ** 2,))
        db.execute("COMMIT")


def _content(path: Path) -> list[Any]:
    """All rows, after SQLite's own check that the file is whole."""
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [db.execute(f"SELECT * FROM {table}").fetchall() for table in ("named", "numbered")]


def _tree_pages(path: Path) -> set[int]:
    with closing(sqlite3.connect(path)) as db:
        try:
            rows = db.execute("SELECT pageno FROM dbstat WHERE pagetype IN ('leaf', 'internal')")
        except sqlite3.OperationalError:
            pytest.skip("this SQLite does not say which pages are b-trees'")
        return {number for (number,) in rows}


def _gaps(path: Path, page_bytes: int) -> Iterator[range]:
    """Yield the places of the gaps in the file, by the pages that SQLite says are b-trees'."""
    data = path.read_bytes()
    for number in _tree_pages(path):
        begin = (number - 1) * page_bytes
        at = begin + (100 if number == 1 else 0)
        cells, content = (int.from_bytes(data[at + place : at + place + 2], "big") for place in (3, 5))
        yield range(at + (8 if data[at] > 5 else 12) + 2 * cells, begin + (content or 65_536))


def _zeroed(path: Path, *pages: int) -> None:
    with closing(Gaps(path)) as gaps:
        gaps.zero(pages or None)


@pytest.mark.parametrize("auto_vacuum", [0, 1])
@pytest.mark.parametrize("page_bytes", [512, 1_024, 4_096, 16_384, 65_536])
def test_gaps_are_zeroed_and_no_other_byte_changes(tmp_path, page_bytes, auto_vacuum):
    """A write that is cut off anywhere therefore leaves the same database."""
    path = tmp_path / "file.db"
    _database(path, page_bytes=page_bytes, auto_vacuum=auto_vacuum, seed=page_bytes)
    before, rows, gaps = path.read_bytes(), _content(path), list(_gaps(path, page_bytes))
    assert any(any(before[gap.start : gap.stop]) for gap in gaps)

    _zeroed(path)

    expected = bytearray(before)
    for gap in gaps:
        expected[gap.start : gap.stop] = bytes(len(gap))
    assert path.read_bytes() == expected
    assert _content(path) == rows


def test_only_the_pages_that_are_named_are_looked_at(tmp_path):
    """A page past the end is ignored."""
    path = tmp_path / "file.db"
    _database(path, page_bytes=4_096)
    before = path.read_bytes()
    dirty = [gap for gap in _gaps(path, 4_096) if any(before[gap.start : gap.stop])]
    expected = bytearray(before)
    expected[dirty[0].start : dirty[0].stop] = bytes(len(dirty[0]))

    _zeroed(path, dirty[0].start // 4_096 + 1, len(before) // 4_096 + 1)

    assert path.read_bytes() == expected


def test_a_damaged_page_is_left_as_it_is(tmp_path):
    """Any bit of the header, of a pointer or of a free block, wherever the page then does not add up."""
    path = tmp_path / "file.db"
    _database(path, page_bytes=1_024)
    whole, chance, left_alone = path.read_bytes(), random.Random(1), 0
    dirty = [gap for gap in _gaps(path, 1_024) if any(whole[gap.start : gap.stop]) and gap.start > 1_024]
    for gap in chance.sample(dirty, 6):
        begin = gap.start // 1_024 * 1_024
        for _ in range(30):
            damaged = bytearray(whole)
            damaged[chance.randint(begin + 1, gap.start - 1)] ^= 1 << chance.randint(0, 7)
            path.write_bytes(damaged)

            _zeroed(path, begin // 1_024 + 1)

            after = path.read_bytes()
            assert after[: gap.start] == damaged[: gap.start], "a pointer was overwritten"
            assert after[gap.stop :] == damaged[gap.stop :], "a cell was overwritten"
            left_alone += after == damaged
    assert left_alone > 90


def test_free_blocks_that_go_in_a_circle_are_damage(tmp_path):
    """A walk along them would not end."""
    path = tmp_path / "file.db"
    _database(path, page_bytes=1_024)
    data = path.read_bytes()
    gap = next(g for g in _gaps(path, 1_024) if any(data[g.start : g.stop]) and g.start > 1_024)
    begin, block = gap.start // 1_024 * 1_024, gap.stop % 1_024
    damaged = bytearray(data)
    damaged[begin + 1 : begin + 3] = damaged[begin + block : begin + block + 2] = block.to_bytes(2, "big")
    path.write_bytes(damaged)

    _zeroed(path)

    assert path.read_bytes()[begin : begin + 1_024] == damaged[begin : begin + 1_024]


@pytest.mark.parametrize("header", [b"no database", b"SQLite format 3\0\0\2", b"SQLite format 3\0\x03\xe8"])
def test_what_does_not_begin_like_a_database_is_refused(tmp_path, header):
    """The beginning is SQLite's magic, and a page size that it has."""
    path = tmp_path / "file.db"
    path.write_bytes(header.ljust(4_096, b"\0"))

    with pytest.raises(LogUnavailable, match="begin like a database"):
        _zeroed(path)


def test_a_file_of_too_many_pages_is_refused(tmp_path):
    """An overflow page of such a file may begin like a b-tree page."""
    path = tmp_path / "file.db"
    _database(path, page_bytes=512)
    before = path.read_bytes()
    with path.open("r+b") as file:
        file.truncate((PAGES_MAX + 1) * 512)

    with pytest.raises(LogUnavailable, match="more than 33554431 pages"):
        _zeroed(path)

    with path.open("rb") as file:
        assert file.read(len(before)) == before


def test_one_that_is_stopped_ends(tmp_path):
    """The log closes, and does not wait for all of a large file."""
    path = tmp_path / "file.db"
    _database(path, page_bytes=512)
    with closing(Gaps(path)) as gaps:
        gaps.stop()
        with pytest.raises(LogClosed):
            gaps.zero()
