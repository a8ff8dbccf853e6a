"""Leases keep their promises in memory, as simulations have them, and in PostgreSQL, where two processes share them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from abridged.eventlog.event import StreamId
from abridged.eventlog.leases import Leases
from tests.support.event_logs import BACKENDS, NOTES, OTHER, A, B, Clock
from tests.support.leases import MemoryLeases

LONG_S = 3_600.0
POSTGRES = next(kind for kind in BACKENDS if kind.name == "postgres")

Both = tuple[Leases, Leases]
"""The leases of one log, as two processes see them."""


@pytest.fixture(params=["memory", "postgres"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Both]:
    """A backend with several processes is one more name here."""
    if request.param == "memory":
        leases = MemoryLeases(time.monotonic)
        yield leases, leases
        return
    with ExitStack() as opened:
        yield _in_postgres(tmp_path, opened), _in_postgres(tmp_path, opened)


def _in_postgres(path: Path, opened: ExitStack) -> Leases:
    place = POSTGRES.at(path)
    found = place.open(place.rows(NOTES), clock_us=Clock(), hook=lambda *_: None, on_fatal=lambda _: None)
    opened.callback(found.log.close)
    assert found.leases is not None
    return found.leases


def test_a_lease_that_is_held_has_not_lapsed(both: Both):
    """Renewing a lease keeps it from lapsing, for any process."""
    one, other = both

    assert one.hold({A: 5, OTHER: 7}, LONG_S) == {A, OTHER}
    assert one.hold({A: 5}, LONG_S) == {A}
    assert other.lapsed([A, OTHER], LONG_S) == {}


def test_a_lease_that_has_lapsed_is_told_to_all_and_not_renewed(both: Both):
    """A process that has seen the lapse may have claimed the stream already."""
    one, other = both
    one.hold({A: 5, B: 5}, 0.0)
    one.hold({OTHER: 5}, LONG_S)

    assert other.lapsed([A, B, OTHER], LONG_S) == {A: 5, B: 5}
    assert one.hold({A: 5, OTHER: 5}, LONG_S) == {OTHER}
    assert one.lapsed([A], LONG_S) == {A: 5}


def test_a_newer_token_takes_the_place_of_an_older_one_and_not_the_other_way_round(both: Both):
    """A newer claim replaces it, even while the older one has time left."""
    one, other = both
    one.hold({A: 5}, LONG_S)

    assert other.hold({A: 9}, LONG_S) == {A}
    assert one.hold({A: 5}, LONG_S) == set()
    one.drop({A: 5})
    other.hold({A: 9}, 0.0)
    assert one.lapsed([A], LONG_S) == {A: 9}


def test_a_stream_without_a_lease_gets_time_to_begin(both: Both):
    """A stream without a lease gets its time from the first look on; a claim gives it a lease at once."""
    one, other = both

    assert one.lapsed([A, B], LONG_S) == {}
    assert other.lapsed([A], 0.0) == {}
    assert other.hold({A: 3}, LONG_S) == {A}
    assert one.lapsed([StreamId("default", "new")], 0.0) == {}
    assert other.lapsed([StreamId("default", "new")], LONG_S) == {StreamId("default", "new"): 0}


def test_dropped_leases_are_forgotten(both: Both):
    """Dropping forgets the leases that ended, and keeps a lease of a newer claim."""
    one, other = both
    one.hold({A: 5, B: 6}, 0.0)

    one.drop({A: 5, B: 5})

    assert other.lapsed([A, B], LONG_S) == {B: 6}
    assert other.hold({A: 1}, LONG_S) == {A}
    one.drop({})
    assert one.hold({}, LONG_S) == set()
