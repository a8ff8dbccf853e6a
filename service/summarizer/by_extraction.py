"""The summarizer without a model: deterministic, offline, always available.

The summarizer reads messages of any length at once. Drafts of extraction pass the same checks as a model's except the
floors: it is the way out of a full window, and would return the same draft if asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import TypeVar

from abridged.service.domain.events import ErrorClass
from abridged.service.domain.policy import Policy, without_floors
from abridged.service.domain.record import FormName, Provenance
from abridged.service.domain.tokens import TokenCounter
from abridged.service.grounding.support import concordance_of
from abridged.service.summarizer.check import Room, Source, check_draft
from abridged.service.summarizer.fit import fit_draft
from abridged.service.summarizer.forms import DraftForm, ExtractSource
from abridged.service.summarizer.summarizer import (
    EXTRACTIVE,
    Observer,
    PassFailed,
    PassWork,
    Summary,
    WindowCost,
    summary_of,
)
from abridged.service.turn import at_length

T = TypeVar("T")

SOURCE_TOKENS_UNBOUNDED = 10_000_000
"""The nominal size of one reading. The work is linear: docs/extraction.md has its cost."""


class ExtractiveSummarizer:
    """Summarizes by extraction, in a thread and within `deadline_s` seconds.

    `forms` provide the prompts of models: an extract may not quote their words either.
    """

    name = EXTRACTIVE

    def __init__(self, *, counter: TokenCounter, forms: Mapping[FormName, DraftForm], deadline_s: float) -> None:
        self._counter = counter
        self._forms = forms
        self._deadline_s = deadline_s

    def source_tokens(self, _policy: Policy, _summary_tokens: int, /) -> int:
        """Return SOURCE_TOKENS_UNBOUNDED: extraction reads a source of any size."""
        return SOURCE_TOKENS_UNBOUNDED

    async def summarize(self, work: PassWork, observer: Observer) -> Summary:
        """A failure is TRANSPORT if the extract came too late, INVALID if it failed the checks."""
        observer.calls(0, 1)
        try:
            summary = await in_time(at_length(extracted, work, self._counter, self._forms), self._deadline_s)
        except PassFailed as failure:
            failure.tried = (self.name,)
            raise
        observer.output(len(summary.draft.model_dump_json()))
        observer.calls(1, 1)
        return replace(summary, tried=(self.name,))

    async def has_time(self) -> bool:
        """Return False: if extraction is wanted, its records are no fallback."""
        return False


async def in_time(extract: Awaitable[T], deadline_s: float) -> T:
    """Return the extract, awaited for `deadline_s` seconds. Raises PassFailed if it is late."""
    try:
        async with asyncio.timeout(deadline_s):
            return await extract
    except TimeoutError as late:
        cause = "the extract was not ready before the deadline"
        raise PassFailed(ErrorClass.TRANSPORT, retryable=True, cause=cause) from late


def extracted(work: PassWork, counter: TokenCounter, forms: Mapping[FormName, DraftForm]) -> Summary:
    """The summary, by this thread and in whatever time it takes. Raises PassFailed if it fails the checks."""
    plan = work.plan
    form = forms[plan.form]
    cost = WindowCost(work, counter)
    size = plan.summary_tokens_max
    room = Room.of_record(size, frame_tokens=cost.frame_tokens, limit_tokens=plan.room_tokens)
    read = ExtractSource.of(work)
    extract = form.extracted(read, room.content_tokens, counter.count)
    # An extract cannot be rewritten, so its narrative is cut.
    draft = fit_draft(extract.draft, tokens_max=room.limit_tokens, cost=cost, cut_narrative=True)
    assert draft is not None, "a narrative that is cut fits"
    source = Source.of(
        read.messages,
        concordance=concordance_of(read.said, work.previous),
        texts=(),
        previous=work.previous,
        instructions=form.prompt.system,
        policy=without_floors(plan.policy),
        replaces=work.replaces,
        rests_on=extract.rests_on,
        superseded=read.superseded,
    )
    checked = check_draft(draft, source)
    if checked.problems:
        raise PassFailed(
            ErrorClass.INVALID,
            retryable=False,
            cause=f"the extract failed the checks: {'; '.join(checked.problems)}",
            output=draft.model_dump_json(),
            reasons=checked.problems,
        )
    return summary_of(
        work,
        checked,
        source,
        cost=cost,
        model=EXTRACTIVE,
        provenance=Provenance.EXTRACTIVE,
        template=form.prompt,
    )
