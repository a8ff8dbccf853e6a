"""Reports of commits: each transaction that is on disk, once, and no other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from abridged.eventlog.event import RecordedEvent
from abridged.eventlog.log import Append, Committed
from abridged.eventlog.sqlite.log import SqliteEventLog
from abridged.observability.facts import BatchCommitted
from abridged.observability.metrics import Metrics
from abridged.observability.tracing import SilentTracing
from abridged.service.telemetry.commits import CommitReport
from abridged.service.telemetry.telemetry import metric_labels
from tests.support.event_logs import A, Clock, append, event

POISON = "poison"


class Tracing(SilentTracing):
    """Keeps each report."""

    def __init__(self) -> None:
        self.batches: list[BatchCommitted] = []

    def record_commit(self, fact: BatchCommitted) -> None:
        self.batches.append(fact)


@pytest.fixture
def tracing() -> Tracing:
    return Tracing()


@pytest.fixture
def report(tracing: Tracing) -> CommitReport:
    metrics = Metrics(version="1", labels=metric_labels(event_types=("noted",)))
    return CommitReport(metrics, tracing, clock_ns=count(10, 10).__next__)


def refusing(_transaction: Any, committed: Sequence[Committed]) -> None:
    if any(each.projected == POISON for each in committed):
        raise RuntimeError(POISON)


def committed(first: int, last: int) -> list[Committed]:
    events = tuple(RecordedEvent(p, A, p, b"", "noted", 1, 0, "", b"") for p in range(first, last + 1))
    return [Committed(A, events)]


def sizes(tracing: Tracing) -> list[int]:
    return [batch.events for batch in tracing.batches]


def test_a_refused_transaction_is_not_reported(report, tracing):
    """The hook saw it, the disk did not."""
    hook = report.hook(refusing)
    with pytest.raises(RuntimeError):
        hook(None, [Committed(A, committed(1, 3)[0].events, POISON)])

    report.committed(3)

    assert tracing.batches == []


def test_a_transaction_that_failed_after_its_hook_is_not_reported(report, tracing):
    """The positions went to the next one, or the head never came so far."""
    hook = report.hook(refusing)
    hook(None, committed(1, 1))
    hook(None, committed(1, 3))
    report.committed(3)
    hook(None, committed(4, 9))
    report.committed(3)

    assert sizes(tracing) == [3]


def test_every_transaction_of_a_group_that_was_tried_one_by_one_is_reported(report, tracing):
    """Each as a batch of its own, which ended before the next one began."""
    hook = report.hook(refusing)
    hook(None, committed(1, 2))
    hook(None, committed(3, 3))

    report.committed(3)
    report.committed(3)

    assert sizes(tracing) == [2, 1]
    assert [(batch.started_ns, batch.ended_ns) for batch in tracing.batches] == [(10, 20), (20, 30)]


def test_what_is_reported_adds_up_to_the_log(report, tracing, tmp_path: Path):
    """The log is a real file: groups, a poison append among its neighbours, repetitions."""
    log = SqliteEventLog.open(tmp_path / "log.db", clock_us=Clock(), hook=report.hook(refusing))
    log.on_commit(report.committed)
    futures = []
    for number in range(1, 60):
        poison: Append = append(event(number), projected=POISON if number % 10 == 0 else None)
        futures.append(log.submit(poison))
        futures.append(log.submit(append(event(number // 2 + 1))))
    outcomes = [future.exception() for future in futures]
    head = log.head()
    log.close()

    assert len([outcome for outcome in outcomes if outcome is not None]) >= 1
    assert sum(sizes(tracing)) == head
