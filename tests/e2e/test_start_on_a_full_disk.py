"""A start on a full disk: the sidecar serves all reads, refuses appends with the reason, and resumes by itself."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from abridged.eventlog.sqlite.log import SqliteEventLog
from abridged.v1 import conversation_pb2, conversation_service_pb2, event_log_service_pb2
from abridged.v1.conversation_service_pb2_grpc import ConversationServiceStub
from abridged.v1.event_log_service_pb2_grpc import EventLogServiceStub
from tests.support.crash_process import CALL_S, SidecarProcess
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refused
from tests.support.sidecar import said

FILE_BYTES = 16_384
"""The largest size of a file while the disk is full: less than the files of the log have by then."""
VOLUME_BYTES = 2 << 20
MESSAGE_BYTES = 5_000
MESSAGES = 12
WORD = "importer"
REASON = "log.db has no room on its volume"

_LIMITED = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, ({FILE_BYTES}, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
from abridged.service.cli.main import main
main()
"""


@dataclass
class Disk(SidecarProcess):
    """A sidecar whose files may not grow past FILE_BYTES while the disk is full."""

    def fill(self) -> None:
        """Let processes that start from now on find no room."""
        self.command = (sys.executable, "-c", _LIMITED, *self.command[3:])

    def make_room(self) -> None:
        """Let the running process, if there is one, and later ones write again."""
        self.command = (*SidecarProcess.command[:3], *self.command[3:])
        if self.is_running:
            _, hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (hard, hard))


class Volume(Disk):
    """A sidecar whose log is on a volume of its own, which can be full to the last block."""

    @property
    def log_path(self) -> Path:
        return self.folder / "volume" / "log.db"

    @property
    def _ballast(self) -> Path:
        return self.log_path.with_name("ballast")

    def fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(bytes(4_096))

    def make_room(self) -> None:
        self._ballast.unlink()


@pytest.fixture(params=[Disk, Volume])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """A sidecar that does not run yet, on an empty disk."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    made: Disk = request.param(tmp_path, http_listen=f"127.0.0.1:{port}")
    volume = made.log_path.parent
    volume.mkdir(exist_ok=True)
    is_mounted = isinstance(made, Volume)
    if is_mounted and subprocess.call(("mount", "-t", "tmpfs", "-o", f"size={VOLUME_BYTES}", "tmpfs", volume)):
        pytest.skip("only root may mount a volume")
    try:
        yield made
    finally:
        made.abandon()
        if is_mounted:
            subprocess.check_call(("umount", volume))


async def append(disk: Disk, number: int) -> int:
    """Append one message; returns the conversation's message version."""
    async with disk.channel() as channel:
        response = await ConversationServiceStub(channel).AppendMessages(
            conversation_service_pb2.AppendMessagesRequest(
                conversation_id="c",
                settings=conversation_pb2.ConversationSettings(context_length=1_000_000),
                messages=[said(number, f"{number} {WORD} {'x' * MESSAGE_BYTES}")],
            ),
            timeout=CALL_S,
            wait_for_ready=True,
        )
    return int(response.message_version)


async def window(disk: Disk) -> list[str]:
    """The number at the start of each message of the window, after every other read has been answered too."""
    async with disk.channel() as channel:
        stub, log = ConversationServiceStub(channel), EventLogServiceStub(channel)
        listed = await stub.ListConversations(
            conversation_service_pb2.ListConversationsRequest(), timeout=CALL_S, wait_for_ready=True
        )
        found = await stub.GetConversation(
            conversation_service_pb2.GetConversationRequest(conversation_id="c"), timeout=CALL_S
        )
        assert [each.id for each in listed.conversations] == [found.conversation.id] == ["c"]
        events = await log.ReadEvents(event_log_service_pb2.ReadEventsRequest(limit=500), timeout=CALL_S)
        stream = log.SubscribeEvents(event_log_service_pb2.SubscribeEventsRequest(), timeout=CALL_S)
        async for sent in stream:
            if sent.HasField("page"):
                assert sent.page.events[0] == events.events[0]
                break
        stream.cancel()
        context = await stub.GetContext(conversation_service_pb2.GetContextRequest(conversation_id="c"), timeout=CALL_S)
    return [item.message.content.split()[0] for item in context.messages]


async def readiness(disk: Disk) -> tuple[int, str]:
    """Status of `/readyz`, and what it says of appends."""
    status, body = await disk.http("/readyz")
    return status, json.loads(body)["checks"]["append"]


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(1, count + 1)]


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "stopped"])
async def test_it_reads_says_why_it_does_not_append_and_resumes_by_itself(disk: Disk, killed: bool):
    """The last process left a write-ahead log that must be read, or a file that has none."""
    disk.start()
    for number in range(1, MESSAGES + 1):
        assert await append(disk, number) == number
    if killed:
        await disk.kill()
        assert disk.log_path.with_name("log.db-wal").stat().st_size > FILE_BYTES
    else:
        assert await disk.stop() == 0
    disk.fill()
    disk.start()

    assert await window(disk) == numbers(MESSAGES)
    for _ in range(2):
        async with refused("RESOURCE_EXHAUSTED", "LOG_FULL") as refusal:
            await append(disk, MESSAGES + 1)
        assert refusal.text.startswith(REASON)
        assert "nothing was written" in refusal.text
        assert "no restart is needed" in refusal.text
        assert refusal.retry_s
    status, reason = await readiness(disk)
    assert status == 503
    assert reason.startswith(f"read-only: {REASON}")
    assert (await disk.http("/startupz"))[0] == 200
    assert (await disk.http("/metrics"))[0] == 200
    assert "log.full" in disk.errors()
    assert await window(disk) == numbers(MESSAGES)

    disk.make_room()
    assert (await readiness(disk))[1] == "ok"
    assert await append(disk, MESSAGES + 1) == MESSAGES + 1
    assert await disk.stop() == 0
    with closing(SqliteEventLog.open(disk.log_path, clock_us=lambda: 0)) as log:
        appended = [event for event in log.read_all(limit=500) if event.type == "MessageAppended"]
    assert len(appended) == MESSAGES + 1


async def test_a_killed_process_on_a_full_disk_loses_nothing_and_starts_again(disk: Disk):
    """A process that found no room leaves the files to the next one as it found them."""
    disk.start()
    for number in range(1, MESSAGES + 1):
        await append(disk, number)
    await disk.kill()
    disk.fill()
    for _ in range(2):
        disk.start()
        assert await window(disk) == numbers(MESSAGES)
        await disk.kill()
    disk.start()
    assert await window(disk) == numbers(MESSAGES)
    assert await disk.stop() == 0
    disk.start()
    assert await window(disk) == numbers(MESSAGES)
    disk.make_room()

    assert await append(disk, MESSAGES + 1) == MESSAGES + 1


async def test_a_first_start_says_that_there_is_no_room(disk: Disk):
    """No log is there to be read, and none is begun; the next start with room makes it."""
    disk.fill()
    disk.start()

    assert await disk.ended() == 1
    assert f"cannot open {disk.log_path}: its volume has no room" in disk.errors()
    assert "make room, then start again" in disk.errors()

    disk.make_room()
    disk.start()
    assert await append(disk, 1) == 1


async def test_the_search_index_needs_no_room_either(disk: Disk):
    """The index lies on the same volume; a search finds what was indexed before."""
    disk.command += ("--set", "recall.index=words")
    disk.start()
    for number in range(1, MESSAGES + 1):
        await append(disk, number)
    async with asyncio.timeout(PATIENCE_S):
        while await hits(disk) < MESSAGES:
            pass
    assert await disk.stop() == 0
    disk.fill()
    disk.start()

    assert await window(disk) == numbers(MESSAGES)
    assert await hits(disk) == MESSAGES
    async with refused("RESOURCE_EXHAUSTED", "LOG_FULL"):
        await append(disk, MESSAGES + 1)


async def hits(disk: Disk) -> int:
    """Return how many messages are in the exchanges that a search for their word finds."""
    async with disk.channel() as channel:
        found = await ConversationServiceStub(channel).SearchHistory(
            conversation_service_pb2.SearchHistoryRequest(conversation_id="c", query=WORD, page_size=2 * MESSAGES),
            timeout=CALL_S,
            wait_for_ready=True,
        )
    return sum(hit.exchange.last - hit.exchange.first + 1 for hit in found.hits)
