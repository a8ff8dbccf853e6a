"""Where facts go: each is reported once, here, and all of the following read the same one. Never any text.

Metrics and spans read facts, watchers read progress, logs have a line for what an operator acts on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import structlog

from eventlog.event import StreamId
from observability.facts import (
    BatchCommitted,
    PassEnded,
    PassOutcome,
    PassStarted,
    PassTrigger,
    PreparationOutcome,
    PreparationStarted,
    RewriteCause,
    SkipReason,
    TitleOutcome,
)
from observability.metrics import Metrics
from observability.tracing import Span, Tracing, sampled_trace_id
from service.domain.events import (
    ConversationRewound,
    Event,
    MessagesPinned,
    MessagesUnpinned,
    PassPlan,
    SummarizationCleared,
    SummarizationCompleted,
    SummaryRevoked,
)
from service.telemetry.progress import Progress, ProgressBoard, Stage

__all__ = ["Telemetry"]

_log = structlog.get_logger()

_REWRITES: Mapping[type[Event], RewriteCause] = {
    SummarizationCompleted: RewriteCause.SUMMARIZED,
    SummarizationCleared: RewriteCause.CLEARED,
    SummaryRevoked: RewriteCause.REVOKED,
    MessagesPinned: RewriteCause.PINNED,
    MessagesUnpinned: RewriteCause.UNPINNED,
    ConversationRewound: RewriteCause.REWOUND,
}
"""The events that begin an epoch."""


class Telemetry:
    """Reports facts. `shows_output` says whether the debug log may show the beginning of a bad answer."""

    def __init__(self, metrics: Metrics, tracing: Tracing, board: ProgressBoard, *, log_content: bool) -> None:
        self._metrics = metrics
        self._tracing = tracing
        self._board = board
        self.shows_output = log_content

    def batch_committed(self, fact: BatchCommitted, types: Sequence[str]) -> None:
        """The log has committed a transaction; `types` are those of its events."""
        sampled = next(filter(None, map(sampled_trace_id, fact.traceparents)), "")
        self._metrics.commit(types, seconds=(fact.ended_ns - fact.started_ns) / 1e9, trace_id=sampled)
        self._tracing.record_commit(fact)

    def changed(self, events: Sequence[Event]) -> None:
        """A commit has changed a conversation by these events."""
        for event in events:
            if type(event) in _REWRITES:
                self._metrics.window_rewritten(_REWRITES[type(event)])

    def prompt_reported(self, prompt_tokens: int, *, cached_tokens: int) -> None:
        """A chat model has read a prompt; `cached_tokens` of it were in its provider's cache."""
        self._metrics.prompt_reported(prompt_tokens, cached_tokens=cached_tokens)

    def pass_requested(self, key: StreamId, pass_id: str, at_us: int) -> None:
        """A pass is pending."""
        self.progressed(key, Progress(pass_id, Stage.REQUESTED, at_us))

    def pass_not_begun(self, key: StreamId, reason: SkipReason) -> None:
        """A pass was due and nothing can be compressed, so none was requested."""
        self._metrics.pass_ended(PassEnded(PassOutcome.SKIPPED, None, skip_reason=reason))
        _log.info("pass.skipped", conversation_id=key.name, skip_reason=reason.value.lower())

    def pass_cleared(self, key: StreamId, plan: PassPlan, *, results: int) -> None:
        """A pass needed no record: `results` old tool results were replaced by marks."""
        self._metrics.pass_ended(PassEnded(PassOutcome.CLEARED, PassTrigger(plan.trigger.value)))
        _log.info("pass.cleared", conversation_id=key.name, summarization_id=plan.pass_id, results=results)

    def passes_pending(self, count: int, oldest_us: int) -> None:
        """So many passes are pending, the oldest since then; 0 when there is none."""
        self._metrics.passes_pending(count, oldest_timestamp_s=oldest_us / 1e6)

    def pass_begun(self, fact: PassStarted) -> AbstractContextManager[Span]:
        """The span of a pass, open until it is left."""
        return self._tracing.span(fact)

    def pass_ended(self, span: Span, fact: PassEnded) -> None:
        """A pass is over."""
        span.note(fact)
        self._metrics.pass_ended(fact)

    def preparation_begun(self, fact: PreparationStarted) -> AbstractContextManager[Span]:
        """The span of a preparation, open until it is left."""
        return self._tracing.span(fact)

    def preparation_ended(self, key: StreamId, outcome: PreparationOutcome, reason: str) -> None:
        """A prepared record was published, with more or without, or is of no use for this `reason`."""
        self._metrics.preparation_ended(outcome)
        _log.info(f"preparation.{outcome.value}", conversation_id=key.name, reason=reason)

    def title_ended(self, key: StreamId, outcome: TitleOutcome, *, error_type: str = "") -> None:
        """A model was asked for a title."""
        self._metrics.title_ended(outcome)
        if outcome is TitleOutcome.REFUSED:
            _log.info("title.refused", conversation_id=key.name)
        elif outcome is TitleOutcome.FAILED:
            _log.info("title.failed", conversation_id=key.name, error_type=error_type)

    def progressed(self, key: StreamId, progress: Progress) -> None:
        """Report it to the conversation's watchers."""
        self._board.tell(key, progress)
