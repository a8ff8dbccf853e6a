"""The cache of states: it holds no more than it may, and never an older state in place of a newer one."""

from __future__ import annotations

from hypothesis import given as for_all
from hypothesis import strategies as st

from abridged.eventlog.event import StreamId
from abridged.service.codec.state import state_from_bytes, state_to_bytes
from abridged.service.conversations.cache import ConversationCache
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import MessageAppended
from abridged.service.domain.fold import evolve
from abridged.service.domain.message import Attachment, Message, Role, ToolCall
from abridged.service.domain.sequence import Sequence
from abridged.service.domain.tokens import TokenSource
from tests.support.simulation import SimulatedChat

A, B, C = (StreamId("default", name) for name in "abc")


def grown(state: Conversation, *texts: str) -> Conversation:
    for text in texts:
        message = Message(
            id=f"m{state.message_version + 1}",
            role=Role.ASSISTANT,
            content=text,
            tool_calls=(ToolCall("x", "f", text),),
            attachments=(Attachment(text),),
        )
        state = evolve(state, MessageAppended(state.message_version + 1, message, 1, TokenSource.CALLER), 1)
    return state


def test_an_older_state_does_not_take_the_place_of_a_newer_one():
    """A fold that began before a commit may end after it."""
    cache = ConversationCache()
    older = grown(Conversation(), "one")
    newer = grown(older, "two")
    cache.put(A, newer)

    assert cache.put(A, older) is newer
    assert cache.get(A) is newer


def test_a_newer_state_takes_the_place_of_an_older_one():
    """A commit puts a newer state in the cache."""
    cache = ConversationCache()
    older = grown(Conversation(), "one")
    newer = grown(older, "two")
    cache.put(A, older)

    assert cache.put(A, newer) is newer
    assert cache.get(A) is newer


def test_texts_are_bounded_by_their_bytes():
    """Few messages can be large ones: content, arguments and attachments all count."""
    cache = ConversationCache(bytes_max=1_000_000)
    for key in (A, B, C):
        cache.put(key, grown(Conversation(), "x" * 150_000))

    assert cache.get(A) is None
    assert cache.get(B) is not None
    assert cache.get(C) is not None


def test_bytes_that_come_one_message_at_a_time_count_too():
    """A window that grows is counted by its new messages, a window that shrinks anew."""
    cache = ConversationCache(bytes_max=1_000_000)
    cache.put(B, grown(Conversation(), "x"))
    state = Conversation()
    for _ in range(2):
        state = grown(state, "x" * 100_000)
        cache.put(A, state)
    assert cache.get(B) is not None

    cache.put(A, state._replace(window=Sequence(), completed_passes=1, epoch=1, event_version=9))
    cache.put(C, grown(Conversation(), "x" * 300_000))
    assert cache.get(A) is not None

    cache.put(C, grown(state._replace(event_version=10), "x" * 300_000))
    assert (cache.get(A), cache.get(B)) == (None, None)


@for_all(st.integers(0, 1 << 20))
def test_what_a_state_takes_is_the_same_counted_step_by_step_and_at_once(seed):
    """However passes cut it."""
    cache = ConversationCache()
    for step in SimulatedChat(seed, amendments=0.2).steps():
        cache.put(A, step.after)
        fresh = ConversationCache()
        fresh.put(A, step.after)
        assert (cache.bytes_of(A), cache.weight_of(A)) == (fresh.bytes_of(A), fresh.weight_of(A))
        assert cache.bytes == fresh.bytes


@for_all(st.integers(0, 1 << 20))
def test_a_history_that_was_guessed_is_counted_when_it_has_grown(seed):
    """A state from a snapshot has not read its records; the next record has them read."""
    *_, last = SimulatedChat(seed).steps()
    read = state_from_bytes(state_to_bytes(last.after))
    cache, fresh = ConversationCache(), ConversationCache()
    cache.put(A, read)
    grown = {name: getattr(read, name).extended([*getattr(last.after, name)]) for name in ("records", "passes")}
    after = read._replace(event_version=read.event_version + 1, epoch=read.epoch + 2, **grown)
    cache.put(A, after)
    fresh.put(A, after)

    assert cache.bytes == fresh.bytes


def test_messages_and_conversations_are_bounded_by_their_number():
    """The one used longest ago goes; the newest stays, however large it is."""
    cache = ConversationCache(conversations_max=2, messages_max=3)
    cache.put(A, grown(Conversation(), "1"))
    cache.put(B, grown(Conversation(), "1"))
    cache.get(A)
    cache.put(C, grown(Conversation(), "1"))
    assert cache.get(B) is None

    cache.put(B, grown(Conversation(), "1", "2", "3", "4"))
    assert (cache.get(A), cache.get(C)) == (None, None)
    assert cache.get(B) is not None
