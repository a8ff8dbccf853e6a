"""Losses of a stream are found event by event, in memory that does not depend on their number."""

from __future__ import annotations

import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest

from abridged.eventlog.sqlite.log import SqliteEventLog
from abridged.eventlog.sqlite.rows import SqliteRows
from abridged.eventlog.sqlite.verification import SqliteVerification
from abridged.eventlog.verification import RANGES_MAX, Loss
from abridged.service.conversations.row import READ_TABLE
from tests.support.event_logs import A, Clock, append, event

EVENTS = 1_500

FORGED = "UPDATE events SET chain = zeroblob(32) WHERE position = "
LOST = "UPDATE events SET payload = zeroblob(3) WHERE position = "
BACKWARD = "UPDATE events SET version = -1 WHERE position = "
GONE = "DELETE FROM events WHERE position = "


def _written(path: Path, events: int) -> Path:
    log = SqliteEventLog.open(path, clock_us=Clock())
    for first in range(1, events + 1, EVENTS):
        log.submit(append(*map(event, range(first, min(first + EVENTS, events + 1))))).result()
    log.close()
    return path


def _loss(path: Path, *changes: str, end: int) -> Loss:
    with closing(sqlite3.connect(path)) as database:
        for change in changes:
            database.execute(change)
        database.commit()
    with SqliteVerification.opened(path, SqliteRows(READ_TABLE)) as log:
        ((_, loss),) = log.losses({A: end})
    return loss


@pytest.mark.parametrize(
    ("changes", "damaged"),
    [
        ((f"{FORGED} 5",), ((5, 5),)),
        ((f"{FORGED} 1",), ((1, 1),)),
        ((f"{FORGED} 10",), ((10, 10),)),
        ((f"{LOST} 4", f"{FORGED} 5"), ((4, 5),)),
        ((f"{LOST} 3", f"{FORGED} 5"), ((3, 3), (5, 5))),
        ((f"{FORGED} 4", f"{LOST} 5", f"{FORGED} 6"), ((4, 6),)),
        ((f"{LOST} 1", f"{LOST} 3"), ((1, 1), (3, 3))),
        ((f"{BACKWARD} 5",), ((5, 5),)),
    ],
)
def test_a_chain_hash_blames_its_own_event_alone(tmp_path: Path, changes: tuple[str, ...], damaged: object):
    """Wherever it is, and also next to an event that cannot be read, which leaves nothing to follow from."""
    loss = _loss(_written(tmp_path / "log.db", 10), *changes, end=10)

    named = sum(last - first + 1 for first, last in loss.ranges)
    assert (loss.ranges, loss.more, loss.unplaced) == (damaged, 0, 0)
    assert (loss.intact, loss.last) == (10 - named, loss.ranges[-1][1])


def test_events_that_are_in_no_page_are_counted(tmp_path: Path):
    """Gaps in versions count losses in the middle; the known end of the stream counts those behind."""
    loss = _loss(_written(tmp_path / "log.db", 10), f"{GONE} 4", f"{GONE} 10", end=10)

    assert loss == Loss((), 0, 0, intact=8, unplaced=2)
    assert not loss.is_empty


def test_memory_is_the_same_however_much_is_damaged(tmp_path: Path):
    """No positions of a stream are held: at eight times as many damaged events the peak is the same."""
    peaks = []
    for events in (2 * EVENTS, 16 * EVENTS):
        path = _written(tmp_path / f"{events}.db", events)
        with closing(sqlite3.connect(path)) as database:
            database.execute("UPDATE events SET payload = zeroblob(3) WHERE position % 2 = 0")
            database.commit()
        with SqliteVerification.opened(path, SqliteRows(READ_TABLE)) as log:
            (stream,) = log.streams()
            list(log.losses({stream: events}))  # fills what the process caches once
            tracemalloc.start()
            ((_, loss),) = log.losses({stream: events})
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert (loss.intact, loss.more) == (events // 2, events // 2 - RANGES_MAX)

    few, many = peaks
    assert many < few + (128 << 10), peaks
