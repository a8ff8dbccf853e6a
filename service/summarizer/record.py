"""What a draft costs in the window, and the record that a summary becomes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from service.domain.events import MessageAppended
from service.domain.prompt import PromptTemplate
from service.domain.record import Provenance, SummaryRecord
from service.domain.render import summary_text
from service.domain.tokens import (
    MESSAGE_OVERHEAD_TOKENS,
    TokenCounter,
    TokenSource,
    calibrated_tokens,
    message_tokens,
    taught_ratio,
)
from service.summarizer.check import CheckedDraft, Source
from service.summarizer.draft import Draft
from service.summarizer.summarizer import PassFailed, PassWork, Summary

__all__ = ["PassResult", "WindowCost", "draft_text", "record_of", "summary_of"]

_EMPTY = Draft.model_construct(
    summary="",
    key_points=[],
    participants=[],
    decisions=[],
    action_items=[],
    unresolved=[],
    domain_entities=[],
)


@dataclass(frozen=True, slots=True)
class PassResult:
    """A record, who counted its tokens, and whether it stands in for a model's; `failure` is why no model made it.

    `interrupted` says that the model had not failed, but the window could not wait for it. `tried` names the models
    turned to, in their order.
    """

    record: SummaryRecord
    source: TokenSource
    fallback: bool = False
    failure: PassFailed | None = None
    interrupted: bool = False
    tried: tuple[str, ...] = ()


class WindowCost:
    """What drafts of one pass take in the window as records, in the tokens that the conversation is counted in.

    Making one counts a source that the caller has counted, which takes longer the longer it is.
    """

    def __init__(self, work: PassWork, counter: TokenCounter) -> None:
        self._work = work
        self._counter = counter
        self._taught = _taught_by(work, counter)

    def __call__(self, draft: Draft) -> int:
        """Tokens of the draft's record, its frame included."""
        counted = self._counter.count(summary_text(_bare_record(self._work, draft))) + MESSAGE_OVERHEAD_TOKENS
        return calibrated_tokens(counted, self._taught)

    @property
    def frame_tokens(self) -> int:
        """What the frame of a record takes by itself."""
        return self(_EMPTY)


def draft_text(work: PassWork, draft: Draft) -> str:
    """The draft as its record reads in a window, without frame and preamble."""
    return "\n".join(summary_text(_bare_record(work, draft)).splitlines()[2:-1])


def summary_of(
    work: PassWork,
    checked: CheckedDraft,
    source: Source,
    *,
    cost: WindowCost,
    model: str,
    provenance: Provenance,
    template: PromptTemplate,
) -> Summary:
    """The summary that a draft is, counted and with the figures of its checks."""
    tokens = cost(checked.draft)
    return Summary(
        draft=checked.draft,
        tokens=tokens,
        quality=checked.quality(source, reduction=1 - tokens / max(1, work.plan.replaced_tokens)),
        model=model,
        provenance=provenance,
        template=template,
    )


def record_of(work: PassWork, summary: Summary, *, create_time_us: int, latency_ms: int) -> SummaryRecord:
    """The record of a summary, made at `create_time_us` within `latency_ms`."""
    return replace(
        _bare_record(work, summary.draft),
        create_time_us=create_time_us,
        tokens_after=summary.tokens,
        model=summary.model,
        prompt_name=summary.template.name,
        prompt_version=summary.template.version,
        provenance=summary.provenance,
        attempts=summary.attempts,
        latency_ms=latency_ms,
        quality=summary.quality,
    )


def _bare_record(work: PassWork, draft: Draft) -> SummaryRecord:
    """The record as far as it is rendered, which is without who made it and how."""
    plan = work.plan
    return SummaryRecord(
        id=work.record_id,
        create_time_us=0,
        depth=plan.depth,
        parent_id=plan.parent_id,
        summary=draft.summary,
        key_points=draft.highlights,
        context=draft.context,
        covered=plan.covered,
        tokens_before=plan.replaced_tokens,
        tokens_after=0,
        model="",
        prompt_name="",
        prompt_version="",
        provenance=Provenance.MODEL,
        attempts=0,
        latency_ms=0,
        covered_tokens=plan.covered_tokens,
        rewrites=plan.rewrites,
        stands_alone=plan.rebase or plan.depth == 0,
    )


def _taught_by(work: PassWork, counter: TokenCounter) -> float:
    """What the caller's counts of the source make of one of our tokens; 1 unless the caller counted all of it."""
    if any(m.source is not TokenSource.CALLER for m in work.messages):
        return 1.0
    model = work.chat_model
    counted = sum(_recounted(m, counter, model) for m in work.messages)
    ratio = taught_ratio(counted, reported=sum(m.tokens for m in work.messages))
    if ratio is None:
        return 1.0
    # Who reads the record's count corrects an estimate by what usage reports have taught.
    return ratio / work.calibration_factor if counter.source_for(model) is TokenSource.ESTIMATE else ratio


def _recounted(appended: MessageAppended, counter: TokenCounter, model: str) -> int:
    return message_tokens(appended.message._replace(token_count=None), counter, model=model).tokens
