"""Two tenants of one sidecar: what one of them does to the other when it holds all it can get."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from abridged.v1 import conversation_pb2, conversation_service_pb2_grpc
from abridged.v1 import conversation_service_pb2 as api
from tests.support.command import ROOT, fake_ollama, served
from tests.support.sidecar import PATIENCE_S, duration, said

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(600)]

PASSES = 6_000
PREFILL_S = 3.0
"""What each of their questions keeps the model busy for, and it takes one at a time."""

APPENDS = 500
ROUNDS_MAX = 6
SLOWER_AT_MOST = 2.0
EMERGENCY_S = 10.0
MEMORY_MAX_MB = 400
TOKENS = json.dumps([{"token": t, "namespace": t, "scopes": ["append", "read"]} for t in ("greedy", "modest")])
MODEST = [("authorization", "Bearer modest")]


class Modest:
    """The other tenant."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: Any = conversation_service_pb2_grpc.ConversationServiceStub(channel)
        self._count = 0

    async def p99_ms(self) -> float:
        """Of appends of one message, one after the other."""
        seconds = []
        for _ in range(APPENDS):
            self._count += 1
            request = api.AppendMessagesRequest(
                conversation_id="c1",
                messages=[said(self._count, tokens=1)],
                settings=conversation_pb2.ConversationSettings(context_length=16_000_000),
            )
            begun = time.monotonic()
            await self._stub.AppendMessages(request, timeout=PATIENCE_S, metadata=MODEST)
            seconds.append(time.monotonic() - begun)
        return 1e3 * sorted(seconds)[APPENDS * 99 // 100]

    async def emergency(self) -> Any:
        """The pass of a window that is over its budget, as it is when EMERGENCY_S have passed, or when it is over."""
        request = api.AppendMessagesRequest(
            conversation_id="full",
            messages=[said(n, tokens=200) for n in range(1, 15)],
            settings=conversation_pb2.ConversationSettings(context_length=2_000),
            wait=duration(EMERGENCY_S),
        )
        return (await self._stub.AppendMessages(request, timeout=PATIENCE_S, metadata=MODEST)).summarization


def peak_mb(pid: int) -> int:
    """The most memory that the process has had resident."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) // 1024


async def test_a_greedy_tenant_takes_nothing_from_another(tmp_path, capsys):
    """1,000 waits, 300 unread watches, 100 unread answers of 15 MB, 6,000 passes: the other's appends and its emergency
    pass come as if it were alone, and the server's memory is bounded."""
    settings = (f"server.tokens={TOKENS}", 'summarizer.models=["ollama:qwen2.5:3b"]')
    with (
        fake_ollama("--prefill-s", str(PREFILL_S)) as ollama,
        served(tmp_path, *settings, f"ollama.hosts={json.dumps([ollama])}") as sidecar,
    ):
        # Its log is read on, so that it never waits for its reader.
        threading.Thread(target=sidecar.process.stderr.read, daemon=True).start()  # type: ignore[union-attr]  # a pipe
        async with grpc.aio.insecure_channel(sidecar.address) as channel:
            modest = Modest(channel)
            await modest.p99_ms()
            alone_ms = min([await modest.p99_ms() for _ in range(ROUNDS_MAX)])
            greedy = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.support.greedy_tenant", sidecar.address, "greedy", str(PASSES)),
                stdout=asyncio.subprocess.PIPE,
                cwd=ROOT,
            )
            try:
                assert greedy.stdout is not None
                refused = json.loads(await greedy.stdout.readline())
                beside_ms = float("inf")
                for _ in range(ROUNDS_MAX):
                    beside_ms = min(beside_ms, await modest.p99_ms())
                    if beside_ms <= SLOWER_AT_MOST * alone_ms:
                        break
                begun = time.monotonic()
                emergency = await modest.emergency()
                took_s = time.monotonic() - begun
            finally:
                greedy.kill()
                await greedy.wait()
        peak = peak_mb(sidecar.process.pid)

    with capsys.disabled():
        figures = {"alone_p99_ms": alone_ms, "beside_p99_ms": beside_ms, "emergency_s": took_s}
        sys.stdout.write(
            f"\n{json.dumps({k: round(v, 2) for k, v in figures.items()} | {'peak_mb': peak} | refused)}\n"
        )
    assert emergency.state == conversation_pb2.SUMMARIZATION_STATE_COMPLETED
    assert emergency.trigger == conversation_pb2.TRIGGER_EMERGENCY
    assert beside_ms <= SLOWER_AT_MOST * alone_ms
    assert peak <= MEMORY_MAX_MB
