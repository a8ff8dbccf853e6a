"""Runs every requested pass, from claim to commit, also after a restart.

The trigger is on disk before anything here runs, and the record's event id derives from the pass, so a pass that is
interrupted anywhere runs again and ends once. No append ever waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import structlog

from abridged.eventlog.errors import EventLogError
from abridged.eventlog.event import StreamId
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.table import Attention
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import DomainError, TooManyPasses
from abridged.service.domain.events import (
    Event,
    PassPlan,
    SummarizationCleared,
    SummarizationRequested,
    SummarizationSkipped,
)
from abridged.service.domain.tokens import TokenCounter
from abridged.service.passes.claims import Claim, Claims
from abridged.service.passes.commits import TRANSIENT, CommitPauses, PassCommits
from abridged.service.passes.lookout import Lookout, MarkedTable
from abridged.service.passes.preparations import Preparations
from abridged.service.passes.queue import Backlog, PassQueue
from abridged.service.passes.run import UNWANTED, PassRun, PassRunner, failed_by_bug
from abridged.service.passes.source import PassSource
from abridged.service.passes.wakeups import Wakeups
from abridged.service.summarizer.summarizer import Summarizers
from abridged.service.telemetry.telemetry import Telemetry

EXTRACTIONS_MAX = 2
"""Extractive passes that run at once, in addition to those that ask a model: a full window does not wait for slow
models."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ReactorLimits:
    """Limits of a reactor.

    Attributes:
        concurrent_passes: Passes that ask a model at once.
        queue_max: Pending passes of a namespace above which forced ones are refused.
        multi_tenant: True if credentials name more than one namespace.
    """

    concurrent_passes: int
    queue_max: int
    multi_tenant: bool


class Reactor:
    """Runs passes on one event loop, with separate queues for those that ask a model and those that do not."""

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
        claims: Claims,
        table: MarkedTable,
        pauses: CommitPauses | None = None,
    ) -> None:
        self._conversations = conversations
        self._telemetry = telemetry
        self._limits = limits
        self.backlog = Backlog()
        self._queue = PassQueue(workers=limits.concurrent_passes, multi_tenant=limits.multi_tenant)
        self._extractions = PassQueue(workers=EXTRACTIONS_MAX, multi_tenant=limits.multi_tenant)
        self._running: dict[StreamId, PassRun] = {}
        self._again: dict[StreamId, PassQueue] = {}
        self._hurried: dict[StreamId, str] = {}
        self._workers: list[asyncio.Task[None]] = []
        self._postponed: dict[StreamId, asyncio.TimerHandle] = {}
        self._pauses = pauses or CommitPauses()
        self._claims = claims
        self._commits = PassCommits(conversations, claims=claims, pauses=self._pauses, hash_key=hash_key)
        self._lookout = Lookout(
            conversations,
            claims,
            table=table,
            busy=self.backlog,
            attend=self._attend,
            take=lambda key, state: self._enqueue(key, state.pending_since_us, state.pending),
        )
        self._wakeups = Wakeups(conversations, has_time=summarizers.wanted.has_time, pauses=self._pauses)
        source = PassSource(conversations.log, counter)
        self._preparations = Preparations(
            conversations,
            summarizers=summarizers,
            source=source,
            telemetry=telemetry,
            clock_s=clock_s,
            workers=limits.concurrent_passes,
            multi_tenant=limits.multi_tenant,
        )
        self._runner = PassRunner(
            conversations,
            summarizers=summarizers,
            commits=self._commits,
            claims=claims,
            preparations=self._preparations,
            source=source,
            telemetry=telemetry,
            clock_s=clock_s,
            on_model_answered=self._wakeups.model_answered,
        )
        self._stopping = False

    def start(self, attention: Iterable[Attention]) -> None:
        """Begin. `attention` is what earlier runs left: pending passes, waits, fallback records."""
        for row in attention:
            if row.pending:
                self._enqueue(row.key, self._conversations.now_us())
            self._attend(row)
        self._claims.start(self._lapsed)
        self._lookout.start()
        self._preparations.start()
        for queue in self._queues():
            for _ in range(queue.workers):
                name = f"pass worker {len(self._workers)}"
                self._workers.append(asyncio.create_task(self._work(queue), name=name))

    async def stop(self, *, grace_s: float) -> None:
        """Take no new passes. Running ones get `grace_s`, then stay pending in the log for the next start."""
        self._stopping = True
        await self._lookout.stop()
        for handle in self._postponed.values():
            handle.cancel()
        for queue in self._queues():
            queue.close()
        await self._preparations.stop()
        if self._workers:
            _, running = await asyncio.wait(self._workers, timeout=grace_s)
            for worker in running:
                worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        await self._wakeups.stop()
        await self._claims.stop()

    def changed(self, key: StreamId, state: Conversation, events: Sequence[Event]) -> None:
        """Act on a commit: queue a new pass, time a wait, count a skip."""
        for event in events:
            if isinstance(event, SummarizationRequested):
                self._telemetry.pass_requested(key, event.plan.pass_id, self._conversations.now_us())
                self._enqueue(key, state.pending_since_us, event.plan)
            elif isinstance(event, SummarizationCleared):
                self._telemetry.pass_cleared(key, event.plan, results=len(event.marks))
            elif isinstance(event, SummarizationSkipped) and not event.pass_id:
                self._telemetry.pass_not_begun(key, event.reason)
        self.caught_up(key, state)
        self._wakeups.changed(key, state)
        self._preparations.changed(key, state)

    def caught_up(self, key: StreamId, state: Conversation) -> None:
        """Act on what may be another process's commit: work no more on a pass that has ended, and hurry an emergency.
        The other process's own passes, waits and preparations are left to it."""
        if state.pending is None:
            self._dequeue(key)
        elif state.ratio >= state.pending.policy.emergency_token_ratio:
            self._queue.hurry(key)
        running = self._running.get(key)
        # Before it has an id it has read no plan yet, and reads the newest.
        ended = state.pending is None or (running is not None and state.pending.pass_id != running.pass_id)
        if running is not None and running.pass_id and ended:
            running.supersede()

    async def woken(self) -> None:
        """Return when every pass whose time has come has been requested."""
        await self._wakeups.woken()

    def loaded(self, key: StreamId, state: Conversation) -> None:
        """Act on a state read from the log, and take up what the start did not know about."""
        if state.pending is not None and key not in self.backlog and self._claims.may_claim(key, state):
            self._enqueue(key, state.pending_since_us, state.pending)
        self._wakeups.loaded(key, state)

    def stand_in(self, key: StreamId, pass_id: str) -> None:
        """Have extraction make the record of this pass at once, even if a model is working on it."""
        running = self._running.get(key)
        if running is None:
            if self._hurried.get(key) != pass_id or key not in self._extractions:
                self._forget_postponed(key)
                self._hurried[key] = pass_id
                self._extractions.put(key, urgent=True)
        elif running.pass_id in ("", pass_id):
            running.hurry()
        else:
            self._hurried[key] = pass_id
            self._again[key] = self._extractions

    def require_room(self, namespace: str) -> None:
        """Raise TooManyPasses if too many are pending. Only forced passes are refused; triggered ones are delayed."""
        if self.backlog.of_namespace(namespace) >= self._limits.queue_max:
            raise TooManyPasses(retry_after_s=5.0)

    def _queues(self) -> tuple[PassQueue, PassQueue]:
        return self._queue, self._extractions

    async def _work(self, queue: PassQueue) -> None:
        while (key := await queue.take()) is not None:
            if key in self._running:
                self._again[key] = queue
                queue.done(key)
                continue
            run = self._running[key] = PassRun()
            try:
                await self._run(key, run, queue)
            except UNWANTED:
                _log.info("pass.superseded", conversation_id=key.name)
                await self._leave(key)
            except TRANSIENT as error:
                self._postpone(key, error)
            except Exception as error:  # noqa: BLE001 - supervision: one broken pass must not stop the others
                _log.error("pass.crashed", conversation_id=key.name, error_type=type(error).__name__, exc_info=True)
                await self._give_up(key)
            finally:
                del self._running[key]
                queue.done(key)
                if (again := self._again.pop(key, None)) is not None:
                    again.put(key, urgent=again is self._extractions)

    async def _run(self, key: StreamId, run: PassRun, queue: PassQueue) -> None:
        hurried = self._hurried.get(key, "")
        state = await self._conversations.state(key)
        plan = state.pending
        if plan is None:
            self._dequeue(key)
            return
        if hurried != plan.pass_id and not self._claims.may_claim(key, state):
            self._dequeue(key)
            return
        run.pass_id = plan.pass_id
        run.stands_in |= plan.extractive or hurried == plan.pass_id
        if queue is self._extractions and not run.stands_in:
            # Nobody knew which pass it is: one that asks a model must not keep the queue of those that ask none.
            self._to_model(key)
            return
        self._note_pending(key, state.pending_since_us)
        await self._runner.run(key, run, state, plan)
        if hurried and self._hurried.get(key) == hurried:
            del self._hurried[key]

    async def _give_up(self, key: StreamId) -> None:
        """Fail the pending pass after a bug, so that the conversation does not stay pending for ever."""
        try:
            state = await self._conversations.state(key)
            if state.pending is not None and self._claims.may_claim(key, state):
                claim = Claim(key, state.pending.pass_id, state.claim_token)
                await self._commits.fail(claim, failed_by_bug(), is_held=False)
                self._claims.end(claim)
            else:
                self._dequeue(key)
        except TRANSIENT as error:
            self._postpone(key, error)
        except Exception as error:  # noqa: BLE001 - supervision: what cannot even be failed must not end its worker
            _log.error("pass.not_ended", conversation_id=key.name, error_type=type(error).__name__)
            self._dequeue(key)  # nobody waits for what nobody works on; a load of the conversation takes it up again

    def _attend(self, row: Attention) -> None:
        if not row.pending and row.wait_until_us:
            self._wakeups.end_wait_at(row.key, row.wait_until_us)
        elif not row.pending and row.idle_from_us:
            self._wakeups.ask_after_silence(row.key, row.idle_from_us)
        if row.fallback:
            self._wakeups.remake_later(row.key)

    def _lapsed(self, key: StreamId) -> None:
        if (running := self._running.get(key)) is not None:
            running.supersede()

    async def _leave(self, key: StreamId) -> None:
        """Work no more on a pass that has ended or is another process's, but on one that nobody has claimed yet. A look
        around finds the others."""
        if any(key in waiting for waiting in (*self._queues(), self._again, self._postponed)):
            return
        try:
            state = await self._conversations.state(key)
        except (DomainError, EventLogError):
            self._dequeue(key)  # a look around finds it, or a load of the conversation
            return
        if state.pending is not None and not state.claim_token:
            self._enqueue(key, state.pending_since_us, state.pending)
        else:
            self._dequeue(key)

    def _postpone(self, key: StreamId, error: Exception) -> None:
        """Try the whole pass again later; its claims bound how often that reaches a model."""
        _log.warning("pass.postponed", conversation_id=key.name, error_type=type(error).__name__)
        if not self._stopping:
            self._forget_postponed(key)
            self._postponed[key] = asyncio.get_running_loop().call_later(self._pauses.max_s, self._resume, key)

    def _resume(self, key: StreamId) -> None:
        self._forget_postponed(key)
        self._extractions.put(key)

    def _forget_postponed(self, key: StreamId) -> None:
        if (handle := self._postponed.pop(key, None)) is not None:
            handle.cancel()

    def _enqueue(self, key: StreamId, since_us: int, plan: PassPlan | None = None) -> None:
        self._forget_postponed(key)
        self._note_pending(key, since_us)
        if plan is None or plan.extractive:
            self._extractions.put(key)
        else:
            self._to_model(key)

    def _to_model(self, key: StreamId) -> None:
        self._preparations.make_room(self.backlog)
        self._queue.put(key)

    def _note_pending(self, key: StreamId, since_us: int) -> None:
        self.backlog.add(key, since_us)
        self._count_pending()

    def _dequeue(self, key: StreamId) -> None:
        self._queue.discard(key)
        self._extractions.discard(key)
        self._hurried.pop(key, None)
        self._claims.forget(key)
        if key in self.backlog:
            self.backlog.remove(key)
            self._count_pending()

    def _count_pending(self) -> None:
        self._telemetry.passes_pending(len(self.backlog), self.backlog.oldest_us)
        self._preparations.passes_pending(len(self.backlog))
