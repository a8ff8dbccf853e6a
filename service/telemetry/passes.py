"""What a pass tells while it runs and when it is over: to watchers, spans, metrics and logs. Never any text."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from eventlog.event import StreamId
from observability.facts import (
    ChatAnswered,
    ChatFailed,
    ChatStarted,
    ErrorClass,
    PassEnded,
    PassOutcome,
    PassStarted,
    PassTrigger,
    RecordCommitted,
    SkipReason,
)
from observability.metrics import Metrics
from observability.tracing import Span, Tracing, sampled_trace_id
from service.domain.checks.secrets import mask_secrets
from service.domain.conversation import Conversation
from service.domain.events import PassPlan
from service.domain.record import Provenance
from service.models.model import Completion, CompletionRequest, ModelDescription, ModelError, OnProgress, SummaryModel
from service.summarizer.summarizer import PassFailed, PassResult
from service.telemetry.progress import Progress, ProgressBoard, Stage

__all__ = ["PassReport", "Telemetry", "TracedModel"]

SHOWN_CHARS_MAX = 200
"""What the debug log shows of a bad answer, and only when content logging is on."""

_log = structlog.get_logger()


class Telemetry:
    """Where reports go."""

    def __init__(self, metrics: Metrics, tracing: Tracing, board: ProgressBoard, *, log_content: bool) -> None:
        self.metrics = metrics
        self.tracing = tracing
        self.board = board
        self.log_content = log_content


class TracedModel:
    """A model whose calls are spans."""

    def __init__(self, model: SummaryModel, tracing: Tracing) -> None:
        self._model = model
        self._tracing = tracing

    @property
    def name(self) -> str:
        """See SummaryModel."""
        return self._model.name

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
        """See SummaryModel."""
        provider, _, model = self.name.partition(":")
        fact = ChatStarted(
            provider=provider,
            model=model,
            conversation_id=request.conversation_id,
            prompt_name=request.prompt_name,
            prompt_version=request.prompt_version,
            temperature=request.temperature,
            seed=request.seed,
            output_tokens_max=request.output_tokens_max,
            attempt=request.attempt,
            compacted=request.compacted,
        )
        with self._tracing.span(fact) as span:
            try:
                completion = await self._model.complete(request, deadline_s=deadline_s, on_progress=on_progress)
            except ModelError as error:
                span.note(ChatFailed(ErrorClass(error.error_class)))
                raise
            span.note(
                ChatAnswered(
                    model=completion.response_model or completion.model.partition(":")[2],
                    finish_reason=completion.finish_reason,
                    input_tokens=completion.input_tokens,
                    output_tokens=completion.output_tokens,
                )
            )
            return completion

    async def describe(self) -> ModelDescription:
        """See SummaryModel."""
        return await self._model.describe()

    async def idle(self) -> bool:
        """See SummaryModel."""
        return await self._model.idle()

    async def close(self) -> None:
        """See SummaryModel."""
        await self._model.close()


class PassReport:
    """One pass, as others hear of it. It is the observer of the pass's calls."""

    def __init__(
        self, telemetry: Telemetry, key: StreamId, plan: PassPlan, *, model: str, now_us: Callable[[], int]
    ) -> None:
        self._telemetry = telemetry
        self._key = key
        self._plan = plan
        self._wanted = self._model = model
        self._now_us = now_us
        self._started_us = now_us()
        self._attempts = 0
        self._done = self._total = 0
        self._tokens_in = self._tokens_out = 0

    @property
    def attempts(self) -> int:
        """Model calls of the pass so far."""
        return self._attempts

    def started(self, trigger_traceparent: str) -> PassStarted:
        """The fact that opens the pass's span."""
        plan = self._plan
        self._tell(Stage.STARTED)
        return PassStarted(
            conversation_id=self._key.name,
            summarization_id=plan.pass_id,
            trigger=PassTrigger(plan.trigger.value),
            depth=plan.depth,
            ratio=plan.token_ratio,
            tokens_before=plan.replaced_tokens,
            messages=sum(len(r) for r in plan.covered),
            model=self._model,
            trigger_traceparent=trigger_traceparent,
        )

    def attempt(self, number: int, model: str) -> None:
        """See Observer."""
        self._attempts, self._model = number, model
        self._tell(Stage.ATTEMPT)

    def output(self, chars: int) -> None:
        """See Observer."""
        self._tell(Stage.PROGRESS, output_chars=chars)

    def answered(self, completion: Completion) -> None:
        """See Observer. The model that answered is not always the one that was wanted."""
        self._model = completion.model
        self._tokens_in += completion.input_tokens
        self._tokens_out += completion.output_tokens

    def calls(self, done: int, total: int) -> None:
        """See Observer."""
        self._done, self._total = done, total
        self._tell(Stage.PROGRESS)

    def fell_back(self, failure: PassFailed, model: str) -> None:
        """A model failed, and another summarizer takes its place."""
        self._model = model
        self._attempts = failure.attempts
        _log.warning("pass.fallback", **self._names(), **_why(failure))
        self._show(failure)

    def completed(self, span: Span, result: PassResult, after: Conversation) -> None:
        """The record is committed. Who made it decides the outcome, whatever list that model came from."""
        record = result.record
        self._attempts = record.attempts
        self._model = record.model
        # Where the operator wants extraction, an extract is what was wanted; everywhere else no model's success.
        stands_in = record.provenance is Provenance.EXTRACTIVE and result.fallback
        outcome = PassOutcome.FALLBACK if stands_in else PassOutcome.SUCCESS
        error_class = self._why_not_a_model(result) if outcome is PassOutcome.FALLBACK else None
        committed = RecordCommitted(
            depth=record.depth,
            tokens_before=record.tokens_before,
            tokens_after=record.tokens_after,
            ratio_after=after.ratio,
            identifier_survival=record.quality.identifier_survival,
            unsupported_claims=record.quality.unsupported_claims,
        )
        self._ended(span, outcome, error_class=error_class, record=committed)
        self._tell(Stage.COMPLETED)
        _log.info("pass.completed", **self._names(), outcome=outcome.value, attempts=record.attempts)
        _log.debug(
            "pass.figures",
            **self._names(),
            depth=record.depth,
            compressed=record.covered_count,
            ratio_before=round(self._plan.token_ratio, 4),
            ratio_after=round(after.ratio, 4),
        )

    def skipped(self, span: Span, reason: str) -> None:
        """The record would not have saved enough."""
        self._ended(span, PassOutcome.SKIPPED, skip_reason=SkipReason(reason.upper()))
        self._tell(Stage.FAILED)
        _log.info("pass.skipped", **self._names(), skip_reason=reason)

    def failed(self, span: Span, failure: PassFailed) -> None:
        """There is no record."""
        self._attempts = failure.attempts
        self._ended(span, PassOutcome.ERROR, error_class=ErrorClass(failure.error_class.value))
        self._tell(Stage.FAILED)
        _log.warning("pass.failed", **self._names(), **_why(failure), retryable=failure.retryable)
        self._show(failure)

    def cancelled(self, span: Span) -> None:
        """The sidecar stops, the log is busy, or nobody wants the pass any more: there is no record, and no failure."""
        self._ended(span, PassOutcome.CANCELLED, error_class=ErrorClass.CANCELLED)
        _log.info("pass.cancelled", **self._names())

    def _why_not_a_model(self, result: PassResult) -> ErrorClass | None:
        """The class of the failure that a fallback stands for; None where extraction is what was wanted."""
        if result.failure is not None:
            return ErrorClass(result.failure.error_class.value)
        # The list of models moves on for no other reason, and says nothing of it.
        return None if self._wanted == result.record.model else ErrorClass.MODEL_MISSING

    def _ended(
        self,
        span: Span,
        outcome: PassOutcome,
        *,
        error_class: ErrorClass | None = None,
        skip_reason: SkipReason | None = None,
        record: RecordCommitted | None = None,
    ) -> None:
        fact = PassEnded(
            outcome=outcome,
            trigger=PassTrigger(self._plan.trigger.value),
            model=self._model,
            duration_s=(self._now_us() - self._started_us) / 1e6,
            attempts=self._attempts,
            tokens_in=self._tokens_in,
            tokens_out=self._tokens_out,
            error_class=error_class,
            skip_reason=skip_reason,
            record=record,
            trace_id=sampled_trace_id(span.traceparent),
        )
        span.note(fact)
        self._telemetry.metrics.pass_ended(fact)

    def _tell(self, stage: Stage, *, output_chars: int = 0) -> None:
        self._telemetry.board.tell(
            self._key,
            Progress(
                pass_id=self._plan.pass_id,
                stage=stage,
                at_us=self._now_us(),
                attempt=self._attempts,
                model=self._model,
                output_chars=output_chars,
                calls_done=self._done,
                calls_total=self._total,
            ),
        )

    def _names(self) -> dict[str, str]:
        return {
            "conversation_id": self._key.name,
            "summarization_id": self._plan.pass_id,
            "trigger": self._plan.trigger.value,
            "model": self._model,
        }

    def _show(self, failure: PassFailed) -> None:
        if self._telemetry.log_content and failure.output:
            shown = "".join(c if c.isprintable() else " " for c in failure.output[:SHOWN_CHARS_MAX])
            _log.debug("pass.output", **self._names(), output=mask_secrets(shown), reasons=list(failure.reasons))


def _why(failure: PassFailed) -> dict[str, str | int | bool | list[str]]:
    return {
        "error_class": failure.error_class.value,
        "cause": failure.cause,
        "asked": failure.asked,
        "attempts": failure.attempts,
        # What each reason begins with: a check or a field.
        "reasons": [reason.partition(":")[0] for reason in failure.reasons],
    }
