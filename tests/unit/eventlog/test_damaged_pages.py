"""Inner pages that lead reads to other leaves than they were written for, or in another order."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path

import pytest

from abridged.eventlog.errors import LogCorrupt
from abridged.eventlog.event import StreamId
from abridged.eventlog.log import EVERYTHING, EventFilter, EventLog
from abridged.eventlog.rows import StoredRows
from abridged.eventlog.sqlite.backend import SqliteBackend
from abridged.eventlog.sqlite.connection import readers_of
from abridged.eventlog.sqlite.log import SqliteEventLog
from abridged.eventlog.sqlite.reader import SqliteReader
from tests.support.event_logs import NOTES, OTHER, A, Clock, Note, append, event

_HEAD = 80
_IN_TURN = 8
"""More events than a leaf has, so that some leaves have one namespace alone."""

_LIMIT = 11
_STREAMS = 600
_PLACES = range(0, _HEAD, 7)
_BITS = (1, 3)
_BYTES_MAX = 1 << 20
_PAGE_BYTES = 4_096
_CELL_COUNT, _LAST_CHILD, _CELL_POINTERS, _CELL_BYTES = 3, 8, 12, 5
"""Places in an inner page, and the size of an entry with a small key: https://sqlite.org/fileformat.html#b_tree_pages"""

_FILTERS = (EVERYTHING, EventFilter(namespace=OTHER.namespace), EventFilter(stream=A))

Answer = tuple[list[int], int] | None
"""Positions and a cursor; None for a refusal."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A log of two namespaces in turn, whose table of events has an inner page above its leaves."""
    path: Path = tmp_path_factory.mktemp("whole") / "log.db"
    log = SqliteEventLog.open(path, clock_us=Clock())
    for first in range(1, _HEAD, _IN_TURN):
        numbers = range(first, first + _IN_TURN)
        to = OTHER if first // _IN_TURN % 2 else A
        log.submit(append(*(event(number, payload=b"%600d" % number) for number in numbers), to=to)).result()
    log.close()
    return path


def test_no_page_repeats_or_misses_an_event_whichever_leaf_its_way_leads_to(whole, tmp_path):
    """Reads in both directions, of everything and of a part: each is as it was, or refused."""
    expected, content = _answers(whole), whole.read_bytes()
    damaged = tmp_path / "log.db"
    wrong: dict[tuple[int, int], list[object]] = {}
    right = refused = 0

    for at in _entries(whole):
        for bit in _BITS:
            damaged.write_bytes(content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :])
            answers = _answers(damaged)
            refused += sum(answer is None for answer in answers.values())
            right += sum(answer == expected[asked] for asked, answer in answers.items())
            if found := [asked for asked, answer in answers.items() if answer not in (None, expected[asked])]:
                wrong[at, bit] = found

    assert wrong == {}
    assert right > refused > 0


@pytest.mark.parametrize("backward", [False, True])
def test_a_page_with_each_event_in_another_order_is_refused(whole, tmp_path, backward):
    """The inner page has two entries in each other's places."""
    content = bytearray(whole.read_bytes())
    at = _root(whole) + _CELL_POINTERS
    content[at : at + 2], content[at + 2 : at + 4] = content[at + 2 : at + 4], content[at : at + 2]
    damaged = tmp_path / "log.db"
    damaged.write_bytes(content)

    with closing(SqliteReader(readers_of(damaged))) as reader:
        with pytest.raises(LogCorrupt):
            reader.read_all(after=0, limit=_HEAD, head=_HEAD, backward=backward)
        with pytest.raises(LogCorrupt):
            reader.scan(after=0, limit=_HEAD, matching=EVERYTHING, head=_HEAD, backward=backward, bytes_max=_BYTES_MAX)


def test_streams_that_lead_back_to_the_first_ones_have_an_end(tmp_path):
    """A rebuild of the read table reads all of them. The inner page ends with the leaf with which it begins."""
    path = tmp_path / "log.db"
    with _opened(path) as (log, _):
        named = (StreamId("default", f"{number:0200}") for number in range(_STREAMS))
        for done in [log.submit(append(event(1), to=stream)) for stream in named]:
            done.result()
    content, root = bytearray(path.read_bytes()), _root(path, "streams")
    first = root + int.from_bytes(content[root + _CELL_POINTERS :][:2], "big")
    content[root + _LAST_CHILD : root + _CELL_POINTERS] = content[first : first + 4]
    path.write_bytes(content)

    with _opened(path) as (_, rows), pytest.raises(LogCorrupt):
        list(islice(rows.streams(), 2 * _STREAMS))


@contextmanager
def _opened(path: Path) -> Iterator[tuple[EventLog, StoredRows[Note]]]:
    place = SqliteBackend(path)
    rows = place.rows(NOTES)
    with closing(place.open(rows, clock_us=Clock(), hook=lambda *_: None).log) as log:
        yield log, rows


def _entries(path: Path) -> Iterator[int]:
    """Yield where the bytes are that lead from the inner page to its leaves."""
    content, root = path.read_bytes(), _root(path)
    pointers = root + _CELL_POINTERS
    count = int.from_bytes(content[root + _CELL_COUNT :][:2], "big")
    yield from range(root + _CELL_COUNT, pointers + 2 * count)
    for pointer in range(pointers, pointers + 2 * count, 2):
        cell = root + int.from_bytes(content[pointer:][:2], "big")
        yield from range(cell, cell + _CELL_BYTES)


def _root(path: Path, table: str = "events") -> int:
    with closing(sqlite3.connect(path)) as database:
        ((page,),) = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,))
    return (int(page) - 1) * _PAGE_BYTES


def _answers(path: Path) -> dict[object, Answer]:
    with closing(SqliteReader(readers_of(path))) as reader:
        return {
            (number, backward, after): _answer(read, after, backward)
            for number, read in enumerate(_reads(reader))
            for backward in (False, True)
            for after in _PLACES
        }


def _reads(reader: SqliteReader) -> Iterator[Callable[[int, bool], tuple[list[int], int]]]:
    for matching in _FILTERS:

        def scanned(after: int, backward: bool, matching: EventFilter = matching) -> tuple[list[int], int]:
            page = reader.scan(
                after=after, limit=_LIMIT, matching=matching, head=_HEAD, backward=backward, bytes_max=_BYTES_MAX
            )
            return [event.position for event in page.events], page.cursor

        yield scanned

    def all_read(after: int, backward: bool) -> tuple[list[int], int]:
        events = reader.read_all(after=after, limit=_LIMIT, head=_HEAD, backward=backward)
        return [event.position for event in events], 0

    yield all_read


def _answer(read: Callable[[int, bool], tuple[list[int], int]], after: int, backward: bool) -> Answer:
    try:
        return read(after, backward)
    except LogCorrupt:
        return None
