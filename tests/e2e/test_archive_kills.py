"""Kill -9 in the middle of archiving and on the way back loses no content, and leaves none in two places."""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from abridged.v1 import conversation_service_pb2 as api
from abridged.v1.conversation_service_pb2_grpc import ConversationServiceStub
from tests.e2e.test_crash import sidecar_process
from tests.integration.test_archive import telling
from tests.integration.test_erasure import singing
from tests.support.crash_facts import differing_rows, verified_streams
from tests.support.crash_process import CALL_S, SidecarProcess, until_answered

MESSAGES = 24
ALIVE_MAX_S = 0.4
"""A process lives up to this long after it has got the call."""


async def test_kills_leave_no_archiving_half_done():
    """Six kills, each audited: the short form of the run below."""
    await struck(kills=6, seed=31)


@pytest.mark.crash_long
@pytest.mark.timeout(1_800)
async def test_two_hundred_kills_leave_no_archiving_half_done(capsys):
    """A repeated call finishes the work of a killed process."""
    met = await struck(kills=200, seed=32)

    with capsys.disabled():
        sys.stdout.write(f"\n200 kills, {met} of them in the middle\n")


async def struck(*, kills: int, seed: int) -> int:
    """Archive and unarchive a conversation a kill. Return how many kills met one of both under way."""
    rng, met = random.Random(seed), 0
    with sidecar_process() as sidecar:
        sidecar.environ = {**sidecar.environ, "ABRIDGED_LOG__ARCHIVE_DIR": str(sidecar.folder / "archive")}
        sidecar.start()
        async with sidecar.channel() as channel:
            for kill in range(kills):
                met += await _round(sidecar, ConversationServiceStub(channel), kill, rng.uniform(0.0, ALIVE_MAX_S))
        assert await sidecar.stop() == 0
        assert len(verified_streams(sidecar.log_path)) == kills
        assert differing_rows(sidecar.log_path) == []
    return met


async def _round(sidecar: SidecarProcess, client: Any, kill: int, alive_s: float) -> bool:
    """Archive a conversation, or take it back, kill the process after this time, and repeat the call. Return whether
    the call had not ended."""
    name = f"c-{kill}"
    messages = [singing(number) for number in range(1, MESSAGES + 1)]
    appended = api.AppendMessagesRequest(conversation_id=name, messages=messages)
    await until_answered(partial(client.AppendMessages, appended, timeout=CALL_S))
    await until_answered(
        partial(client.CloseConversation, api.CloseConversationRequest(conversation_id=name), timeout=CALL_S)
    )
    original = partial(client.GetContext, api.GetContextRequest(conversation_id=name), timeout=CALL_S)
    before = await until_answered(original)
    archive = partial(
        client.ArchiveConversations, api.ArchiveConversationsRequest(conversation_id=name), timeout=CALL_S
    )
    back = partial(client.UnarchiveConversation, api.UnarchiveConversationRequest(conversation_id=name), timeout=CALL_S)
    goes = kill % 2 == 0
    if not goes:
        await until_answered(archive)
    has_ended = await _killed(sidecar, archive if goes else back, alive_s)
    if goes:
        await until_answered(archive)
        assert telling(sidecar.folder) == [file.name for file in _files(sidecar)], f"kill {kill}"
    await until_answered(back)
    assert await until_answered(original) == before, f"kill {kill}"
    assert _files(sidecar) == [], f"kill {kill}"
    await until_answered(
        partial(client.EraseConversation, api.EraseConversationRequest(conversation_id=name), timeout=CALL_S)
    )
    assert telling(sidecar.folder) == [], f"kill {kill}"
    return not has_ended


async def _killed(sidecar: SidecarProcess, call: Any, alive_s: float) -> bool:
    """Kill the process this long after a call, and start another. Return whether the call had ended."""
    calling = asyncio.ensure_future(call())
    ended, _ = await asyncio.wait((calling,), timeout=alive_s)
    await sidecar.kill()
    with suppress(grpc.aio.AioRpcError):
        await calling
    sidecar.start()
    return bool(ended)


def _files(sidecar: SidecarProcess) -> list[Path]:
    return sorted((sidecar.folder / "archive").glob("*"))
