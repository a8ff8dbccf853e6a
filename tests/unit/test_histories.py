"""The judge of histories passes right ones, and finds each fault."""

from __future__ import annotations

import pytest

from tests.support.histories import Ack, Look, Place, Turn, contradictions, unlike_passes


def place(position: int) -> Place:
    """The event of that number, at its position."""
    return position, bytes([position])


def places(*positions: int) -> tuple[Place, ...]:
    """The events of these numbers."""
    return tuple(map(place, positions))


LOG = places(1, 2, 3, 4)
ACKS = [Ack(places(1), 0.0, 1.0), Ack(places(2, 3), 0.5, 2.0), Ack(places(4), 2.5, 3.0)]
LOOKS = [Look(0, places(1, 2), 1.1, 1.2), Look(2, places(3, 4), 3.1, 3.2), Look(4, (), 4.0, 4.0)]


def test_a_right_history_has_no_contradictions():
    """The calls may overlap, and one may be repeated after its acknowledgement was lost."""
    repeated = Ack(places(1), 3.5, 4.0)

    assert contradictions(LOG, [*ACKS, Ack(places(1), 0.0, 1.5), repeated], LOOKS) == []


@pytest.mark.parametrize(
    ("said", "log", "acks", "looks"),
    [
        ("gap", places(1, 2, 4), [], []),
        ("doubled", (*places(1), (2, b"\x01")), [], []),
        ("lost", places(1, 2, 3), ACKS, []),
        ("lost", (*places(1, 2, 3), (4, b"x")), ACKS, []),
        ("order", LOG, [Ack(places(4), 0.0, 1.0), Ack(places(2), 1.5, 2.0)], []),
        ("prefix", LOG, ACKS, [Look(0, places(1, 3), 0.0, 0.1)]),
        ("prefix", LOG, ACKS, [Look(2, places(4), 0.0, 0.1)]),
        ("stale", LOG, ACKS, [Look(0, places(1, 2), 2.1, 2.2)]),
    ],
)
def test_each_contradiction_is_found(said, log, acks, looks):
    """The contradiction is found by its name, and nothing beside it."""
    assert [found.partition(":")[0] for found in contradictions(log, acks, looks)] == [said]


def test_a_pass_has_one_trigger_and_one_end():
    """The end is a record or a failure, of any process."""
    right = [Turn("a", False), Turn("b", False), Turn("b", True), Turn("a", True)]

    assert unlike_passes(right) == []
    assert unlike_passes([*right, Turn("a", True)]) == ["pass a: 1 triggers and 2 ends"]
    assert unlike_passes(right[:-1]) == ["pass a: 1 triggers and 0 ends"]
    assert unlike_passes([*right, Turn("b", False)]) == ["pass b: 2 triggers and 1 ends"]
    assert unlike_passes([Turn("c", True)]) == ["pass c: 0 triggers and 1 ends"]
