"""One pass: claim it, read its work, make its summary, commit and report the outcome.

Nothing is written before the record, which takes one commit. A pass may stop at any moment: its claim is released, or
claimed again after a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import structlog

from eventlog.event import StreamId
from service.conversations.conversations import Conversations
from service.domain.conversation import Conversation, ShownRecord, record_named
from service.domain.errors import PassSuperseded
from service.domain.events import (
    ErrorClass,
    MessageAppended,
    PassPlan,
    SummarizationCompleted,
    SummarizationFailed,
    SummarizationSkipped,
    Trigger,
)
from service.domain.ledger import NOTHING_FOUND, LedgerFinds
from service.domain.message import Message, Role
from service.domain.policy import Fallback
from service.domain.ranges import partitioned, ranges_of, without
from service.domain.record import FormName, MessageRange
from service.domain.sizes import ledger_tokens_max
from service.domain.tokens import TokenCounter
from service.passes.commits import TRANSIENT, PassCommits
from service.passes.report import PassReport
from service.summarizer.finds import finds_of
from service.summarizer.summarizer import PassFailed, PassResult, PassWork, Summarizers, Summary, record_of
from service.telemetry.telemetry import Telemetry

__all__ = ["PassRun", "PassRunner", "failed_by_bug"]

CLAIMS_MAX = 3
"""A pass that was claimed this often and never ended probably kills the process, so it is failed instead."""

SOURCE_MESSAGES_MAX = 100_000

_log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class PassRun:
    """A running pass, which others may end or hurry. `pass_id` is empty until its plan is read."""

    pass_id: str = ""
    call: asyncio.Task[Summary] | None = None
    stands_in: bool = False
    superseded: bool = False

    def interrupt(self) -> None:
        """Cancel the summarizer's call."""
        if self.call is not None:
            self.call.cancel()

    def supersede(self) -> None:
        """Stop: the pass is no longer wanted."""
        self.superseded = True
        self.interrupt()

    def hurry(self) -> None:
        """Have extraction stand in at once."""
        self.stands_in = True
        self.interrupt()


class PassRunner:
    """Runs passes. `counter` counts identifiers; `on_model_answered` is called after each success of a model."""

    def __init__(
        self,
        conversations: Conversations,
        *,
        summarizers: Summarizers,
        commits: PassCommits,
        telemetry: Telemetry,
        counter: TokenCounter,
        clock_s: Callable[[], float],
        on_model_answered: Callable[[], None],
    ) -> None:
        self._conversations = conversations
        self._summarizers = summarizers
        self._commits = commits
        self._telemetry = telemetry
        self._counter = counter
        self._clock_s = clock_s
        self._on_model_answered = on_model_answered

    async def run(self, key: StreamId, run: PassRun, state: Conversation, plan: PassPlan) -> None:
        """Run the pass from claim to end. Raises PassSuperseded if it is no longer wanted, or an EventLogError."""
        claimed_too_often = state.claims >= CLAIMS_MAX
        if not claimed_too_often and not await self._commits.claim(key, plan):
            _log.info("pass.cancelled", conversation_id=key.name, summarization_id=plan.pass_id)
            return
        wanted = self._summarizers.extraction if plan.extractive else self._summarizers.wanted
        report = PassReport(self._telemetry, key, plan, model=wanted.name, now_us=self._conversations.now_us)
        trigger = await self._conversations.log.requested_by(key, _first_pass_id(state, plan))
        with report.opened(trigger):
            try:
                if claimed_too_often:
                    await self._fail(key, plan, report, _internal("the sidecar stopped in it too often"))
                else:
                    await self._make(key, run, plan, report)
            except asyncio.CancelledError:
                report.cancelled()
                if not claimed_too_often:
                    await self._commits.release(key, plan)
                raise
            except (PassSuperseded, *TRANSIENT):
                report.cancelled()
                raise
            except Exception:
                report.failed(failed_by_bug())
                raise

    async def _make(self, key: StreamId, run: PassRun, plan: PassPlan, report: PassReport) -> None:
        work = await self._work(key, plan)
        try:
            result = await self._result(key, run, work, report)
        except PassFailed as failure:
            await self._fail(key, plan, report, failure)
            return
        after, events = await self._commits.complete(key, plan, result)
        if isinstance(events[0], SummarizationCompleted):
            report.completed(result, after)
            if not result.fallback:
                self._on_model_answered()
        elif isinstance(events[0], SummarizationFailed):
            report.cancelled()
        else:
            assert isinstance(events[0], SummarizationSkipped)
            report.skipped(events[0].reason.value)

    async def _result(self, key: StreamId, run: PassRun, work: PassWork, report: PassReport) -> PassResult:
        """The model's record, or an extract if the policy or the operator's list wants one."""
        if work.plan.extractive or self._summarizers.wants_extraction:
            if not self._summarizers.wants_extraction:
                report.went_unasked((await self._conversations.state(key)).failures_in_row)
            return await self._extracted(work, report, None)
        began_s = self._clock_s()
        try:
            summary = await self._wanted_summary(run, work, report)
        except PassFailed as failure:
            # A missing model is not a failing one, so the next pass does not wait.
            if work.plan.trigger is not Trigger.REMAKE and self._summarizers.is_listed_for(failure):
                report.fell_back(failure, self._summarizers.extraction.name)
                return await self._extracted(work, report, None, after=failure)
            if not run.stands_in and not await self._falls_back(key, work.plan):
                raise
            report.fell_back(failure, self._summarizers.extraction.name)
            return await self._extracted(work, report, failure, after=failure)
        return self._made(work, summary, began_s)

    async def _wanted_summary(self, run: PassRun, work: PassWork, report: PassReport) -> Summary:
        """The wanted summarizer's summary. Raises PassFailed also if extraction is to stand in before it is ready."""
        if run.superseded:
            raise PassSuperseded
        if run.stands_in:
            raise self._interrupted(report)
        run.call = asyncio.create_task(self._summarizers.wanted.summarize(work, report))
        try:
            return await run.call
        except asyncio.CancelledError:
            if run.superseded:
                raise PassSuperseded from None
            if run.stands_in:
                raise self._interrupted(report) from None
            raise
        finally:
            run.call = None

    async def _extracted(
        self, work: PassWork, report: PassReport, failure: PassFailed | None, *, after: PassFailed | None = None
    ) -> PassResult:
        """The extract. The next pass waits for `failure`; `after` is the failure that came first in any case."""
        attempts, tried = (after.attempts, after.tried) if after else (0, ())
        began_s = self._clock_s()
        try:
            summary = await self._summarizers.extraction.summarize(work, report)
        except PassFailed as failed:
            failed.attempts, failed.tried = attempts, (*tried, *failed.tried)
            failed.asked = after is not None and after.asked
            raise
        summary = replace(summary, attempts=attempts)
        return replace(
            self._made(work, summary, began_s),
            fallback=not self._summarizers.wants_extraction,
            failure=failure,
            interrupted=failure is not None and failure.error_class is ErrorClass.CANCELLED,
            tried=(*tried, *summary.tried),
        )

    def _made(self, work: PassWork, summary: Summary, began_s: float) -> PassResult:
        latency_ms = round((self._clock_s() - began_s) * 1_000)
        record = record_of(work, summary, create_time_us=self._conversations.now_us(), latency_ms=latency_ms)
        finds = work.finds.corrected(summary.taught)
        return PassResult(record, summary.source, tried=summary.tried, finds=finds)

    def _interrupted(self, report: PassReport) -> PassFailed:
        cause = "the window was over its budget before the model had answered"
        failure = PassFailed(ErrorClass.CANCELLED, retryable=True, cause=cause, asked=report.attempts > 0)
        failure.attempts = report.attempts
        failure.tried = (self._summarizers.wanted.name,) if report.attempts else ()
        return failure

    async def _falls_back(self, key: StreamId, plan: PassPlan) -> bool:
        if plan.trigger is Trigger.REMAKE:
            return False
        if plan.policy.fallback is Fallback.EMERGENCY:
            state = await self._conversations.state(key)
            return plan.trigger is Trigger.EMERGENCY or state.ratio >= plan.policy.emergency_token_ratio
        return plan.policy.fallback is Fallback.ALWAYS

    async def _work(self, key: StreamId, plan: PassPlan) -> PassWork:
        """The messages of the source, or the texts of the records that the pass merges."""
        state = await self._conversations.state(key)
        previous = record_named(state, plan.base_id) if plan.base_id else None
        replaces = record_named(state, plan.replaces_id) if plan.replaces_id else None
        settings = state.settings
        names = plan.merged_ids if plan.form is FormName.DIGEST else ()
        found = (record_named(state, name) for name in names)
        merged = tuple(ShownRecord(r, state.sources[r.id], short=bool(r.short_summary)) for r in found if r)
        messages = tuple(map(_as_message, merged)) if merged else await self._chat(key, state, plan.source)
        finds = await self._finds(key, state, plan)
        share = ledger_tokens_max(state, plan.policy)
        ledger = state.ledger.after(finds._replace(limit_tokens=share, memory_tokens=share))
        return PassWork(
            key.name,
            plan,
            messages,
            previous,
            settings.model,
            replaces,
            settings.calibration_factor,
            overlap=await self._chat(key, state, plan.overlap) if plan.overlap else (),
            merged=merged,
            finds=finds,
            in_ledger=frozenset(entry.key for entry in ledger.in_window),
        )

    async def _chat(
        self, key: StreamId, state: Conversation, ranges: tuple[MessageRange, ...]
    ) -> tuple[MessageAppended, ...]:
        """The messages of these ranges, from the window if it has them all as they were appended, else from the log."""
        inside, _ = partitioned(state.window, ranges)
        messages: Sequence[MessageAppended] = inside
        if len(inside) < sum(map(len, ranges)) or any(m.cleared_tokens for m in inside):
            messages = await self._conversations.log.originals(
                key, head=state.event_version, limit=SOURCE_MESSAGES_MAX, within=ranges
            )
        return tuple(m for m in messages if m.message.role is not Role.SYSTEM)

    async def _finds(self, key: StreamId, state: Conversation, plan: PassPlan) -> LedgerFinds:
        """The identifiers of the messages that leave the window by the pass, as they were appended; none leaves by a
        remake."""
        if plan.trigger is Trigger.REMAKE or not ledger_tokens_max(state, plan.policy):
            return NOTHING_FOUND
        inside, staying = partitioned(state.window, without(plan.covered, ranges_of(state.pins)))
        ranges = ranges_of(m.number for m in inside)
        leaving = await self._chat(key, state, ranges) if ranges else ()
        counter = self._counter.of(state.settings.model)
        source = counter.source_for(state.settings.model)
        find = partial(finds_of, leaving, staying, state.ledger, counter=counter, source=source)
        return await asyncio.to_thread(find)

    async def _fail(self, key: StreamId, plan: PassPlan, report: PassReport, failure: PassFailed) -> None:
        await self._commits.fail(key, plan, failure)
        report.failed(failure)


def _as_message(shown: ShownRecord) -> MessageAppended:
    """A record as a message of a transcript, with the number of its first message."""
    record = shown.record
    text = record.short_summary if shown.short else record.summary
    message = Message(id=record.id, role=Role.ASSISTANT, content=text)
    return MessageAppended(record.covered[0].first, message, shown.tokens, shown.source)


def failed_by_bug() -> PassFailed:
    """The failure of a pass that ended by a bug of ours."""
    return _internal("a bug of the sidecar; its log says more")


def _internal(cause: str) -> PassFailed:
    return PassFailed(ErrorClass.INTERNAL, retryable=False, cause=cause)


def _first_pass_id(state: Conversation, plan: PassPlan) -> str:
    """The id of the pass whose trigger led to `plan`: its own, or for a remake that of the record it replaces.

    A remake runs because a model is back, which another conversation may have noticed.
    """
    made_by = {ended.record_id: ended.plan for ended in state.passes if ended.record_id}
    while plan.trigger is Trigger.REMAKE and plan.replaces_id in made_by:
        plan = made_by[plan.replaces_id]
    return plan.pass_id
