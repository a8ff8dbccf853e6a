"""A sidecar whose disk is recorded, under writers that never give up; and its log after any of many power cuts."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from abridged.eventlog.errors import EventLogError
from abridged.eventlog.sqlite.log import SqliteEventLog
from abridged.v1 import conversation_pb2, conversation_service_pb2, message_pb2
from abridged.v1.conversation_service_pb2_grpc import ConversationServiceStub
from tests.support.crash_audit import Audit, Ledger, SentMessage
from tests.support.crash_facts import stored_facts
from tests.support.crash_process import CALL_S, SidecarProcess
from tests.support.crash_writers import Writers
from tests.support.patience import PATIENCE_S
from tests.support.power_cut import Disk, Image, now
from tests.support.recorded_disk import Kind, Step, Trace

_ROOT = Path(__file__).parents[2]
_RECORDED = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from tests.support.recorded_disk import record
record(sys.argv.pop(1), sys.argv.pop(1))
from abridged.service.cli.main import main
main()
"""
_MEMORY = Path("/dev/shm")
LARGE_BYTES = 200_000
LARGE_LENGTH = 100_000_000
"""Context length, in tokens, of a conversation whose messages no pass will ever read."""
FILE = "log.db"
CUTS_A_PASS = 50
"""Images that share the writes of a failed flush."""


@dataclass
class _TracedLedger(Ledger):
    """Adds each acknowledgement to the trace of the disk, no earlier than the client has it."""

    trace: Trace = field(kw_only=True)
    _grown: asyncio.Event = field(default_factory=asyncio.Event)

    def ack(self, conversation: str, message_id: str, number: int) -> None:
        super().ack(conversation, message_id, number)
        self.trace.add(Step(Kind.ACK, f"{conversation}/{message_id}", number))
        self._grown.set()

    async def more(self, count: int) -> None:
        """Wait until `count` further messages are acknowledged."""
        wanted = len(self.acked) + count
        async with asyncio.timeout(PATIENCE_S):
            while len(self.acked) < wanted:
                self._grown.clear()
                await self._grown.wait()


@dataclass
class Recorded:
    """A sidecar in a process of its own, its trace, and its clients' knowledge."""

    sidecar: SidecarProcess
    trace: Trace
    ledger: _TracedLedger
    writers: Writers

    async def live(self, *, acked: int) -> None:
        """Start a process and wait until it has acknowledged `acked` further messages, some of new conversations."""
        self.writers.generation += 1
        self.sidecar.start()
        await self.ledger.more(acked)

    async def append_large(self, count: int) -> None:
        """Append large messages to a conversation of their own, one after the other."""
        async with self.sidecar.channel() as channel:
            for number in range(count):
                sent = SentMessage("large", "large", str(number), f"{number} {'x' * LARGE_BYTES}")
                self.ledger.send(sent)
                request = conversation_service_pb2.AppendMessagesRequest(
                    conversation_id=sent.conversation,
                    settings=conversation_pb2.ConversationSettings(context_length=LARGE_LENGTH),
                    messages=[message_pb2.Message(id=sent.id, role=message_pb2.ROLE_USER, content=sent.content)],
                )
                response = await ConversationServiceStub(channel).AppendMessages(request, timeout=CALL_S)
                self.ledger.ack(sent.conversation, sent.id, response.messages[0].number)

    def steps(self) -> list[Step]:
        """The whole trace, when no process runs. The trace misses nothing that was done to the files."""
        steps = list(self.trace.steps())
        files = (self.sidecar.log_path, *map(self.sidecar.log_path.with_name, ("log.db-wal", "log.db-journal")))
        assert now(steps) == {path.name: path.read_bytes() for path in files if path.exists()}
        return steps


def recorded_process(folder: str) -> tuple[SidecarProcess, Trace]:
    """A sidecar whose log and trace lie in `folder`."""
    log = Path(folder).resolve() / "log.db"
    trace = log.with_name("trace")
    command = (sys.executable, "-c", _RECORDED, str(_ROOT), str(log), str(trace), "serve")
    return SidecarProcess(log.parent, command), Trace(trace)


@asynccontextmanager
async def recorded(*, writing: int, seed: int) -> AsyncIterator[Recorded]:
    """A number of writers and the sidecar that they write to, not yet started."""
    with TemporaryDirectory(prefix="cut-") as folder:
        sidecar, trace = recorded_process(folder)
        ledger = _TracedLedger(trace=trace)
        channels = [sidecar.channel() for _ in range(writing)]
        writers = Writers(channels, ledger, seed)
        writers.start()
        try:
            yield Recorded(sidecar, trace, ledger, writers)
        finally:
            await writers.cancel()
            for channel in channels:
                await channel.close()
            sidecar.abandon()


Span = tuple[int, int]
"""Two places in a trace, as numbers of the steps before them."""


@dataclass(frozen=True)
class Cut:
    """The files found after one power cut, and the messages acknowledged before it."""

    at: int
    """The number of steps of the trace before the cut."""
    image: Image
    acked: dict[tuple[str, str], int]


def lives(steps: Sequence[Step]) -> list[Span]:
    """Return the span in which each process lived."""
    starts = [at for at, step in enumerate(steps, 1) if step.kind is Kind.START]
    return list(pairwise([*starts, len(steps)]))


def until_flushed(steps: Sequence[Step]) -> list[Span]:
    """Return the spans in which a process has not yet flushed the file, into which it copies the files it found."""
    return [(begin, _first_flush(steps, begin, end)) for begin, end in lives(steps)]


def _first_flush(steps: Sequence[Step], begin: int, end: int) -> int:
    flushes = (at for at in range(begin, end) if steps[at].kind is Kind.FLUSH and steps[at].name == FILE)
    return next(flushes, end)


def cuts(
    steps: Sequence[Step], spans: Sequence[Span], *, count: int, seed: int, ignored_flushes: bool = False
) -> Iterator[Cut]:
    """`count` power cuts anywhere in the spans, as many in each as in the others."""
    chance = random.Random(seed)
    spread = [spans[number % len(spans)] for number in range(count)]
    while spread:
        wanted = sorted(chance.randint(*span) for span in spread[:CUTS_A_PASS])
        del spread[:CUTS_A_PASS]
        disk, acked, taken = Disk(ignores_flushes=ignored_flushes), dict[tuple[str, str], int](), 0
        for at in wanted:
            for step in steps[taken:at]:
                disk.take(step, chance)
                if step.kind is Kind.ACK:
                    conversation, _, message = step.name.partition("/")
                    acked[conversation, message] = step.offset
            taken = at
            yield Cut(at, disk.image(chance), dict(acked))


def bad_images(cut_off: Iterable[Cut], ledger: Ledger) -> list[str]:
    """Return a violation for each image that lacks something acknowledged, each opened as a start opens it."""
    with TemporaryDirectory(prefix="image-", dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        found = (_violation(cut, ledger, Path(folder) / str(number)) for number, cut in enumerate(cut_off))
        return [violation for violation in found if violation]


def _violation(cut: Cut, ledger: Ledger, folder: Path) -> str:
    folder.mkdir()
    for name, content in cut.image.items():
        (folder / name).write_bytes(content)
    audit = Audit()
    try:
        log = SqliteEventLog.open(folder / "log.db", clock_us=lambda: 0)
        try:
            audit.take(stored_facts(log))
        finally:
            log.close()
    except (EventLogError, sqlite3.Error) as error:
        audit.violations.append(f"{type(error).__name__}: {error}")
    else:
        audit.check_messages(ledger, cut.acked)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    return "" if not audit.violations else f"cut after step {cut.at}: {'; '.join(audit.violations[:3])}"
