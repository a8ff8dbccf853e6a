"""Shares: what one namespace takes leaves room for the next, however many take all they get."""

from __future__ import annotations

import pytest

from service.shares import Shares


def greedy(shares: Shares, namespace: str) -> int:
    """What the namespace gets when it takes all that it is given."""
    taken = 0
    while shares.take_if_room(namespace):
        taken += 1
    return taken


def test_one_namespace_that_is_all_there_is_gets_everything():
    """A limit is no smaller for a server with one tenant."""
    assert greedy(Shares(100, shared=False), "a") == 100


def test_the_first_to_take_all_it_gets_leaves_half_and_the_next_leave_room_too():
    """Nobody who comes later finds nothing."""
    shares = Shares(240, shared=True)

    assert [greedy(shares, name) for name in "abcd"] == [120, 60, 30, 15]


@pytest.mark.parametrize("namespaces", [2, 3, 7])
def test_namespaces_that_take_in_turn_get_as_much_each(namespaces):
    """And one share more stays free."""
    shares = Shares(840, shared=True)
    names = [str(n) for n in range(namespaces)]
    while any([shares.take_if_room(name) for name in names]):  # noqa: C419 - each takes its turn
        pass

    assert {shares.held(name) for name in names} == {840 // (namespaces + 1)}


def test_a_single_place_is_for_whoever_comes_first():
    """A limit of one is one, and not none."""
    shares = Shares(1, shared=True)

    assert shares.take_if_room("a")
    assert not shares.has_room("b")
    shares.give_back("a")
    assert shares.has_room("b")


def test_more_than_there_is_can_be_had_when_nobody_holds_anything():
    """An answer larger than the limit is made, alone."""
    shares = Shares(10, shared=True)
    assert shares.take_if_room("a", 25)

    assert not shares.has_room("b")
    shares.give_back("a", 25)
    shares.take("b")
    assert not shares.has_room("a", 25)
