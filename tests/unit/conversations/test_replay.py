"""Streams that were erased, folded and read: the rest of an erasure is refused, and never taken for something else."""

from __future__ import annotations

import pytest

from abridged.eventlog.errors import StreamCorrupt
from abridged.eventlog.event import NewEvent, StreamId
from abridged.eventlog.log import Append
from abridged.eventlog.memory import MemoryEventLog
from abridged.service.codec.events import ERASED, encode
from abridged.service.conversations.replay import recorded_originals, replayed
from abridged.service.domain.events import (
    ConversationErased,
    ConversationForked,
    ConversationOpened,
    Event,
    MessageAppended,
    Settings,
)
from abridged.service.domain.message import Message, Role
from abridged.service.domain.record import MessageRange
from abridged.service.domain.tokens import TokenSource

PARENT, FORK = StreamId("default", "parent"), StreamId("default", "fork")


def _of_parent(*, blanked: int = 0) -> MemoryEventLog:
    log = MemoryEventLog(clock_us=lambda: 1)
    said = (MessageAppended(n, Message(f"m{n}", Role.USER, "hello"), 1, TokenSource.CALLER) for n in (1, 2))
    _append(log, PARENT, ConversationOpened("parent", Settings()), *said)
    if blanked:
        log.blank(PARENT, dict.fromkeys(range(1, blanked + 1), ERASED))
    return log


def _append(log: MemoryEventLog, stream: StreamId, *events: Event) -> None:
    first = log.stream_version(stream) + 1
    forms = (encode(event) for event in events)
    new = [NewEvent(version.to_bytes(16, "big"), *_stored(form)) for version, form in enumerate(forms, first)]
    log.submit(Append(stream, new)).result()


def _stored(form: tuple[str, int, bytes]) -> tuple[str, bytes, int]:
    return form[0], form[2], form[1]


@pytest.mark.parametrize("blanked", [1, 2, 3])
def test_an_erased_event_needs_an_erasure(blanked: int):
    """The fold of blanked events reaches a state by the event that says so, and none without it."""
    log = _of_parent(blanked=blanked)

    with pytest.raises(StreamCorrupt, match="an erased event without an erasure"):
        replayed(log, PARENT)

    _append(log, PARENT, ConversationErased("parent", 2, "e1", 1))
    assert replayed(log, PARENT).state.erased


@pytest.mark.parametrize("blanked", [1, 2, 3])
def test_a_fork_goes_with_its_parent(blanked: int):
    """The fork's own erasure may have come, while its first event is unchanged; without one it is nothing."""
    log = _of_parent(blanked=blanked)
    _append(log, FORK, ConversationForked("fork", "parent", 3, 2))

    with pytest.raises(StreamCorrupt, match="the conversation that it was forked from was erased") as refused:
        replayed(log, FORK)

    assert refused.value.stream == FORK
    _append(log, FORK, ConversationErased("fork", 2, "e1", 1))
    assert replayed(log, FORK).state.erased
    log.blank(FORK, {2: ERASED})
    with pytest.raises(StreamCorrupt, match="the conversation that it was forked from was erased"):
        replayed(log, FORK)


def test_a_fork_of_an_erased_conversation_as_it_was_erased_is_refused():
    """No fork begins with messages that were erased before."""
    log = _of_parent()
    _append(log, PARENT, ConversationErased("parent", 2, "e1", 1))
    _append(log, FORK, ConversationForked("fork", "parent", 4, 2))

    with pytest.raises(StreamCorrupt, match="the conversation that it was forked from was erased"):
        replayed(log, FORK)


def test_erased_messages_are_not_read():
    """A state from before the erasure may ask for them."""
    log = _of_parent(blanked=3)

    with pytest.raises(StreamCorrupt, match="position 2 was erased"):
        list(recorded_originals(log, PARENT, [MessageRange(1, 2)]))
