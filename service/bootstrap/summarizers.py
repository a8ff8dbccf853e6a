"""The summarizers that the settings name. Summarizers of conversations and of texts are made when they are first used:
their modules take a tenth of the start to load.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import cache, cached_property
from typing import TYPE_CHECKING

from abridged.service.config.settings import Settings
from abridged.service.domain.policy import Policy
from abridged.service.domain.record import FormName
from abridged.service.domain.tokens import TokenCounter
from abridged.service.models.model import SummaryModel
from abridged.service.models.retry import RetryPolicy
from abridged.service.summarizer.summarizer import (
    EXTRACTIVE,
    Observer,
    PassWork,
    Summarizer,
    Summarizers,
    Summary,
    is_extractive,
)

if TYPE_CHECKING:
    from abridged.service.summarizer.forms import DraftForm
    from abridged.service.summarizer.texts import TextSummarizer

Forms = Callable[[], Mapping[FormName, "DraftForm"]]


def summarizers_of(settings: Settings, model: SummaryModel | None, counter: TokenCounter) -> Summarizers:
    """Return the maker of conversations' records: the model, or extraction alone without one.

    Raises InvalidPolicy for a file of the settings that cannot be read or used.
    """
    group = settings.summarizer

    @cache
    def forms() -> Mapping[FormName, DraftForm]:
        from abridged.service.bootstrap.own_forms import own_forms

        return own_forms(group)

    if any((group.prompt_file, group.text_prompt_file, group.raw_schema_file)):
        forms()
    return _summarizers(settings, model, counter, forms, passes=1)


def texts_of(
    settings: Settings, model: SummaryModel | None, counter: TokenCounter, resources: AsyncExitStack
) -> Callable[[], TextSummarizer]:
    """Return what makes the summarizer of texts, once; `resources` ends its process."""

    @cache
    def made() -> TextSummarizer:
        from abridged.service.summarizer.extraction_process import ExtractionProcess
        from abridged.service.summarizer.texts import DOCUMENT_FORMS, PASSES_OF_A_TEXT, TextSummarizer

        deadline_s = PASSES_OF_A_TEXT * settings.summarizer.deadline_s
        extracted = ExtractionProcess(settings.tokens.counter_name, deadline_s=deadline_s)
        resources.push_async_callback(extracted.close)
        summarizers = _summarizers(settings, model, counter, lambda: DOCUMENT_FORMS, passes=PASSES_OF_A_TEXT)
        return TextSummarizer(summarizers, counter, extracted)

    return made


class _OnFirstUse:
    """A summarizer that `make` makes, once anything but its name is asked for."""

    def __init__(self, name: str, make: Callable[[], Summarizer]) -> None:
        self.name = name
        self._make = make

    @cached_property
    def made(self) -> Summarizer:
        return self._make()

    def source_tokens(self, policy: Policy, summary_tokens: int, /) -> int:
        return self.made.source_tokens(policy, summary_tokens)

    async def summarize(self, work: PassWork, observer: Observer) -> Summary:
        return await self.made.summarize(work, observer)

    async def has_time(self) -> bool:
        return await self.made.has_time()


def _summarizers(
    settings: Settings, model: SummaryModel | None, counter: TokenCounter, forms: Forms, *, passes: int
) -> Summarizers:
    """A source may take the calls and the time of this number of `passes`."""
    summarizer = settings.summarizer
    deadline_s = passes * summarizer.deadline_s

    def by_extraction() -> Summarizer:
        from abridged.service.summarizer.by_extraction import ExtractiveSummarizer

        return ExtractiveSummarizer(counter=counter, forms=forms(), deadline_s=deadline_s)

    extraction = _OnFirstUse(EXTRACTIVE, by_extraction)
    if model is None:
        return Summarizers(extraction, extraction)
    asked = model

    def by_model() -> Summarizer:
        from abridged.service.summarizer.ask import AskerSettings, Timing
        from abridged.service.summarizer.by_model import ModelSummarizer

        retry = RetryPolicy(attempts_max=summarizer.retries + 1, delay_base_s=summarizer.backoff_base_ms / 1_000)
        return ModelSummarizer(
            asked,
            settings=AskerSettings(
                *(summarizer.temperature, summarizer.seed, summarizer.repeat_penalty),
                retry,
                deadline_s,
                num_predict=summarizer.num_predict,
            ),
            forms=forms(),
            window_default=_window(settings, asked),
            counter=counter,
            timing=Timing(time.monotonic, asyncio.sleep, random.Random()),
            after_chat=summarizer.after_chat,
        )

    wanted = _OnFirstUse(model.name, by_model)
    return Summarizers(wanted, extraction, listed=any(map(is_extractive, summarizer.models)))


def _window(settings: Settings, model: SummaryModel) -> int:
    return next(provider.window for provider in settings.providers_of([model.name]) if provider.models)
