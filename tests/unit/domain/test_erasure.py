"""An erased conversation: one state, however many of the events before the erasure are blanked already."""

from __future__ import annotations

import pytest

from abridged.service.domain.commands import ConfirmPurge, EraseConversation
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.decide import decide
from abridged.service.domain.errors import ConversationIsErased
from abridged.service.domain.events import (
    ConversationErased,
    ConversationReopened,
    ErasedEvent,
    Event,
    MessageAppended,
    TextPurged,
)
from abridged.service.domain.fold import fold
from abridged.service.domain.policy import Policy, ProfileName
from abridged.service.domain.profiles.profile import DecisionContext
from abridged.service.domain.profiles.registry import profile_of
from tests.support.chats import append, appended
from tests.support.simulation import SimulatedChat

NOW_US = 10**15


@pytest.mark.parametrize("profile", ProfileName)
@pytest.mark.parametrize("seed", range(8))
def test_a_fold_reaches_the_same_state_at_every_step_of_the_blanking(seed: int, profile: ProfileName):
    """Some, all or no events before an erasure may have their contents when a process is killed."""
    chat = SimulatedChat(seed, amendments=0.25, profile=profile)
    for _ in chat.steps():
        pass
    erased = [(event, NOW_US) for event in _decided(chat.state, EraseConversation("e1", 3))]
    log = [*chat.log, *erased]
    end = len(log) - 1
    whole = _folded(log)

    for blanked in (0, 1, 2, end // 2, end - 1, end):
        events = [(ErasedEvent(), at) if place < blanked else (event, at) for place, (event, at) in enumerate(log)]
        assert _folded(events) == whole

    assert whole.erased
    assert (whole.id, whole.message_version, whole.event_version) == (
        chat.state.id,
        chat.state.message_version,
        end + 1,
    )
    assert whole.purge_due == end + 1


def test_what_is_erased_takes_nothing_but_the_word_that_it_is_purged():
    """Another erasure says nothing; a purge of an earlier one leaves the later one due."""
    state = fold([(event, 1) for event in _decided(_opened(), EraseConversation("e1"))], _opened())

    assert _decided(state, EraseConversation("e2")) == []
    with pytest.raises(ConversationIsErased):
        _decided(state, append(appended(2)))
    assert fold([(TextPurged(state.purge_due - 1), 2)], state).purge_due == state.purge_due
    purged = fold([(event, 2) for event in _decided(state, ConfirmPurge(state.purge_due))], state)
    assert purged.purge_due == 0
    assert _decided(purged, ConfirmPurge(state.purge_due)) == []


@pytest.mark.parametrize("event", [ConversationReopened(), appended(8)])
def test_no_fold_goes_on_after_an_erasure(event: Event):
    """A log that says so was not written by a sidecar."""
    with pytest.raises(AssertionError, match="nothing but TextPurged follows an erasure"):
        fold([(ConversationErased("c", 7, "e", 2), 5), (event, 6)])


def test_what_has_changed_since_stays():
    """An append may come between the look at ages and the erasure."""
    state = _opened()

    assert _decided(state, EraseConversation("e1", 1, state.updated_us)) == []
    assert _decided(state, EraseConversation("e1", 1, state.updated_us + 1)) != []


def _opened() -> Conversation:
    chat = SimulatedChat(1)
    for _ in chat.steps():
        if chat.state.is_open:
            break
    return chat.state


def _decided(state: Conversation, command) -> list[Event]:
    return decide(state, command, DecisionContext(profile_of(ProfileName.CHAIN), Policy(), NOW_US, "id"))


def _folded(log: list[tuple[Event, int]]) -> Conversation:
    said_by_number = {event.number: event for event, _ in log if isinstance(event, MessageAppended)}
    return fold(
        log, originals=lambda ranges: [said_by_number[number] for r in ranges for number in range(r.first, r.last + 1)]
    )
