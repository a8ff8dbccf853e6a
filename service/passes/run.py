"""One pass: claim it, read its work, make its summary, commit and report the outcome.

The pass writes no event but its claim before the record, which takes one commit. A pass may stop at any moment: its
claim is released, or claimed again after a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import structlog

from abridged.eventlog.event import StreamId
from abridged.observability.facts import PreparationOutcome
from abridged.service.conversations.conversations import Conversations
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import ConversationIsArchived, ConversationIsErased, PassSuperseded
from abridged.service.domain.events import (
    ErrorClass,
    PassPlan,
    SummarizationCompleted,
    SummarizationFailed,
    SummarizationSkipped,
    Trigger,
)
from abridged.service.domain.policy import Fallback
from abridged.service.domain.preparation import suffices
from abridged.service.passes.claims import Claim, Claims
from abridged.service.passes.commits import TRANSIENT, PassCommits
from abridged.service.passes.preparations import Preparations
from abridged.service.passes.prepared import Prepared
from abridged.service.passes.report import PassReport
from abridged.service.passes.source import PassSource
from abridged.service.summarizer.summarizer import PassFailed, PassResult, PassWork, Summarizers, Summary, record_of
from abridged.service.telemetry.telemetry import Telemetry
from abridged.service.turn import run_off_loop

CLAIMS_MAX = 3
"""A pass that was claimed this often and never ended probably kills the process, so it is failed instead."""

UNWANTED: Final = (PassSuperseded, ConversationIsErased, ConversationIsArchived)
"""The ends of a pass whose record nobody wants any more."""

_log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class PassRun:
    """A running pass, which others may end or hurry. `pass_id` is empty until its plan is read.

    `outcome` is what becomes of the `prepared` record that it took, unless it puts it back.
    """

    pass_id: str = ""
    call: asyncio.Task[_Written] | None = None
    stands_in: bool = False
    superseded: bool = False
    prepared: Prepared | None = None
    extended: bool = False
    outcome: PreparationOutcome = PreparationOutcome.WASTED

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


class _Written(NamedTuple):
    """A summary, the work that it is of, and the seconds that it took before the pass began."""

    work: PassWork
    summary: Summary
    spent_s: float = 0.0


class PassRunner:
    """Runs passes. `on_model_answered` is called after each success of a model."""

    def __init__(
        self,
        conversations: Conversations,
        *,
        summarizers: Summarizers,
        commits: PassCommits,
        claims: Claims,
        preparations: Preparations,
        telemetry: Telemetry,
        source: PassSource,
        clock_s: Callable[[], float],
        on_model_answered: Callable[[], None],
    ) -> None:
        self._conversations = conversations
        self._summarizers = summarizers
        self._commits = commits
        self._claims = claims
        self._preparations = preparations
        self._telemetry = telemetry
        self._source = source
        self._clock_s = clock_s
        self._on_model_answered = on_model_answered

    async def run(self, key: StreamId, run: PassRun, state: Conversation, plan: PassPlan) -> None:
        """Run the pass from claim to end. Raises PassSuperseded if it is no longer wanted, or an EventLogError."""
        trigger = await self._conversations.log.requested_by(key, _first_pass_id(state, plan))
        # A stand-in in the place of another process's claim asks no model, and says nothing of that process's death.
        claimed_too_often = state.claims >= CLAIMS_MAX and (plan.extractive or not run.stands_in)
        claim = Claim(key, plan.pass_id, state.claim_token)
        if not claimed_too_often:
            claimed = await self._commits.claim(key, plan, after=claim.token)
            if claimed is None:
                _log.info("pass.cancelled", conversation_id=key.name, summarization_id=plan.pass_id)
                return
            state, claim, sent_s = claimed
            self._claims.begin(claim, sent_s)
        wanted = self._summarizers.extraction if plan.extractive else self._summarizers.wanted
        report = PassReport(
            self._telemetry,
            key,
            plan,
            model=wanted.name,
            now_us=self._conversations.now_us,
            before_attempt=lambda: self._claims.require(claim),
        )
        try:
            with report.opened(trigger):
                await self._ended(run, state, plan, claim, report, claimed_too_often=claimed_too_often)
            self._claims.end(claim)
        finally:
            self._claims.leave(claim)

    async def _ended(
        self,
        run: PassRun,
        state: Conversation,
        plan: PassPlan,
        claim: Claim,
        report: PassReport,
        *,
        claimed_too_often: bool,
    ) -> None:
        try:
            if claimed_too_often:
                await self._fail(claim, report, _internal("the sidecar stopped in it too often"), is_held=False)
            else:
                await self._make(claim, run, state, plan, report)
        except asyncio.CancelledError:
            report.cancelled()
            if not claimed_too_often:
                await self._commits.release(claim)
                await self._claims.release(claim)
            raise
        except (*UNWANTED, *TRANSIENT):
            report.cancelled()
            raise
        except Exception:
            report.failed(failed_by_bug())
            raise

    async def _make(self, claim: Claim, run: PassRun, state: Conversation, plan: PassPlan, report: PassReport) -> None:
        key = claim.key
        try:
            await self._summarized(claim, run, state, plan, report)
        except TRANSIENT:
            if run.prepared is not None:
                self._preparations.put_back(key, run.prepared)
                run.prepared = None
            raise
        finally:
            if run.prepared is not None:
                reason = "not_published" if run.outcome is PreparationOutcome.WASTED else ""
                self._preparations.ended(key, run.outcome, reason)

    async def _summarized(
        self, claim: Claim, run: PassRun, state: Conversation, plan: PassPlan, report: PassReport
    ) -> None:
        key = claim.key
        try:
            result = await self._result(key, run, state, await self._source.work(key, state, plan), report)
        except PassFailed as failure:
            await self._fail(claim, report, failure)
            return
        after, events = await self._commits.complete(claim, result)
        if isinstance(events[0], SummarizationCompleted):
            report.completed(result, after)
            if not result.fallback:
                run.outcome = PreparationOutcome.EXTENDED if run.extended else PreparationOutcome.USED
                self._on_model_answered()
        elif isinstance(events[0], SummarizationFailed):
            report.cancelled()
        else:
            assert isinstance(events[0], SummarizationSkipped)
            report.skipped(events[0].reason.value)

    async def _result(
        self, key: StreamId, run: PassRun, state: Conversation, work: PassWork, report: PassReport
    ) -> PassResult:
        """The model's record, or an extract if the policy or the operator's list wants one."""
        if work.plan.extractive or self._summarizers.wants_extraction:
            if not self._summarizers.wants_extraction:
                report.went_unasked(state.failures_in_row)
            return await self._extracted(work, report)
        began_s = self._clock_s()
        try:
            written = await self._wanted_summary(key, run, state, work, report)
        except PassFailed as failure:
            # A missing model is not a failing one, so the next pass does not wait.
            if work.plan.trigger is not Trigger.REMAKE and self._summarizers.is_listed_for(failure):
                report.fell_back(failure, self._summarizers.extraction.name)
                return await self._extracted(work, report, after=failure)
            if not run.stands_in and not await self._falls_back(key, work.plan):
                raise
            report.fell_back(failure, self._summarizers.extraction.name)
            return await self._extracted(work, report, after=failure, delays_next=True)
        return self._made(written.work, written.summary, began_s - written.spent_s, report)

    async def _wanted_summary(
        self, key: StreamId, run: PassRun, state: Conversation, work: PassWork, report: PassReport
    ) -> _Written:
        """The wanted summarizer's summary. Raises PassFailed also if extraction is to stand in before it is ready."""
        if run.superseded:
            raise PassSuperseded
        if run.stands_in:
            raise self._interrupted(report)
        run.call = asyncio.create_task(self._written(key, run, state, work, report))
        try:
            return await run.call
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            if run.superseded:
                raise PassSuperseded from None
            if run.stands_in:
                raise self._interrupted(report) from None
            raise
        finally:
            run.call = None

    async def _written(
        self, key: StreamId, run: PassRun, state: Conversation, work: PassWork, report: PassReport
    ) -> _Written:
        """The wanted summarizer's summary: the prepared one where that suffices, else one on top of it, else a new
        one."""
        wanted = self._summarizers.wanted
        prepared = run.prepared = await self._preparations.take(key, work)
        if prepared is None:
            return _Written(work, await wanted.summarize(work, report))
        part = work
        if not prepared.covers(work.plan):
            # Fewer messages leave the window, and so fewer identifiers go into the ledger.
            part = await self._source.with_finds(key, state, prepared.of_pass(work))
        if part is work or await self._suffices(key, part, prepared.summary, report):
            report.prepared(prepared.tokens_in, prepared.tokens_out)
            return _Written(part, prepared.summary, prepared.latency_s)
        rest = prepared.rest_of(work)
        if rest is None:
            run.prepared = None
            self._preparations.ended(key, PreparationOutcome.WASTED, "not_extensible")
            return _Written(work, await wanted.summarize(work, report))
        run.extended = True
        report.prepared(prepared.tokens_in, prepared.tokens_out)
        summary = await wanted.summarize(rest, report)
        attempts = prepared.summary.attempts + summary.attempts
        tried = tuple(dict.fromkeys((*prepared.summary.tried, *summary.tried)))
        return _Written(rest, replace(summary, attempts=attempts, tried=tried), prepared.latency_s)

    async def _suffices(self, key: StreamId, part: PassWork, summary: Summary, report: PassReport) -> bool:
        """Return whether the record of a part of the range is enough for the window, which may have grown since the
        claim."""
        state, now_us = await self._conversations.state(key), self._conversations.now_us()
        result = self._made(part, summary, self._clock_s(), report)
        completed = SummarizationCompleted(
            part.plan.pass_id, result.record, result.source, False, finds=result.finds, rules=result.rules
        )
        return await run_off_loop(self._conversations.window_weight(key), lambda: suffices(state, completed, now_us))

    async def _extracted(
        self, work: PassWork, report: PassReport, *, after: PassFailed | None = None, delays_next: bool = False
    ) -> PassResult:
        """The extract. `after` is the failure that came first; with `delays_next` the next pass waits for it."""
        attempts, tried = (after.attempts, after.tried) if after else (0, ())
        began_s = self._clock_s()
        try:
            summary = await self._summarizers.extraction.summarize(work, report)
        except PassFailed as failed:
            failed.attempts, failed.tried = attempts, (*tried, *failed.tried)
            failed.asked = after is not None and after.asked
            raise
        summary = replace(summary, attempts=attempts)
        failure = after if delays_next else None
        return replace(
            self._made(work, summary, began_s, report),
            fallback=not self._summarizers.wants_extraction,
            failure=failure,
            interrupted=failure is not None and failure.error_class is ErrorClass.CANCELLED,
            tried=(*tried, *summary.tried),
        )

    def _made(self, work: PassWork, summary: Summary, began_s: float, report: PassReport) -> PassResult:
        latency_ms = round((self._clock_s() - began_s) * 1_000)
        tokens_read, tokens_written = report.tokens
        record = replace(
            record_of(work, summary, create_time_us=self._conversations.now_us(), latency_ms=latency_ms),
            tokens_read=tokens_read,
            tokens_written=tokens_written,
        )
        finds, rules = work.finds.corrected(summary.taught), work.rules.corrected(summary.taught)
        return PassResult(record, summary.source, tried=summary.tried, finds=finds, leaving=work.leaving, rules=rules)

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

    async def _fail(self, claim: Claim, report: PassReport, failure: PassFailed, *, is_held: bool = True) -> None:
        await self._commits.fail(claim, failure, is_held=is_held)
        report.failed(failure)


def _is_cancelled() -> bool:
    """Return whether the pass itself is to end, by a shutdown; an interruption cancels only its call."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def failed_by_bug() -> PassFailed:
    """The failure of a pass that a bug ended."""
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
