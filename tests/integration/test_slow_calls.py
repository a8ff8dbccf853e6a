"""A call that took long leaves a line that names its stages, whatever ended it: here another program has locked the
log's file, as a tool that copies it would."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import grpc

from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import server_info_service_pb2
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import Sidecar, said, script, sidecar

SLOW_S = 0.2
PATIENT_S = 1.5  # A first call may spend 0.2 s on its tokenizer.
SLOW = {"telemetry.slow_call_s": SLOW_S}
APPEND = "abridged.v1.ConversationService/AppendMessages"
SECRET = "Nobody but the caller may read this sentence."


@contextmanager
def locked(s: Sidecar) -> Iterator[sqlite3.Connection]:
    """The log's file with the one place for a writer taken."""
    with closing(sqlite3.connect(s.folder / "abridged.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


async def slow_lines(s: Sidecar, count: int) -> dict[str, dict[str, Any]]:
    """The lines about slow calls by their codes, once there are `count`."""
    async with asyncio.timeout(PATIENCE_S):
        while len(found := [line for line in s.logs if line["event"] == "rpc.slow"]) < count:
            await s.info.GetServerInfo(server_info_service_pb2.GetServerInfoRequest())
    return {line["code"]: line for line in found}


def of(conversation_id: str) -> api.AppendMessagesRequest:
    return api.AppendMessagesRequest(conversation_id=conversation_id, messages=[said(1, SECRET)])


async def ended_by_its_deadline(s: Sidecar, request: api.AppendMessagesRequest) -> None:
    try:
        await s.conversations.AppendMessages(request, timeout=PATIENT_S)
    except grpc.aio.AioRpcError as error:
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED  # noqa: PT017 - a status is looked at, not a type
    else:
        raise AssertionError("the log is locked")


async def test_a_slow_append_and_one_that_its_deadline_ended_leave_their_stages(tmp_path):
    """Both waited for the log, and no caller's text is in the lines."""
    async with sidecar(tmp_path, SLOW) as s:
        with locked(s):
            patient = asyncio.ensure_future(s.conversations.AppendMessages(of("patient"), timeout=PATIENCE_S))
            await ended_by_its_deadline(s, of("hasty"))
        await patient
        lines = await slow_lines(s, 2)
        text = s.log_text

    assert set(lines) == {"OK", "DEADLINE_EXCEEDED"}
    for line in lines.values():
        stages = line["stages_ms"]
        assert (line["method"], line["level"]) == (APPEND, "warning")
        assert stages["log_wait"] >= 0.5 * line["total_ms"] > 0
        assert sum(stages.values()) <= line["total_ms"] + len(stages)
    assert {"admission", "count", "turn", "decide", "log_wait", "projection", "flush", "rest"} <= set(
        lines["OK"]["stages_ms"]
    )
    assert SECRET not in text


async def test_an_append_behind_a_stuck_one_waited_for_the_log(tmp_path):
    """An append to the same conversation is queued in the log or before it, and says so."""
    async with sidecar(tmp_path, SLOW) as s:
        with locked(s):
            first = asyncio.ensure_future(s.conversations.AppendMessages(of("c1"), timeout=PATIENCE_S))
            await ended_by_its_deadline(s, of("c1"))
        await first
        line = (await slow_lines(s, 2))["DEADLINE_EXCEEDED"]

    waited = sum(line["stages_ms"].get(stage, 0) for stage in ("log_wait", "turn"))
    assert waited >= 0.5 * line["total_ms"]


async def test_an_append_of_a_stream_leaves_its_stages_too(tmp_path):
    """The stream lasts as long as its caller likes; only its appends can be slow."""
    async with sidecar(tmp_path, SLOW) as s:
        stream = s.conversations.IngestMessages(timeout=PATIENCE_S)
        with locked(s):
            await stream.write(api.IngestMessagesRequest(append=of("c1")))
            await ended_by_its_deadline(s, of("c2"))
        await stream.read()
        await stream.done_writing()
        line = (await slow_lines(s, 2))["OK"]

    assert line["method"].endswith("/IngestMessages")
    assert line["stages_ms"]["log_wait"] >= 0.5 * line["total_ms"]


async def test_what_a_caller_asked_to_wait_is_not_slow(tmp_path):
    """A pass may take minutes, and calls that wait for it would fill the log."""
    model = script(tmp_path, {"default": True, "delay_s": 10 * PATIENCE_S})
    async with sidecar(tmp_path, model | SLOW) as s:
        chat = s.chat("c1")
        await chat.talk(14)
        context = await chat.context(wait_s=PATIENT_S)
        with locked(s):
            await ended_by_its_deadline(s, of("c2"))
        lines = await slow_lines(s, 1)

    assert context.pending_summarization_id
    assert set(lines) == {"DEADLINE_EXCEEDED"}


async def test_a_stand_in_that_nobody_asked_to_wait_for_is_slow(tmp_path):
    """Extraction is to make room in a window over its emergency ratio, and cannot commit."""
    model = script(tmp_path, {"default": True, "delay_s": 10 * PATIENCE_S})
    async with sidecar(tmp_path, model | SLOW) as s:
        await s.chat("c1").talk(20)
        asked = api.GetContextRequest(conversation_id="c1")
        with locked(s):
            await asyncio.gather(s.conversations.GetContext(asked, timeout=PATIENT_S), return_exceptions=True)
        lines = await slow_lines(s, 1)

    (line,) = lines.values()
    assert line["method"].endswith("/GetContext")
    assert line["stages_ms"]["stand_in"] >= 0.5 * line["total_ms"]
