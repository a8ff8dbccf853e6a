"""The order in which a look takes up the passes that others have left."""

from __future__ import annotations

from abridged.eventlog.event import StreamId
from abridged.eventlog.rows import FIRST
from abridged.service.passes.lookout import in_turn

MANY = [StreamId("many", f"{number:03}") for number in range(100)]
FEW = [StreamId("other", "a"), StreamId("other", "b"), StreamId("third", "a")]


def test_namespaces_take_turns():
    """The turns are the same whatever one of them has left."""
    order = list(in_turn([*MANY, *FEW], FIRST))

    assert order[:7] == [MANY[0], FEW[0], FEW[2], MANY[1], FEW[1], MANY[2], MANY[3]]
    assert sorted(order) == sorted([*MANY, *FEW])


def test_a_look_goes_on_where_the_last_one_ended():
    """The look begins again at the first."""
    order = list(in_turn([*MANY[:4], FEW[0]], MANY[1]))

    assert order == [MANY[2], FEW[0], MANY[3], MANY[0], MANY[1]]
