"""From the log to the log: every requested pass is claimed, computed and committed, also after a restart.

The trigger is on disk before anything here runs, and the record's event id comes from the pass, so that a pass that is
interrupted anywhere runs again and ends once. Nothing here is ever waited for by an append.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from eventlog.errors import EventLogError
from eventlog.event import StreamId
from observability.facts import PassEnded, PassOutcome, PassTrigger, SkipReason
from observability.tracing import Span
from service.conversations import Conversations
from service.domain.conversation import Conversation, record_named
from service.domain.decide import CompletePass, EndWait, FailPass, RemakeFallback, StartPass
from service.domain.errors import DomainError, PassSuperseded, TooManyPasses
from service.domain.events import (
    ErrorClass,
    Event,
    MessageAppended,
    PassPlan,
    SummarizationCompleted,
    SummarizationRequested,
    SummarizationSkipped,
    Trigger,
)
from service.domain.message import Role
from service.domain.policy import Fallback
from service.domain.record import MessageRange
from service.projections import Attention
from service.summarizer.ask import PassFailed
from service.summarizer.backlog import Backlog
from service.summarizer.pass_maker import PassMaker
from service.summarizer.progress import Progress, Stage
from service.summarizer.report import PassReport, Telemetry, output_hash
from service.summarizer.summary_pass import PassInput, PassResult

__all__ = ["Reactor", "ReactorLimits"]

CLAIMS_MAX = 3
"""A pass that was claimed so often and never ended takes the process down with it; it is failed instead."""

SOURCE_MESSAGES_MAX = 100_000
COMMIT_ATTEMPTS_MAX = 8
COMMIT_PAUSE_MAX_S = 30.0
PROBE_FIRST_S = 15.0
PROBE_MAX_S = 900.0

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ReactorLimits:
    """How many passes run at once, and how many may queue before forced ones are refused."""

    concurrent_passes: int
    queue_max: int


class Reactor:
    """Runs passes on one event loop."""

    def __init__(
        self,
        conversations: Conversations,
        *,
        maker: PassMaker,
        telemetry: Telemetry,
        limits: ReactorLimits,
    ) -> None:
        self._conversations = conversations
        self._maker = maker
        self._telemetry = telemetry
        self._limits = limits
        self.backlog = Backlog()
        self._queue: asyncio.Queue[StreamId] = asyncio.Queue()
        self._workers: list[asyncio.Task[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._waits: dict[StreamId, asyncio.TimerHandle] = {}
        self._fallbacks: set[StreamId] = set()
        self._probe: asyncio.TimerHandle | None = None
        self._probe_after_s = PROBE_FIRST_S
        self._stopping = False

    def start(self, attention: Iterable[Attention]) -> None:
        """Begin; `attention` is what earlier runs left: pending passes, waits, fallback records."""
        for row in attention:
            key = StreamId(row.namespace, row.id)
            if row.pending:
                self._enqueue(key, self._conversations.now_us())
            elif row.wait_until_us:
                self._schedule_end_of_wait(key, row.wait_until_us)
            if row.fallback:
                self._fallbacks.add(key)
        for number in range(self._limits.concurrent_passes):
            self._workers.append(asyncio.create_task(self._work(), name=f"pass worker {number}"))
        self._schedule_probe()

    async def stop(self, *, grace_s: float) -> None:
        """Take no new pass; a running one gets `grace_s`, then stays pending in the log for the next start."""
        self._stopping = True
        for handle in self._waits.values():
            handle.cancel()
        if self._probe:
            self._probe.cancel()
        for _ in self._workers:
            self._queue.put_nowait(_STOP)
        if self._workers:
            _, running = await asyncio.wait(self._workers, timeout=grace_s)
            for worker in running:
                worker.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._workers, *self._tasks, return_exceptions=True)

    def changed(self, key: StreamId, state: Conversation, events: Sequence[Event]) -> None:
        """Hear of a commit: a new pass is queued, a wait is timed, a skip is counted."""
        for event in events:
            if isinstance(event, SummarizationRequested):
                self._tell_requested(key, event.plan.pass_id)
                self._enqueue(key, state.pending_since_us)
            elif isinstance(event, SummarizationSkipped) and not event.pass_id:
                reason = SkipReason(event.reason.value.upper())
                self._telemetry.metrics.pass_ended(
                    PassEnded(PassOutcome.SKIPPED, PassTrigger.RATIO, skip_reason=reason)
                )
                _log.info("pass.skipped", conversation_id=key.name, skip_reason=event.reason.value)
        if state.pending is None:
            self._dequeue(key)
        if state.pending is None and state.waiting(self._conversations.now_us()):
            self._schedule_end_of_wait(key, state.wait_until_us)
        elif (handle := self._waits.pop(key, None)) is not None:
            handle.cancel()
        if state.live_is_fallback:
            self._fallbacks.add(key)
            self._schedule_probe()
        else:
            self._fallbacks.discard(key)

    def require_room(self) -> None:
        """Refuse a forced pass when too many are pending; a triggered one is never refused, only delayed."""
        if len(self.backlog) >= self._limits.queue_max:
            raise TooManyPasses(retry_after_s=5.0)

    async def _work(self) -> None:
        while not self._stopping:
            key = await self._queue.get()
            if key is _STOP:
                return
            try:
                await self._run(key)
            except PassSuperseded:
                _log.info("pass.superseded", conversation_id=key.name)
            except EventLogError as error:
                _log.warning("pass.postponed", conversation_id=key.name, error_type=type(error).__name__)
                await asyncio.sleep(COMMIT_PAUSE_MAX_S)
                self._queue.put_nowait(key)
            except Exception as error:  # noqa: BLE001 - supervision: one broken pass must not stop the others
                _log.error("pass.crashed", conversation_id=key.name, error_type=type(error).__name__, exc_info=True)
                await self._give_up(key)

    async def _run(self, key: StreamId) -> None:
        state = await self._conversations.state(key)
        plan = state.pending
        if plan is None:
            self._dequeue(key)
            return
        claimed_too_often = state.claims >= CLAIMS_MAX
        if not claimed_too_often:
            await self._committed(key, lambda _: StartPass(plan.pass_id))
        report = PassReport(self._telemetry, key, plan, model=self._maker.model_name, now_us=self._conversations.now_us)
        trigger = await self._conversations.log.requested_by(key, plan.pass_id)
        with self._telemetry.tracing.span(report.started(trigger)) as span:
            try:
                if claimed_too_often:
                    await self._fail(key, plan, report, span, PassFailed(ErrorClass.INTERNAL, retryable=False))
                else:
                    await self._make(key, plan, report, span)
            except (asyncio.CancelledError, PassSuperseded, EventLogError):
                report.cancelled(span)
                raise
            except Exception:
                report.failed(span, PassFailed(ErrorClass.INTERNAL, retryable=False))
                raise

    async def _make(self, key: StreamId, plan: PassPlan, report: PassReport, span: Span) -> None:
        work = await self._input(key, plan)
        try:
            result = await self._result(key, work, report)
        except PassFailed as failure:
            await self._fail(key, plan, report, span, failure)
            return
        after, events = await self._committed(
            key,
            lambda _: CompletePass(
                pass_id=plan.pass_id,
                record=result.record,
                source=result.source,
                fallback=result.fallback,
                next_pass_id=self._conversations.new_id(),
                now_us=self._conversations.now_us(),
            ),
        )
        if isinstance(events[0], SummarizationCompleted):
            report.completed(span, result, after)
            if not result.fallback:
                self._remake_one()
        else:
            assert isinstance(events[0], SummarizationSkipped)
            report.skipped(span, events[0].reason.value)

    async def _result(self, key: StreamId, work: PassInput, report: PassReport) -> PassResult:
        """The model's record, or that of the extractive summarizer where the policy wants one."""
        record_id = f"summary-{work.plan.pass_id}"
        try:
            summary_pass = await self._maker.by_model(report)
            return await summary_pass.run(work, record_id=record_id)
        except PassFailed as failure:
            if not await self._falls_back(key, work.plan):
                raise
            report.fell_back(failure, self._maker.fallback_name)
            result = await self._maker.by_extraction(report).run(
                work, record_id=record_id, attempts_before=failure.attempts
            )
            return replace(result, fallback=True, failure=failure)

    async def _falls_back(self, key: StreamId, plan: PassPlan) -> bool:
        if plan.trigger is Trigger.REMAKE:
            return False
        if plan.policy.fallback is Fallback.EMERGENCY:
            state = await self._conversations.state(key)
            return plan.trigger is Trigger.EMERGENCY or state.ratio >= plan.policy.emergency_token_ratio
        return plan.policy.fallback is Fallback.ALWAYS

    async def _input(self, key: StreamId, plan: PassPlan) -> PassInput:
        """The source's messages, from the window where it has them, else from the log."""
        state = await self._conversations.state(key)
        wanted = sum(len(r) for r in plan.source)
        inside = [m for m in state.window if _within(plan.source, m.number)]
        messages: Sequence[MessageAppended] = inside
        if len(inside) < wanted:
            messages = await self._conversations.log.originals(
                key, lambda number: _within(plan.source, number), limit=SOURCE_MESSAGES_MAX
            )
        chat = tuple(m for m in messages if m.message.role is not Role.SYSTEM)
        previous = record_named(state, plan.base_id) if plan.base_id else None
        return PassInput(key.name, plan, chat, previous)

    async def _fail(self, key: StreamId, plan: PassPlan, report: PassReport, span: Span, failure: PassFailed) -> None:
        await self._commit_failure(key, plan, failure)
        report.failed(span, failure)

    async def _commit_failure(self, key: StreamId, plan: PassPlan, failure: PassFailed) -> None:
        await self._committed(
            key,
            lambda _: FailPass(
                pass_id=plan.pass_id,
                error_class=failure.error_class,
                attempts=failure.attempts,
                retryable=failure.retryable,
                now_us=self._conversations.now_us(),
                output_bytes=len(failure.output.encode()),
                output_hash=output_hash(self._maker.hash_key, failure.output),
            ),
        )

    async def _committed(
        self, key: StreamId, command: Callable[[Conversation], StartPass | CompletePass | FailPass]
    ) -> tuple[Conversation, list[Event]]:
        """Commit a step of a pass: a busy or full log is waited for, a number of times."""
        for attempt in range(COMMIT_ATTEMPTS_MAX):
            try:
                return await self._conversations.execute(key, command)
            except EventLogError as error:
                if attempt == COMMIT_ATTEMPTS_MAX - 1:
                    raise
                _log.warning("pass.commit_delayed", conversation_id=key.name, error_type=type(error).__name__)
                await asyncio.sleep(min(COMMIT_PAUSE_MAX_S, 0.25 * 2**attempt))
        raise AssertionError("the last attempt returns or raises")

    async def _give_up(self, key: StreamId) -> None:
        """Fail whatever is pending after a bug, so that none keeps a conversation pending for ever."""
        try:
            state = await self._conversations.state(key)
            if state.pending is not None:
                await self._commit_failure(key, state.pending, PassFailed(ErrorClass.INTERNAL, retryable=False))
        except (DomainError, EventLogError) as error:
            _log.error("pass.not_ended", conversation_id=key.name, error_type=type(error).__name__)

    def _tell_requested(self, key: StreamId, pass_id: str) -> None:
        self._telemetry.board.tell(key, Progress(pass_id, Stage.REQUESTED, self._conversations.now_us()))

    def _enqueue(self, key: StreamId, since_us: int) -> None:
        self.backlog.add(key, since_us)
        self._count_pending()
        self._queue.put_nowait(key)

    def _dequeue(self, key: StreamId) -> None:
        if key in self.backlog:
            self.backlog.remove(key)
            self._count_pending()

    def _count_pending(self) -> None:
        self._telemetry.metrics.passes_pending(len(self.backlog), oldest_timestamp_s=self.backlog.oldest_us / 1e6)

    def _schedule_end_of_wait(self, key: StreamId, at_us: int) -> None:
        if (handle := self._waits.pop(key, None)) is not None:
            handle.cancel()
        if self._stopping:
            return
        delay_s = max(0.0, (at_us - self._conversations.now_us()) / 1e6)
        self._waits[key] = asyncio.get_running_loop().call_later(delay_s, self._end_wait, key)

    def _end_wait(self, key: StreamId) -> None:
        self._waits.pop(key, None)
        self._spawn(self._wait_ended(key))

    async def _wait_ended(self, key: StreamId) -> None:
        state = await self._execute_quietly(
            key, lambda _: EndWait(self._conversations.new_id(), self._conversations.now_us())
        )
        now_us = self._conversations.now_us()
        if state is None:
            self._schedule_end_of_wait(key, now_us + int(COMMIT_PAUSE_MAX_S * 1e6))
        elif state.pending is None and state.waiting(now_us):
            # The timer runs by another clock than the wait, which may have a moment left.
            self._schedule_end_of_wait(key, state.wait_until_us)

    def _remake_one(self) -> None:
        """A model has just answered: make one fallback record anew. Its success leads to the next."""
        if self._fallbacks and not self._stopping:
            key = self._fallbacks.pop()
            self._spawn(self._remake(key))

    async def _remake(self, key: StreamId) -> None:
        state = await self._execute_quietly(
            key, lambda _: RemakeFallback(self._conversations.new_id(), self._conversations.now_us())
        )
        if state is None or state.live_is_fallback:
            # Not now, or not yet: it stays one of those that are still to be remade.
            self._fallbacks.add(key)
            self._schedule_probe()

    def _schedule_probe(self) -> None:
        if self._fallbacks and self._probe is None and not self._stopping:
            loop = asyncio.get_running_loop()
            self._probe = loop.call_later(self._probe_after_s, lambda: self._spawn(self._probe_model()))

    async def _probe_model(self) -> None:
        """Ask whether the model is back, ever less often, as long as there are fallback records."""
        self._probe = None
        if await self._maker.available():
            self._probe_after_s = PROBE_FIRST_S
            self._remake_one()
        else:
            self._probe_after_s = min(PROBE_MAX_S, 2 * self._probe_after_s)
        self._schedule_probe()

    async def _execute_quietly(
        self, key: StreamId, command: Callable[[Conversation], EndWait | RemakeFallback]
    ) -> Conversation | None:
        """The state behind the command; None when it could not be committed."""
        try:
            state, _ = await self._conversations.execute(key, command)
        except (DomainError, EventLogError) as error:
            _log.warning("pass.not_requested", conversation_id=key.name, error_type=type(error).__name__)
            return None
        return state

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_STOP = StreamId("", "")


def _within(ranges: tuple[MessageRange, ...], number: int) -> bool:
    return any(r.first <= number <= r.last for r in ranges)
