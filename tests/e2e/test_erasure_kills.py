"""Kill -9 in the middle of erasures: the next process finishes them, and all other conversations stay whole."""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import suppress
from functools import partial
from typing import Any

import grpc
import pytest

from abridged.v1 import conversation_service_pb2 as api
from abridged.v1.conversation_service_pb2_grpc import ConversationServiceStub
from tests.e2e.test_crash import sidecar_process
from tests.integration.test_erasure import found_in, singing
from tests.support.crash_facts import differing_rows, verified_streams
from tests.support.crash_process import CALL_S, SidecarProcess, until_answered
from tests.support.sidecar import said

MESSAGES = 24
ALIVE_MAX_S = 0.4
"""A process lives up to this long after it has got the erasure: some are killed before its commit, some after it."""


async def test_kills_leave_no_erasure_half_done():
    """Four kills, each audited: the short form of the run below."""
    await struck(kills=4, seed=21)


@pytest.mark.crash_long
@pytest.mark.timeout(1_800)
async def test_two_hundred_kills_leave_no_erasure_half_done(capsys):
    """A repeat returns when no byte is left, whatever a process has lived to do."""
    met = await struck(kills=200, seed=22)

    with capsys.disabled():
        sys.stdout.write(f"\n200 kills, {met} of them before an erasure was at its end\n")


async def struck(*, kills: int, seed: int) -> int:
    """Erase a conversation a kill. Return how many kills met an erasure under way."""
    rng, met = random.Random(seed), 0
    with sidecar_process() as sidecar:
        sidecar.start()
        async with sidecar.channel() as channel:
            for kill in range(kills):
                met += await _round(sidecar, ConversationServiceStub(channel), kill, rng.uniform(0.0, ALIVE_MAX_S))
        assert await sidecar.stop() == 0
        assert found_in(sidecar.folder) == []
        assert len(verified_streams(sidecar.log_path)) == 2 * kills
        assert differing_rows(sidecar.log_path) == []
    return met


async def _round(sidecar: SidecarProcess, client: Any, kill: int, alive_s: float) -> bool:
    """Erase one of two conversations, kill the process after this time, and repeat the call. Return whether the kill
    left text."""
    gone = [singing(number) for number in range(1, MESSAGES + 1)]
    for name, messages in ((f"gone-{kill}", gone), (f"kept-{kill}", [said(1)])):
        request = api.AppendMessagesRequest(conversation_id=name, messages=messages)
        await until_answered(partial(client.AppendMessages, request, timeout=CALL_S))
    assert found_in(sidecar.folder)
    erase = partial(
        client.EraseConversation, api.EraseConversationRequest(conversation_id=f"gone-{kill}"), timeout=CALL_S
    )
    erasing = asyncio.ensure_future(erase())
    await asyncio.wait((erasing,), timeout=alive_s)
    await sidecar.kill()
    with suppress(grpc.aio.AioRpcError):
        await erasing
    left = bool(found_in(sidecar.folder))
    sidecar.start()
    await until_answered(erase)
    assert found_in(sidecar.folder) == [], f"kill {kill}"
    return left
