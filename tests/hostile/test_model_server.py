"""Model servers that mean harm, each for as long as it is listened to: a sidecar of its own, a server of its own, and
the appends of everybody else counted meanwhile."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import pytest

from service.client import ConversationSettings, SidecarClient
from service.domain.message import Message, Role
from tests.support.command import fake_ollama, served
from tests.support.ollama_hostile import HOSTILE

pytestmark = pytest.mark.hostile

APPENDS = 400
MEMORY_MAX_MIB = 400
CONTEXT = 2_000
"""Of the conversation whose pass the hostile server is asked for."""


def resident_most_mib(pid: int) -> float:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) / 1_024


def turn(number: int) -> Message:
    return Message(id=f"m{number}", role=Role.USER, content=f"Turn {number}: shard {number} of orders is slow. " * 12)


@pytest.mark.parametrize("behaviour", sorted(HOSTILE))
async def test_appends_go_on_beside_a_hostile_model_server(behaviour, tmp_path):
    """As many appends as one client makes in a while, all answered while the attack lasts, in bounded memory."""
    with (
        fake_ollama("--behaviour", behaviour) as url,
        served(tmp_path, f"ollama.hosts={url}", "summarizer.models=ollama:qwen2.5:3b", "summarizer.retries=5") as run,
    ):
        async with SidecarClient(run.address) as client:
            settings = ConversationSettings(context_length=CONTEXT)
            for number in range(12):
                await client.append("attacked", [turn(number)], settings=settings)
            latencies_s = []
            for number in range(APPENDS):
                begun = time.monotonic()
                await client.append("other", [Message(id=f"o{number}", role=Role.USER, content="hello")])
                latencies_s.append(time.monotonic() - begun)
            state = await client.conversation("other")
            attacked = await client.summarizations("attacked")
        memory_mib = resident_most_mib(run.process.pid)

    latencies_s.sort()
    p50_ms, p99_ms = (1_000 * latencies_s[math.floor(share * APPENDS)] for share in (0.5, 0.99))
    sys.stdout.write(
        f"\n{behaviour}: appends p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms; memory at most {memory_mib:.0f} MiB\n"
    )
    assert attacked
    assert state.message_version == APPENDS
    assert memory_mib <= MEMORY_MAX_MIB
