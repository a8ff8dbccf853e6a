"""A copy of a log's file that takes several steps, between which the log goes on."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from abridged.eventlog.event import NewEvent, StreamId
from abridged.eventlog.log import Append
from abridged.eventlog.sqlite.backup import PAGES_AT_ONCE, Copying, backed_up
from abridged.eventlog.sqlite.log import SqliteEventLog
from tests.support.patience import PATIENCE_S

PAYLOAD_BYTES = 500_000
STEPS = 3


def noted(log: SqliteEventLog, count: int, size: int) -> None:
    """Append events of the given size."""
    for _ in range(count):
        event = NewEvent(os.urandom(16), "noted", os.urandom(size))
        log.submit(Append(StreamId("default", "c"), [event])).result(PATIENCE_S)


def test_commits_between_two_steps_are_not_in_the_copy_and_do_not_begin_it_again(tmp_path: Path) -> None:
    """It is of the moment at which it began, and ends after as many steps as that has pages."""
    steps: list[tuple[int, int]] = []
    with closing(SqliteEventLog.open(tmp_path / "a.db", clock_us=lambda: time.time_ns() // 1_000)) as log:
        noted(log, STEPS * PAGES_AT_ONCE * 4_096 // PAYLOAD_BYTES, PAYLOAD_BYTES)
        before = log.head()

        def copied(done: int, total: int) -> None:
            noted(log, 1, 10)
            steps.append((done, total))
            assert len(steps) <= 2 * STEPS, "the copy begins again after every commit"

        backed_up(tmp_path / "a.db", tmp_path / "b.db", Copying(lambda _: None, copied))
        assert log.head() == before + len(steps)

    assert len(steps) >= STEPS
    assert steps == sorted(steps)
    assert {total for _, total in steps} == {steps[-1][0]}
    with closing(sqlite3.connect(tmp_path / "b.db")) as copy:
        assert copy.execute("SELECT count(*), max(position) FROM events").fetchall() == [(before, before)]
        assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
