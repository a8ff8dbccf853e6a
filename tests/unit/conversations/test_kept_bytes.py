"""The window in kept bytes: after any course of a chat, it is the same as one made of all messages anew."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given as for_all
from hypothesis import strategies as st

from abridged.eventlog.event import StreamId
from abridged.service.api.sent_window import sent_window
from abridged.service.api.wire import sent_message
from abridged.service.codec.values import message_to_proto
from abridged.service.conversations.cache import NOTHING_SENT, OWN_BYTES_MIN, SENT_BYTES_MIN, ConversationCache
from abridged.service.conversations.prefixes import NO_PREFIXES, ResponseForm, segment_digest
from abridged.service.conversations.state_size import state_size
from abridged.service.domain.commands import RequestPass
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.fold import evolve
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import Policy, SummaryRole
from abridged.service.domain.render import rendered_window
from abridged.v1 import conversation_service_pb2 as api
from tests.support.chats import OPEN, appended, calling, complete, result, said, spoken
from tests.support.given import Given, given
from tests.support.simulation import SimulatedChat

KEY = StreamId("default", "c1")


def anew(state: Conversation, role: SummaryRole) -> tuple[bytes, int]:
    """The slow way: every message rendered and serialized for this answer."""
    rendered = rendered_window(state, role)
    answer = api.GetContextResponse(
        messages=[
            api.ContextMessage(
                message=message_to_proto(m.message), number=m.number, tokens=m.tokens, tag=m.tag, clipped=m.clipped
            )
            for m in rendered
        ]
    )
    return answer.SerializeToString(deterministic=True), sum(m.tokens for m in rendered)


def asked(cache: ConversationCache, state: Conversation, role: SummaryRole = SummaryRole.SYSTEM) -> tuple[bytes, int]:
    cache.put(KEY, state)
    sent = sent_window(state, role, cache.sent(KEY))
    cache.keep_sent(KEY, state, sent)
    assert sent.messages == rendered_window(state, role)
    return b"".join(part.data for part in sent.parts), sum(part.tokens for part in sent.parts)


@for_all(st.integers(0, 1 << 20))
def test_kept_bytes_are_those_of_messages_made_anew(seed):
    """Bytes agree after every command: appends, tools, passes, follow-ups, remakes, reports and settings."""
    cache = ConversationCache()
    for place, step in enumerate(SimulatedChat(seed).steps()):
        role = SummaryRole.USER if place % 3 == 0 else SummaryRole.SYSTEM
        if step.after.is_open:
            assert asked(cache, step.after, role) == anew(step.after, role)


def test_a_message_is_made_once_while_it_stays_as_it_is():
    """The next answer has the very bytes of the one before."""
    history = [said(1), calling(2, "a"), result(3, "a")]
    cache = ConversationCache()
    state = given(OPEN, *spoken(history)).state
    asked(cache, state)
    first = cache.sent(KEY).chat.messages
    asked(cache, evolve(state, appended(4), 0))

    now = cache.sent(KEY).chat.messages
    assert [one is other for one, other in zip(now, first, strict=False)] == [True] * 3
    assert [m.number for m in now] == [1, 2, 3, 4]


def test_a_call_that_nobody_answered_is_made_anew_when_the_user_goes_on():
    """The form of such a call depends on later messages."""
    cache = ConversationCache()
    state = given(OPEN, *spoken([said(1), calling(2, "a")])).state
    assert asked(cache, state) == anew(state, SummaryRole.SYSTEM)
    grown = evolve(state, appended(3), 0)

    assert asked(cache, grown) == anew(grown, SummaryRole.SYSTEM)


def test_a_new_calibration_makes_all_messages_anew():
    """A calibration corrects the tokens of all messages."""
    cache = ConversationCache()
    state = given(OPEN, *spoken([said(1), said(2)])).state
    asked(cache, state)
    settings = replace(state.settings, calibration_factor=2.0)
    calibrated = state._replace(settings=settings, event_version=state.event_version + 1)

    assert asked(cache, calibrated) == anew(calibrated, SummaryRole.SYSTEM)


def test_a_pass_drops_what_was_kept():
    """Most of it has left the window; and parts that are made during a pass are not kept after it."""
    cache, policy = ConversationCache(), Policy(min_range_tokens=1)
    state = given(OPEN, *spoken(said(n, content="word " * 60) for n in range(1, 40))).state
    asked(cache, state)
    kept = cache.sent(KEY)
    planned = Given(state).when(RequestPass(), policy).after
    cache.put(KEY, planned)
    assert cache.sent(KEY) is kept
    cache.put(KEY, Given(planned).when(complete(planned), policy).after)
    cache.keep_sent(KEY, planned, kept)

    assert cache.sent(KEY) == NOTHING_SENT


def test_a_pass_keeps_what_the_last_response_began_with():
    """System messages at its start may stay the same; a response that is made during a pass counts as the last."""
    cache, form = ConversationCache(), ResponseForm(SummaryRole.USER)
    before = given(OPEN, *spoken([said(1), said(2)])).state
    cache.put(KEY, before)
    cache.keep_sent(KEY, before, cache.sent(KEY).after(NO_PREFIXES.after(form, segment_digest(b"one"))))
    cache.put(KEY, before._replace(epoch=1, event_version=before.event_version + 1))
    kept = cache.sent(KEY)
    assert kept.prefixes.stable(form, segment_digest(b"one") + segment_digest(b"two")) == 1

    cache.keep_sent(KEY, before, kept.after(NO_PREFIXES.after(form, segment_digest(b"other"))))

    assert cache.sent(KEY).prefixes.stable(form, segment_digest(b"other")) == 1
    assert cache.sent(KEY).size == cache.sent(KEY).prefixes.size > 0


def test_a_message_that_is_sent_in_another_form_counts_with_its_text():
    """The text that it came with is counted with the state."""
    orphan = result(2, "a", content="x" * 10_000)
    cache = ConversationCache()
    asked(cache, given(OPEN, *spoken([said(1), orphan])).state)
    chat = cache.sent(KEY).chat
    first = len(sent_message(chat.messages[0])[0])

    assert chat.size == 2 * SENT_BYTES_MIN + first + 2 * (len(chat.data) - first) + OWN_BYTES_MIN
    assert chat.messages[1].message.content != orphan.content


def test_kept_bytes_count_as_memory():
    """They make room for themselves as states do, and leave with their own."""
    text = "x" * 100_000
    state = given(OPEN, *spoken([Message("m1", Role.USER, text)])).state
    beside = state_size(state).bytes - len(text)
    cache = ConversationCache(bytes_max=4 * (len(text) + SENT_BYTES_MIN) + 3 * beside)
    others = [StreamId("default", f"other{n}") for n in range(2)]
    for other in others:
        cache.put(other, state)
    asked(cache, state)
    assert [cache.get(other) is not None for other in others] == [True, True]
    for other in others:
        cache.keep_sent(other, state, cache.sent(KEY))

    assert cache.get(KEY) is None
    assert cache.sent(KEY) is NOTHING_SENT
    assert [cache.get(other) is not None for other in others] == [True, True]
