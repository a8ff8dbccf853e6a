"""A history appended in bulk is summarized, however much longer it is than the range that one pass may read."""

from __future__ import annotations

import asyncio
from typing import Any

from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import summary_pb2
from tests.support.answers import gated, hanging
from tests.support.bulk import brought_in
from tests.support.ollama_server import FakeOllama
from tests.support.sidecar import ANY_DRAFT, on_ollama, said, sidecar

COMPLETED = conversation.SUMMARIZATION_STATE_COMPLETED
FOLLOW_UP = conversation.TRIGGER_FOLLOW_UP

NARROW = {"policy.pass_calls_max": 8, "policy.max_input_tokens": 1_000, "policy.fallback": "never"}
"""A pass reads some thousands of tokens, and nothing stands in for a model."""


def said_for_less(number: int) -> Any:
    """A message of some two hundred tokens that its caller counts as twenty."""
    return said(number, f"Turn {number}: the importer reads orders from the queue of a host. " * 12, tokens=20)


async def test_a_history_in_bulk_ends_under_its_trigger_by_passes_of_what_their_bounds_allow(tmp_path):
    """Twelve times the budget goes in ranges in a row, oldest first; no pass asks for more than it has."""
    gate = asyncio.Event()
    async with (
        FakeOllama(responder=gated(gate)) as ollama,
        sidecar(tmp_path, on_ollama(ollama) | ANY_DRAFT | NARROW) as s,
    ):
        chat = s.chat(context_length=2_048)
        await brought_in(chat, 1_200)
        assert (await chat.state()).usage.ratio > 10
        gate.set()
        await s.idle()

        passes = (await chat.passes())[::-1]
        assert {p.state for p in passes} == {COMPLETED}
        assert max(p.attempts for p in passes) <= 8
        assert [p.trigger for p in passes[1:]] == [FOLLOW_UP] * (len(passes) - 1)
        reached = [p.covered[-1].last for p in passes]
        assert reached == sorted(set(reached))
        assert (await chat.state()).usage.ratio < 0.8
        assert len((await chat.context()).messages) == 1 + 1_200 - reached[-1]


async def test_the_rest_of_a_long_history_follows_after_a_restart(tmp_path):
    """The process that has the record follows up the rest of a cut range."""
    async with (
        FakeOllama(responder=hanging()) as ollama,
        sidecar(tmp_path, on_ollama(ollama) | ANY_DRAFT | NARROW) as s,
    ):
        chat = s.chat(context_length=2_048)
        await brought_in(chat, 600)
        await ollama.until(lambda o: bool(o.asked()))
    gate = asyncio.Event()
    gate.set()
    async with (
        FakeOllama(responder=gated(gate)) as ollama,
        sidecar(tmp_path, on_ollama(ollama) | ANY_DRAFT | NARROW) as s,
    ):
        await s.idle()

        assert (await s.chat().state()).usage.ratio < 0.8


async def test_a_long_history_is_extracted_at_once_for_whoever_cannot_wait(tmp_path):
    """The pass under way and one that follows it are taken from a model that hangs; then the rest is one range."""
    settings = NARROW | {"policy.fallback": "emergency"}
    async with FakeOllama(responder=hanging()) as ollama, sidecar(tmp_path, on_ollama(ollama) | settings) as s:
        chat = s.chat(context_length=2_048)
        await brought_in(chat, 1_200)

        window = await chat.context()

        assert (window.over_limit, window.usage.ratio < 0.8) == (False, True)
        made = await chat.summaries()
        assert {r.provenance for r in made} == {summary_pb2.PROVENANCE_EXTRACTIVE}
        assert len(made) <= 3


async def test_a_range_that_failed_is_tried_again_with_half_of_it(tmp_path):
    """A caller counts a tenth of the tokens of his text, so that the first range needs more calls than a pass has."""
    settings = NARROW | {"policy.cooldown_messages": 0}
    gate = asyncio.Event()
    gate.set()
    async with (
        FakeOllama(responder=gated(gate)) as ollama,
        sidecar(tmp_path, on_ollama(ollama) | ANY_DRAFT | settings) as s,
    ):
        chat = s.chat(context_length=2_048)
        await chat.append(*(said_for_less(n) for n in range(1, 101)))
        for number in range(101, 113):
            await s.idle()
            if (await chat.state()).summary_count:
                break
            await chat.append(said_for_less(number))

        failed, *_, made = (await chat.passes())[::-1]
        assert "a pass has 8" in failed.cause
        assert made.state == COMPLETED
        assert 0 < made.covered[-1].last <= failed.covered[-1].last / 2
