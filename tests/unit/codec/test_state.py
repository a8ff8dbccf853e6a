"""States of random chats as bytes, and back."""

from __future__ import annotations

from random import Random

import pytest

from abridged.eventlog.event import StreamId
from abridged.service.codec.state import KeptWindow, state_from_bytes, state_to_bytes
from abridged.service.conversations.state_size import whole_window_size
from abridged.service.conversations.table import row_of
from abridged.service.domain.conversation import Conversation, initial_state
from abridged.service.domain.events import (
    ConversationArchived,
    ConversationErased,
    ConversationOpened,
    ConversationUnarchived,
    Settings,
)
from abridged.service.domain.fold import fold
from abridged.service.domain.policy import ProfileName
from abridged.service.domain.sequence import Sequence
from tests.support.simulation import SimulatedChat

CHATS = 100
KEY = StreamId("default", "c")


@pytest.mark.parametrize("profile", ProfileName)
def test_every_state_comes_back_as_it_was(profile):
    """The same bytes for the same state, and the same state from them."""
    for seed in range(CHATS // 3):
        for step in SimulatedChat(seed, amendments=0.25, profile=profile, redactions=0.05).steps():
            encoded = state_to_bytes(step.after)
            assert state_from_bytes(encoded) == step.after
            assert state_to_bytes(state_from_bytes(encoded)) == encoded


@pytest.mark.parametrize("profile", ProfileName)
def test_a_chat_that_goes_on_from_its_bytes_goes_on_as_it_was(profile):
    """Later decisions have the same events, figures and states, whether or not somebody looks at the window."""
    for seed in range(CHATS // 3):
        random = Random(seed)
        whole, kept = (SimulatedChat(seed, amendments=0.25, forks=0.02, profile=profile) for _ in range(2))
        for expected, step in zip(whole.steps(), kept.steps(), strict=True):
            assert step.events == expected.events
            assert row_of(KEY, step.after) == row_of(KEY, expected.after)
            if random.random() < 0.5:
                kept.state = state_from_bytes(state_to_bytes(step.after))
                assert whole_window_size(kept.state.window).parts == whole_window_size(whole.state.window).parts
        assert kept.state == whole.state


def test_a_state_from_bytes_is_not_decoded_before_it_is_looked_at():
    """Figures and the ids of the window's messages decode nothing; a look at a part decodes once."""
    for step in SimulatedChat(3, amendments=0.25).steps():
        state = state_from_bytes(state_to_bytes(step.after))
        row_of(KEY, state)
        kept = state.window.origin
        if kept is None:
            continue
        assert isinstance(kept, KeptWindow)
        ids = {m.message.id for m in step.after.window}
        assert kept.ids.among({*ids, "another"}) == ids
        assert state.window.is_deferred
        assert kept.size == whole_window_size(Sequence(state.window))


def test_the_ids_of_a_kept_window_outlive_its_messages():
    """Passes, rewinds, pins and marks give the state another window; a repeat is asked for all the same."""
    replaced = 0
    for seed in range(10):
        chat = SimulatedChat(seed, amendments=0.25)
        ids: set[str] = set()
        for step in chat.steps():
            if ids:
                replaced += step.after.epoch != step.before.epoch
                kept = step.after.window.origin
                assert isinstance(kept, KeptWindow)
                assert kept.ids.among(ids) == ids
            elif len(step.after.window) > 2:
                ids = {m.message.id for m in step.after.window}
                chat.state = state_from_bytes(state_to_bytes(step.after))
    assert replaced > 10


def test_the_chats_set_every_field_of_a_state():
    """A field that is added has to be reached by them: one that is always empty comes back in any codec."""
    unset = set(Conversation._fields)
    for seed in range(CHATS):
        for step in SimulatedChat(seed, amendments=0.25, forks=0.02, redactions=0.05).steps():
            unset -= _set_in(step.after) & unset
    assert unset == {"erased", "archive_file", "before_archiving"}


def test_an_erased_state_comes_back_as_it_was():
    """An erased state sets a field that no other state has set."""
    erased = fold([(ConversationErased("c", 7, "e", 2), 5)])

    assert _set_in(erased) >= {"erased", "purge_due"}
    assert state_from_bytes(state_to_bytes(erased)) == erased


def test_a_state_that_was_archived_comes_back_as_it_was():
    """One that is archived is never written, so that its bytes need no place for the state before."""
    opened = fold([(ConversationOpened("c", Settings()), 5)])
    archived = fold([(ConversationArchived("c", 7, 1, "file", 9, "digest", {"a": "b"}, "title", "parent"), 6)], opened)
    back = fold([(ConversationUnarchived(), 7)], archived)

    assert _set_in(archived) >= {"archive_file", "before_archiving", "ancestors", "settings"}
    assert back == opened._replace(event_version=3, updated_us=7, used_us=7, purge_due=3)
    assert state_from_bytes(state_to_bytes(back)) == back


def _set_in(state: Conversation) -> set[str]:
    return {name for name in Conversation._fields if getattr(state, name) != getattr(initial_state(), name)}


def test_the_chats_show_records_by_their_short_texts_and_plan_overlaps():
    """Short texts and overlaps are fields that EPISODES alone sets: a codec could drop them unseen."""
    short = overlaps = 0
    for seed in range(CHATS):
        for step in SimulatedChat(seed, amendments=0.25, profile=ProfileName.EPISODES).steps():
            short += any(shown.short for shown in step.after.shown)
            overlaps += step.after.pending is not None and bool(step.after.pending.overlap)
    assert short
    assert overlaps
