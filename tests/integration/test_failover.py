"""The loss of a primary under load: nothing that was acknowledged is lost, doubled or out of its place.

FAILOVER_ROUNDS says how often; `make test-failover` has 200.
"""

from __future__ import annotations

import os
from contextlib import closing

import pytest

pytest.importorskip("psycopg", reason="needs psycopg, of the extra abridged[postgres]")

from abridged.eventlog.postgres.connections import Address
from tests.support.failover import AdvisoryAddress, Load, Pair
from tests.support.histories import contradictions

ROUNDS = int(os.environ.get("FAILOVER_ROUNDS", "5"))
CONTROL_ROUNDS = 5


@pytest.mark.timeout(60 + 30 * ROUNDS)
def test_nothing_acknowledged_is_lost_with_the_primary():
    """Also when waits for the standby were cancelled before: those appends are acknowledged by the new primary."""
    cancelled, found = _played(Address, ROUNDS)

    assert cancelled > 0
    assert found == []


def test_an_advisory_lock_in_place_of_the_row_loses():
    """The control: a repeat that writes nothing is acknowledged without the standby."""
    for _ in range(CONTROL_ROUNDS):
        _, found = _played(AdvisoryAddress, 1)
        if found:
            break

    assert {contradiction.partition(":")[0] for contradiction in found} >= {"lost"}


def _played(address: type[Address], rounds: int) -> tuple[int, list[str]]:
    """Lose the primary so often, and return how many waits were cancelled and what is wrong in the end."""
    with closing(Pair()) as pair:
        load = Load(address(pair.url))
        cancelled = 0
        for _ in range(rounds):
            load.advance()
            cancelled += pair.lose_primary()
        load.advance()
        load.stop()
        return cancelled, contradictions(pair.places(), load.acks)
