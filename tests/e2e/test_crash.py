"""Kill -9 under load: acknowledged messages are there, once and in their order, and every pass ends."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from google.protobuf.duration_pb2 import Duration

from abridged.v1 import server_info_service_pb2
from abridged.v1.event_log_service_pb2_grpc import EventLogServiceStub
from abridged.v1.server_info_service_pb2_grpc import ServerInfoServiceStub
from tests.support.crash_audit import Audit, Ledger
from tests.support.crash_facts import differing_rows, read_facts, verified_streams
from tests.support.crash_process import CALL_S, SidecarProcess, sidecar_process, until_answered
from tests.support.crash_writers import Writers

WRITERS = 8
ALIVE_MAX_S = 1.0
"""A process lives up to this long after it serves: shorter than the pass that hangs at its start."""

KILLED_WHILE_STARTING = 0.15
"""Share of the processes that are killed before they serve."""

GENERATION_CYCLES = 10
IDLE_S = 240
"""Seconds that the last process may take for the passes that all those before it did not live to end."""

IDLE_LOOKS_MAX = 20
"""A remake begins when nothing else runs, perhaps between the answer that all is idle and the reading of the log."""


async def test_kills_lose_and_repeat_nothing():
    """Six kills, each audited: the short form of the run below."""
    figures = await crashed(cycles=6, seed=11)

    assert figures["requests_acked"] > 0
    assert figures["records"] > 0


@pytest.mark.crash_long
@pytest.mark.timeout(900)
async def test_two_hundred_kills_lose_and_repeat_nothing(capsys):
    """Every acknowledged message is there once, without a gap; interrupted passes run again and end once."""
    figures = await crashed(cycles=200, seed=12)

    assert figures["passes_resumed"] > 0
    with capsys.disabled():
        sys.stdout.write(f"\n{json.dumps(figures)}\n")


async def crashed(*, cycles: int, seed: int) -> dict[str, int]:
    """Kill and restart a sidecar under writers, audit after every kill and at the end; answers how much that was."""
    rng = random.Random(seed)
    ledger, audit = Ledger(), Audit()
    with sidecar_process() as sidecar:
        sidecar.start()
        async with writing(sidecar, ledger, seed) as writers, sidecar.channel() as channel:
            log = EventLogServiceStub(channel)
            for cycle in range(cycles):
                writers.generation = cycle // GENERATION_CYCLES
                if rng.random() >= KILLED_WHILE_STARTING:
                    acked = dict(ledger.acked)
                    audit.take([fact async for fact in read_facts(log, after=audit.head)])
                    audit.check_messages(ledger, acked)
                    assert audit.violations == [], sidecar.errors()
                await writers.run_for(rng.uniform(0.0, ALIVE_MAX_S))
                await sidecar.kill()
                sidecar.start()
            await writers.finish()
            info = ServerInfoServiceStub(channel)
            waiting = server_info_service_pb2.WaitIdleRequest(timeout=Duration(seconds=IDLE_S))
            for _ in range(IDLE_LOOKS_MAX):
                idle = await until_answered(
                    lambda: info.WaitIdle(waiting, timeout=IDLE_S + CALL_S, wait_for_ready=True)
                )
                assert idle.idle, f"{idle.pending} passes never ended"
                audit.take([fact async for fact in read_facts(log, after=audit.head)])
                if not audit.has_pending():
                    break
        assert await sidecar.stop() == 0
        audit.check_messages(ledger, ledger.acked)
        audit.check_passes()
        assert audit.violations == []
        assert len(verified_streams(sidecar.log_path)) == audit.figures()["conversations"]
        assert differing_rows(sidecar.log_path) == []
    assert set(ledger.acked) == set(ledger.sent), "a writer stops only after its acknowledgement"
    return audit.figures() | {
        "requests_acked": ledger.requests_acked,
        "retries": ledger.retries,
        "kills": cycles,
        "starts": sidecar.starts,
    }


@asynccontextmanager
async def writing(sidecar: SidecarProcess, ledger: Ledger, seed: int) -> AsyncIterator[Writers]:
    channels = [sidecar.channel() for _ in range(WRITERS)]
    writers = Writers(channels, ledger, seed)
    writers.start()
    try:
        yield writers
    finally:
        await writers.cancel()
        for channel in channels:
            await channel.close()
