"""A pass that waits while the chat's prompt is in its provider's cache, over the whole path and through restarts."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import ANY_DRAFT, Chat, Clock, Sidecar, said, sidecar

WARM_S = 240
DEFERRING = {**ANY_DRAFT, "summarizer.models": ["scripted:default"], "policy.defer_while_warm_s": WARM_S}


def chat_of(s: Sidecar) -> Chat:
    return s.chat("c1", context_length=2_000)


async def told(s: Sidecar) -> Chat:
    """A chat past its trigger."""
    chat = chat_of(s)
    await chat.append(*(said(n, f"Message {n} of the importer. " * 9, tokens=60) for n in range(1, 28)))
    return chat


async def deferred(s: Sidecar) -> Chat:
    """A chat past its trigger, whose pass waits."""
    chat = await told(s)
    window = await chat.context()
    assert (window.held_by, len(await chat.passes())) == (conversation.HELD_BY_CACHE_WARM, 0)
    return chat


async def completed(s: Sidecar) -> list[Any]:
    """The passes of the chat once one is complete."""
    watching = s.conversations.WatchConversation(api.WatchConversationRequest(conversation_id="c1"), timeout=PATIENCE_S)
    async for item in watching:
        if item.WhichOneof("item") == "event" and item.event.type == "SummarizationCompleted":
            break
    return list(await chat_of(s).passes())


@pytest.mark.parametrize("away_s", [WARM_S - 0.5, WARM_S + 1])
async def test_a_deferred_pass_comes_when_the_cache_has_cooled_though_nobody_writes_again(tmp_path, away_s):
    """A restart at its time, or after it, forgets no pass."""
    clock = Clock()
    async with sidecar(tmp_path, DEFERRING, now_us=clock) as s:
        await deferred(s)
    clock.advance(away_s)
    async with sidecar(tmp_path, DEFERRING, now_us=clock) as s:
        (done,) = await completed(s)

    assert done.trigger == conversation.TRIGGER_RATIO


async def test_a_deferred_pass_comes_without_a_restart(tmp_path):
    """The timer runs from the newest event."""
    async with sidecar(tmp_path, {**DEFERRING, "policy.defer_while_warm_s": 1}) as s:
        await told(s)
        (done,) = await completed(s)

    assert done.trigger == conversation.TRIGGER_RATIO


async def test_a_pass_that_was_deferred_comes_under_a_policy_that_defers_none(tmp_path):
    """The operator may switch it off meanwhile: the pass is not lost when its conversation is read, and comes no later
    than it would have."""
    clock = Clock()
    async with sidecar(tmp_path, DEFERRING, now_us=clock) as s:
        await deferred(s)
    clock.advance(WARM_S - 2)
    async with sidecar(tmp_path, {**DEFERRING, "policy.defer_while_warm_s": 0}, now_us=clock) as s:
        await chat_of(s).context()
        assert len(await completed(s)) == 1


async def test_a_chat_that_goes_on_has_its_pass_halfway_to_its_emergency(tmp_path):
    """The window keeps room for what is said while the pass runs."""
    async with sidecar(tmp_path, DEFERRING) as s:
        chat = await deferred(s)
        await chat.append(*(said(n, f"Message {n} of the importer. " * 9, tokens=60) for n in range(28, 31)))
        (done,) = await completed(s)

    assert (done.trigger, round(done.token_ratio, 2)) == (conversation.TRIGGER_RATIO, 0.9)


async def test_a_client_may_let_its_passes_wait(tmp_path):
    """A policy of the conversation's own decides."""
    async with sidecar(tmp_path, {**DEFERRING, "policy.defer_while_warm_s": 0}) as s:
        chat = s.chat(
            "c1", context_length=2_000, policy=conversation.PolicyOverrides(defer_while_warm=Duration(seconds=WARM_S))
        )
        await chat.append(*(said(n, tokens=60) for n in range(1, 28)))

        assert (await chat.context()).held_by == conversation.HELD_BY_CACHE_WARM
