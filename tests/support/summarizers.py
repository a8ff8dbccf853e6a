"""Both summarizers and some work for them, as tests of what makes summaries begin."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

from abridged.service.domain.events import MessageAppended, PassPlan, Trigger
from abridged.service.domain.message import Message
from abridged.service.domain.policy import Policy
from abridged.service.domain.record import FormName, MessageRange
from abridged.service.domain.tokens import TokenCounter, TokenSource
from abridged.service.models.model import Completion, SummaryModel
from abridged.service.models.retry import RetryPolicy
from abridged.service.summarizer.ask import AskerSettings, Timing
from abridged.service.summarizer.by_extraction import ExtractiveSummarizer
from abridged.service.summarizer.by_model import ModelSummarizer
from abridged.service.summarizer.forms import FORMS, DraftForm
from abridged.service.summarizer.summarizer import PassWork
from abridged.service.tokenizers.estimated import EstimatingCounter

TOKENS_EACH = 300
"""The stated cost of a message of the work."""


class Heard:
    """An observer that keeps all that it hears."""

    def __init__(self) -> None:
        self.attempts: list[tuple[int, str]] = []
        self.outputs: list[int] = []
        self.answers: list[Completion] = []
        self.done: list[tuple[int, int]] = []

    def attempt(self, number: int, model: str) -> None:
        """See Observer."""
        self.attempts.append((number, model))

    def output(self, chars: int) -> None:
        """See Observer."""
        self.outputs.append(chars)

    def answered(self, completion: Completion) -> None:
        """See Observer."""
        self.answers.append(completion)

    def calls(self, done: int, total: int) -> None:
        """See Observer."""
        self.done.append((done, total))


def by_model(
    model: SummaryModel,
    *,
    window: int = 8_192,
    counter: TokenCounter | None = None,
    form: DraftForm = FORMS[FormName.FACETS],
    after_chat: bool = False,
) -> ModelSummarizer:
    """The summarizer that asks `model`, once again where it does not answer."""
    return ModelSummarizer(
        model,
        settings=AskerSettings(0.0, 1, 1.0, RetryPolicy(delay_base_s=0.001), 60.0),
        forms=dict.fromkeys(FormName, form),
        window_default=window,
        counter=counter or EstimatingCounter(),
        timing=Timing(time.monotonic, asyncio.sleep, random.Random(1)),
        after_chat=after_chat,
    )


def by_extraction(*, deadline_s: float = 60.0, counter: TokenCounter | None = None) -> ExtractiveSummarizer:
    """The summarizer that asks no model."""
    return ExtractiveSummarizer(counter=counter or EstimatingCounter(), forms=FORMS, deadline_s=deadline_s)


def work_on(
    messages: Sequence[Message], policy: Policy | None = None, *, rebase: bool = False, summary_tokens: int = 1_000
) -> PassWork:
    """A pass over all of these messages, whose record may be far larger than it should be."""
    covered = (MessageRange(1, max(1, len(messages))),)
    appended = tuple(
        MessageAppended(n, message, TOKENS_EACH, TokenSource.ESTIMATE, "estimate")
        for n, message in enumerate(messages, start=1)
    )
    plan = PassPlan(
        pass_id="p",
        trigger=Trigger.RATIO,
        covered=covered,
        source=covered,
        base_id="",
        parent_id="",
        depth=0,
        token_ratio=0.9,
        message_version=len(messages),
        replaced_tokens=TOKENS_EACH * len(messages),
        summary_tokens_max=summary_tokens,
        policy=policy or Policy(),
        rebase=rebase,
        room_tokens=40_000,
    )
    return PassWork("c1", plan, appended, None)
