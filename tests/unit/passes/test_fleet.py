"""Several sidecars on one log through kills, stops and lost answers, in virtual time: each pass ends once, by the
process that has claimed it last. A failure names its seed; `play(Fleet(seed))` plays that run again.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import islice

import pytest
from structlog.testing import capture_logs

from tests.support.fleet.faults import AT_POINTS, Bug, Point
from tests.support.fleet.fleet import Fleet
from tests.support.fleet.runs import play

SEEDS = int(os.environ.get("SIMULATION_SEEDS", "400"))
SEEDS_EACH = 400
"""Runs of one test. Together they must reach whatever is rare."""

FINDS_MIN = 5
"""Seeds that find each planted bug: one alone is lost with the next change of a run's draws."""

RARE = {
    "a claim comes second",
    "a claim is given back",
    "a lease lapses in its process",
    "a look around fails",
    "a pass is taken over",
    "a pass that nobody has claimed is taken up",
    "a pass that was given back is taken up",
    "a pass was claimed too often",
    "a process claims again",
    "a renewal is refused",
    "an answer is lost",
    "an end comes too late",
    "the leases fail",
    *(f"{fault} at {point}" for fault in AT_POINTS for point in Point if point is not Point.RELEASE_SENT),
}


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_EACH))
def test_each_pass_ends_once_whatever_happens_to_its_processes(first: int):
    """Owners may be killed or stopped anywhere, and go on at any time."""
    seen: Counter[str] = Counter()
    wrong: dict[int, list[str]] = {}
    for seed in range(first, first + SEEDS_EACH):
        fleet, found = _judged(seed)
        seen += fleet.seen
        if found:
            wrong[seed] = found

    assert wrong == {}
    assert set(seen) >= RARE


@pytest.mark.parametrize("bug", Bug)
def test_a_planted_bug_is_found(bug: Bug):
    """The bug is found by several of the seeds that every run of the tests plays, and again from its seed."""
    wrong = ((seed, found) for seed in range(SEEDS_EACH) if (found := _judged(seed, bug)[1]))
    finds = dict(islice(wrong, FINDS_MIN))

    assert len(finds) == FINDS_MIN
    seed = next(iter(finds))
    assert _judged(seed, bug)[1] == finds[seed]
    assert _judged(seed)[1] == []


def test_a_seed_plays_the_same_run_again():
    """Event for event."""
    runs = [_judged(seed)[0] for seed in (7, 8, 7)]
    told = [[(e.event_id, e.time_us, e.stream) for e in run.log.read_all(limit=10_000)] for run in runs]

    assert [event[1:] for event in told[0]] == [event[1:] for event in told[2]]
    assert runs[0].seen == runs[2].seen
    assert len(told[0]) != len(told[1])


def _judged(seed: int, *bugs: Bug) -> tuple[Fleet, list[str]]:
    """The run of a seed, and its faults; one that does not come to its end is wrong, too."""
    fleet = Fleet(seed, frozenset(bugs))
    with capture_logs():
        try:
            play(fleet)
            return fleet, fleet.judge()
        except AssertionError as error:
            return fleet, [str(error)]
        finally:
            fleet.time.close()
