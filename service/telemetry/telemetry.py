"""Reports passes to metrics, spans and watchers, and calls of models to spans; logs a line where an operator may act.

No fact carries conversation text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import structlog

from abridged.eventlog.event import StreamId
from abridged.observability.facts import (
    ChatAnswered,
    ChatFailed,
    ChatStarted,
    PassEnded,
    PassOutcome,
    PassStarted,
    PreparationOutcome,
    PreparationStarted,
    RewriteCause,
    TitleOutcome,
)
from abridged.observability.labels import MetricLabels
from abridged.observability.metrics import Metrics
from abridged.observability.tracing import Span, Tracing
from abridged.service.domain.events import (
    ConversationRewound,
    ErrorClass,
    Event,
    MessagesPinned,
    MessagesRedacted,
    MessagesUnpinned,
    PassPlan,
    SkipReason,
    SummarizationCleared,
    SummarizationCompleted,
    SummaryRevoked,
    Trigger,
)
from abridged.service.domain.profiles.profile import HeldBy
from abridged.service.models.model import (
    Completion,
    CompletionRequest,
    ModelDescription,
    ModelError,
    OnProgress,
    SummaryModel,
)
from abridged.service.telemetry.progress import Progress, ProgressBoard, Stage

_log = structlog.get_logger()

_REWRITES: Mapping[type[Event], RewriteCause] = {
    SummarizationCompleted: RewriteCause.SUMMARIZED,
    SummarizationCleared: RewriteCause.CLEARED,
    SummaryRevoked: RewriteCause.REVOKED,
    MessagesPinned: RewriteCause.PINNED,
    MessagesUnpinned: RewriteCause.UNPINNED,
    ConversationRewound: RewriteCause.REWOUND,
    MessagesRedacted: RewriteCause.REDACTED,
}
"""The events that change a window elsewhere than at its end."""


class Telemetry:
    """Reports facts. `shows_output` says whether the debug log may show the beginning of a bad answer."""

    def __init__(self, metrics: Metrics, tracing: Tracing, board: ProgressBoard, *, log_content: bool) -> None:
        self._metrics = metrics
        self._tracing = tracing
        self._board = board
        self.shows_output = log_content

    def changed(self, events: Sequence[Event]) -> None:
        """Count the windows that a commit of these events has rewritten."""
        for event in events:
            if type(event) in _REWRITES:
                self._metrics.window_rewritten(_REWRITES[type(event)])

    def prompt_reported(self, prompt_tokens: int, *, cached_tokens: int) -> None:
        """Count a prompt that a chat model has read; `cached_tokens` of it came from its provider's cache."""
        self._metrics.prompt_reported(prompt_tokens, cached_tokens=cached_tokens)

    def pass_requested(self, key: StreamId, pass_id: str, at_us: int) -> None:
        """Tell watchers that a pass is pending."""
        self.progressed(key, Progress(pass_id, Stage.REQUESTED, at_us))

    def pass_not_begun(self, key: StreamId, reason: SkipReason) -> None:
        """Report a pass that was due, but had nothing to compress, so that it was not requested."""
        self._metrics.pass_ended(PassEnded(PassOutcome.SKIPPED, None, skip_reason=reason.upper()))
        _log.info("pass.skipped", conversation_id=key.name, skip_reason=reason.value)

    def pass_cleared(self, key: StreamId, plan: PassPlan, *, results: int) -> None:
        """Report a pass that needed no record: marks replaced `results` old tool results."""
        self._metrics.pass_ended(PassEnded(PassOutcome.CLEARED, plan.trigger))
        _log.info("pass.cleared", conversation_id=key.name, summarization_id=plan.pass_id, results=results)

    def passes_pending(self, count: int, oldest_us: int) -> None:
        """Set how many passes are pending, and when the oldest began to wait (microseconds since the epoch, or 0)."""
        self._metrics.passes_pending(count, oldest_timestamp_s=oldest_us / 1e6)

    def pass_begun(self, fact: PassStarted) -> AbstractContextManager[Span]:
        """Return the span of a pass, to be entered once."""
        return self._tracing.span(fact)

    def pass_ended(self, span: Span, fact: PassEnded) -> None:
        span.note(fact)
        self._metrics.pass_ended(fact)

    def preparation_begun(self, fact: PreparationStarted) -> AbstractContextManager[Span]:
        """Return the span of a preparation, to be entered once."""
        return self._tracing.span(fact)

    def preparation_ended(self, key: StreamId, outcome: PreparationOutcome, reason: str) -> None:
        """Report how a prepared record ended; `reason` says why it was of no use, empty if a pass published it."""
        self._metrics.preparation_ended(outcome)
        _log.info(f"preparation.{outcome.value}", conversation_id=key.name, reason=reason)

    def title_ended(self, key: StreamId, outcome: TitleOutcome, *, error_type: str = "") -> None:
        """Report how a request for a title ended; `error_type` is the class of the error of a failed one."""
        self._metrics.title_ended(outcome)
        if outcome is TitleOutcome.REFUSED:
            _log.info("title.refused", conversation_id=key.name)
        elif outcome is TitleOutcome.FAILED:
            _log.info("title.failed", conversation_id=key.name, error_type=error_type)

    def progressed(self, key: StreamId, progress: Progress) -> None:
        """Tell the conversation's watchers."""
        self._board.tell(key, progress)


class TracedModel:
    """A SummaryModel each of whose calls is a span."""

    def __init__(self, model: SummaryModel, tracing: Tracing) -> None:
        self._model = model
        self._tracing = tracing

    @property
    def name(self) -> str:
        return self._model.name

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
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
                span.note(ChatFailed(error.error_class))
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
        return await self._model.describe()

    async def idle(self) -> bool:
        return await self._model.idle()

    async def close(self) -> None:
        await self._model.close()


def metric_labels(**lists: Sequence[str]) -> MetricLabels:
    """Return the closed lists of label values: `lists`, and each word that the domain has for the course of a pass."""
    return MetricLabels(
        triggers=tuple(Trigger),
        error_classes=tuple(ErrorClass),
        skip_reasons=tuple(reason.upper() for reason in SkipReason),
        held_by=tuple(HeldBy),
        **lists,
    )
