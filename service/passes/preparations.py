"""Preparations: records that are written before their trigger, one step below every pass.

Prepared records live in memory; a restart loses a call of a model and nothing else. No event exists before the trigger.
A preparation begins only while no pass is pending and the models are idle; a pass that becomes pending cancels those of
other conversations, and waits for its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from typing import Final

import structlog

from abridged.eventlog.errors import EventLogError
from abridged.eventlog.event import StreamId
from abridged.observability.facts import PreparationOutcome, PreparationStarted
from abridged.service.conversations.conversations import Conversations
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import DomainError
from abridged.service.domain.preparation import has_grown
from abridged.service.models.model import Completion
from abridged.service.passes.prepared import Prepared, Question
from abridged.service.passes.queue import PassQueue
from abridged.service.passes.source import PassSource
from abridged.service.summarizer.summarizer import PassFailed, PassWork, Summarizers
from abridged.service.telemetry.telemetry import Telemetry
from abridged.service.turn import run_off_loop

WAITING_MAX: Final = 256
"""Conversations that wait to be prepared. The next message tries again for those beyond it."""

KEPT_MAX: Final = 1_024
"""Prepared records in memory, of up to some 10 kB each; the oldest goes first."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Tried:
    """The last preparation of a window; `prepared` is None when that failed."""

    question: Question
    epoch: int
    prepared: Prepared | None


@dataclass(slots=True, eq=False)
class _Running:
    """A preparation under way, which the pass of its conversation may have `claimed`."""

    question: Question
    epoch: int
    call: asyncio.Task[Prepared]
    claimed: bool = False

    async def result(self) -> Prepared | None:
        """The call's result; None if it failed."""
        try:
            return await self.call
        except PassFailed:
            return None


class _Counted:
    """An observer that only adds up tokens: preparations have no watchers."""

    def __init__(self) -> None:
        self.tokens_in = self.tokens_out = 0

    def attempt(self, number: int, model: str) -> None:
        """See Observer."""

    def output(self, chars: int) -> None:
        """See Observer."""

    def answered(self, completion: Completion) -> None:
        """See Observer."""
        self.tokens_in += completion.input_tokens
        self.tokens_out += completion.output_tokens

    def calls(self, done: int, total: int) -> None:
        """See Observer."""


class Preparations:
    """Prepares records with the wanted summarizer, at most `workers` at once. Lives on one event loop."""

    def __init__(
        self,
        conversations: Conversations,
        *,
        summarizers: Summarizers,
        source: PassSource,
        telemetry: Telemetry,
        clock_s: Callable[[], float],
        workers: int,
        multi_tenant: bool,
    ) -> None:
        self._conversations = conversations
        self._wanted = summarizers.wanted
        self._source = source
        self._stopping = False
        self._telemetry = telemetry
        self._clock_s = clock_s
        self._queue = PassQueue(workers=workers, multi_tenant=multi_tenant)
        self._waiting: set[StreamId] = set()
        self._taken: set[StreamId] = set()
        self._running: dict[StreamId, _Running] = {}
        self._tried: dict[StreamId, _Tried] = {}
        self._no_pass_pending = asyncio.Event()
        self._no_pass_pending.set()
        self._workers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin."""
        self._workers = [
            asyncio.create_task(self._work(), name=f"preparation worker {n}") for n in range(self._queue.workers)
        ]

    async def stop(self) -> None:
        """Prepare nothing more; preparations that passes wait for continue."""
        self._stopping = True
        self._queue.close()
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        for key in list(self._tried):
            self._forget(key, "shutdown")

    def passes_pending(self, count: int) -> None:
        """Note how many passes are pending: preparations begin while that is 0."""
        if count:
            self._no_pass_pending.clear()
        else:
            self._no_pass_pending.set()

    def make_room(self, pending: Container[StreamId]) -> None:
        """A pass is going to ask a model: cancel preparations, but for those of conversations with a pending pass.

        A pending pass claims its preparation or cancels it itself.
        """
        for key in [key for key, running in self._running.items() if key not in pending and not running.claimed]:
            self._cancel(key)

    def changed(self, key: StreamId, state: Conversation) -> None:
        """Act on the state after a commit: queue what may be due, and drop what another window was prepared for."""
        tried, running = self._tried.get(key), self._running.get(key)
        if tried is not None and (state.closed or tried.epoch != state.epoch):
            self._forget(key, "window_changed")
        if running is not None and not running.claimed and (state.closed or running.epoch != state.epoch):
            self._cancel(key)
        if self._stopping or not self._conversations.may_prepare(state):
            self._waiting.discard(key)
            self._queue.discard(key)
        elif key not in self._taken and len(self._waiting) < WAITING_MAX:
            self._waiting.add(key)
            self._queue.put(key)

    async def take(self, key: StreamId, work: PassWork) -> Prepared | None:
        """Return the preparation for this pass, waited for if it is under way; None if nothing still stands.

        The caller reports its outcome by `ended`, or puts it back.
        """
        running, tried = self._running.get(key), self._tried.pop(key, None)
        if running is None:
            prepared = tried.prepared if tried is not None else None
        else:
            running.claimed = True
            asked = running.question
            if not await run_off_loop(len(work.messages), lambda: asked.stands_in(work)) and running.call.cancel():
                return None
            prepared = await running.result()
        if prepared is None or await run_off_loop(len(work.messages), lambda: prepared.stands_in(work)):
            return prepared
        self.ended(key, PreparationOutcome.WASTED, "range_changed")
        return None

    def put_back(self, key: StreamId, prepared: Prepared) -> None:
        """Keep what a pass took and could not commit yet."""
        self._keep(key, _Tried(prepared.question, prepared.epoch, prepared))

    def ended(self, key: StreamId, outcome: PreparationOutcome, reason: str = "") -> None:
        """Report what became of a preparation."""
        self._telemetry.preparation_ended(key, outcome, reason)

    async def _work(self) -> None:
        while (key := await self._queue.take()) is not None:
            self._waiting.discard(key)
            self._taken.add(key)
            try:
                await self._no_pass_pending.wait()
                await self._prepare(key)
            except (DomainError, EventLogError) as error:
                _log.info("preparation.left_out", conversation_id=key.name, error_type=type(error).__name__)
            except Exception as error:  # noqa: BLE001 - supervision: one broken preparation must not stop the others
                _log.error(
                    "preparation.crashed", conversation_id=key.name, error_type=type(error).__name__, exc_info=True
                )
            finally:
                self._taken.discard(key)
                self._queue.done(key)

    async def _prepare(self, key: StreamId) -> None:
        state = await self._conversations.state(key)
        plan = await self._conversations.preparable(key, state)
        tried = self._tried.get(key)
        if plan is None or (tried is not None and not has_grown(plan, since=tried.question.plan)):
            return
        if not await self._wanted.has_time():
            return
        work = await self._source.work(key, state, plan)
        question = await run_off_loop(len(work.messages), lambda: Question.of(work))
        state = await self._conversations.state(key)  # models were asked for their time meanwhile
        if not self._no_pass_pending.is_set() or not self._conversations.may_prepare(state):
            return
        self._forget(key, "range_grown")
        await self._finished(key, work, question, state)

    async def _finished(self, key: StreamId, work: PassWork, question: Question, state: Conversation) -> None:
        """Run the preparation to its end, however it ends."""
        call = asyncio.create_task(self._written(key, work, question, state))
        running = self._running[key] = _Running(question, state.epoch, call)
        try:
            await asyncio.wait({call})
        except asyncio.CancelledError:
            if not running.claimed:
                call.cancel()
                self.ended(key, PreparationOutcome.CANCELLED)
            raise
        finally:
            self._running.pop(key, None)
        if call.cancelled():
            self.ended(key, PreparationOutcome.CANCELLED)
        elif (error := call.exception()) is not None:
            self._keep(key, _Tried(question, state.epoch, None))
            self.ended(key, PreparationOutcome.FAILED, type(error).__name__)
            if not isinstance(error, PassFailed):
                raise error
        elif not running.claimed:
            self._keep(key, _Tried(question, state.epoch, call.result()))

    async def _written(self, key: StreamId, work: PassWork, question: Question, state: Conversation) -> Prepared:
        began_s, counted = self._clock_s(), _Counted()
        fact = PreparationStarted(
            conversation_id=key.name,
            depth=work.plan.depth,
            ratio=state.ratio,
            tokens_before=work.plan.replaced_tokens,
            messages=len(work.messages),
            model=self._wanted.name,
        )
        with self._telemetry.preparation_begun(fact):
            # If it fails, the pass asks with seeds of its own.
            summary = await self._wanted.summarize(replace(work, redone=work.redone + 1), counted)
        return Prepared(
            question, summary, self._clock_s() - began_s, state.epoch, counted.tokens_in, counted.tokens_out
        )

    def _cancel(self, key: StreamId) -> None:
        """Cancel a preparation, which no pass can claim from now on."""
        self._running.pop(key).call.cancel()

    def _keep(self, key: StreamId, tried: _Tried) -> None:
        self._forget(key, "range_grown")
        self._tried[key] = tried
        if len(self._tried) > KEPT_MAX:
            self._forget(next(iter(self._tried)), "too_many")

    def _forget(self, key: StreamId, reason: str) -> None:
        tried = self._tried.pop(key, None)
        if tried is not None and tried.prepared is not None:
            self.ended(key, PreparationOutcome.WASTED, reason)
