"""A prepared record: what a summarizer wrote before the trigger, and whether a pass may still use it.

A draft stands as long as the summarizer would be asked the same: the same messages first in the range, the same record
before them, under the same policy. No list of what makes it stale is therefore needed: a redaction, a rewind, a pin,
another record or other settings all change that question.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from abridged.service.domain.events import PassPlan
from abridged.service.domain.ranges import without
from abridged.service.summarizer.summarizer import PassWork, Summary, record_of


@dataclass(frozen=True, slots=True)
class Question:
    """A summarizer's question with its plan, kept without the text of its messages.

    Attributes:
        plan: The plan.
        messages: The number of messages that the summarizer reads.
        digest: A digest of all that it reads.
    """

    plan: PassPlan
    messages: int
    digest: bytes

    @classmethod
    def of(cls, work: PassWork) -> Question:
        """The question that this work asks."""
        return cls(work.plan, len(work.messages), _digest(work))

    def stands_in(self, work: PassWork) -> bool:
        """Return whether an answer may begin the record of `work`: its range has this one's messages first, and nothing
        else that the summarizer would read differs."""
        return (
            self.messages <= len(work.messages)
            and _task(self.plan) == _task(work.plan)
            and not without(self.plan.covered, work.plan.covered)
            and self.digest == _digest(replace(work, messages=work.messages[: self.messages]))
        )


@dataclass(frozen=True, slots=True)
class Prepared:
    """A summary that waits for its trigger.

    Attributes:
        question: The question that was asked.
        summary: The summary.
        latency_s: Seconds that it took.
        epoch: The epoch of the window that it was made of.
        tokens_in: Prompt tokens that models read for it.
        tokens_out: Tokens that models wrote for it.
    """

    question: Question
    summary: Summary
    latency_s: float
    epoch: int
    tokens_in: int = 0
    tokens_out: int = 0

    def stands_in(self, work: PassWork) -> bool:
        """Return whether the draft may begin the record of `work`, and is not larger than that record may be."""
        return self.question.stands_in(work) and self.summary.tokens <= work.plan.room_tokens

    def covers(self, plan: PassPlan) -> bool:
        """Return whether the draft covers all of the plan's range."""
        return self.question.plan.covered == plan.covered

    def of_pass(self, work: PassWork) -> PassWork:
        """The part of the pass's work that is done: the pass's ids, the prepared range and its sizes."""
        mine, plan = self.question.plan, work.plan
        prefix = replace(
            plan,
            covered=mine.covered,
            source=mine.source,
            replaced_tokens=mine.replaced_tokens,
            covered_tokens=mine.covered_tokens,
        )
        return replace(work, plan=prefix, messages=work.messages[: self.question.messages])

    def rest_of(self, work: PassWork) -> PassWork | None:
        """The rest of the pass's work: the messages after the prepared ones, summarized on top of the draft.

        Returns None for a rebase, whose record has to be made from what its plan names, and where nothing is left to
        read.
        """
        mine, plan = self.question.plan, work.plan
        rest = work.messages[self.question.messages :]
        if plan.rebase or not rest:
            return None
        # The draft is one more text that the oldest part has passed through.
        on_top = replace(plan, source=without(plan.source, mine.source), rewrites=plan.rewrites + 1)
        draft = record_of(self.of_pass(work), self.summary, create_time_us=0, latency_ms=0)
        return replace(work, plan=on_top, messages=rest, previous=draft)


def _task(plan: PassPlan) -> tuple[object, ...]:
    """Return the parts that must be the same of two plans, besides their ranges and sizes.

    `max_input_tokens` is a size too: how a source is split, by what the model was last found to hold.
    """
    return (
        replace(plan.policy, max_input_tokens=0),
        plan.base_id,
        plan.parent_id,
        plan.depth,
        plan.rewrites,
        plan.rebase,
        plan.replaces_id,
        plan.beside_ids,
        plan.short_ids,
        plan.merged_ids,
        plan.overlap,
        plan.form,
        plan.extractive,
    )


def _digest(work: PassWork) -> bytes:
    read = (work.conversation_id, work.chat_model, work.previous, work.overlap, work.merged, work.messages)
    return hashlib.blake2b(repr(read).encode(errors="surrogatepass"), digest_size=16).digest()
