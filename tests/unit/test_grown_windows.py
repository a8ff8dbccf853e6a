"""A window that has grown is sent as one that is rendered anew, whatever happened since the last time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from random import Random

from hypothesis import given as for_all
from hypothesis import strategies as st

from abridged.eventlog.event import StreamId
from abridged.service.api.context_response import Answering, ContextQuery
from abridged.service.api.sent_window import sent_window
from abridged.service.conversations.cache import NOTHING_SENT, ConversationCache, Sent, SentPart
from abridged.service.domain.commands import RequestPass
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import WindowTooLarge
from abridged.service.domain.events import SystemPrompt
from abridged.service.domain.fold import evolve
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import Policy, ProfileName, SummaryRole
from abridged.v1 import conversation_pb2
from abridged.v1 import conversation_service_pb2 as api
from tests.support.chats import OPEN, appended, calling, complete, result, said, spoken
from tests.support.given import Given, given
from tests.support.simulation import SimulatedChat, Step

KEY = StreamId("default", "c1")


def answer(state: Conversation, query: ContextQuery, policy: Policy, now_us: int, before: Sent) -> tuple[bytes, Sent]:
    """The response, or its refusal, and the kept parts."""
    answering = Answering(state, query, policy, now_us)
    try:
        return answering.clipped(before, len) if query.clip else answering.window(before)
    except WindowTooLarge as error:
        return repr((error, error.args)).encode(), before


def random_query(rng: Random, role: SummaryRole) -> ContextQuery:
    """The default one half of the time."""
    if rng.random() < 0.5:
        return ContextQuery.of(api.GetContextRequest(), default_role=role)
    asked = api.GetContextRequest(
        summary_role=rng.choice(conversation_pb2.SummaryRole.values()),
        max_tokens=rng.choice([0, 0, 300, 1_000, 100_000]),
        clip=rng.random() < 0.2,
        rendering=rng.choice([api.RENDERING_UNSPECIFIED, *api.Rendering.values()]),
        cache_marks=rng.random() < 0.5,
        with_ledger=rng.random() < 0.3,
        with_notice=rng.random() < 0.3,
    )
    return ContextQuery.of(asked, default_role=role)


def steps(rng: Random, seed: int) -> Iterator[tuple[Step, Conversation]]:
    """The steps of a chat, each with a state to ask for: mostly the newest, at times an older one or one beside it."""
    profile = rng.choice(list(ProfileName))
    for step in SimulatedChat(seed, amendments=rng.choice([0.0, 0.2]), forks=0.02, profile=profile).steps():
        state = step.after
        if rng.random() < 0.1:
            prompt = SystemPrompt(f"Be {seed}.", tokens=3)
            state = state._replace(settings=replace(state.settings, system_prompt=prompt))
        yield step, step.before if step.before.is_open and rng.random() < 0.1 else state


@for_all(st.integers(0, 1 << 20))
def test_a_response_of_kept_parts_is_the_one_that_is_made_anew(seed):
    """Responses are asked for now and then, in many forms, through a chat's whole course: equal to the byte."""
    rng, cache = Random(seed), ConversationCache()
    for step, state in steps(rng, seed):
        cache.put(KEY, step.after)
        if not state.is_open or rng.random() < 0.3:
            continue
        before = cache.sent(KEY)
        query = random_query(rng, step.policy.summary_role)
        made, sent = answer(state, query, step.policy, step.now_us, before)
        anew, sent_anew = answer(state, query, step.policy, step.now_us, Sent(prefixes=before.prefixes))

        assert made == anew
        if not query.clip and sent is not before:
            assert (sent.parts, sent.size, sent.prefixes) == (sent_anew.parts, sent_anew.size, sent_anew.prefixes)
            cache.keep_sent(KEY, state, sent)


def sent_after(*histories: list[Message]) -> list[Sent]:
    """Windows as a sidecar sends them while a chat grows by each of these; callers ask for its roles in turn."""
    state, sent = given(OPEN).state, [NOTHING_SENT]
    for history in histories:
        for event in spoken(history):
            state = evolve(state, event._replace(number=state.message_version + 1), 0)
        sent.append(sent_window(state, SummaryRole.SYSTEM, sent[-1]))
    return sent[1:]


def goes_on_from(part: SentPart, before: SentPart) -> bool:
    """Return whether the part begins with the one that was sent before, as it was made then."""
    return all(one is other for one, other in zip(part.messages, before.messages, strict=False))


def test_a_grown_window_makes_its_new_messages_alone():
    """The window may have a call that waits for its result or never got one, or a system message that comes later."""
    grown = sent_after(
        [said(1), calling(2, "a"), said(3)],
        [calling(4, "b")],
        [result(5, "b"), said(6, Role.ASSISTANT), said(7), result(8, "nobody")],
        [Message("m9", Role.SYSTEM, "Rules.")],
    )

    assert all(goes_on_from(after.chat, before.chat) for before, after in pairwise(grown))
    assert grown[-1].chat is grown[-2].chat
    assert [m.number for m in grown[-1].system.messages] == [9]


def test_a_message_that_changes_another_makes_the_window_anew():
    """The user goes on without the result, and it comes all the same."""
    waiting, unanswered, late = sent_after([said(1), calling(2, "a")], [said(3)], [result(4, "a")])

    assert not goes_on_from(unanswered.chat, waiting.chat)
    assert not goes_on_from(late.chat, unanswered.chat)
    assert [m.number for m in late.chat.messages] == [1, 2, 4, 3]


def test_summaries_are_made_once_for_a_role():
    """Messages appended behind them make none anew; another role does, and the messages stay."""
    policy = Policy(min_range_tokens=1)
    state = given(OPEN, *spoken(said(n, content="word " * 60) for n in range(1, 40))).state
    planned = Given(state).when(RequestPass(), policy).after
    state = Given(planned).when(complete(planned), policy).after
    sent = sent_window(state, SummaryRole.SYSTEM, NOTHING_SENT)
    state = evolve(state, appended(40), 0)
    grown = sent_window(state, SummaryRole.SYSTEM, sent)
    other = sent_window(state, SummaryRole.USER, grown)

    assert sent.summaries.messages
    assert grown.summaries is sent.summaries
    assert other.summaries.messages[0].message.role is Role.USER
    assert other.chat is grown.chat
