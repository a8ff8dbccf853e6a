"""Several sidecars on one log, simulated: reactor, queue, claims, lookout and conversations are the product's own, on
loops in virtual time; the log is in memory behind a wire that loses answers, and the model is an actor.

A seed draws which kinds of faults a run has, and when they come, so that the same seed is the same run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from typing import Any, cast

from abridged.eventlog.errors import EventLogError, LogCorrupt, LogUnavailable
from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.eventlog.log import Append, AppendResult, CompletionQueue, EventLog, Outcome
from abridged.eventlog.memory import MemoryEventLog
from abridged.eventlog.rows import MemoryRows
from abridged.observability.metrics import Metrics
from abridged.observability.tracing import SilentTracing
from abridged.service.codec.events import decode
from abridged.service.codec.values import canonical, message_to_proto
from abridged.service.conversations.append_request import AppendRequest
from abridged.service.conversations.cache import ConversationCache
from abridged.service.conversations.conversation_log import ConversationLog
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.counting import Counting
from abridged.service.conversations.policies import Policies
from abridged.service.conversations.row import READ_TABLE
from abridged.service.conversations.table import Attention, ConversationTable
from abridged.service.domain.commands import Command, CompletePass, FailPass, StartPass
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import PassSuperseded
from abridged.service.domain.events import (
    ErrorClass,
    Event,
    Settings,
    SummarizationCompleted,
    SummarizationFailed,
    SummarizationReleased,
    SummarizationRequested,
    SummarizationSkipped,
    SummarizationStarted,
)
from abridged.service.domain.fold import fold
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import Fallback, Policy
from abridged.service.domain.record import Provenance, RecordEvidence, RecordQuality
from abridged.service.passes.claims import LEASE_S, Claim, Claims
from abridged.service.passes.commits import CommitPauses
from abridged.service.passes.reactor import Reactor, ReactorLimits
from abridged.service.passes.run import CLAIMS_MAX
from abridged.service.prompts.prompt import CHAIN_TEMPLATE
from abridged.service.summarizer.draft import Draft
from abridged.service.summarizer.summarizer import Observer, PassFailed, PassWork, Summarizers, Summary
from abridged.service.telemetry.progress import ProgressBoard
from abridged.service.telemetry.telemetry import Telemetry, metric_labels
from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.histories import Ack, Turn, contradictions, unlike_passes
from tests.support.leases import MemoryLeases
from tests.support.virtual_loops import VirtualTime

BEGUN_US = 1_700_000_000_000_000
SLACK_S = 0.05
"""Seconds that a process may go on after its lease has lapsed, for the turns that were due before."""

FAULTY_S = 150.0
"""How long faults happen."""

SETTLED_WITHIN_S = 3_600.0
CALM_S = 4 * LEASE_S
PATIENCE_S = 20.0
"""How long a client waits for an answer."""

POLICY = Policy(
    min_messages=3,
    preserve_recent=2,
    cooldown_messages=1,
    max_ledger_tokens=0,
    rules_token_ratio=0.0,
    fallback=Fallback.NEVER,
)
TOKENS_EACH = 300
"""The tokens of a message, five of which fill a window so far that a pass is due."""

_METRICS = Metrics(version="1", labels=metric_labels())


class Fault(StrEnum):
    """A kind of fault that a run may have."""

    KILLED = "killed"
    STOPPED = "stopped"
    RESTARTED = "restarted"
    SLOW_MODEL = "slow model"
    FAILING_MODEL = "failing model"
    REFUSED_COMMIT = "refused commit"
    UNANSWERED_COMMIT = "unanswered commit"
    SLOW_COMMIT = "slow commit"
    SLOW_LEASES = "slow leases"
    NO_LEASES = "no leases"
    BLIND_LOOKOUT = "blind lookout"
    WRONG_CLOCK = "wrong clock"


AT_POINTS = (Fault.KILLED, Fault.STOPPED)
"""Those that happen at a point of a pass; each run has one of them."""

OTHER_FAULTS_MAX = 6
"""Of other kinds in one run: among many faults few passes come as far as the last of them."""


class Point(StrEnum):
    """A place in the course of a pass where a process may be killed or stopped."""

    CLAIM_SENT = "claim sent"
    CLAIM_COMMITTED = "claim committed"
    CLAIM_CHECKED = "claim checked"
    MODEL_ASKED = "model asked"
    MODEL_ANSWERED = "model answered"
    END_SENT = "end sent"
    END_COMMITTED = "end committed"
    RELEASE_SENT = "release sent"
    RENEWAL_SENT = "renewal sent"
    RENEWAL_ANSWERED = "renewal answered"


SHARES = {Point.END_SENT: 0.15, Point.CLAIM_CHECKED: 0.2}
"""How often a fault happens at a point, where it is not 0.04: what is checked there may be over afterwards."""


class Bug(StrEnum):
    """A bug that a run may have planted."""

    NO_FENCE = "an end is written under whatever claim is the newest"
    COUNTED_FROM_ANSWER = "a lease is counted from the answer to its renewal"
    SHARED_OWNER = "all processes have one owner's name"
    EARLY_TAKEOVER = "a claim is taken over before its lease has lapsed"
    NOT_RELEASED = "the lease of a pass that has ended is renewed for ever"
    RESURRECTED = "a lease that has lapsed is renewed"
    NO_LAPSE = "a process does not stop when its lease has lapsed"


@dataclass
class Newest:
    """The newest claim of a pass, as the log has it."""

    process: Process
    token: int
    count: int
    released: bool = False


@dataclass
class Fleet:
    """All processes of a run, what they share, and what is noted of them.

    Without a seed's faults a test says how long each call of the model takes, whether it fails, and which commit is not
    answered once.
    """

    seed: int
    bugs: frozenset[Bug] = frozenset()
    faults: frozenset[Fault] = frozenset()
    seen: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    call_s: float | None = None
    fails: bool = False
    unanswered: set[Point] = field(default_factory=set)
    damaged: set[StreamId] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.time = VirtualTime(self.rng)
        self.rows = MemoryRows(READ_TABLE)
        self.table = ConversationTable(self.rows)
        self.log = MemoryEventLog(clock_us=self.clock_us, hook=self.table.project)
        self.leases = MemoryLeases(lambda: self.time.now_s)
        self.processes: list[Process] = []
        self.newest: dict[str, Newest] = {}
        self.holders: dict[StreamId, tuple[Process, int]] = {}
        self.requested: dict[str, Process] = {}
        self.ended_s: dict[StreamId, float] = {}
        self.renewed_s: dict[StreamId, float] = {}
        self.told: set[tuple[StreamId, int]] = set()
        self.sent: dict[StreamId, list[Message]] = {}
        self.waiting = 0
        self._named = 0

    def clock_us(self) -> int:
        """The right time."""
        return BEGUN_US + round(self.time.now_s * 1e6)

    def start(self) -> Process:
        """Start a process."""
        self._named += 1
        process = Process(self, f"process-{self._named}")
        self.processes.append(process)
        return process

    def restart(self) -> None:
        """Start a process in the place of another."""
        self.start()

    def has(self, fault: Fault, share: float) -> bool:
        """Whether this fault happens now."""
        return fault in self.faults and self.rng.random() < share

    def delay_s(self) -> float:
        """How long a process is stopped or a commit takes: mostly about a lease, when others begin to take over."""
        about_s = self.rng.uniform(0.7, 1.7) * LEASE_S
        return self.rng.choice([1.0, about_s, about_s, 4 * LEASE_S])

    def at(self, point: Point, process: Process) -> None:
        """A process is at a point: it may be killed or stopped here."""
        self.seen[f"at {point}"] += 1
        for fault in AT_POINTS:
            if self.has(fault, SHARES.get(point, 0.04)):
                self.seen[f"{fault} at {point}"] += 1
                self.time.later(0.0, lambda fault=fault: self.strike(fault, process))  # type: ignore[misc]  # mypy does not see the default

    def strike(self, fault: Fault, process: Process) -> None:
        """Have a fault happen to a process, unless it is dead."""
        if process.loop.is_dead:
            return
        if fault is Fault.STOPPED:
            process.loop.stop_for(self.delay_s())
            return
        if fault is Fault.RESTARTED:
            process.leave()
        else:
            process.kill()
        self.time.later(self.rng.choice([0.1, LEASE_S / 4, LEASE_S * 2]), self.restart)

    def append(self, key: StreamId, count: int) -> None:
        """Have a client append messages, and try again until it has an answer."""
        said = self.sent.setdefault(key, [])
        new = [_message(key, number) for number in range(len(said), len(said) + count)]
        said += new
        self.waiting += 1
        self._call(key, new)

    def append_later(self, delay_s: float, key: StreamId, count: int) -> None:
        """Have a client append messages then."""
        self.time.later(delay_s, lambda: self.append(key, count))

    def strike_later(self, delay_s: float, fault: Fault) -> None:
        """Have a fault happen then, to any process."""

        def strike() -> None:
            if live := self.live():
                self.seen[str(fault)] += 1
                self.strike(fault, self.rng.choice(live))

        self.time.later(delay_s, strike)

    def until(self, happened: str, *, within_s: float) -> None:
        """Let time pass until something was seen once more."""
        before = self.seen[happened]
        self.time.later(within_s, lambda: None)
        self.time.run(lambda: self.seen[happened] > before, within_s=within_s)

    def play_for(self, seconds: float) -> None:
        """Let time pass."""
        end_s = self.time.now_s + seconds
        self.time.later(seconds, lambda: None)
        self.time.run(lambda: self.time.now_s >= end_s, within_s=seconds)

    def live(self) -> list[Process]:
        """The processes that take calls."""
        return [p for p in self.processes if not p.loop.is_dead and p.is_serving]

    def _call(self, key: StreamId, messages: list[Message]) -> None:
        serving = self.live()
        if not serving:
            self.time.later(1.0, lambda: self._call(key, messages))
            return
        process = self.rng.choice(serving)
        called_s = self.time.now_s
        over = False

        def answered(ack: Ack | None) -> None:
            nonlocal over
            if over:
                return
            over = True
            if ack is None:
                self.time.later(self.rng.uniform(0.1, 2.0), lambda: self._call(key, messages))
            else:
                self.acks.append(ack)
                self.waiting -= 1

        process.call(lambda: process.append(key, messages, called_s, answered))
        self.time.later(PATIENCE_S, lambda: answered(None))

    # What is noted

    def committed(self, process: Process, key: StreamId, events: Sequence[Event], versions: Sequence[int]) -> None:
        """Note what a process has written of passes."""
        for event, version in zip(events, versions, strict=True):
            match event:
                case SummarizationRequested():
                    self.requested[event.plan.pass_id] = process
                case SummarizationStarted():
                    self._claimed(process, key, event, version)
                case SummarizationReleased():
                    self.seen["a claim is given back"] += 1
                    self.newest[event.pass_id].released = True
                case SummarizationCompleted() | SummarizationFailed():
                    self._ended(process, key, event)
                case SummarizationSkipped(pass_id=str(pass_id)) if pass_id:
                    self._ended(process, key, event)
                case _:
                    pass

    def _claimed(self, process: Process, key: StreamId, event: SummarizationStarted, version: int) -> None:
        before = self.newest.get(event.pass_id)
        if before is None:
            stolen = self.requested.get(event.pass_id) is not process
            self.seen["a pass that nobody has claimed is taken up"] += stolen
        elif before.released:
            self.seen["a pass that was given back is taken up"] += 1
        elif before.process is process:
            self.seen["a process claims again"] += 1
        else:
            self.seen["a pass is taken over"] += 1
            self._require(self._has_lapsed(key, before), f"{event.pass_id} was taken over before its lease had lapsed")
        if before is not None and before.process is not process and before.process.is_asking(event.pass_id):
            self._require(False, f"{event.pass_id} was claimed while another process was asking a model for it")
        self.newest[event.pass_id] = Newest(process, version, event.claim)
        self.holders[key] = process, version
        process.sent_until_s[key] = process.claim_sent_s.get(key, self.time.now_s) + LEASE_S

    def _ended(
        self,
        process: Process,
        key: StreamId,
        event: SummarizationCompleted | SummarizationFailed | SummarizationSkipped,
    ) -> None:
        newest = self.newest.get(event.pass_id)
        self.ended_s[key] = self.time.now_s
        if isinstance(event, SummarizationFailed) and event.error_class is ErrorClass.INTERNAL:
            self.seen["a pass was claimed too often"] += 1
            given_up = newest is not None and newest.count >= CLAIMS_MAX
            mine = newest is not None and (newest.process is process or self._has_lapsed(key, newest))
            self._require(given_up and mine, f"{event.pass_id} was given up by who may not")
            return
        self._require(newest is not None and newest.process is process, f"{event.pass_id} was ended by a stale owner")

    def _has_lapsed(self, key: StreamId, claim: Newest) -> bool:
        row = self.leases.rows.get(key)
        return claim.released or (row is not None and row.token == claim.token and row.until_s <= self.time.now_s)

    def asked(self, process: Process, key: StreamId, pass_id: str) -> None:
        """A process asks a model."""
        until_s = process.sent_until_s.get(key, 0.0)
        self._require(
            self.time.now_s <= until_s + SLACK_S, f"a model was asked for {pass_id} after the lease had lapsed"
        )

    def _require(self, holds: bool, said: str) -> None:
        if not holds:
            self.wrong.append(f"{self.time.now_s:.3f} s: {said}")

    # The end

    def settle(self) -> None:
        """End the faults, and have everything that is pending end."""
        self.faults = frozenset()
        for process in self.processes:
            process.loop.resume()
        for _ in range(2 - sum(not process.is_gone for process in self.processes)):
            self.start()
        self.time.run(self._is_idle, within_s=SETTLED_WITHIN_S)
        self.play_for(CALM_S)
        self.time.run(self._is_idle, within_s=SETTLED_WITHIN_S)

    def _is_idle(self) -> bool:
        return not self.waiting and not self.table.pending()

    def judge(self) -> list[str]:
        """Return the faults of the run."""
        recorded = self.log.read_all(limit=1_000_000)
        places = [(event.position, event.event_id) for event in recorded]
        turns: list[Turn] = []
        streams: dict[StreamId, list[tuple[Event, int]]] = {}
        for each in recorded:
            event = decode(each.type, each.schema_version, each.payload)
            streams.setdefault(each.stream, []).append((event, each.time_us))
            if isinstance(event, SummarizationRequested):
                turns.append(Turn(event.plan.pass_id, False))
            elif isinstance(event, SummarizationCompleted | SummarizationFailed | SummarizationSkipped):
                # A skip without a pass ends none.
                turns += [Turn(event.pass_id, True)] if event.pass_id else []
        wrong = [*self.wrong, *contradictions(places, self.acks), *unlike_passes(turns)]
        for key, events in streams.items():
            wrong += self._unlike_fold(key, events)
        for key, renewed_s in self.renewed_s.items():
            if renewed_s > self.ended_s.get(key, 0.0) + LEASE_S:
                wrong.append(f"the lease of {key.name} is renewed after its pass")
        return wrong

    def _unlike_fold(self, key: StreamId, events: Sequence[tuple[Event, int]]) -> list[str]:
        wrong: list[str] = []
        state = fold(events)
        if state.message_version != len(self.sent[key]):
            wrong.append(f"{key.name} has {state.message_version} messages of {len(self.sent[key])}")
        for process in self.live():
            known = process.known(key)
            if known is not None and known != fold(events[: known.event_version]):
                wrong.append(f"{process.name} knows another {key.name} than the log")
        return wrong


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
        """Whether it is dead or stops."""
        return self.loop.is_dead or self.is_leaving

    def is_asking(self, pass_id: str) -> bool:
        """Whether it is in a call of a model for a pass and could end it."""
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
        self.conversations = (Unfenced if Bug.NO_FENCE in bugs else Noticed)(
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
        claims = _claims_with(bugs)(
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
            limits=ReactorLimits(concurrent_passes=2, queue_max=100, shared=False),
            claims=claims,
            table=WiredTable(self),
            pauses=CommitPauses(first_s=0.25, max_s=5.0),
        )
        self.reactor.start(await asyncio.to_thread(fleet.table.attention))
        self.is_serving = True

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fleet.wrong.append(f"{self.name} failed: {error!r}")

    async def _leave(self) -> None:
        await self.reactor.stop(grace_s=self.fleet.rng.choice([0.1, 5.0]))
        self.fleet.time.later(1.0, lambda: None if self.loop.is_dead else self.kill())

    def _delays(self, work: Any) -> tuple[float, float]:
        asked = getattr(getattr(work, "func", None), "__self__", None)
        rng = self.fleet.rng
        if isinstance(asked, WiredLeases):
            self.fleet.at(Point.RENEWAL_SENT, self)
        if isinstance(asked, WiredLeases) and self.fleet.has(Fault.SLOW_LEASES, 0.4):
            return rng.choice([0.0, 2.0, LEASE_S * 0.9]), rng.choice([0.0, 2.0, LEASE_S * 0.9])
        return 0.0, rng.uniform(0.0, 0.002)

    def new_id(self) -> str:
        return f"{self.fleet.rng.getrandbits(64):016x}"


class Noticed(Conversations):
    """Conversations that note refusals."""

    fleet: Fleet

    async def execute(
        self, key: StreamId, command: Callable[[Conversation], Command]
    ) -> tuple[Conversation, list[Event]]:
        wanted: list[Command] = []

        def noted(state: Conversation) -> Command:
            wanted.append(self.written(command(state), state))
            return wanted[-1]

        try:
            return await super().execute(key, noted)
        except PassSuperseded:
            if wanted and isinstance(wanted[-1], StartPass):
                self.fleet.seen["a claim comes second"] += 1
            elif wanted and isinstance(wanted[-1], CompletePass | FailPass):
                self.fleet.seen["an end comes too late"] += 1
            raise

    def written(self, command: Command, state: Conversation) -> Command:
        """The command that is decided on."""
        del state
        return command


class Unfenced(Noticed):
    """Every end has the newest token."""

    def written(self, command: Command, state: Conversation) -> Command:
        return replace(command, token=state.claim_token) if isinstance(command, CompletePass | FailPass) else command


class Wire:
    """A process's connection to the log, in which commits are delayed and answers are lost, in their order."""

    def __init__(self, process: Process, log: EventLog) -> None:
        self._process = process
        self._fleet = process.fleet
        self._log = log
        self._sent_s = self._answered_s = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def read_stream(self, stream: StreamId, **page: Any) -> Sequence[RecordedEvent]:
        if stream in self._fleet.damaged:
            raise LogCorrupt("damaged")
        return self._log.read_stream(stream, **page)

    def post(self, append: Append, ticket: Any, completions: CompletionQueue) -> None:
        fleet, process = self._fleet, self._process
        events: Sequence[Event] = append.projected.events if append.projected is not None else ()
        sent, committed = _points(events)
        if isinstance(next(iter(events), None), SummarizationStarted):
            process.claim_sent_s[append.stream] = fleet.time.now_s
        delay_s = fleet.rng.uniform(0.001, 0.01)
        if fleet.has(Fault.SLOW_COMMIT, 0.1):
            delay_s = fleet.delay_s()
        refused = fleet.has(Fault.REFUSED_COMMIT, 0.15)
        self._sent_s = max(self._sent_s, fleet.time.now_s + delay_s)
        if sent is not None:
            fleet.at(sent, process)

        def arrive() -> None:
            # A server takes the transaction of a process back that says nothing for a while.
            lost = refused or (process.loop.is_stopped and fleet.rng.random() < 0.5)
            outcome: Outcome = LogUnavailable("refused") if lost else self._commit(append, events)
            if fleet.has(Fault.UNANSWERED_COMMIT, 0.15) or committed in fleet.unanswered:
                fleet.unanswered -= {committed}
                fleet.seen["an answer is lost"] += isinstance(outcome, AppendResult)
                outcome = LogUnavailable("unanswered")
            if committed is not None:
                fleet.at(committed, process)
            self._answered_s = max(self._answered_s, fleet.time.now_s + fleet.rng.uniform(0.001, 0.01))

            def answer() -> None:
                if committed is Point.END_COMMITTED:
                    fleet.ended_s[append.stream] = fleet.time.now_s
                completions.deliver([(ticket, outcome)])

            fleet.time.later(self._answered_s - fleet.time.now_s, answer)

        fleet.time.later(self._sent_s - fleet.time.now_s, arrive)

    def _commit(self, append: Append, events: Sequence[Event]) -> Outcome:
        caught = _Caught()
        self._log.post(append, None, caught)
        (outcome,) = caught.outcomes
        if isinstance(outcome, AppendResult) and not outcome.already_appended and events:
            versions = [recorded.version for recorded in outcome.events]
            self._fleet.committed(self._process, append.stream, events[-len(versions) :], versions)
        return outcome


class _Caught:
    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def deliver(self, outcomes: Sequence[tuple[Any, Outcome]]) -> None:
        self.outcomes += [outcome for _, outcome in outcomes]


def _points(events: Sequence[Event]) -> tuple[Point | None, Point | None]:
    match next(iter(events), None):
        case SummarizationStarted():
            return Point.CLAIM_SENT, Point.CLAIM_COMMITTED
        case SummarizationCompleted() | SummarizationFailed() | SummarizationSkipped():
            return Point.END_SENT, Point.END_COMMITTED
        case SummarizationReleased():
            return Point.RELEASE_SENT, None
        case _:
            return None, None


class WiredTable:
    """A process's way to the read table."""

    def __init__(self, process: Process) -> None:
        self._fleet = process.fleet

    def pending(self, after: StreamId, limit: int) -> Sequence[StreamId]:
        self._fail_perhaps()
        return self._fleet.table.pending(after, limit)

    def attention(self, after: StreamId, limit: int) -> Sequence[Attention]:
        self._fail_perhaps()
        return self._fleet.table.attention(after, limit)

    def _fail_perhaps(self) -> None:
        if self._fleet.has(Fault.BLIND_LOOKOUT, 0.5):
            self._fleet.seen["a look around fails"] += 1
            raise LogUnavailable("blind")


class WiredLeases:
    """A process's way to the leases. It notes which were told to have lapsed."""

    def __init__(self, process: Process, leases: MemoryLeases) -> None:
        self._process = process
        self._fleet = process.fleet
        self._leases = leases

    def hold(self, tokens: Mapping[StreamId, int], seconds: float) -> set[StreamId]:
        fleet, process = self._fleet, self._process
        self._fail_perhaps()
        if seconds:
            fleet.at(Point.RENEWAL_ANSWERED, process)
        held = self._leases.hold(tokens, seconds)
        if Bug.RESURRECTED in fleet.bugs:
            for stream in tokens.keys() - held:
                row = self._leases.rows[stream]
                if row.token == tokens[stream]:
                    self._leases.rows[stream] = row._replace(until_s=fleet.time.now_s + seconds)
                    held.add(stream)
        fleet.seen["a renewal is refused"] += len(held) < len(tokens)
        for stream in held:
            if seconds and (stream, tokens[stream]) in fleet.told:
                fleet.wrong.append(f"{fleet.time.now_s:.3f} s: the lapsed lease of {stream.name} was renewed")
            if seconds and fleet.holders.get(stream) == (process, tokens[stream]):
                process.sent_until_s[stream] = process.loop.asked_s + LEASE_S
                fleet.renewed_s[stream] = fleet.time.now_s
        return held

    def lapsed(self, streams: Collection[StreamId], seconds: float) -> dict[StreamId, int]:
        fleet = self._fleet
        self._fail_perhaps()
        if Bug.EARLY_TAKEOVER in fleet.bugs:
            rows = self._leases.rows
            return {stream: rows[stream].token for stream in streams if stream in rows}
        found = self._leases.lapsed(streams, seconds)
        fleet.told.update(found.items())
        return found

    def drop(self, tokens: Mapping[StreamId, int]) -> None:
        self._fail_perhaps()
        self._leases.drop(tokens)
        forgotten = {(stream, token) for stream, token in self._fleet.told if token <= tokens.get(stream, -1)}
        self._fleet.told -= forgotten

    def _fail_perhaps(self) -> None:
        if self._fleet.has(Fault.NO_LEASES, 0.3):
            self._fleet.seen["the leases fail"] += 1
            raise LogUnavailable("no leases")


class NoticedClaims(Claims):
    """Claims that note what lapses."""

    fleet: Fleet
    process: Process

    def start(self, on_lapsed: Callable[[StreamId], None]) -> None:
        def noted(key: StreamId) -> None:
            self.fleet.seen["a lease lapses in its process"] += 1
            on_lapsed(key)

        super().start(noted)

    def require(self, claim: Claim) -> None:
        super().require(claim)
        self.fleet.at(Point.CLAIM_CHECKED, self.process)


class NeverEnding(NoticedClaims):
    """Bug.NOT_RELEASED"""

    def end(self, claim: Claim) -> None: ...

    def leave(self, claim: Claim) -> None: ...


class Deaf(NoticedClaims):
    """Bug.NO_LAPSE"""

    def require(self, claim: Claim) -> None: ...

    def start(self, on_lapsed: Callable[[StreamId], None]) -> None:
        del on_lapsed
        super().start(lambda _: None)


class CountedFromAnswer(NoticedClaims):
    """Bug.COUNTED_FROM_ANSWER"""

    def _lapsing(self, key: StreamId, token: int, sent_s: float) -> asyncio.TimerHandle:
        del sent_s
        return super()._lapsing(key, token, asyncio.get_running_loop().time())


def _claims_with(bugs: Collection[Bug]) -> type[NoticedClaims]:
    kinds = {Bug.NOT_RELEASED: NeverEnding, Bug.NO_LAPSE: Deaf, Bug.COUNTED_FROM_ANSWER: CountedFromAnswer}
    return next((kind for bug, kind in kinds.items() if bug in bugs), NoticedClaims)


class Model:
    """A summarizer that asks its model one of these numbers of times, and waits for each answer."""

    name = "simulated:model"

    def __init__(self, process: Process, calls: Sequence[int]) -> None:
        self._process = process
        self._calls = calls

    def source_tokens(self, _policy: Policy, _summary_tokens: int, /) -> int:
        return 100_000

    async def has_time(self) -> bool:
        return True

    async def summarize(self, work: PassWork, observer: Observer) -> Summary:
        fleet, process, pass_id = self._process.fleet, self._process, work.plan.pass_id
        key = StreamId("default", work.conversation_id)
        calls = fleet.rng.choice(self._calls)
        for call in range(1, calls + 1):
            observer.attempt(call, self.name)
            fleet.asked(process, key, pass_id)
            fleet.at(Point.MODEL_ASKED, process)
            fleet.seen["model calls"] += 1
            process.asking[pass_id] += 1
            try:
                slow = fleet.has(Fault.SLOW_MODEL, 0.3)
                drawn_s = fleet.rng.choice([LEASE_S, 3 * LEASE_S]) if slow else fleet.rng.uniform(0.5, 8.0)
                await asyncio.sleep(drawn_s if fleet.call_s is None else fleet.call_s)
            finally:
                process.asking[pass_id] -= 1
            fleet.at(Point.MODEL_ANSWERED, process)
        if fleet.fails or fleet.has(Fault.FAILING_MODEL, 0.4):
            failed = PassFailed(ErrorClass.INVALID, retryable=True, cause="simulated", asked=True)
            failed.attempts = calls
            raise failed
        return Summary(
            draft=_DRAFT,
            tokens=50,
            quality=RecordQuality(),
            model=self.name,
            provenance=Provenance.MODEL,
            template=CHAIN_TEMPLATE,
            evidence=RecordEvidence(),
            attempts=calls,
        )


_DRAFT = Draft(
    summary="The importer reads orders.",
    key_points=[],
    participants=[],
    decisions=[],
    action_items=[],
    unresolved=[],
    domain_entities=[],
)


def _message(key: StreamId, number: int) -> Message:
    role = Role.ASSISTANT if number % 2 else Role.USER
    return Message(f"{key.name}{number}", role, "well", token_count=TOKENS_EACH)


def play(fleet: Fleet) -> None:
    """The run of the fleet's seed, from its start to a state in which nothing is pending."""
    rng = Random(f"faults of {fleet.seed}")
    others = rng.sample(list(Fault), rng.randint(0, OTHER_FAULTS_MAX))
    faults = fleet.faults = frozenset([rng.choice(AT_POINTS), *others])
    for _ in range(rng.choice([2, 2, 3])):
        fleet.start()
    for number in range(rng.choice([1, 2, 3])):
        key = StreamId("default", f"c{number}-")
        fleet.append_later(rng.uniform(0.1, 5.0), key, 6)
        for _ in range(rng.choice([0, 1, 2])):
            fleet.append_later(rng.uniform(5.0, 100.0), key, rng.choice([1, 4, 6]))
    for fault in (Fault.KILLED, Fault.STOPPED, Fault.RESTARTED):
        for _ in range(rng.choice([1, 2, 4]) if fault in faults else 0):
            fleet.strike_later(rng.uniform(0.5, 120.0), fault)
    fleet.play_for(FAULTY_S)
    fleet.settle()
