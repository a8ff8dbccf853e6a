"""The summarizers that the settings name."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack

from abridged.service.config.settings import Settings
from abridged.service.domain.record import FormName
from abridged.service.domain.tokens import TokenCounter
from abridged.service.models.model import SummaryModel
from abridged.service.models.retry import RetryPolicy
from abridged.service.summarizer.ask import AskerSettings, Timing
from abridged.service.summarizer.by_extraction import ExtractiveSummarizer, is_extractive
from abridged.service.summarizer.by_model import ModelSummarizer
from abridged.service.summarizer.extraction_process import ExtractionProcess
from abridged.service.summarizer.forms import DraftForm
from abridged.service.summarizer.summarizer import Summarizers
from abridged.service.summarizer.texts import DOCUMENT_FORMS, PASSES_OF_A_TEXT, TextSummarizer


def summarizers_of(
    settings: Settings,
    model: SummaryModel | None,
    counter: TokenCounter,
    forms: Mapping[FormName, DraftForm],
    *,
    passes: int = 1,
) -> Summarizers:
    """Return the maker of records in these forms: the model, or extraction alone without one.

    A source may take the calls and the time of this number of `passes`.
    """
    summarizer = settings.summarizer
    deadline_s = passes * summarizer.deadline_s
    extraction = ExtractiveSummarizer(counter=counter, forms=forms, deadline_s=deadline_s)
    if model is None:
        return Summarizers(extraction, extraction)
    retry = RetryPolicy(attempts_max=summarizer.retries + 1, delay_base_s=summarizer.backoff_base_ms / 1_000)
    by_model = ModelSummarizer(
        model,
        settings=AskerSettings(
            *(summarizer.temperature, summarizer.seed, summarizer.repeat_penalty),
            retry,
            deadline_s,
            num_predict=summarizer.num_predict,
        ),
        forms=forms,
        window_default=_window(settings, model),
        counter=counter,
        timing=Timing(time.monotonic, asyncio.sleep, random.Random()),
    )
    return Summarizers(by_model, extraction, listed=any(map(is_extractive, summarizer.models)))


def _window(settings: Settings, model: SummaryModel) -> int:
    return next(provider.window for provider in settings.providers_of([model.name]) if provider.models)


def texts_of(
    settings: Settings, model: SummaryModel | None, counter: TokenCounter, resources: AsyncExitStack
) -> TextSummarizer:
    """Return the summarizer of texts; `resources` ends its process."""
    deadline_s = PASSES_OF_A_TEXT * settings.summarizer.deadline_s
    extracted = ExtractionProcess(settings.tokens.counter_name, deadline_s=deadline_s)
    resources.push_async_callback(extracted.close)
    summarizers = summarizers_of(settings, model, counter, DOCUMENT_FORMS, passes=PASSES_OF_A_TEXT)
    return TextSummarizer(summarizers, counter, extracted)
