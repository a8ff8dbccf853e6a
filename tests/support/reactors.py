"""A reactor over a log in memory, whose commits fail as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from abridged.eventlog.errors import EventLogError
from abridged.eventlog.event import StreamId
from abridged.eventlog.log import Committed
from abridged.eventlog.memory import MemoryEventLog
from abridged.observability.metrics import Metrics
from abridged.observability.tracing import SilentTracing
from abridged.service.codec.values import canonical, message_to_proto
from abridged.service.conversations.append_request import AppendRequest
from abridged.service.conversations.conversation_log import ConversationLog
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.counting import Counting
from abridged.service.conversations.policies import Policies
from abridged.service.conversations.table import ConversationTable
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import (
    Event,
    Settings,
    SummarizationCompleted,
    SummarizationRequested,
    SummarizationStarted,
    Trigger,
)
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import Policy
from abridged.service.models.scripted.model import ScriptedModel
from abridged.service.passes.claims import Claims
from abridged.service.passes.commits import CommitPauses, PassCommits
from abridged.service.passes.preparations import Preparations
from abridged.service.passes.reactor import Reactor, ReactorLimits
from abridged.service.passes.run import PassRunner
from abridged.service.passes.source import PassSource
from abridged.service.summarizer.summarizer import Summarizers
from abridged.service.telemetry.progress import ProgressBoard
from abridged.service.telemetry.telemetry import Telemetry, metric_labels
from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.patience import PATIENCE_S
from tests.support.summarizers import by_extraction, by_model

A, B, C = (StreamId("default", name) for name in "abc")
AN_HOUR_S = 3_600.0
ROLES = (Role.USER, Role.ASSISTANT)


class Moody(ScriptedModel):
    """A model that somebody else uses as long as a test says so."""

    busy = False

    async def idle(self) -> bool:
        """See SummaryModel."""
        return not self.busy


class ReactorBench:
    """A reactor with `workers` for passes that ask a model, under `policy`.

    `refuse` says, by stream and first event, with which error a commit fails.
    """

    workers = 1

    def __init__(self, *, pauses: CommitPauses, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.now_us = 1_700_000_000_000_000
        self.refused = asyncio.Event()
        self.commits: list[tuple[StreamId, str]] = []
        self.refuse: Callable[[StreamId, str], EventLogError | None] = lambda _key, _type: None
        self.table = ConversationTable()
        self.log = MemoryEventLog(clock_us=self.clock_us, hook=self._hook)
        self.completed: dict[StreamId, asyncio.Event] = {key: asyncio.Event() for key in (A, B, C)}
        self.claimed = asyncio.Event()
        self._ids = 0
        self.requested: dict[StreamId, list[Trigger]] = {A: [], B: [], C: []}
        self.remade = asyncio.Event()
        self.model = Moody([default_record], clock=asyncio.get_running_loop().time)
        self.claims = Claims(None, owner="bench")
        self.conversations = self.opened()
        self.metrics = Metrics(version="1", labels=metric_labels(models=("scripted:default",)))
        self.telemetry = Telemetry(self.metrics, SilentTracing(), ProgressBoard(), log_content=False)
        self.reactor = self.made(pauses)

    def opened(self) -> Conversations:
        """Return the conversations as a process knows them when it opens the log."""
        return Conversations(
            ConversationLog(self.log, table=self.table, new_id=self.new_id, traceparent=str),
            policies=Policies(lambda *_: self.policy, client_fields=frozenset()),
            counting=Counting(EstimatingCounter()),
            clock_us=self.clock_us,
            new_id=self.new_id,
            on_changed=self._changed,
            on_loaded=lambda key, state: None,
        )

    def made(self, pauses: CommitPauses, summarizers: Summarizers | None = None) -> Reactor:
        """A reactor on the conversations."""
        clock_s = asyncio.get_running_loop().time
        counter = EstimatingCounter()
        return Reactor(
            self.conversations,
            summarizers=summarizers or Summarizers(by_model(self.model), by_extraction()),
            counter=counter,
            hash_key=b"key",
            clock_s=clock_s,
            telemetry=self.telemetry,
            limits=ReactorLimits(concurrent_passes=self.workers, queue_max=10, multi_tenant=False),
            claims=self.claims,
            table=self.table,
            pauses=pauses,
        )

    def runner(self) -> PassRunner:
        """Return a runner of single passes of the conversations."""
        clock_s = asyncio.get_running_loop().time
        source = PassSource(self.conversations.log, EstimatingCounter())
        summarizers = Summarizers(by_model(self.model), by_extraction())
        return PassRunner(
            self.conversations,
            summarizers=summarizers,
            commits=PassCommits(self.conversations, claims=self.claims, pauses=CommitPauses(), hash_key=b"key"),
            claims=self.claims,
            preparations=Preparations(
                self.conversations,
                summarizers=summarizers,
                source=source,
                telemetry=self.telemetry,
                clock_s=clock_s,
                workers=self.workers,
                multi_tenant=False,
            ),
            telemetry=self.telemetry,
            source=source,
            clock_s=clock_s,
            on_model_answered=lambda: None,
        )

    def clock_us(self) -> int:
        """Moves by a microsecond when it is asked."""
        self.now_us += 1
        return self.now_us

    def new_id(self) -> str:
        """The next id."""
        self._ids += 1
        return f"id-{self._ids}"

    async def trigger(self, key: StreamId, turns: range = range(14)) -> None:
        """Append these turns, of 120 tokens each, in a window of 2,000, which trigger a pass."""
        messages = tuple(
            Message(f"{key.name}{n}", ROLES[n % 2], f"Turn {n}: the importer reads orders_{n}.", token_count=120)
            for n in turns
        )
        contents: Mapping[str, bytes] = {m.id: canonical(message_to_proto(m)) for m in messages}
        await self.conversations.append(key, AppendRequest(messages, contents, lambda: Settings(context_length=2_000)))

    async def until_completed(self, key: StreamId) -> None:
        """Wait for the record."""
        async with asyncio.timeout(PATIENCE_S):
            await self.completed[key].wait()

    def attempts(self, key: StreamId, event: type[Event]) -> int:
        """Return how often a commit of this event was tried."""
        return self.commits.count((key, event.__name__))

    def _hook(self, transaction: Any, committed: Sequence[Committed]) -> None:
        for commit in committed:
            first = commit.events[0].type
            self.commits.append((commit.stream, first))
            if (error := self.refuse(commit.stream, first)) is not None:
                self.refused.set()
                raise error
        self.table.project(transaction, committed)

    def _changed(self, key: StreamId, state: Conversation, events: Sequence[Event]) -> None:
        self.reactor.changed(key, state, events)
        self.requested[key] += [e.plan.trigger for e in events if isinstance(e, SummarizationRequested)]
        if Trigger.REMAKE in self.requested[key]:
            self.remade.set()
        if any(isinstance(e, SummarizationStarted) for e in events):
            self.claimed.set()
        if any(isinstance(e, SummarizationCompleted) for e in events):
            self.completed[key].set()


def default_record(request: Any) -> str:
    return (
        '{"summary": "The importer reads orders.", "key_points": [], "participants": [], "decisions": [],'
        ' "action_items": [], "unresolved": [], "domain_entities": []}'
    )
