"""From the log to the log: every requested pass is claimed, computed and committed, also after a restart.

The trigger is on disk before anything here runs, and the record's event id comes from the pass, so that a pass that is
interrupted anywhere runs again and ends once. Nothing here is ever waited for by an append.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import structlog

from eventlog.event import StreamId
from observability.facts import PassEnded, PassOutcome, SkipReason
from observability.tracing import Span
from service.conversations.conversations import Conversations
from service.conversations.table import Attention
from service.domain.conversation import Conversation, partitioned, record_named
from service.domain.errors import PassSuperseded, TooManyPasses
from service.domain.events import (
    ErrorClass,
    Event,
    MessageAppended,
    PassPlan,
    SummarizationCompleted,
    SummarizationFailed,
    SummarizationRequested,
    SummarizationSkipped,
    Trigger,
)
from service.domain.message import Role
from service.domain.policy import Fallback
from service.domain.tokens import TokenCounter
from service.summarizer.backlog import Backlog
from service.summarizer.line import PassLine
from service.summarizer.origin import origin
from service.summarizer.pass_steps import TRANSIENT, CommitPauses, PassSteps
from service.summarizer.progress import Progress, Stage
from service.summarizer.record import PassResult, record_of
from service.summarizer.revival import Revival
from service.summarizer.summarizer import PassFailed, PassWork, Summarizers, Summary
from service.telemetry.passes import PassReport, Telemetry

__all__ = ["Reactor", "ReactorLimits"]

CLAIMS_MAX = 3
"""A pass that was claimed so often and never ended takes the process down with it; it is failed instead."""

SOURCE_MESSAGES_MAX = 100_000

EXTRACTIONS_MAX = 2
"""Extractive passes that run at once, beside those that ask a model: a full window does not wait for slow models."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ReactorLimits:
    """How many passes run at once, and how many pending ones of a namespace refuse forced ones.

    `shared` says whether credentials know more than one namespace.
    """

    concurrent_passes: int
    queue_max: int
    shared: bool


@dataclass(slots=True, eq=False)
class _Running:
    """A pass under way. `call` asks the model for it; `again` is the line in which a next pass came meanwhile."""

    pass_id: str = ""
    call: asyncio.Task[Summary] | None = None
    stands_in: bool = False
    superseded: bool = False
    again: PassLine | None = None

    def interrupt(self) -> None:
        """Leave the model."""
        if self.call is not None:
            self.call.cancel()


class Reactor:
    """Runs passes on one event loop, those that ask a model in one line and those that ask none in another."""

    def __init__(
        self,
        conversations: Conversations,
        *,
        summarizers: Summarizers,
        counter: TokenCounter,
        telemetry: Telemetry,
        limits: ReactorLimits,
        hash_key: bytes,
        clock_s: Callable[[], float],
        pauses: CommitPauses | None = None,
    ) -> None:
        self._conversations = conversations
        self._summarizers = summarizers
        self._counter = counter
        self._clock_s = clock_s
        self._telemetry = telemetry
        self._limits = limits
        self.backlog = Backlog()
        self._queue = PassLine(workers=limits.concurrent_passes, shared=limits.shared)
        self._extractions = PassLine(workers=EXTRACTIONS_MAX, shared=limits.shared)
        self._running: dict[StreamId, _Running] = {}
        self._hurried: dict[StreamId, str] = {}
        self._workers: list[asyncio.Task[None]] = []
        self._postponed: dict[StreamId, asyncio.TimerHandle] = {}
        self._pauses = pauses or CommitPauses()
        self._steps = PassSteps(conversations, pauses=self._pauses, hash_key=hash_key)
        self._revival = Revival(conversations, has_time=summarizers.wanted.has_time, pauses=self._pauses)
        self._stopping = False

    def start(self, attention: Iterable[Attention]) -> None:
        """Begin; `attention` is what earlier runs left: pending passes, waits, fallback records."""
        for row in attention:
            key = StreamId(row.namespace, row.id)
            if row.pending:
                self._enqueue(key, self._conversations.now_us())
            elif row.wait_until_us:
                self._revival.end_wait_at(key, row.wait_until_us)
            if row.fallback:
                self._revival.remake_later(key)
        for line in self._lines():
            for _ in range(line.workers):
                name = f"pass worker {len(self._workers)}"
                self._workers.append(asyncio.create_task(self._work(line), name=name))

    async def stop(self, *, grace_s: float) -> None:
        """Take no new pass; a running one gets `grace_s`, then stays pending in the log for the next start."""
        self._stopping = True
        for handle in self._postponed.values():
            handle.cancel()
        for line in self._lines():
            line.close()
        if self._workers:
            _, running = await asyncio.wait(self._workers, timeout=grace_s)
            for worker in running:
                worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        await self._revival.stop()

    def changed(self, key: StreamId, state: Conversation, events: Sequence[Event]) -> None:
        """Hear of a commit: a new pass is queued, a wait is timed, a skip is counted."""
        for event in events:
            if isinstance(event, SummarizationRequested):
                self._tell_requested(key, event.plan.pass_id)
                self._enqueue(key, state.pending_since_us, event.plan)
            elif isinstance(event, SummarizationSkipped) and not event.pass_id:
                reason = SkipReason(event.reason.value.upper())
                self._telemetry.metrics.pass_ended(PassEnded(PassOutcome.SKIPPED, None, skip_reason=reason))
                _log.info("pass.skipped", conversation_id=key.name, skip_reason=event.reason.value)
        if state.pending is None:
            self._dequeue(key)
        elif state.ratio >= state.pending.policy.emergency_token_ratio:
            self._queue.hurry(key)
        running = self._running.get(key)
        # Before it has an id it has read no plan yet, and reads the newest.
        ended = state.pending is None or (running is not None and state.pending.pass_id != running.pass_id)
        if running is not None and running.pass_id and ended:
            running.superseded = True
            running.interrupt()
        self._revival.changed(key, state)

    def loaded(self, key: StreamId, state: Conversation) -> None:
        """Hear of a state that was read from the log: what the start was not told of is taken up now."""
        if state.pending is not None and key not in self.backlog:
            self._enqueue(key, state.pending_since_us, state.pending)
        self._revival.loaded(key, state)

    def stand_in(self, key: StreamId, pass_id: str) -> None:
        """Make the record of this pass by extraction at once, whatever a model is doing for it."""
        running = self._running.get(key)
        if running is None:
            if self._hurried.get(key) != pass_id:
                self._hurried[key] = pass_id
                self._extractions.put(key, urgent=True)
        elif running.pass_id in ("", pass_id):
            running.stands_in = True
            running.interrupt()
        else:
            self._hurried[key] = pass_id
            running.again = self._extractions

    def require_room(self, namespace: str) -> None:
        """Refuse a forced pass when too many are pending; a triggered one is never refused, only delayed."""
        if self.backlog.of_namespace(namespace) >= self._limits.queue_max:
            raise TooManyPasses(retry_after_s=5.0)

    def _lines(self) -> tuple[PassLine, PassLine]:
        return self._queue, self._extractions

    async def _work(self, line: PassLine) -> None:
        while (key := await line.take()) is not None:
            if (other := self._running.get(key)) is not None:
                other.again = line
                line.done(key)
                continue
            running = self._running[key] = _Running()
            try:
                await self._run(key, running, line)
            except PassSuperseded:
                _log.info("pass.superseded", conversation_id=key.name)
            except TRANSIENT as error:
                self._postpone(key, error)
            except Exception as error:  # noqa: BLE001 - supervision: one broken pass must not stop the others
                _log.error("pass.crashed", conversation_id=key.name, error_type=type(error).__name__, exc_info=True)
                await self._give_up(key)
            finally:
                del self._running[key]
                line.done(key)
                if running.again is not None:
                    running.again.put(key, urgent=running.again is self._extractions)

    async def _run(self, key: StreamId, running: _Running, line: PassLine) -> None:
        hurried = self._hurried.pop(key, "")
        state = await self._conversations.state(key)
        plan = state.pending
        if plan is None:
            self._dequeue(key)
            return
        running.pass_id = plan.pass_id
        running.stands_in |= plan.extractive or hurried == plan.pass_id
        if line is self._extractions and not running.stands_in:
            # An entry that was left over: a pass that asks a model must not keep the line of those that ask none.
            self._queue.put(key)
            return
        self._told_pending(key, state.pending_since_us)
        claimed_too_often = state.claims >= CLAIMS_MAX
        if not claimed_too_often and not await self._steps.claim(key, plan):
            _log.info("pass.cancelled", conversation_id=key.name, summarization_id=plan.pass_id)
            return
        report = PassReport(self._telemetry, key, plan, model=self._wanted(plan), now_us=self._conversations.now_us)
        trigger = await self._conversations.log.requested_by(key, origin(state, plan))
        with self._telemetry.tracing.span(report.started(trigger)) as span:
            try:
                if claimed_too_often:
                    await self._fail(key, plan, report, span, _internal("the sidecar stopped in it too often"))
                else:
                    await self._make(key, running, plan, report, span)
            except asyncio.CancelledError:
                report.cancelled(span)
                if not claimed_too_often:
                    await self._steps.release(key, plan)
                raise
            except (PassSuperseded, *TRANSIENT):
                report.cancelled(span)
                raise
            except Exception:
                report.failed(span, _internal(_BUG))
                raise

    async def _make(self, key: StreamId, running: _Running, plan: PassPlan, report: PassReport, span: Span) -> None:
        work = await self._input(key, plan)
        try:
            result = await self._result(key, running, work, report)
        except PassFailed as failure:
            await self._fail(key, plan, report, span, failure)
            return
        after, events = await self._steps.complete(key, plan, result)
        if isinstance(events[0], SummarizationCompleted):
            report.completed(span, result, after)
            if not result.fallback:
                self._revival.model_answered()
        elif isinstance(events[0], SummarizationFailed):
            report.cancelled(span)
        else:
            assert isinstance(events[0], SummarizationSkipped)
            report.skipped(span, events[0].reason.value)

    async def _result(self, key: StreamId, running: _Running, work: PassWork, report: PassReport) -> PassResult:
        """The model's record, or that of the extractive summarizer where the policy or the operator's list wants it."""
        if work.plan.extractive:
            return await self._extracted(work, report, None)
        began_s = self._clock_s()
        try:
            summary = await self._wanted_summary(running, work, report)
        except PassFailed as failure:
            # Nobody can be asked who is not there, so the next pass need not wait for that.
            if work.plan.trigger is not Trigger.REMAKE and self._summarizers.is_listed_for(failure):
                report.fell_back(failure, self._summarizers.extraction.name)
                return await self._extracted(work, report, None, after=failure)
            if not running.stands_in and not await self._falls_back(key, work.plan):
                raise
            report.fell_back(failure, self._summarizers.extraction.name)
            return await self._extracted(work, report, failure, after=failure)
        return self._made(work, summary, began_s)

    async def _wanted_summary(self, running: _Running, work: PassWork, report: PassReport) -> Summary:
        """What the wanted summarizer makes; PassFailed also when extraction is to stand in before it is there."""
        if running.superseded:
            raise PassSuperseded
        if running.stands_in:
            raise self._interrupted(report)
        running.call = asyncio.create_task(self._summarizers.wanted.summarize(work, report))
        try:
            return await running.call
        except asyncio.CancelledError:
            if running.superseded:
                raise PassSuperseded from None
            if running.stands_in:
                raise self._interrupted(report) from None
            raise
        finally:
            running.call = None

    async def _extracted(
        self, work: PassWork, report: PassReport, failure: PassFailed | None, *, after: PassFailed | None = None
    ) -> PassResult:
        """The extract; `failure` is what the next pass waits for, `after` what came before in any case."""
        attempts, tried = (after.attempts, after.tried) if after else (0, ())
        began_s = self._clock_s()
        try:
            summary = await self._summarizers.extraction.summarize(work, report)
        except PassFailed as failed:
            failed.attempts, failed.tried = attempts, (*tried, self._summarizers.extraction.name)
            failed.asked = after is not None and after.asked
            raise
        summary = replace(summary, attempts=attempts)
        return replace(
            self._made(work, summary, began_s),
            fallback=not self._summarizers.wants_extraction,
            failure=failure,
            interrupted=failure is not None and failure.error_class is ErrorClass.CANCELLED,
            tried=(*tried, summary.model),
        )

    def _made(self, work: PassWork, summary: Summary, began_s: float) -> PassResult:
        latency_ms = round((self._clock_s() - began_s) * 1_000)
        record = record_of(work, summary, create_time_us=self._conversations.now_us(), latency_ms=latency_ms)
        return PassResult(record, self._counter.source_for(work.chat_model), tried=summary.tried)

    def _interrupted(self, report: PassReport) -> PassFailed:
        cause = "the window was over its budget before the model had answered"
        failure = PassFailed(ErrorClass.CANCELLED, retryable=True, cause=cause, asked=report.attempts > 0)
        failure.attempts = report.attempts
        failure.tried = (self._summarizers.wanted.name,) if report.attempts else ()
        return failure

    def _wanted(self, plan: PassPlan) -> str:
        return self._summarizers.extraction.name if plan.extractive else self._summarizers.wanted.name

    async def _falls_back(self, key: StreamId, plan: PassPlan) -> bool:
        if plan.trigger is Trigger.REMAKE:
            return False
        if plan.policy.fallback is Fallback.EMERGENCY:
            state = await self._conversations.state(key)
            return plan.trigger is Trigger.EMERGENCY or state.ratio >= plan.policy.emergency_token_ratio
        return plan.policy.fallback is Fallback.ALWAYS

    async def _input(self, key: StreamId, plan: PassPlan) -> PassWork:
        """The source's messages, from the window where it has them, else from the log."""
        state = await self._conversations.state(key)
        wanted = sum(len(r) for r in plan.source)
        inside, _ = partitioned(state.window, plan.source)
        messages: Sequence[MessageAppended] = inside
        if len(inside) < wanted:
            messages = await self._conversations.log.originals(
                key, head=state.event_version, limit=SOURCE_MESSAGES_MAX, within=plan.source
            )
        chat = tuple(m for m in messages if m.message.role is not Role.SYSTEM)
        previous = record_named(state, plan.base_id) if plan.base_id else None
        replaces = record_named(state, plan.replaces_id) if plan.replaces_id else None
        settings = state.settings
        return PassWork(key.name, plan, chat, previous, settings.model, replaces, settings.calibration_factor)

    async def _fail(self, key: StreamId, plan: PassPlan, report: PassReport, span: Span, failure: PassFailed) -> None:
        await self._steps.fail(key, plan, failure)
        report.failed(span, failure)

    async def _give_up(self, key: StreamId) -> None:
        """Fail whatever is pending after a bug, so that none keeps a conversation pending for ever."""
        try:
            plan = (await self._conversations.state(key)).pending
            if plan is not None:
                await self._steps.fail(key, plan, _internal(_BUG))
        except TRANSIENT as error:
            self._postpone(key, error)
        except Exception as error:  # noqa: BLE001 - supervision: what cannot even be failed must not end its worker
            _log.error("pass.not_ended", conversation_id=key.name, error_type=type(error).__name__)
            self._dequeue(key)  # nobody waits for what nobody works on; a load of the conversation takes it up again

    def _postpone(self, key: StreamId, error: Exception) -> None:
        """Try the whole pass again later; its claims bound how often that comes to a model."""
        _log.warning("pass.postponed", conversation_id=key.name, error_type=type(error).__name__)
        if not self._stopping:
            self._postponed[key] = asyncio.get_running_loop().call_later(self._pauses.max_s, self._resume, key)

    def _resume(self, key: StreamId) -> None:
        del self._postponed[key]
        self._queue.put(key)

    def _tell_requested(self, key: StreamId, pass_id: str) -> None:
        self._telemetry.board.tell(key, Progress(pass_id, Stage.REQUESTED, self._conversations.now_us()))

    def _enqueue(self, key: StreamId, since_us: int, plan: PassPlan | None = None) -> None:
        if (handle := self._postponed.pop(key, None)) is not None:
            handle.cancel()
        self._told_pending(key, since_us)
        (self._extractions if plan is not None and plan.extractive else self._queue).put(key)

    def _told_pending(self, key: StreamId, since_us: int) -> None:
        self.backlog.add(key, since_us)
        self._count_pending()

    def _dequeue(self, key: StreamId) -> None:
        self._queue.discard(key)
        self._extractions.discard(key)
        self._hurried.pop(key, None)
        if key in self.backlog:
            self.backlog.remove(key)
            self._count_pending()

    def _count_pending(self) -> None:
        self._telemetry.metrics.passes_pending(len(self.backlog), oldest_timestamp_s=self.backlog.oldest_us / 1e6)


def _internal(cause: str) -> PassFailed:
    return PassFailed(ErrorClass.INTERNAL, retryable=False, cause=cause)


_BUG = "a bug of the sidecar; its log says more"
