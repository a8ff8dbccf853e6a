"""Sidecars on one log in PostgreSQL that are killed and stopped, the model that all of them ask, and clients that go on
with whichever sidecar answers.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import time_ns
from typing import Any

import psycopg
from google.protobuf.duration_pb2 import Duration

from abridged.eventlog.log import EventFilter
from abridged.eventlog.postgres.connections import Address
from abridged.eventlog.postgres.log import PostgresEventLog
from abridged.service.codec.events import decode
from abridged.service.domain.events import SummarizationCompleted, SummarizationFailed
from abridged.v1 import conversation_pb2, message_pb2
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1.conversation_service_pb2_grpc import ConversationServiceStub
from tests.support.crash_audit import Audit, Ledger, SentMessage
from tests.support.crash_facts import stored_facts
from tests.support.crash_process import SidecarProcess, until_answered
from tests.support.ollama_responder import Ask, Piece, honest_answer
from tests.support.openai_server import FAKE_MODEL, FakeOpenAI
from tests.support.patience import PATIENCE_S

SIDECARS = 4
LEASE_S = 1.5
STOPS_S = (1.5 * LEASE_S, 2 * LEASE_S, 3 * LEASE_S)
"""Seconds that a process is stopped: others claim its passes meanwhile."""

BETWEEN_STRIKES_S = 3.0

CHATS = 16
BETWEEN_STRIKES_TRIGGERS = CHATS
"""Triggers from one strike to the next, however slow the machine is: where strikes came faster than processes start,
none would be left to go on."""

BATCH = 2
MESSAGE_TOKENS = 800
CONTEXT_LENGTH = 2_000
"""Tokens; small, so that each batch triggers a pass."""

CHAT_BATCHES = 60
"""A longer chat is followed by a new one, so that each is folded quickly after a start."""

CALL_S = 4.0
WAIT_S = 3.0
"""Seconds that an append waits for the pass that it triggers."""

LOOK_S = 0.2
STOPS_MIN = 2

ANSWERS_AFTER_S = (0.02, 0.2)

_ENVIRON = {
    "ABRIDGED_SUMMARIZER__MODELS": f"openai:{FAKE_MODEL}",
    "ABRIDGED_SUMMARIZER__DEADLINE_S": "30",
    "ABRIDGED_SUMMARIZER__QUEUE_MAX": "10000",
    "ABRIDGED_POLICY__FALLBACK": "never",
    "ABRIDGED_RECALL__INDEX": "off",
    **{
        f"ABRIDGED_POLICY__{name}": "0"
        for name in (
            "MIN_MESSAGES",
            "MIN_SHARED_WORDS",
            "MIN_GROUNDED_SHARE",
            "MIN_COVERAGE",
            "MIN_CARRIED_SHARE",
            "MAX_REPETITION",
            "REPAIR_ATTEMPTS",
        )
    },
}

_NEW = """
SELECT e.position, t.name FROM events AS e JOIN types AS t ON t.log = e.log AND t.id = e.type
WHERE e.position > %s ORDER BY e.position
"""
_PENDING = "SELECT id FROM conversations WHERE pending_pass <> ''"
_ANY = api.GetConversationRequest(conversation_id="chat-0-0")
_ENDS = ("SummarizationCompleted", "SummarizationFailed")
_TEXT = "Rack {n} of hall {client} is full."


@dataclass
class Strikes:
    """Kills and stops of sidecars, in turns; one sidecar at a time, so that the others can go on."""

    sidecars: list[SidecarProcess]
    passes: Passes
    rng: Random
    kills: int = 0
    stops: int = 0
    refused: int = 0
    _is_ending: bool = False
    _killing: SidecarProcess | None = None

    def finish(self) -> None:
        """End after the next strike."""
        self._is_ending = True

    async def restart(self) -> None:
        """Start again, until cancelled, whichever sidecar could not open the log: a stopped one may hold its lock."""
        while True:
            for sidecar in self.sidecars:
                if sidecar is not self._killing and sidecar.has_ended:
                    assert "LogUnavailable: 55P03" in sidecar.errors(), sidecar.errors()
                    self.refused += 1
                    sidecar.start()
            await asyncio.sleep(LOOK_S)

    async def run(self) -> None:
        """Strike until `finish`; every process runs then."""
        due = 0
        while not self._is_ending:
            await asyncio.sleep(self.rng.uniform(0.0, BETWEEN_STRIKES_S))
            if self.passes.requested < due:
                continue
            due = self.passes.requested + BETWEEN_STRIKES_TRIGGERS
            target = self.rng.choice([sidecar for sidecar in self.sidecars if not sidecar.has_ended])
            if self.kills <= self.stops:
                self.kills += 1
                self._killing = target
                await target.kill()
                target.start()
                self._killing = None
            else:
                target.freeze()
                await asyncio.sleep(self.rng.choice(STOPS_S))
                target.thaw()
                self.stops += 1


@dataclass
class Passes:
    """Counts the passes that the log has requested, by looks at its end, and those that the read table has pending."""

    url: str
    requested: int = 0
    pending: int = 0
    _after: int = 0

    async def look(self) -> None:
        """Count those that are new."""
        await asyncio.to_thread(self._look)

    def _look(self) -> None:
        with psycopg.connect(self.url) as connection:
            if connection.execute("SELECT to_regclass('conversations')").fetchone() == (None,):
                return  # no sidecar has made the log yet
            for position, name in connection.execute(_NEW, (self._after,)).fetchall():
                self._after = position
                self.requested += name == "SummarizationRequested"
            self.pending = len(connection.execute(_PENDING).fetchall())


@dataclass
class Model:
    """The model of all sidecars, which counts its calls."""

    rng: Random
    calls: int = 0

    async def respond(self, ask: Ask) -> AsyncIterator[Piece]:
        """Answer after a while, in one piece."""
        self.calls += 1
        await asyncio.sleep(self.rng.uniform(*ANSWERS_AFTER_S))
        yield Piece(content=honest_answer(ask))
        yield Piece(done_reason="stop")


@dataclass
class Clients:
    """Tasks that append to a chat each, again with the same ids until some sidecar acknowledges it."""

    stubs: list[Any]
    rng: Random
    ledger: Ledger = field(default_factory=Ledger)
    _is_ending: bool = False

    async def talk(self, client: int) -> None:
        """Append batches until `finish`."""
        written = 0
        while not self._is_ending:
            request = self._request(client, written)
            written += BATCH
            answer = await until_answered(partial(self._sent, request), retried=self.ledger.retry)
            for appended in answer.messages:
                self.ledger.ack(request.conversation_id, appended.id, appended.number)
            self.ledger.requests_acked += 1

    def finish(self) -> None:
        """End each client after its next acknowledgement."""
        self._is_ending = True

    async def _sent(self, request: api.AppendMessagesRequest) -> Any:
        return await self.rng.choice(self.stubs).AppendMessages(request, timeout=CALL_S)

    def _request(self, client: int, written: int) -> api.AppendMessagesRequest:
        chat = f"chat-{client}-{written // BATCH // CHAT_BATCHES}"
        request = api.AppendMessagesRequest(
            conversation_id=chat,
            settings=conversation_pb2.ConversationSettings(context_length=CONTEXT_LENGTH),
            wait=Duration(seconds=int(WAIT_S)),
        )
        for number in range(written, written + BATCH):
            message = SentMessage(f"w{client}", chat, f"m{number}", _TEXT.format(n=number, client=client))
            self.ledger.send(message)
            role = message_pb2.ROLE_USER if number % 2 else message_pb2.ROLE_ASSISTANT
            request.messages.append(
                message_pb2.Message(id=message.id, role=role, content=message.content, token_count=MESSAGE_TOKENS)
            )
        return request


async def struck(url: str, *, triggers: int, seed: int) -> dict[str, int]:
    """Strike sidecars until the log has the triggers, let every pass end, and audit the log. Return the figures."""
    rng = Random(seed)
    model, passes = Model(rng), Passes(url)
    async with FakeOpenAI(responder=model.respond) as server, _sidecars(url, server.url) as sidecars:
        async with _stubs(sidecars) as stubs, asyncio.TaskGroup() as restarts:
            clients, strikes = Clients(stubs, rng), Strikes(sidecars, passes, rng)
            restarting = restarts.create_task(strikes.restart())
            async with asyncio.TaskGroup() as tasks:
                for client in range(CHATS):
                    tasks.create_task(clients.talk(client))
                tasks.create_task(strikes.run())
                async for _ in _looks(passes):
                    if passes.requested >= triggers and strikes.stops >= STOPS_MIN:
                        break
                clients.finish()
                strikes.finish()
            async with asyncio.timeout(PATIENCE_S):
                async for _ in _looks(passes):
                    if passes.pending == 0:
                        break
            for stub in stubs:
                await until_answered(partial(stub.GetConversation, _ANY, timeout=PATIENCE_S, wait_for_ready=True))
            restarting.cancel()
        assert [await sidecar.stop() for sidecar in sidecars] == [0] * SIDECARS
    return _audited(url, clients.ledger, model.calls) | {
        "requests_acked": clients.ledger.requests_acked,
        "retries": clients.ledger.retries,
        "kills": strikes.kills,
        "stops": strikes.stops,
        "starts_refused": strikes.refused,
    }


async def _looks(passes: Passes) -> AsyncIterator[None]:
    """Look at the passes now and then."""
    while True:
        await passes.look()
        yield
        await asyncio.sleep(LOOK_S)


@asynccontextmanager
async def _sidecars(url: str, model_url: str) -> AsyncIterator[list[SidecarProcess]]:
    # A socket's path has a hundred characters at most, and pytest's own folders are deep.
    with TemporaryDirectory(prefix="struck-") as folder:
        command = (sys.executable, "-m", "tests.support.leased_sidecar", str(LEASE_S))
        environ = {**_ENVIRON, "ABRIDGED_LOG__URL": url, "ABRIDGED_OPENAI__URL": model_url}
        sidecars = [SidecarProcess(Path(folder) / str(number), command, environ=environ) for number in range(SIDECARS)]
        try:
            for sidecar in sidecars:
                sidecar.folder.mkdir()
                sidecar.start()
            yield sidecars
        finally:
            for sidecar in sidecars:
                sidecar.abandon()


@asynccontextmanager
async def _stubs(sidecars: Sequence[SidecarProcess]) -> AsyncIterator[list[Any]]:
    channels = [sidecar.channel() for sidecar in sidecars]
    try:
        yield [ConversationServiceStub(channel) for channel in channels]
    finally:
        for channel in channels:
            await channel.close()


def _audited(url: str, ledger: Ledger, calls: int) -> dict[str, int]:
    """Compare the log with the clients' messages and the acknowledged ones, and count the calls of ended passes."""
    audit = Audit()
    with closing(PostgresEventLog.open(Address(url), clock_us=lambda: time_ns() // 1_000)) as log:
        audit.take(stored_facts(log))
        counted = _calls_of_ends(log)
    audit.check_messages(ledger, ledger.acked)
    audit.check_passes()
    assert audit.violations == []
    assert set(ledger.acked) == set(ledger.sent), "a client ends only after its acknowledgement"
    return audit.figures() | {"model_calls": calls, "extra_model_calls": calls - counted}


def _calls_of_ends(log: PostgresEventLog) -> int:
    """The model calls that records and failures say they took."""
    calls, after, head = 0, 0, log.head()
    while after < head:
        page = log.scan(after=after, matching=EventFilter(types=frozenset(_ENDS)))
        for recorded in page.events:
            event = decode(recorded.type, recorded.schema_version, recorded.payload)
            if isinstance(event, SummarizationCompleted):
                calls += event.record.attempts
            elif isinstance(event, SummarizationFailed):
                calls += event.attempts
        after = page.cursor
    return calls
