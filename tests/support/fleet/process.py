"""A sidecar without its servers, on a loop of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, cast

from abridged.eventlog.errors import EventLogError
from abridged.eventlog.event import StreamId
from abridged.eventlog.log import EventLog
from abridged.observability.metrics import Metrics
from abridged.observability.tracing import SilentTracing
from abridged.service.codec.values import canonical, message_to_proto
from abridged.service.conversations.append_request import AppendRequest
from abridged.service.conversations.cache import ConversationCache
from abridged.service.conversations.conversation_log import ConversationLog
from abridged.service.conversations.counting import Counting
from abridged.service.conversations.policies import Policies
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import Settings
from abridged.service.domain.message import Message
from abridged.service.domain.policy import Fallback, Policy
from abridged.service.passes.claims import LEASE_S
from abridged.service.passes.commits import CommitPauses
from abridged.service.passes.reactor import Reactor, ReactorLimits
from abridged.service.summarizer.summarizer import Summarizers
from abridged.service.telemetry.progress import ProgressBoard
from abridged.service.telemetry.telemetry import Telemetry, metric_labels
from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.fleet.faults import Bug, Fault, Point
from tests.support.fleet.model import Model
from tests.support.fleet.planted import claims_with, conversations_with
from tests.support.fleet.wires import Wire, WiredLeases, WiredTable
from tests.support.histories import Ack

if TYPE_CHECKING:
    from tests.support.fleet.fleet import Fleet


POLICY = Policy(
    min_messages=3,
    preserve_recent=2,
    cooldown_messages=1,
    max_ledger_tokens=0,
    rules_token_ratio=0.0,
    fallback=Fallback.NEVER,
)
SLOW_S = (0.0, 2.0, LEASE_S * 0.9, LEASE_S * 1.2)
"""Seconds that a call of the leases, and its answer, may be under way."""

_METRICS = Metrics(version="1", labels=metric_labels())


class Process:
    """A sidecar without its servers."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.fleet = fleet
        self.name = name
        self.loop = fleet.time.loop()
        self.is_serving = self.is_leaving = False
        self.claim_sent_s: dict[StreamId, float] = {}
        self.sent_until_s: dict[StreamId, float] = {}
        self.asking: Counter[str] = Counter()
        self.skew_us = fleet.rng.choice([-1, 1]) * 40_000_000 if fleet.has(Fault.WRONG_CLOCK, 0.5) else 0
        self.loop.delays = self._delays
        self._tasks: set[asyncio.Task[Any]] = set()
        self.call(self._begin)

    def call(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run something in the process, if it lives."""

        def begin() -> None:
            task = self.loop.create_task(work())
            self._tasks.add(task)
            task.add_done_callback(self._ended)

        if not self.loop.is_dead:
            self.loop.call_soon(begin)

    def kill(self) -> None:
        """End it at once."""
        self.asking.clear()
        self.is_serving = False
        self.loop.kill()

    def leave(self) -> None:
        """Stop it in good order."""
        if self.is_serving:
            self.is_serving, self.is_leaving = False, True
            self.fleet.seen["stopped in good order"] += 1
            self.call(self._leave)

    @property
    def is_gone(self) -> bool:
        """True if the process is dead or stops."""
        return self.loop.is_dead or self.is_leaving

    def is_asking(self, pass_id: str) -> bool:
        """Return whether the process is in a call of a model for a pass and could end it."""
        return self.asking[pass_id] > 0 and not self.loop.is_stopped

    def known(self, key: StreamId) -> Conversation | None:
        """The state that it has in memory."""
        return self.cache.get(key)

    async def append(
        self, key: StreamId, messages: list[Message], called_s: float, answered: Callable[[Ack | None], None]
    ) -> None:
        """Append for a client, which is answered unless the process dies."""
        contents: Mapping[str, bytes] = {m.id: canonical(message_to_proto(m)) for m in messages}
        request = AppendRequest(tuple(messages), contents, lambda: Settings(context_length=2_000))
        try:
            appended = await self.conversations.append(key, request)
        except EventLogError:
            answered(None)
            return
        new = [
            (placed.position, self.conversations.log.message_event_id(key, placed.id))
            for placed in appended.messages
            if placed.position
        ]
        answered(Ack(tuple(new), called_s, self.fleet.time.now_s))

    async def _begin(self) -> None:
        fleet, counter = self.fleet, EstimatingCounter()
        bugs = fleet.bugs
        wire = Wire(self, fleet.log)
        self.cache = ConversationCache()
        self.conversations = conversations_with(bugs)(
            ConversationLog(cast(EventLog, wire), table=fleet.table, new_id=self.new_id, traceparent=str),
            policies=Policies(lambda *_: POLICY, client_fields=frozenset()),
            counting=Counting(counter),
            clock_us=lambda: fleet.clock_us() + self.skew_us,
            new_id=self.new_id,
            on_changed=lambda key, state, events: self.reactor.changed(key, state, events),
            on_loaded=lambda key, state: self.reactor.loaded(key, state),
            on_caught_up=lambda key, state: self.reactor.caught_up(key, state),
            cache=self.cache,
        )
        self.conversations.fleet = fleet
        claims = claims_with(bugs)(
            WiredLeases(self, fleet.leases), owner="one" if Bug.SHARED_OWNER in bugs else self.name
        )
        claims.fleet, claims.process = fleet, self
        model, extraction = Model(self, calls=(1, 1, 2, 3)), Model(self, calls=(0,))
        self.reactor = Reactor(
            self.conversations,
            summarizers=Summarizers(model, extraction),
            counter=counter,
            hash_key=b"key",
            clock_s=self.loop.time,
            telemetry=Telemetry(_METRICS, SilentTracing(), ProgressBoard(), log_content=False),
            limits=ReactorLimits(concurrent_passes=2, queue_max=100, multi_tenant=False),
            claims=claims,
            table=WiredTable(self),
            pauses=CommitPauses(first_s=0.25, max_s=5.0),
        )
        self.reactor.start(await asyncio.to_thread(fleet.table.attention))
        self.is_serving = True

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fleet.witness.wrong.append(f"{self.name} failed: {error!r}")

    async def _leave(self) -> None:
        await self.reactor.stop(grace_s=self.fleet.rng.choice([0.1, 5.0]))
        self.fleet.time.later(1.0, lambda: None if self.loop.is_dead else self.kill())

    def _delays(self, work: Any) -> tuple[float, float]:
        asked = getattr(getattr(work, "func", None), "__self__", None)
        rng = self.fleet.rng
        if isinstance(asked, WiredLeases):
            self.fleet.at(Point.RENEWAL_SENT, self)
        if isinstance(asked, WiredLeases) and self.fleet.has(Fault.SLOW_LEASES, 0.6):
            return rng.choice(SLOW_S), rng.choice(SLOW_S)
        return 0.0, rng.uniform(0.0, 0.002)

    def new_id(self) -> str:
        return f"{self.fleet.rng.getrandbits(64):016x}"
