"""The run of a seed."""

from __future__ import annotations

from random import Random

from abridged.eventlog.event import StreamId
from tests.support.fleet.faults import AT_POINTS, OTHER_FAULTS_MAX, Fault
from tests.support.fleet.fleet import Fleet

FAULTY_S = 150.0
"""Seconds in which faults happen."""


def play(fleet: Fleet) -> None:
    """The run of the fleet's seed, from its start to a state in which nothing is pending."""
    rng = Random(f"faults of {fleet.seed}")
    others = rng.sample(list(Fault), rng.randint(0, OTHER_FAULTS_MAX))
    faults = fleet.faults = frozenset([rng.choice(AT_POINTS), *others])
    for _ in range(rng.choice([2, 2, 3])):
        fleet.start()
    for number in range(rng.choice([1, 2, 3])):
        key = StreamId("default", f"c{number}-")
        fleet.append_later(rng.uniform(0.1, 5.0), key, 6)
        for _ in range(rng.choice([0, 1, 2])):
            fleet.append_later(rng.uniform(5.0, 100.0), key, rng.choice([1, 4, 6]))
    for fault in (Fault.KILLED, Fault.STOPPED, Fault.RESTARTED):
        for _ in range(rng.choice([1, 2, 4]) if fault in faults else 0):
            fleet.strike_later(rng.uniform(0.5, 120.0), fault)
    fleet.play_for(FAULTY_S)
    fleet.settle()
