"""Kill -9 in the middle of erasures: the next process finishes them, and all other conversations stay whole."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import pytest

from abridged.v1 import conversation_service_pb2 as api
from tests.integration.test_erasure import found_in, singing
from tests.support.crash_process import CALL_S, SidecarProcess, until_answered
from tests.support.killed_calls import killed_in, struck
from tests.support.sidecar import said

MESSAGES = 24


async def test_kills_leave_no_erasure_half_done():
    """Four kills, each audited: the short form of the run below."""
    await struck_erasing(kills=4, seed=21)


@pytest.mark.crash_long
@pytest.mark.timeout(1_800)
async def test_two_hundred_kills_leave_no_erasure_half_done(capsys):
    """A repeat returns when no byte is left, whatever a process has lived to do."""
    met = await struck_erasing(kills=200, seed=22)

    with capsys.disabled():
        sys.stdout.write(f"\n200 kills, {met} of them before an erasure was at its end\n")


async def struck_erasing(*, kills: int, seed: int) -> int:
    """Erase a conversation a kill. Return how many kills met an erasure under way."""
    return await struck(_round, kills=kills, seed=seed, conversations=2, left_in=found_in)


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
    await killed_in(sidecar, erase, alive_s)
    left = bool(found_in(sidecar.folder))
    sidecar.start()
    await until_answered(erase)
    assert found_in(sidecar.folder) == [], f"kill {kill}"
    return left
