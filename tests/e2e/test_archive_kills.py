"""Kill -9 in the middle of archiving and on the way back loses no content, and leaves none in two places."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from abridged.v1 import conversation_service_pb2 as api
from tests.integration.test_archive import telling
from tests.integration.test_erasure import singing
from tests.support.crash_process import CALL_S, SidecarProcess, until_answered
from tests.support.killed_calls import killed_in, struck

MESSAGES = 24


async def test_kills_leave_no_archiving_half_done():
    """Six kills, each audited: the short form of the run below."""
    await struck_archiving(kills=6, seed=31)


@pytest.mark.crash_long
@pytest.mark.timeout(3_600)
async def test_two_hundred_kills_leave_no_archiving_half_done(capsys):
    """A repeated call finishes the work of a killed process."""
    met = await struck_archiving(kills=200, seed=32)

    with capsys.disabled():
        sys.stdout.write(f"\n200 kills, {met} of them in the middle\n")


async def struck_archiving(*, kills: int, seed: int) -> int:
    """Archive and unarchive a conversation a kill. Return how many kills met one of both under way."""
    return await struck(
        _round,
        kills=kills,
        seed=seed,
        conversations=1,
        left_in=telling,
        folders={"ABRIDGED_LOG__ARCHIVE_DIR": "archive"},
    )


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
    has_ended = await killed_in(sidecar, archive if goes else back, alive_s)
    sidecar.start()
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


def _files(sidecar: SidecarProcess) -> list[Path]:
    return sorted((sidecar.folder / "archive").glob("*"))
