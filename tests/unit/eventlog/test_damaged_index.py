"""An index of event ids that leads look-ups astray: the log knows it before a repeat is taken for new."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from abridged.eventlog.errors import EventLogError
from abridged.eventlog.event import StreamId
from abridged.eventlog.sqlite.log import SqliteEventLog
from tests.support.event_logs import Clock, append, event, event_id

STREAMS = tuple(StreamId("default", f"chat-{number}") for number in range(1, 6))
EVENTS = range(1, 301)
_PAGE_BYTES = 4_096
_CELL_COUNT, _CELL_POINTERS, _CHILD_BYTES = 3, 12, 4
"""Places in an inner page: https://sqlite.org/fileformat.html#b_tree_pages"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A log whose index of ids has an inner page above its leaves."""
    path: Path = tmp_path_factory.mktemp("whole") / "log.db"
    log = SqliteEventLog.open(path, clock_us=Clock())
    for stream in STREAMS:
        log.submit(append(*map(event, EVENTS), to=stream)).result()
    log.close()
    return path


def _separators(path: Path) -> Iterator[int]:
    """Yield where the entries on the root page of the index begin with the number of their stream."""
    with closing(sqlite3.connect(path)) as database:
        query = "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_events_2'"
        root = (database.execute(query).fetchone()[0] - 1) * _PAGE_BYTES
    content = path.read_bytes()
    for number in range(int.from_bytes(content[root + _CELL_COUNT :][:2], "big")):
        cell = root + int.from_bytes(content[root + _CELL_POINTERS + 2 * number :][:2], "big")
        header = cell + _CHILD_BYTES + 1
        yield header + content[header]


def _damaged(whole: Path, folder: Path, at: int, bit: int) -> Path:
    folder.mkdir()
    path = Path(shutil.copy(whole, folder))
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))
    return path


def test_a_log_knows_what_it_would_not_take_for_new(tmp_path, whole):
    """A look-up goes another way through a damaged index than a walk along it, which may meet every entry."""
    ids = [event_id(number) for number in EVENTS]
    lost = 0
    for at in _separators(whole):
        for bit in (0, 5):
            log = SqliteEventLog.open(_damaged(whole, tmp_path / f"{at}-{bit}", at, bit), clock_us=Clock())
            for stream in STREAMS:
                known = len(log.known_ids(stream, ids))
                assert (known == len(ids)) == _takes_all_for_known(log, stream)
                lost += known < len(ids)
            log.close()

    assert lost > 0


def _takes_all_for_known(log: SqliteEventLog, stream: StreamId) -> bool:
    try:
        return log.submit(append(*map(event, EVENTS), to=stream)).result().already_appended
    except EventLogError:
        return False
