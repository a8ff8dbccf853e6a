"""States of random chats as bytes, and back."""

from __future__ import annotations

import pytest

from abridged.service.codec.state import state_from_bytes, state_to_bytes
from abridged.service.domain.conversation import Conversation, initial_state
from abridged.service.domain.policy import ProfileName
from tests.support.simulation import SimulatedChat

CHATS = 100


@pytest.mark.parametrize("profile", ProfileName)
def test_every_state_comes_back_as_it_was(profile):
    """The same bytes for the same state, and the same state from them."""
    for seed in range(CHATS):
        for step in SimulatedChat(seed, amendments=0.25, profile=profile).steps():
            encoded = state_to_bytes(step.after)
            assert state_from_bytes(encoded) == step.after
            assert state_to_bytes(state_from_bytes(encoded)) == encoded


def test_the_chats_set_every_field_of_a_state():
    """A field that is added has to be reached by them: one that is always empty comes back in any codec."""
    unset = set(Conversation._fields)
    for seed in range(CHATS):
        for step in SimulatedChat(seed, amendments=0.25, forks=0.02).steps():
            unset -= {name for name in unset if getattr(step.after, name) != getattr(initial_state(), name)}
    assert not unset


def test_the_chats_show_records_by_their_short_texts_and_plan_overlaps():
    """What EPISODES alone sets inside a state's fields: without it, a codec could drop it unseen."""
    short = overlaps = 0
    for seed in range(CHATS):
        for step in SimulatedChat(seed, amendments=0.25, profile=ProfileName.EPISODES).steps():
            short += any(shown.short for shown in step.after.shown)
            overlaps += step.after.pending is not None and bool(step.after.pending.overlap)
    assert short
    assert overlaps
