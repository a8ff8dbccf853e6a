"""The writer's queue: groups, refusals and answers."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from abridged.eventlog.errors import LogClosed, LogFailed, LogUnavailable
from abridged.eventlog.group_commit import (
    GROUP_BYTES_MAX,
    GROUP_EVENTS_MAX,
    QUEUE_BYTES_MAX,
    QUEUE_EVENTS_MAX,
    GroupCommit,
)
from abridged.eventlog.log import Append, AppendResult
from tests.support.event_logs import append, event
from tests.support.patience import PATIENCE_S

DONE = AppendResult(1, 1, 1)


class _Box:
    def __init__(self) -> None:
        self.deliveries: list[list[tuple[object, object]]] = []
        self._came = threading.Condition()

    def deliver(self, outcomes) -> None:
        with self._came:
            self.deliveries.append(list(outcomes))
            self._came.notify_all()

    def wait_for(self, count: int) -> None:
        with self._came:
            assert self._came.wait_for(lambda: len(self.tickets) >= count, PATIENCE_S)

    @property
    def tickets(self) -> list[object]:
        return [ticket for delivery in self.deliveries for ticket, _ in delivery]

    @property
    def outcomes(self) -> list[object]:
        return [outcome for delivery in self.deliveries for _, outcome in delivery]


class _Writer:
    """A commit that stops at a gate, so that a test decides which appends queue up behind it."""

    def __init__(self, gather_s: float = 0.0) -> None:
        self.groups: list[int] = []
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.failures: list[Exception] = []
        self.error: Exception | None = None
        self.queue = GroupCommit(
            self.commit, after=lambda: None, idle=lambda: None, failed=self.failures.append, gather_s=gather_s
        )

    def commit(self, appends: Sequence[Append]) -> list[AppendResult]:
        self.groups.append(len(appends))
        self.entered.set()
        assert self.gate.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        return [DONE] * len(appends)


@pytest.fixture
def writer():
    made = _Writer()
    yield made
    made.gate.set()
    made.queue.close()


def _hold(writer: _Writer, box: _Box) -> None:
    """Post one append and wait until it is being committed."""
    writer.queue.post(append(event(0)), 1, "first", box)
    assert writer.entered.wait(PATIENCE_S)


def test_what_comes_during_a_commit_is_the_next_group(writer: _Writer):
    """A commit's time gathers the next group."""
    box = _Box()
    _hold(writer, box)

    for number in range(20):
        writer.queue.post(append(event(number)), 1, number, box)
    writer.gate.set()
    writer.queue.close()

    assert writer.groups == [1, 20]
    assert box.tickets == ["first", *range(20)]


def test_a_group_of_several_holds_the_next_one_back():
    """A moment's wait makes groups fewer and larger under concurrent load; closing ends the wait."""
    writer, box = _Writer(gather_s=3_600.0), _Box()
    _hold(writer, box)
    for number in range(2):
        writer.queue.post(append(event(number)), 1, number, box)
    writer.gate.set()
    box.wait_for(3)
    writer.entered.clear()

    writer.queue.post(append(event(1)), 1, 1, box)
    assert not writer.entered.wait(0.1)
    writer.queue.post(append(event(2)), 1, 2, box)
    writer.queue.close()

    assert writer.groups == [1, 2, 2]


def test_a_lone_caller_is_never_held_back():
    """A lone caller has no company to gather."""
    writer, box = _Writer(gather_s=3_600.0), _Box()
    writer.gate.set()

    for number in range(1, 6):
        writer.queue.post(append(event(number)), 1, number, box)
        box.wait_for(number)
    writer.queue.close()

    assert writer.groups == [1] * 5


def test_a_completion_queue_gets_one_delivery_for_each_group(writer: _Writer):
    """One wake-up of a loop a commit, however many wait there; each of two queues gets its own."""
    one, two = _Box(), _Box()
    _hold(writer, one)

    for number in range(10):
        writer.queue.post(append(event(number)), 1, number, (one, two)[number % 2])
    writer.gate.set()
    writer.queue.close()

    assert [len(delivery) for delivery in one.deliveries] == [1, 5]
    assert [len(delivery) for delivery in two.deliveries] == [5]


@pytest.mark.parametrize(
    ("events", "size", "groups"),
    [
        (1, 1, [1, 1_000, 500]),
        (300, 1, [1, 3, 3, 3, 3, 3]),
        (GROUP_EVENTS_MAX + 1, 1, [1, 1, 1, 1]),
        (1, GROUP_BYTES_MAX // 4, [1, 4, 4, 4]),
        (1, GROUP_BYTES_MAX + 1, [1, 1, 1, 1]),
    ],
)
def test_a_group_ends_before_it_passes_a_cap(writer: _Writer, events, size, groups):
    """Groups are capped in events and bytes; a larger append goes alone."""
    box = _Box()
    _hold(writer, box)
    one = append(*(event(number) for number in range(events)))

    for number in range(sum(groups) - 1):
        writer.queue.post(one, size, number, box)
    writer.gate.set()
    writer.queue.close()

    assert writer.groups == groups


@pytest.mark.parametrize(("events", "size"), [(QUEUE_EVENTS_MAX // 20, 1), (1, QUEUE_BYTES_MAX // 20 + 1)])
def test_a_full_queue_refuses_and_an_emptied_one_accepts(writer: _Writer, events, size):
    """The queue is bounded in events and bytes; a refusal is typed and immediate."""
    box, late = _Box(), _Box()
    _hold(writer, box)
    one = append(*(event(number) for number in range(events)))
    for number in range(20):
        writer.queue.post(one, size, number, box)

    writer.queue.post(one, size, "late", late)

    assert [type(outcome) for outcome in late.outcomes] == [LogUnavailable]
    writer.gate.set()
    box.wait_for(21)
    writer.queue.post(one, size, "after", box)
    box.wait_for(22)
    assert box.outcomes == [DONE] * 22


def test_a_closed_queue_refuses(writer: _Writer):
    """The queue accepts nothing after the close."""
    box = _Box()
    writer.gate.set()
    writer.queue.close()

    writer.queue.post(append(event(1)), 1, "late", box)

    assert [type(outcome) for outcome in box.outcomes] == [LogClosed]


def test_closing_answers_what_was_accepted(writer: _Writer):
    """A close waits for the queue."""
    box = _Box()
    _hold(writer, box)
    writer.queue.post(append(event(1)), 1, "second", box)
    closer = threading.Thread(target=writer.queue.close)

    closer.start()
    writer.gate.set()
    closer.join(PATIENCE_S)

    assert box.outcomes == [DONE, DONE]


def test_a_bug_in_the_commit_answers_everybody(writer: _Writer):
    """No append in the group or queued behind it waits for ever, and the supervisor hears why."""
    box = _Box()
    _hold(writer, box)
    for number in range(5):
        writer.queue.post(append(event(number)), 1, number, box)
    writer.error = ZeroDivisionError("a bug")

    writer.gate.set()
    box.wait_for(6)
    writer.queue.post(append(event(9)), 1, "later", box)

    assert [type(outcome) for outcome in box.outcomes] == [LogFailed] * 7
    assert writer.failures == [writer.error]


def test_a_quiet_queue_tells_once():
    """Idle time is used for housekeeping, and appends go on afterwards."""
    idled: list[int] = []
    told = threading.Event()

    def idle() -> None:
        idled.append(1)
        told.set()

    box = _Box()
    queue = GroupCommit(
        lambda appends: [DONE] * len(appends),
        after=lambda: None,
        idle=idle,
        failed=lambda error: None,
        idle_after_s=0.001,
    )

    assert told.wait(PATIENCE_S)
    queue.post(append(event(1)), 1, 1, box)
    queue.close()

    assert box.outcomes == [DONE]
    assert len(idled) <= 2


def test_after_runs_when_the_outcomes_are_out(writer: _Writer):
    """Acknowledgements come first, housekeeping second."""
    answered_before: list[int] = []
    box = _Box()
    queue = GroupCommit(
        lambda appends: [DONE] * len(appends),
        after=lambda: answered_before.append(len(box.tickets)),
        idle=lambda: None,
        failed=lambda error: None,
    )

    queue.post(append(event(1)), 1, 1, box)
    queue.close()

    assert answered_before == [1]


def test_a_group_is_held_back_no_longer_than_until_the_last_ones_callers_are_back():
    """Waiting is for those who were answered: once as many wait again, nobody else is likely to come."""
    writer, box = _Writer(gather_s=3_600.0), _Box()
    _hold(writer, box)
    for number in range(2):
        writer.queue.post(append(event(number)), 1, number, box)
    writer.gate.set()
    box.wait_for(3)

    for number in range(2, 4):
        writer.queue.post(append(event(number)), 1, number, box)
    box.wait_for(5)
    writer.queue.close()

    assert writer.groups == [1, 2, 2]
