"""Fifty thousand messages appended in bulk to a chat model of 2,048 tokens, with the policy's own bounds."""

from __future__ import annotations

import asyncio

import pytest

from abridged.v1 import conversation_pb2 as conversation
from tests.support.answers import gated
from tests.support.bulk import brought_in
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import ANY_DRAFT, on_ollama, sidecar

pytestmark = pytest.mark.hostile

MESSAGES = 50_000
IDLE_ROUNDS = 20


async def test_fifty_thousand_messages_in_bulk_end_under_their_trigger(tmp_path):
    """The summary model does it alone, with a context as small as the chat model's."""
    gate = asyncio.Event()
    settings = ANY_DRAFT | {"policy.fallback": "never", "ollama.num_ctx": 2_048}
    async with FakeOllama(responder=gated(gate)) as ollama, sidecar(tmp_path, on_ollama(ollama) | settings) as s:
        chat = s.chat(context_length=2_048)
        await brought_in(chat, MESSAGES)
        before = (await chat.state()).usage.ratio
        gate.set()
        async with asyncio.timeout(IDLE_ROUNDS * PATIENCE_S):
            while (await chat.state()).pending_summarization_id:
                await asyncio.wait_for(chat.context(wait_s=PATIENCE_S / 2), PATIENCE_S)

        passes = await chat.passes()
        assert before > 300
        assert {p.state for p in passes} == {conversation.SUMMARIZATION_STATE_COMPLETED}
        assert max(p.attempts for p in passes) <= 64
        assert (await chat.state()).usage.ratio < 0.8
