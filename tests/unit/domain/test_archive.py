"""An archived conversation: one state, however many of the events before it are blanked, and the old one after it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abridged.service.domain.commands import (
    ArchiveConversation,
    ChangeSettings,
    CloseConversation,
    ConfirmPurge,
    EraseConversation,
    ReopenConversation,
    UnarchiveConversation,
)
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.decide import decide
from abridged.service.domain.errors import ConversationIsArchived, ConversationIsOpen
from abridged.service.domain.events import (
    ConversationArchived,
    ConversationErased,
    ConversationReopened,
    ConversationUnarchived,
    ErasedEvent,
    Event,
    MessageAppended,
    MessagesRedacted,
    TextPurged,
)
from abridged.service.domain.fold import fold
from abridged.service.domain.policy import Policy, ProfileName
from abridged.service.domain.profiles.profile import DecisionContext
from abridged.service.domain.profiles.registry import profile_of
from abridged.service.domain.redaction import REDACTED, Blanking
from tests.support.chats import append, appended
from tests.support.simulation import SimulatedChat

NOW_US = 10**15
Log = list[tuple[Event, int]]


@pytest.mark.parametrize("seed", range(6))
def test_a_fold_reaches_the_same_state_at_every_step_of_the_blanking(seed: int):
    """Some or all of the events before have their contents, also those of an archive before; and whole events
    lead back to the state before, but for the version and the time of its last event."""
    log, before = closed(seed)
    for cycle in (1, 2):
        log += archived(before)
        end = len(log) - 1
        stub = folded(log)._replace(before_archiving=None)
        for blanked in {0, 1, 2, end // 2, end - 3, end - 1, end}:
            assert folded(blank(log, blanked))._replace(before_archiving=None) == stub
        assert (stub.archive_file, stub.message_version, stub.event_version) == (
            "file",
            before.message_version,
            end + 1,
        )
        assert (stub.settings.labels, stub.settings.title) == ({"a": "b"}, "title")

        log += [(TextPurged(end + 1), NOW_US + cycle), (ConversationUnarchived(), NOW_US + cycle)]
        back = folded(log)
        now_us = NOW_US + cycle
        assert back == before._replace(event_version=len(log), updated_us=now_us, used_us=now_us, purge_due=len(log)), (
            "as it was, with its file still to be removed"
        )
        log += [(TextPurged(len(log)), NOW_US + cycle)]
        before = folded(log)
    assert folded(blank(log, 1)).is_blanked, "what is not back leads to no state"


def test_what_is_archived_takes_nothing_but_its_way_back_and_its_erasure():
    """No command decides on an event that the fold would refuse."""
    log, before = closed(1)
    state = folded([*log, *archived(before)])

    for command in (append(appended(2)), ReopenConversation(), CloseConversation(), ChangeSettings(state.settings)):
        with pytest.raises(ConversationIsArchived):
            decided(state, command)
    assert decided(state, ArchiveConversation(archiving(before))) == []
    assert decided(state, ConfirmPurge(state.purge_due)) == [TextPurged(state.purge_due)]
    assert decided(state, UnarchiveConversation()) == [ConversationUnarchived()]
    (erased,) = decided(state, EraseConversation("e1"))
    assert isinstance(erased, ConversationErased)
    assert folded([*log, *archived(before), (erased, NOW_US)]).erased
    for event in (ConversationReopened(), appended(8)):
        with pytest.raises(AssertionError, match="nothing follows an archiving"):
            fold([(event, NOW_US)], state)


def test_only_a_closed_conversation_that_has_not_changed_is_archived():
    """An append may come between the file and the event."""
    _, state = closed(1)
    archive = ArchiveConversation(archiving(state))

    assert decided(state, archive) == [archive.archived]
    assert decided(state._replace(event_version=state.event_version + 1), archive) == []
    assert decided(state._replace(purge_due=1), archive) == []
    with pytest.raises(ConversationIsOpen):
        decided(state._replace(closed=False), archive)
    assert decided(state, UnarchiveConversation()) == []


def test_a_title_in_the_event_goes_with_the_records_that_it_may_be_of():
    """A redaction after the way back finds the title."""
    log, before = closed(2)
    log += [*archived(before), (ConversationUnarchived(), NOW_US)]
    record = before.records[0]
    redaction = MessagesRedacted((record.covered[0].first,), (record.id,), (), ())
    events = [*(event for event, _ in log), redaction]
    blanking = Blanking.of(enumerate(events, 1))
    left = [blanking.left(version, event) for version, event in enumerate(events, 1)]

    (event,) = [each for each in left if isinstance(each, ConversationArchived)]
    assert event == replace(archiving(before), title=REDACTED)


def closed(seed: int) -> tuple[Log, Conversation]:
    """The events of a closed conversation, and its state."""
    chat = SimulatedChat(seed, amendments=0.25)
    for _ in chat.steps():
        pass
    log = list(chat.log)
    log += [(event, NOW_US) for event in decided(chat.state, CloseConversation())]
    return log, folded(log)


def archiving(state: Conversation) -> ConversationArchived:
    return ConversationArchived(
        state.id, state.message_version, state.event_version, "file", 9, "digest", {"a": "b"}, "title", ""
    )


def archived(state: Conversation) -> Log:
    return [(archiving(state), NOW_US)]


def blank(log: Log, count: int) -> Log:
    return [(ErasedEvent(), at) if place < count else (event, at) for place, (event, at) in enumerate(log)]


def decided(state: Conversation, command) -> list[Event]:
    return decide(state, command, DecisionContext(profile_of(ProfileName.CHAIN), Policy(), NOW_US, "id"))


def folded(log: Log) -> Conversation:
    said_by_number = {event.number: event for event, _ in log if isinstance(event, MessageAppended)}
    return fold(
        log, originals=lambda ranges: [said_by_number[number] for r in ranges for number in range(r.first, r.last + 1)]
    )
