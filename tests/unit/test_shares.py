"""Shares: a namespace's share leaves room for the next, however many take all they get."""

from __future__ import annotations

import pytest

from abridged.service.shares import Share, Shares


def greedy(share: Share) -> int:
    """Take all that a namespace gets, and return how much it is."""
    taken = 0
    while share.take_if_room():
        taken += 1
    return taken


def test_one_namespace_that_is_all_there_is_gets_everything():
    """A limit is no smaller for a server with one tenant."""
    assert greedy(Shares(100, multi_tenant=False).share()) == 100


def test_the_first_to_take_all_it_gets_leaves_half_and_the_next_leave_room_too():
    """Nobody who comes later finds nothing."""
    shares = Shares(240, multi_tenant=True)

    assert [greedy(shares.share()) for _ in range(4)] == [120, 60, 30, 15]


@pytest.mark.parametrize("namespaces", [2, 3, 7])
def test_namespaces_that_take_in_turn_get_as_much_each(namespaces):
    """One share more stays free."""
    shares = Shares(840, multi_tenant=True)
    taking = [shares.share() for _ in range(namespaces)]
    while any([share.take_if_room() for share in taking]):  # noqa: C419 - each takes its turn
        pass

    assert {share.held for share in taking} == {840 // (namespaces + 1)}


def test_a_single_place_is_for_whoever_comes_first():
    """A limit of one is one place, and not none."""
    shares = Shares(1, multi_tenant=True)
    a, b = shares.share(), shares.share()

    assert a.take_if_room()
    assert not b.has_room()
    a.give_back()
    assert b.has_room()


def test_more_than_there_is_can_be_had_when_nobody_holds_anything():
    """An answer larger than the limit is made, alone."""
    shares = Shares(10, multi_tenant=True)
    a, b = shares.share(), shares.share()
    assert a.take_if_room(25)

    assert not b.has_room()
    a.give_back(25)
    b.take()
    assert not a.has_room(25)
