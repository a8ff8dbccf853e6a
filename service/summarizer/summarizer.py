"""Makes summaries, by a model or by extraction, and the record from one.

Both get the same work, and their drafts pass the same checks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from abridged.service.domain.conversation import ShownRecord
from abridged.service.domain.events import CAUSE_CHARS_MAX, ErrorClass, MessageAppended, PassPlan
from abridged.service.domain.ledger import NO_LEDGER, NOTHING_FOUND, Ledger, LedgerFinds, joined_entries
from abridged.service.domain.mechanical import is_mechanical
from abridged.service.domain.message import Message
from abridged.service.domain.policy import Policy
from abridged.service.domain.receipt import NOTHING_LEAVES, Leaving
from abridged.service.domain.record import (
    FormName,
    Provenance,
    RecordEvidence,
    RecordQuality,
    SummaryRecord,
    figures_of,
)
from abridged.service.domain.render import record_text, short_text, shown_text, summary_text
from abridged.service.domain.rules import NO_RULES_FOUND, RuleFinds
from abridged.service.domain.tokens import (
    MESSAGE_OVERHEAD_TOKENS,
    TokenCounter,
    TokenSource,
    calibrated_tokens,
    message_tokens,
    taught_ratio,
)
from abridged.service.models.model import Completion

if TYPE_CHECKING:
    from abridged.service.prompts.prompt import PromptTemplate
    from abridged.service.summarizer.check import CheckedDraft, Source
    from abridged.service.summarizer.draft import Draft

EXTRACTIVE: Final = "extractive:default"
"""The name of extraction in lists of models."""


def is_extractive(model: str) -> bool:
    """Return whether a name in a list of models means extraction."""
    return model.partition(":")[0] == EXTRACTIVE.partition(":")[0]


class PassFailed(Exception):
    """A pass cannot make its record.

    Attributes:
        error_class: The class of the failure.
        retryable: True if a retry can help.
        cause: The failure in our own words; of a draft it names fields, rules and counts, never text.
        asked: True if any call of the pass reached a model.
        attempts: Model calls made.
        tried: The models that the pass turned to, in order.
        output: The bad draft, for the debug log only.
        reasons: The draft's faults.
    """

    def __init__(
        self,
        error_class: ErrorClass,
        *,
        retryable: bool,
        cause: str,
        asked: bool = False,
        output: str = "",
        reasons: tuple[str, ...] = (),
    ) -> None:
        super().__init__(error_class.value)
        self.error_class = error_class
        self.retryable = retryable
        self.cause = cause[:CAUSE_CHARS_MAX]
        self.asked = asked
        self.attempts = 0
        self.tried: tuple[str, ...] = ()
        self.output = output
        self.reasons = reasons


class TooManyCalls(PassFailed):
    """A source needs `needed` calls of a model; a pass has `most`."""

    def __init__(self, needed: int, most: int, *, asked: bool) -> None:
        cause = f"{needed} model calls are needed, a pass has {most}"
        super().__init__(ErrorClass.INVALID, retryable=False, cause=cause, asked=asked)
        self.needed = needed
        self.most = most


class Observer(Protocol):
    """Receives the progress of a summary, for watchers, spans and counters."""

    def attempt(self, number: int, model: str) -> None:
        """A model call is about to start."""
        ...

    def output(self, chars: int) -> None:
        """The draft has this many characters so far."""
        ...

    def answered(self, completion: Completion) -> None:
        """A model answered, well or badly."""
        ...

    def calls(self, done: int, total: int) -> None:
        """`done` of the planned calls, or readings of the source, have ended."""
        ...


@dataclass(frozen=True, slots=True)
class PassWork:
    """The work of a pass.

    Attributes:
        conversation_id: The conversation's id.
        plan: The plan.
        messages: The messages of the source, in order.
        previous: The record to continue.
        chat_model: The conversation's model, in whose tokens the record is counted.
        replaces: The fallback record that a remake replaces.
        calibration_factor: Corrects estimates where they are read.
        overlap: Messages before the source that the prompt quotes for context.
        merged: The records whose texts are the `messages` of a digest.
        finds: The identifiers of the messages that leave the window, counted without what the caller's counts teach.
        ledger: The ledger of the window before the pass.
        leaving: Names and sentences of everything that leaves the window.
        rules: The standing rules of these, counted so too, and those that have been taken back.
        redone: How often a model may have been asked for this range before, in passes that made no record of it.
        sent: Returns the chat's messages as its model was last sent them, up to the end of the source; none if they
            do not say all of it.
        ledger_beside: Returns the identifiers, case folded, that the ledger shows beside a record of this text and
            tokens.
    """

    conversation_id: str
    plan: PassPlan
    messages: tuple[MessageAppended, ...]
    previous: SummaryRecord | None
    chat_model: str = ""
    replaces: SummaryRecord | None = None
    calibration_factor: float = 1.0
    overlap: tuple[MessageAppended, ...] = ()
    merged: tuple[ShownRecord, ...] = ()
    finds: LedgerFinds = NOTHING_FOUND
    ledger: Ledger = NO_LEDGER
    leaving: Leaving = NOTHING_LEAVES
    rules: RuleFinds = NO_RULES_FOUND
    redone: int = 0
    sent: Callable[[], tuple[Message, ...]] = tuple
    ledger_beside: Callable[[str, int], frozenset[str]] = lambda _text, _tokens: frozenset()

    @property
    def record_id(self) -> str:
        return f"summary-{self.plan.pass_id}"

    @property
    def superseded(self) -> dict[str, int]:
        """The identifiers, case folded, that no longer hold, with the messages that gave newer values, as far as these
        finds and the ledger before them know it."""
        known = joined_entries((*self.ledger.entries, *self.finds.entries))
        found = {entry.key: entry.replaced_by for entry in known if entry.replaced_by}
        return found | {one.key: one.number for one in self.finds.replaced}

    @property
    def in_ledger(self) -> frozenset[str] | None:
        """The identifiers, case folded, that the ledger shows beside a record of the planned size that names none of
        them; None if it shows none, for want of room or because there is no ledger."""
        return self.ledger_beside("", self.plan.summary_tokens_max) or None

    @property
    def telling(self) -> tuple[MessageAppended, ...]:
        """The messages with content that a record could need."""
        return tuple(
            m
            for before, m in zip((None, *self.messages), self.messages, strict=False)
            if not is_mechanical(m.message, before.message if before and before.number == m.number - 1 else None)
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """A draft that passed its checks.

    Attributes:
        draft: The draft.
        tokens: Tokens of its record in the window.
        quality: The figures of the checks.
        model: The writer, as `provider:model`.
        provenance: The way in which it was made.
        template: The prompt.
        evidence: The messages that its statements rest on.
        attempts: Model calls made.
        tried: The models that the pass turned to, in order.
        short_tokens: Tokens of its record with the short text; 0 without one.
        taught: The ratio of the caller's counts to ours, by which they are corrected.
        source: The source of their count.
    """

    draft: Draft
    tokens: int
    quality: RecordQuality
    model: str
    provenance: Provenance
    template: PromptTemplate
    evidence: RecordEvidence
    attempts: int = 0
    tried: tuple[str, ...] = ()
    short_tokens: int = 0
    taught: float = 1.0
    source: TokenSource = TokenSource.ESTIMATE


class Summarizer(Protocol):
    """Makes the summary of a pass. `name` is `provider:model`, as in the settings."""

    @property
    def name(self) -> str: ...

    def source_tokens(self, policy: Policy, summary_tokens: int, /) -> int:
        """Tokens of source that one reading takes beside a record and for a summary of `summary_tokens`; passes are
        planned by it."""
        ...

    async def summarize(self, work: PassWork, observer: Observer) -> Summary:
        """The summary of the work. Raises PassFailed. Writes nothing, and does not block the event loop."""
        ...

    async def has_time(self) -> bool:
        """Return whether the summarizer could remake a record now without delaying anything else."""
        ...


@dataclass(frozen=True, slots=True)
class Summarizers:
    """The wanted summarizer, and extraction as its fallback.

    `listed` says that the operator's list names extraction after the wanted one, so it serves if that is missing.
    """

    wanted: Summarizer
    extraction: Summarizer
    listed: bool = False

    @property
    def wants_extraction(self) -> bool:
        """True if the operator wants extraction itself."""
        return self.wanted is self.extraction

    def is_listed_for(self, failure: PassFailed) -> bool:
        """Return whether extraction is next in the operator's list after this failure: the models before it are
        missing."""
        return self.listed and failure.error_class is ErrorClass.MODEL_MISSING


@dataclass(frozen=True, slots=True)
class PassResult:
    """The outcome of a pass.

    Attributes:
        record: The record.
        source: The source of its token count.
        fallback: True if it stands in for a model's record.
        failure: Why no model made it.
        interrupted: True if the window could not wait for a model that had not failed.
        tried: The models that the pass turned to, in order.
        finds: The identifiers of the messages that leave the window, for the ledger.
        leaving: Names and sentences of everything that leaves the window, for the receipt.
        rules: The standing rules of these, and those that have been taken back.
    """

    record: SummaryRecord
    source: TokenSource
    fallback: bool = False
    failure: PassFailed | None = None
    interrupted: bool = False
    tried: tuple[str, ...] = ()
    finds: LedgerFinds = NOTHING_FOUND
    leaving: Leaving = NOTHING_LEAVES
    rules: RuleFinds = NO_RULES_FOUND


CALLERS_RATIO_MAX = 2.0
"""A caller's counts are of anything that it sends with a message, so a record takes over no more of them."""


class WindowCost:
    """Counts drafts of one pass as records in the window, in the tokens of the conversation; `source` counted.

    Creating one counts a source that the caller counted, which takes longer for a longer source.
    """

    def __init__(self, work: PassWork, counter: TokenCounter) -> None:
        self._work = work
        self._counter = counter.of(work.chat_model)
        self.taught = _taught_by(work, self._counter)
        self.source = self._counter.source_for(work.chat_model)

    def __call__(self, draft: Draft) -> int:
        """Tokens of the draft's record, including its frame."""
        return self._cost(summary_text(_bare_record(self._work, draft)))

    def short(self, draft: Draft) -> int:
        """Tokens of the draft's record with its short text, including its frame; 0 without one."""
        record = _bare_record(self._work, draft)
        return self._cost(short_text(record)) if record.short_summary else 0

    def _cost(self, text: str) -> int:
        return calibrated_tokens(self._counter.count(text) + MESSAGE_OVERHEAD_TOKENS, self.taught)

    @property
    def frame_tokens(self) -> int:
        """Tokens of a record's frame alone."""
        from abridged.service.summarizer.draft import Draft

        return self(Draft.of_text(""))


def draft_text(work: PassWork, draft: Draft) -> str:
    """The text of the draft's record in a window, without its frame."""
    return record_text(_bare_record(work, draft))


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
    """The summary made of a draft, counted and with the figures of its checks."""
    tokens = cost(checked.draft)
    reduction = 1 - tokens / max(1, work.plan.replaced_tokens)
    beside = work.ledger_beside(draft_text(work, checked.draft), tokens)
    return Summary(
        draft=checked.draft,
        tokens=tokens,
        quality=checked.quality(source, reduction=reduction, beside=beside),
        taught=cost.taught,
        model=model,
        provenance=provenance,
        template=template,
        short_tokens=cost.short(checked.draft),
        evidence=checked.evidence,
        source=cost.source,
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
        short_tokens=summary.short_tokens,
        episode=figures_of([m.message for m in work.messages]) if work.plan.form is FormName.EPISODE else None,
        evidence=summary.evidence,
    )


def _bare_record(work: PassWork, draft: Draft) -> SummaryRecord:
    """The record without who made it and how, which is all that rendering needs."""
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
        label=plan.label,
        short_summary=draft.narratives.get("short_summary", ""),
        left_out=plan.left_out,
    )


def _taught_by(work: PassWork, counter: TokenCounter) -> float:
    """The ratio of the caller's counts of the source to ours; 1 unless the caller counted all of it.

    The ratio for merged records is the one with which they were counted.
    """
    if work.merged:
        counted = sum(counter.count(shown_text(shown)) + MESSAGE_OVERHEAD_TOKENS for shown in work.merged)
        return sum(shown.tokens for shown in work.merged) / max(1, counted)
    if any(m.source is not TokenSource.CALLER for m in work.messages):
        return 1.0
    model = work.chat_model
    counted = sum(_recounted(m, counter, model) for m in work.messages)
    ratio = taught_ratio(counted, reported=sum(m.tokens for m in work.messages), most=CALLERS_RATIO_MAX)
    if ratio is None:
        return 1.0
    # Who reads the record's count corrects an estimate by what usage reports have taught.
    return ratio / work.calibration_factor if counter.source_for(model) is TokenSource.ESTIMATE else ratio


def _recounted(appended: MessageAppended, counter: TokenCounter, model: str) -> int:
    return message_tokens(appended.message._replace(token_count=None), counter, model=model).tokens
