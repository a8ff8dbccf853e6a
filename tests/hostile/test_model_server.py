"""Model servers that mean harm, each for as long as it is listened to: a sidecar of its own, a server of its own, and
the appends of everybody else counted meanwhile."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import NamedTuple

import httpx
import pytest

from abridged.client import AsyncConversations
from abridged.v1.conversation_pb2 import ConversationSettings
from abridged.v1.message_pb2 import ROLE_USER, Message
from bench.figures import percentile
from tests.support.command import fake_ollama, served
from tests.support.ollama_hostile import ATTACK_PATH, HOSTILE
from tests.support.process_memory import MEMORY_MAX_MIB, peak_mib

pytestmark = pytest.mark.hostile

APPENDS = 400
BESIDE_MIN = 3
"""Appends, at least, by whose end the hostile server had been asked again or had sent more since the one before."""
APPENDS_MAX = 10_000
"""The most appends to wait for those: an attack without them did not last."""
CONTEXT = 2_000
"""The context length of the conversation whose pass the hostile server is asked for."""


class Attack(NamedTuple):
    """The work of a hostile server so far."""

    asked: int
    pumped_bytes: int


async def attack_of(server: httpx.AsyncClient) -> Attack:
    return Attack(**(await server.get(ATTACK_PATH)).json())


def turn(number: int) -> Message:
    return Message(id=f"m{number}", role=ROLE_USER, content=f"Turn {number}: shard {number} of orders is slow. " * 12)


async def filled(client: AsyncConversations) -> None:
    settings = ConversationSettings(context_length=CONTEXT)
    for number in range(12):
        await client.append("attacked", [turn(number)], settings=settings)


@pytest.mark.parametrize("behaviour", sorted(HOSTILE))
async def test_appends_go_on_beside_a_hostile_model_server(behaviour, tmp_path):
    """Appends from before the attack until it has lasted beside some of them, all answered, in bounded memory."""
    with (
        fake_ollama("--behaviour", behaviour) as url,
        served(tmp_path, f"ollama.hosts={url}", "summarizer.models=ollama:qwen2.5:3b", "summarizer.retries=5") as run,
    ):
        async with AsyncConversations(run.address) as client, httpx.AsyncClient(base_url=url) as server:
            filling = asyncio.create_task(filled(client))
            attack, beside = await attack_of(server), 0
            latencies_s: list[float] = []
            while len(latencies_s) < APPENDS or (beside < BESIDE_MIN and len(latencies_s) < APPENDS_MAX):
                message = Message(id=f"o{len(latencies_s)}", role=ROLE_USER, content="hello")
                begun = time.monotonic()
                await client.append("other", [message])
                latencies_s.append(time.monotonic() - begun)
                before, attack = attack, await attack_of(server)
                beside += attack != before
            await filling
            state = await client.conversation("other")
            attacked = [one async for one in client.summarizations("attacked")]
        memory_mib = peak_mib(run.process.pid)

    p50_ms, p99_ms = (1_000 * percentile(latencies_s, share) for share in (0.5, 0.99))
    sys.stdout.write(
        f"\n{behaviour}: appends p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms; memory at most {memory_mib:.0f} MiB; "
        f"{beside} of {len(latencies_s)} appends beside {attack}\n"
    )
    assert attacked
    assert attack.asked > 0
    assert attack.pumped_bytes > 0 or not HOSTILE[behaviour].wire_again
    assert beside >= BESIDE_MIN
    assert state.message_version == len(latencies_s)
    assert memory_mib <= MEMORY_MAX_MIB
