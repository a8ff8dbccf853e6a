"""A disk that takes no more: a full one is said and passes by itself, a broken one stops the process."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import pytest

from abridged.v1 import conversation_service_pb2
from abridged.v1.conversation_service_pb2_grpc import ConversationServiceStub
from tests.support.crash_process import CALL_S, SidecarProcess
from tests.support.recorded_disk import Fault, Trace
from tests.support.recorded_sidecar import recorded_process
from tests.support.refusal import refused
from tests.support.sidecar import said, sidecar

LARGE_BYTES = 100_000


@contextmanager
def on_a_disk() -> Iterator[tuple[SidecarProcess, Trace]]:
    """A sidecar whose disk can have faults, and the trace that lays them."""
    with TemporaryDirectory(prefix="full-") as folder:
        process, trace = recorded_process(folder)
        process.start()
        try:
            yield process, trace
        finally:
            process.abandon()


async def read(process: SidecarProcess) -> list[str]:
    """The ids of the window's messages."""
    request = conversation_service_pb2.GetContextRequest(conversation_id="c")
    async with process.channel() as channel:
        stub = ConversationServiceStub(channel)
        window = await stub.GetContext(request, timeout=CALL_S, wait_for_ready=True)
    return [shown.message.id for shown in window.messages]


async def append(process: SidecarProcess, number: int) -> int:
    """Append one message; answers the conversation's message version."""
    request = conversation_service_pb2.AppendMessagesRequest(conversation_id="c", messages=[said(number)])
    async with process.channel() as channel:
        stub = ConversationServiceStub(channel)
        response = await stub.AppendMessages(request, timeout=CALL_S, wait_for_ready=True)
    return int(response.message_version)


@pytest.mark.parametrize("fault", [Fault.FULL, Fault.OVER_QUOTA, Fault.TOO_LARGE])
async def test_whatever_form_a_full_disk_has_it_passes_by_itself(fault):
    """A disk without room, over a quota or at the largest size of a file puts nothing that was written in doubt."""
    with on_a_disk() as (process, trace):
        assert await append(process, 1) == 1
        trace.lay(fault)
        for _ in range(2):
            async with refused("RESOURCE_EXHAUSTED", "LOG_FULL") as refusal:
                await append(process, 2)
            assert refusal.retry_s
        trace.lay(Fault.MENDED)

        assert await append(process, 2) == 2
        assert await process.stop() == 0


@pytest.mark.parametrize("fault", [Fault.READ_ONLY, Fault.UNWRITABLE])
async def test_a_disk_that_cannot_be_written_stops_the_process(fault):
    """No waiting makes room there: whoever started the process must see it."""
    with on_a_disk() as (process, trace):
        assert await append(process, 1) == 1
        trace.lay(fault)

        async with refused("UNAVAILABLE", "SERVER_STOPPING"):
            await append(process, 2)

        assert await process.ended() == 1


async def test_a_start_without_room_reads_and_appends_when_there_is_some():
    """The remains of a killed process must be written once more before anything else is, and cannot be."""
    with on_a_disk() as (process, trace):
        assert await append(process, 1) == 1
        await process.kill()
        trace.lay(Fault.OVER_QUOTA)
        process.start()

        assert await read(process) == ["m1"]
        for _ in range(2):
            async with refused("RESOURCE_EXHAUSTED", "LOG_FULL"):
                await append(process, 2)
        assert await read(process) == ["m1"]
        trace.lay(Fault.MENDED)

        assert await append(process, 2) == 2
        assert await process.stop() == 0


async def test_the_size_that_a_file_may_have_is_a_full_disk(tmp_path):
    """The operating system's own limit, in a real process: reads go on, and appends when it is raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with sidecar(tmp_path) as s:
        chat = s.chat(context_length=100_000_000)
        await chat.append(said(1))
        resource.setrlimit(resource.RLIMIT_FSIZE, (10 * LARGE_BYTES, hard))
        try:
            async with refused("RESOURCE_EXHAUSTED", "LOG_FULL"):
                for number in range(2, 50):
                    await chat.append(said(number, "x" * LARGE_BYTES))
            written = (await chat.context()).message_version
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

        assert (await chat.append(said(written + 1, "x" * LARGE_BYTES))).message_version == written + 1
