"""Reports a pass while it runs and at its end, but never its text: to watchers, spans, metrics and logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from abridged.eventlog.event import StreamId
from abridged.observability.facts import PassEnded, PassOutcome, PassStarted, RecordCommitted
from abridged.observability.tracing import SilentSpan, Span, sampled_trace_id
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import ErrorClass, PassPlan
from abridged.service.domain.receipt import ReceiptPlace
from abridged.service.domain.record import Provenance
from abridged.service.models.model import Completion
from abridged.service.summarizer.summarizer import PassFailed, PassResult
from abridged.service.telemetry.progress import Progress, Stage
from abridged.service.telemetry.telemetry import Telemetry
from abridged.service.text.secrets import mask_secrets

SHOWN_CHARS_MAX = 200
"""Characters of a bad answer that the debug log shows, if content logging is on."""

_log = structlog.get_logger()


class PassReport:
    """The reports of one pass, from `opened` to its outcome. The report is the observer of the pass's calls."""

    def __init__(
        self,
        telemetry: Telemetry,
        key: StreamId,
        plan: PassPlan,
        *,
        model: str,
        now_us: Callable[[], int],
        before_attempt: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_attempt` is called before each call of a model, which it prevents by raising."""
        self._telemetry = telemetry
        self._key = key
        self._plan = plan
        self._wanted = self._model = model
        self._now_us = now_us
        self._before_attempt = before_attempt
        self._started_us = now_us()
        self._attempts = 0
        self._done = self._total = 0
        self._tokens_in = self._tokens_out = 0
        self._span: Span = SilentSpan("")

    @property
    def attempts(self) -> int:
        """Model calls of the pass so far."""
        return self._attempts

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens that its calls have read and written so far, those of a prepared record too."""
        return self._tokens_in, self._tokens_out

    @contextmanager
    def opened(self, trigger_traceparent: str) -> Iterator[None]:
        """The pass has begun, and ends with the context. `trigger_traceparent` is that of its trigger's event."""
        plan = self._plan
        self._tell(Stage.STARTED)
        begun = PassStarted(
            conversation_id=self._key.name,
            summarization_id=plan.pass_id,
            trigger=plan.trigger,
            depth=plan.depth,
            ratio=plan.token_ratio,
            tokens_before=plan.replaced_tokens,
            messages=sum(len(r) for r in plan.covered),
            model=self._model,
            trigger_traceparent=trigger_traceparent,
        )
        with self._telemetry.pass_begun(begun) as span:
            self._span = span
            yield

    def attempt(self, number: int, model: str) -> None:
        """See Observer."""
        self._before_attempt()
        self._attempts, self._model = number, model
        self._tell(Stage.ATTEMPT)

    def output(self, chars: int) -> None:
        """See Observer."""
        self._tell(Stage.PROGRESS, output_chars=chars)

    def answered(self, completion: Completion) -> None:
        """See Observer. The model that answered is not always the preferred one."""
        self._model = completion.model
        self._tokens_in += completion.input_tokens
        self._tokens_out += completion.output_tokens

    def prepared(self, tokens_in: int, tokens_out: int) -> None:
        """A record was prepared before the pass, with these prompt and output tokens."""
        self._tokens_in += tokens_in
        self._tokens_out += tokens_out

    def calls(self, done: int, total: int) -> None:
        """See Observer."""
        self._done, self._total = done, total
        self._tell(Stage.PROGRESS)

    def fell_back(self, failure: PassFailed, model: str) -> None:
        """A model failed, and another summarizer takes over."""
        self._model = model
        self._attempts = failure.attempts
        _log.warning("pass.fallback", **self._names(), **_why(failure))
        self._show(failure)

    def went_unasked(self, failures_in_row: int) -> None:
        """Extraction serves at once, because no model may be asked while the conversation waits."""
        cause = f"no model is asked while the conversation waits; failures in a row: {failures_in_row}"
        _log.warning("pass.fallback", **self._names(), cause=cause, asked=False, attempts=0)

    def completed(self, result: PassResult, after: Conversation) -> None:
        """The record is committed. The outcome depends on who made it, whatever list that model came from."""
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
            unsupported_statements=record.quality.unsupported_statements,
        )
        receipt = next((ended.receipt for ended in reversed(after.passes) if ended.record_id == record.id), None)
        if receipt is not None and (gone := receipt.count(ReceiptPlace.GONE)):
            _log.error("pass.gone", **self._names(), things=gone)
        self._ended(outcome, error_class=error_class, record=committed)
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

    def skipped(self, reason: str) -> None:
        """The record would not have saved enough."""
        self._ended(PassOutcome.SKIPPED, skip_reason=reason.upper())
        self._tell(Stage.FAILED)
        _log.info("pass.skipped", **self._names(), skip_reason=reason)

    def failed(self, failure: PassFailed) -> None:
        """The pass made no record. The pass is counted for the last model that it turned to, which is the one that
        failed."""
        self._attempts = failure.attempts
        self._model = failure.tried[-1] if failure.tried else self._model
        self._ended(PassOutcome.ERROR, error_class=failure.error_class)
        self._tell(Stage.FAILED)
        _log.warning("pass.failed", **self._names(), **_why(failure), retryable=failure.retryable)
        self._show(failure)

    def cancelled(self) -> None:
        """The sidecar stops, the log is busy, or the pass is no longer wanted: no record, and no failure."""
        self._ended(PassOutcome.CANCELLED, error_class=ErrorClass.CANCELLED)
        _log.info("pass.cancelled", **self._names())

    def _why_not_a_model(self, result: PassResult) -> ErrorClass | None:
        """The class of the failure that led to the fallback; None if extraction is what was wanted."""
        if result.failure is not None:
            return result.failure.error_class
        # The list of models moves on for no other reason, and does not report it.
        return None if self._wanted == result.record.model else ErrorClass.MODEL_MISSING

    def _ended(
        self,
        outcome: PassOutcome,
        *,
        error_class: ErrorClass | None = None,
        skip_reason: str | None = None,
        record: RecordCommitted | None = None,
    ) -> None:
        fact = PassEnded(
            outcome=outcome,
            trigger=self._plan.trigger,
            model=self._model,
            duration_s=(self._now_us() - self._started_us) / 1e6,
            attempts=self._attempts,
            tokens_in=self._tokens_in,
            tokens_out=self._tokens_out,
            error_class=error_class,
            skip_reason=skip_reason,
            record=record,
            trace_id=sampled_trace_id(self._span.traceparent),
        )
        self._telemetry.pass_ended(self._span, fact)

    def _tell(self, stage: Stage, *, output_chars: int = 0) -> None:
        self._telemetry.progressed(
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
        if self._telemetry.shows_output and failure.output:
            shown = "".join(c if c.isprintable() else " " for c in failure.output[:SHOWN_CHARS_MAX])
            _log.debug("pass.output", **self._names(), output=mask_secrets(shown), reasons=list(failure.reasons))


def _why(failure: PassFailed) -> dict[str, str | int | bool | list[str]]:
    return {
        "error_class": failure.error_class.value,
        "cause": failure.cause,
        "asked": failure.asked,
        "attempts": failure.attempts,
        # The check or the place that each reason begins with, as a name, which logs print.
        "reasons": [reason.partition(":")[0].replace(" ", "_") for reason in failure.reasons],
    }
