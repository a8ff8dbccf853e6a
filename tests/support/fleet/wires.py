"""A process's ways to the log, its read table and its leases, on which answers are late, lost or refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from abridged.eventlog.errors import LogCorrupt, LogUnavailable
from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.eventlog.log import Append, AppendResult, CompletionQueue, EventLog, Outcome
from abridged.service.conversations.table import Attention
from abridged.service.domain.events import (
    Event,
    SummarizationCompleted,
    SummarizationFailed,
    SummarizationReleased,
    SummarizationSkipped,
    SummarizationStarted,
)
from tests.support.fleet.faults import Bug, Fault, Point
from tests.support.leases import MemoryLeases

if TYPE_CHECKING:
    from tests.support.fleet.process import Process


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
                    fleet.witness.is_told(append.stream)
                completions.deliver([(ticket, outcome)])

            fleet.time.later(self._answered_s - fleet.time.now_s, answer)

        fleet.time.later(self._sent_s - fleet.time.now_s, arrive)

    def _commit(self, append: Append, events: Sequence[Event]) -> Outcome:
        caught = _Caught()
        self._log.post(append, None, caught)
        (outcome,) = caught.outcomes
        if isinstance(outcome, AppendResult) and not outcome.already_appended and events:
            versions = [recorded.version for recorded in outcome.events]
            self._fleet.witness.committed(self._process, append.stream, events[-len(versions) :], versions)
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
    """A process's way to the leases. The process notes which leases it was told have lapsed."""

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
            if seconds:
                fleet.witness.held(process, stream, tokens[stream])
        return held

    def lapsed(self, streams: Collection[StreamId], seconds: float) -> dict[StreamId, int]:
        fleet = self._fleet
        self._fail_perhaps()
        if Bug.EARLY_TAKEOVER in fleet.bugs:
            rows = self._leases.rows
            return {stream: rows[stream].token for stream in streams if stream in rows}
        found = self._leases.lapsed(streams, seconds)
        fleet.witness.told.update(found.items())
        return found

    def drop(self, tokens: Mapping[StreamId, int]) -> None:
        self._fail_perhaps()
        self._leases.drop(tokens)
        told = self._fleet.witness.told
        told -= {(stream, token) for stream, token in told if token <= tokens.get(stream, -1)}

    def _fail_perhaps(self) -> None:
        if self._fleet.has(Fault.NO_LEASES, 0.3):
            self._fleet.seen["the leases fail"] += 1
            raise LogUnavailable("no leases")
