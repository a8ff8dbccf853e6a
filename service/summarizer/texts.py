"""The summary of one text that belongs to no conversation, by the summarizers of passes.

A text is the one message of a source, so whatever a pass does with long input happens to it too: parts, merges, checks,
the bound on calls. No part of the text is stored or logged.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from abridged.service.domain.errors import ModelAway, TextNotSummarized
from abridged.service.domain.events import MessageAppended, PassPlan, Trigger
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import SUMMARY_TOKENS_MAX, SUMMARY_TOKENS_MIN, Fallback, Policy
from abridged.service.domain.record import FormName, MessageRange
from abridged.service.domain.tokens import TokenCounter, TokenSource
from abridged.service.extraction.passages import LEAD, TEXT_LEAD
from abridged.service.prompts.prompt import CHAIN_TEMPLATE, MERGE_TEMPLATE
from abridged.service.summarizer.draft import Draft
from abridged.service.summarizer.fit import fit_draft
from abridged.service.summarizer.forms import FORMS, DraftForm, Extracted, ExtractSource
from abridged.service.summarizer.summarizer import (
    Observer,
    PassFailed,
    PassWork,
    Summarizers,
    Summary,
    TooManyCalls,
    WindowCost,
    draft_text,
)
from abridged.service.turn import at_length

PLANNED_SHARE = 0.5
"""Share of a pass's calls that a text may plan with; the rest is for repairs and for the merges."""

PASSES_OF_A_TEXT = 4
"""The number of passes whose calls, and time, a text may take when the model's window allows no longer parts: 2 MiB,
the default limit of a request, are about 130 calls of a model that holds 8,192 tokens."""

FITTING_SHARE = 0.9
"""The share of the size that fits by proportion: every level of merges rounds its calls up."""

_ID = "text"
_OF_A_TEXT = "\n- The transcript is one text, not a conversation: tell what the text says."
_FACETS = FORMS[FormName.FACETS]


def _extracted(source: ExtractSource, tokens_max: int, count: Callable[[str], int]) -> Extracted:
    """The extract of a text, which nobody says: a tool's result has no speaker either."""
    by_nobody = [(number, message._replace(role=Role.TOOL)) for number, message in source.said]
    made = _FACETS.extracted(source._replace(said=by_nobody), tokens_max, count)
    summary = made.draft.summary.replace(LEAD, TEXT_LEAD, 1)
    return made._replace(draft=made.draft.model_copy(update={"summary": summary}))


DOCUMENT_FORMS: Final[Mapping[FormName, DraftForm]] = MappingProxyType(
    {
        FormName.FACETS: replace(
            _FACETS,
            prompt=replace(CHAIN_TEMPLATE, name="document", version="2", system=CHAIN_TEMPLATE.system + _OF_A_TEXT),
            merge_prompt=replace(
                MERGE_TEMPLATE, name="document-merge", version="2", system=MERGE_TEMPLATE.system + _OF_A_TEXT
            ),
            extracted=_extracted,
            small=None,
        )
    }
)
"""The forms of passes, with prompts that speak of a text."""


@dataclass(frozen=True, slots=True)
class TextSummary:
    """A text's summary.

    Attributes:
        text: All of it as plain text.
        summary: The summary's draft, as fitted, and how it was made.
        tokens_before: Tokens of the source.
        tokens_after: Tokens of `text`.
        clipped: True if the narrative was cut to fit.
        failure: Why an extract stands in for a model.
    """

    text: str
    summary: Summary
    tokens_before: int
    tokens_after: int
    clipped: bool
    failure: PassFailed | None = None


class TextTask(NamedTuple):
    """A text, the most tokens of its summary, 0 for the policy's maximum, and the policy."""

    text: str
    max_tokens: int
    policy: Policy


class TextSummarizer:
    """Summarizes texts. `summarizers` write their drafts by DOCUMENT_FORMS; `counter` counts text and summary.

    `extracted` makes the summary of a task by extraction, where it delays nobody. Raises PassFailed.
    """

    def __init__(
        self,
        summarizers: Summarizers,
        counter: TokenCounter,
        extracted: Callable[[TextTask], Awaitable[TextSummary]],
    ) -> None:
        self._summarizers = summarizers
        self._counter = counter
        self._extracted = extracted

    async def summarize(self, text: str, *, max_tokens: int, policy: Policy, observer: Observer) -> TextSummary:
        """The summary, in at most `max_tokens` tokens, and in at most half of the text or 128 tokens if that is more.

        `max_tokens` is 0 for the policy's maximum. Raises TextNotSummarized, as ModelAway if a retry can help.
        """
        task = TextTask(text, max_tokens, policy)
        if self._summarizers.wants_extraction:
            return await self._by_extraction(task, observer)
        work, limit = await at_length(work_of, task, self._counter)
        try:
            summary = await self._summarizers.wanted.summarize(work, observer)
        except PassFailed as failed:
            is_listed = self._summarizers.is_listed_for(failed)
            if policy.fallback is not Fallback.ALWAYS and not is_listed:
                raise _refusal(failed, work.plan.replaced_tokens) from failed
            made = await self._by_extraction(task, observer)
            summary = replace(made.summary, attempts=failed.attempts)
            return replace(made, summary=summary, failure=None if is_listed else failed)
        return await at_length(fitted, work, summary, limit, self._counter)

    async def _by_extraction(self, task: TextTask, observer: Observer) -> TextSummary:
        observer.calls(0, 1)
        try:
            made = await self._extracted(task)
        except PassFailed as failed:
            raise _refusal(failed, 0) from failed
        observer.output(len(made.summary.draft.model_dump_json()))
        observer.calls(1, 1)
        return made


def work_of(task: TextTask, counter: TokenCounter) -> tuple[PassWork, int]:
    """The text as the work of a pass, and the most tokens that its summary may have."""
    text, max_tokens, policy = task
    tokens = counter.count(text)
    most = max_tokens or policy.max_summary_tokens or SUMMARY_TOKENS_MAX
    limit = min(most, max(SUMMARY_TOKENS_MIN, tokens // 2))
    # Longer parts before more calls; the summarizer bounds them by what its model holds.
    planned = math.ceil(tokens / max(1, int(policy.pass_calls_max * PLANNED_SHARE)))
    whole = (MessageRange(1, 1),)
    plan = PassPlan(
        pass_id=_ID,
        trigger=Trigger.FORCED,
        covered=whole,
        source=whole,
        base_id="",
        parent_id="",
        depth=0,
        token_ratio=0.0,
        message_version=1,
        replaced_tokens=tokens,
        summary_tokens_max=limit,
        policy=replace(
            policy,
            max_input_tokens=max(policy.max_input_tokens, planned),
            pass_calls_max=PASSES_OF_A_TEXT * policy.pass_calls_max,
        ),
    )
    message = Message(_ID, Role.USER, text)
    appended = MessageAppended(1, message, tokens, TokenSource.ESTIMATE, counter.name)
    work = PassWork("", plan, (appended,), None)
    # A record's room includes the frame that it has in a window, which a summary of a text has not.
    room = limit + WindowCost(work, counter).frame_tokens
    return replace(work, plan=replace(plan, summary_tokens_max=room, room_tokens=room)), limit


def fitted(work: PassWork, summary: Summary, limit: int, counter: TokenCounter) -> TextSummary:
    """The summary within its limit, whatever the model wrote."""

    def cost(draft: Draft) -> int:
        return counter.count(draft_text(work, draft))

    draft = fit_draft(summary.draft, tokens_max=limit, cost=cost, cut_narrative=True)
    assert draft is not None, "a narrative that is cut fits"
    clipped = draft.summary != summary.draft.summary
    tokens = cost(draft)
    quality = replace(summary.quality, reduction=1 - tokens / max(1, work.plan.replaced_tokens))
    return TextSummary(
        text=draft_text(work, draft),
        summary=replace(summary, draft=draft, tokens=tokens, quality=quality),
        tokens_before=work.plan.replaced_tokens,
        tokens_after=tokens,
        clipped=clipped,
    )


def _refusal(failure: PassFailed, tokens: int) -> TextNotSummarized:
    """The error of a text of `tokens`; if the text is too long for the model, with the length that fits."""
    cause = failure.cause
    if isinstance(failure, TooManyCalls):
        fit = int(FITTING_SHARE * tokens * failure.most / failure.needed)
        cause = (
            f"its {tokens} tokens need {failure.needed} model calls, a text has {failure.most}: about {fit} tokens fit"
        )
    kind = ModelAway if failure.retryable else TextNotSummarized
    return kind(failure.error_class.value, cause)
