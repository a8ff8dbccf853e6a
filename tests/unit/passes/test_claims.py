"""Claims of several sidecars, each as a scene in virtual time: who goes on with a pass, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from abridged.eventlog.event import StreamId
from abridged.service.conversations.table import row_of
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import (
    SummarizationCompleted,
    SummarizationFailed,
    SummarizationRequested,
    SummarizationStarted,
)
from abridged.service.passes.claims import LEASE_S, RENEWALS
from tests.support.fleet.faults import Point
from tests.support.fleet.fleet import Fleet
from tests.support.fleet.process import Process

KEY = StreamId("default", "c")
LOOK_S = LEASE_S / RENEWALS
SOON_S = 2.0

Scene = tuple[Fleet, Process, Process]
"""A fleet, and two processes, of which the first has asked a model for a pass."""


@pytest.fixture
def scene() -> Iterator[Scene]:
    """The model takes longer than a lease."""
    fleet = Fleet(1, call_s=2.5 * LEASE_S)
    one = fleet.start()
    fleet.play_for(0.1)
    fleet.append(KEY, 6)
    fleet.until(f"at {Point.MODEL_ASKED}", within_s=SOON_S)
    yield fleet, one, fleet.start()
    fleet.settle()
    assert fleet.judge() == []
    fleet.time.close()


def count(fleet: Fleet, *kinds: type[object]) -> list[int]:
    """Return the number of events of each kind in the log."""
    types = [event.type for event in fleet.log.read_all(limit=10_000)]
    return [types.count(kind.__name__) for kind in kinds]


def test_a_pass_that_takes_longer_than_a_lease_stays_with_its_owner(scene: Scene):
    """The pass's lease is renewed, and dropped soon after its end."""
    fleet, _, _ = scene
    fleet.play_for(2 * LEASE_S)

    assert count(fleet, SummarizationStarted, SummarizationCompleted) == [1, 0]
    assert fleet.leases.rows[KEY].until_s > fleet.time.now_s

    fleet.play_for(2 * LEASE_S)
    assert count(fleet, SummarizationStarted, SummarizationCompleted) == [1, 1]
    assert fleet.leases.rows == {}


def test_a_pass_whose_owner_has_died_is_taken_up_when_its_lease_has_lapsed(scene: Scene):
    """The takeover does not come earlier, and leaves one record in the end."""
    fleet, one, _ = scene
    one.kill()
    fleet.play_for(LEASE_S - 1.0)
    assert count(fleet, SummarizationStarted) == [1]

    fleet.until("a pass is taken over", within_s=LOOK_S + SOON_S)


def test_a_damaged_conversation_keeps_no_other_waiting(scene: Scene):
    """Each look finds it first, and goes on."""
    fleet, one, _ = scene
    before = StreamId(KEY.namespace, "b")
    fleet.append(before, 6)
    fleet.play_for(1.0)
    fleet.damaged.add(before)
    one.kill()

    fleet.until("a pass is taken over", within_s=LEASE_S + 2 * LOOK_S + SOON_S)
    assert fleet.witness.holders[KEY][0] is not one
    fleet.damaged.clear()


def test_a_pass_is_found_at_the_first_look_among_many_conversations(scene: Scene):
    """A look reads every pending pass, whatever else needs attention."""
    fleet, one, _ = scene
    waiting = Conversation(wait_until_us=1 << 60, failures_in_row=1)
    others = [row_of(StreamId("default", f"a{number}"), waiting._replace(id=f"a{number}")) for number in range(2_000)]
    commit: list[Callable[[], None]] = []
    fleet.rows.put(commit, others)
    for write in commit:
        write()
    one.kill()

    fleet.until("a pass is taken over", within_s=LEASE_S + LOOK_S + SOON_S)


def test_a_process_that_was_stopped_for_longer_asks_no_model_and_ends_nothing(scene: Scene):
    """The pass is another's, whose record is the one."""
    fleet, one, two = scene
    fleet.call_s = 1.0
    one.loop.stop_for(3 * LEASE_S)
    fleet.until("a pass is taken over", within_s=LEASE_S + LOOK_S + SOON_S)
    fleet.play_for(3 * LEASE_S)
    calls = fleet.seen["model calls"]
    fleet.play_for(LEASE_S)

    assert fleet.seen["a lease lapses in its process"] == 1
    assert fleet.seen["model calls"] == calls
    assert fleet.witness.holders[KEY][0] is two
    assert count(fleet, SummarizationStarted, SummarizationCompleted) == [2, 1]


def test_a_process_that_wakes_up_renews_nothing_that_has_lapsed(scene: Scene):
    """Even when it has learned only now that its claim is in the log."""
    fleet, one, two = scene
    two.kill()
    fleet.settle()
    three = next(process for process in fleet.live() if process is not one)
    three.kill()
    fleet.append(KEY, 6)
    fleet.until(f"at {Point.CLAIM_COMMITTED}", within_s=SOON_S)
    one.loop.stop_for(2 * LEASE_S)
    fleet.play_for(2 * LEASE_S + 0.1)

    assert fleet.leases.rows == {}


def test_a_pass_that_a_stop_has_given_back_is_taken_up_at_the_next_look(scene: Scene):
    """No lease is waited for."""
    fleet, one, _ = scene
    one.leave()

    fleet.until("a pass that was given back is taken up", within_s=LOOK_S + 3 * SOON_S)


def test_a_claim_whose_answer_was_lost_is_claimed_again_by_its_own_process(scene: Scene):
    """The process claims at once: it knows its own name."""
    fleet, _, _ = scene
    fleet.settle()
    fleet.unanswered.add(Point.CLAIM_COMMITTED)
    fleet.append(KEY, 6)

    fleet.until("a process claims again", within_s=SOON_S)


def test_a_pass_that_its_sidecar_never_claims_is_claimed_by_another(scene: Scene):
    """Another claims it when the time of a lease has gone by since its first look at the pass."""
    fleet, _, _ = scene
    fleet.settle()
    known = len(fleet.witness.requested)
    fleet.append(KEY, 6)
    fleet.time.run(lambda: len(fleet.witness.requested) > known, within_s=SOON_S)
    next(reversed(fleet.witness.requested.values())).kill()

    fleet.until("a pass that nobody has claimed is taken up", within_s=LEASE_S + 2 * LOOK_S + SOON_S)


def test_a_wait_that_a_dead_process_has_left_ends_by_another(scene: Scene):
    """The dead process would not ask again."""
    fleet, one, _ = scene
    fleet.fails = True
    fleet.time.run(lambda: count(fleet, SummarizationFailed) == [1], within_s=4 * LEASE_S)
    one.kill()
    fleet.fails = False

    fleet.time.run(lambda: count(fleet, SummarizationRequested) == [2], within_s=600.0)


def test_a_pass_whose_owner_was_started_anew_waits_for_its_lease():
    """A log that several processes may work on has perhaps another one."""
    fleet = Fleet(2, call_s=1.0)
    one = fleet.start()
    fleet.play_for(0.1)
    fleet.append(KEY, 6)
    fleet.until(f"at {Point.MODEL_ASKED}", within_s=SOON_S)
    one.kill()
    fleet.start()
    fleet.play_for(LEASE_S - SOON_S)
    assert count(fleet, SummarizationStarted) == [1]

    fleet.settle()
    assert fleet.judge() == []
    fleet.time.close()


def test_a_record_whose_answer_was_lost_is_there_once_and_nobody_waits_for_it(scene: Scene):
    """The record's process finds the pass ended when it tries again."""
    fleet, _, _ = scene
    fleet.settle()
    fleet.unanswered.add(Point.END_COMMITTED)
    fleet.append(KEY, 6)
    fleet.until("an answer is lost", within_s=8 * LEASE_S)
    fleet.play_for(SOON_S)

    assert count(fleet, SummarizationRequested, SummarizationCompleted) == [2, 2]
    assert [len(process.reactor.backlog) for process in fleet.live()] == [0, 0]
