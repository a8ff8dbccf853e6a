"""Two tenants of one sidecar: what one of them does to the other when it holds all it can get, or leaves its calls."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import pytest

from abridged.v1 import conversation_pb2, conversation_service_pb2_grpc
from abridged.v1 import conversation_service_pb2 as api
from bench.figures import percentile
from tests.support.command import ROOT, ServedSidecar, fake_ollama, served
from tests.support.patience import PATIENCE_S
from tests.support.process_memory import MEMORY_MAX_MIB, peak_mib
from tests.support.process_work import idle_after_s
from tests.support.sidecar import duration, said

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(600)]

PASSES = 6_000
PREFILL_S = 3.0
"""Seconds that each of their questions keeps the model busy, and it takes one at a time."""

APPENDS = 500
ROUNDS = 5
SLOWER_AT_MOST = 2.0
EMERGENCY_S = 10.0
CALLS = 200
LEAVING_ROUNDS = 16
"""A minute, and longer on a slower machine."""

TOKENS = json.dumps([{"token": t, "namespace": t, "scopes": ["append", "read"]} for t in ("greedy", "modest")])
MODEST = [("authorization", "Bearer modest")]


class Modest:
    """The other tenant."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: Any = conversation_service_pb2_grpc.ConversationServiceStub(channel)
        self._count = 0

    async def append_s(self) -> float:
        """Append one message; how long it took."""
        self._count += 1
        request = api.AppendMessagesRequest(
            conversation_id="c1",
            messages=[said(self._count, tokens=1)],
            settings=conversation_pb2.ConversationSettings(context_length=16_000_000),
        )
        begun = time.monotonic()
        await self._stub.AppendMessages(request, timeout=PATIENCE_S, metadata=MODEST)
        return time.monotonic() - begun

    async def read_s(self) -> float:
        """Read the window; how long it took."""
        begun = time.monotonic()
        await self._stub.GetContext(api.GetContextRequest(conversation_id="c1"), timeout=PATIENCE_S, metadata=MODEST)
        return time.monotonic() - begun

    async def emergency(self) -> Any:
        """The pass of a window that is over its budget, as it is when EMERGENCY_S have passed, or when it is over."""
        request = api.AppendMessagesRequest(
            conversation_id="full",
            messages=[said(n, tokens=200) for n in range(1, 15)],
            settings=conversation_pb2.ConversationSettings(context_length=2_000),
            wait=duration(EMERGENCY_S),
        )
        return (await self._stub.AppendMessages(request, timeout=PATIENCE_S, metadata=MODEST)).summarization


@contextmanager
def tenanted(folder: Path, *settings: str) -> Iterator[ServedSidecar]:
    """A sidecar of two tenants, whose log lines are read, so that it never waits for their reader."""
    with served(folder, f"server.tokens={TOKENS}", *settings) as sidecar:
        assert sidecar.process.stderr is not None
        threading.Thread(target=sidecar.process.stderr.read, daemon=True).start()
        yield sidecar


async def p99s_ms(one: Modest, other: Modest) -> tuple[float, float]:
    """Return the latencies of appends of both, which take turns: the machine's other work delays both alike."""
    pairs = [(await one.append_s(), await other.append_s()) for _ in range(APPENDS)]
    first, second = (1e3 * percentile(seconds, 0.99) for seconds in zip(*pairs, strict=True))
    return first, second


async def test_a_greedy_tenant_takes_nothing_from_another(tmp_path, capsys):
    """1,000 waits, 300 unread watches, 100 unread answers of 15 MB, 6,000 passes: the other's appends and its emergency
    pass come as at a sidecar of its own, and the server's memory is bounded."""
    (tmp_path / "own").mkdir()
    with ExitStack() as stack:
        ollama = stack.enter_context(fake_ollama("--prefill-s", str(PREFILL_S)))
        settings = ('summarizer.models=["ollama:qwen2.5:3b"]', f"ollama.hosts={json.dumps([ollama])}")
        own = stack.enter_context(tenanted(tmp_path / "own", *settings))
        shared = stack.enter_context(tenanted(tmp_path, *settings))
        async with grpc.aio.insecure_channel(own.address) as quiet, grpc.aio.insecure_channel(shared.address) as busy:
            alone, beside = Modest(quiet), Modest(busy)
            await p99s_ms(alone, beside)
            greedy = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.support.greedy_tenant", shared.address, "greedy", str(PASSES)),
                stdout=asyncio.subprocess.PIPE,
                cwd=ROOT,
            )
            try:
                assert greedy.stdout is not None
                refused = json.loads(await greedy.stdout.readline())
                rounds = [await p99s_ms(alone, beside) for _ in range(ROUNDS)]
                begun = time.monotonic()
                emergency = await beside.emergency()
                took_s = time.monotonic() - begun
            finally:
                greedy.kill()
                await greedy.wait()
        peak = peak_mib(shared.process.pid)

    alone_ms, beside_ms = (median(figures) for figures in zip(*rounds, strict=True))
    figures = {"alone_p99_ms": alone_ms, "beside_p99_ms": beside_ms, "emergency_s": took_s, "peak_mib": peak}
    with capsys.disabled():
        sys.stdout.write(f"\n{json.dumps({k: round(v, 2) for k, v in figures.items()} | {'refused': refused})}\n")
    assert emergency.state == conversation_pb2.SUMMARIZATION_STATE_COMPLETED
    assert emergency.trigger == conversation_pb2.TRIGGER_EMERGENCY
    assert beside_ms <= SLOWER_AT_MOST * alone_ms
    assert peak <= MEMORY_MAX_MIB


@asynccontextmanager
async def leaving(address: str) -> AsyncIterator[None]:
    """The greedy tenant, which asks for summaries of 1 MB and leaves each call after half a second."""
    tenant = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.leaving_tenant", address, "greedy"),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        assert tenant.stdout is not None
        await tenant.stdout.readline()
        yield
    finally:
        tenant.kill()
        await tenant.wait()


async def calls_p99_ms(alone: Modest, beside: Modest) -> dict[str, float]:
    """Return the latencies of appends and reads of both, which take turns."""
    took: dict[str, list[float]] = {}
    for _ in range(CALLS):
        for name, tenant in (("", alone), (" beside", beside)):
            took.setdefault(f"append{name}", []).append(await tenant.append_s())
            took.setdefault(f"read{name}", []).append(await tenant.read_s())
    return {call: 1e3 * percentile(seconds, 0.99) for call, seconds in took.items()}


async def test_a_tenant_that_leaves_its_texts_delays_no_other(tmp_path, capsys):
    """Two clients, 1 MB of one letter each, 0.5 s deadlines, a minute: the other's calls come as at a sidecar of its
    own; the work ends with the calls, and a stop does not wait for it."""
    (tmp_path / "own").mkdir()
    with tenanted(tmp_path / "own") as own, tenanted(tmp_path) as shared:
        async with grpc.aio.insecure_channel(own.address) as quiet, grpc.aio.insecure_channel(shared.address) as busy:
            alone, beside = Modest(quiet), Modest(busy)
            await p99s_ms(alone, beside)
            async with leaving(shared.address):
                rounds = [await calls_p99_ms(alone, beside) for _ in range(LEAVING_ROUNDS)]
            idle_s = await idle_after_s(shared.process.pid)
            async with leaving(shared.address):
                begun = time.monotonic()
                peak = peak_mib(shared.process.pid)
                shared.process.terminate()
                await asyncio.to_thread(shared.process.wait)
                stopped_s = time.monotonic() - begun

    p99_ms = {call: median(figures[call] for figures in rounds) for call in rounds[0]}
    figures = p99_ms | {"idle_s": idle_s, "stopped_s": stopped_s, "peak_mib": peak}
    with capsys.disabled():
        sys.stdout.write(f"\n{json.dumps({k: round(v, 3) for k, v in figures.items()})}\n")
    assert p99_ms["append beside"] <= SLOWER_AT_MOST * p99_ms["append"]
    assert p99_ms["read beside"] <= SLOWER_AT_MOST * p99_ms["read"]
    assert peak <= MEMORY_MAX_MIB
