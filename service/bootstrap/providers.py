"""Opens the providers that the settings list, and makes the models that they name."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path

import structlog

from abridged.observability.facts import ChatAsked
from abridged.observability.metrics import Metrics
from abridged.observability.tracing import note
from abridged.service.config.settings import Settings, TokenSettings
from abridged.service.models.model import ModelError, SummaryModel
from abridged.service.models.preference import PreferredModel
from abridged.service.models.provider import OpenProvider, Surroundings
from abridged.service.summarizer.summarizer import is_extractive
from abridged.service.tokenizers.choice import counter_named
from abridged.service.tokenizers.exact import reads_tokenizers, require_exact
from abridged.service.tokenizers.model_counters import ModelCounters

Traced = Callable[[SummaryModel], SummaryModel]
"""Wraps a model so that its calls are spans."""

_log = structlog.get_logger()


def unused_settings(settings: Settings) -> list[str]:
    """Remarks on providers' settings that have no effect, because no model of the provider is named."""
    return [remark for provider in settings.providers if (remark := provider.unused())]


def host_labels(settings: Settings) -> tuple[str, ...]:
    """The hosts' names in metrics: the first of each provider, then the others, because the first alone get series."""
    labels = [provider.host_labels() for provider in settings.providers]
    return tuple(dict.fromkeys([of[0] for of in labels if of] + [label for of in labels for label in of[1:]]))


def model_counters(group: TokenSettings, providers: Providers) -> ModelCounters:
    """The counter of the settings, and models' own tokenizers where they can be had.

    Raises UnknownCounter, and TokenizerMissing without the extra that the settings need.
    """
    if group.tokenizer_files:
        require_exact()
    return ModelCounters(
        counter_named(group.counter_name),
        files=group.tokenizer_files,
        fetch=providers.tokenizer_json if group.exact and reads_tokenizers() else None,
        now_s=time.monotonic,
        embedded=group.exact,
    )


class Providers:
    """Makes models. All models of a provider share its connections, limits and breakers."""

    def __init__(
        self,
        settings: Settings,
        *,
        metrics: Metrics,
        clock_s: Callable[[], float],
        cache_dir: Path | None,
    ) -> None:
        around = Surroundings(
            clock=clock_s,
            cache_dir=cache_dir,
            on_breaker=metrics.breaker_changed,
            on_asked=lambda host, port: note(ChatAsked(host, port)),
            on_less=lambda model, sent: _log.warning("model.asked_for_less", model=model, hint=sent),
        )
        self._open = {provider.name: provider.open(around) for provider in settings.providers}
        self._models: list[SummaryModel] = []

    def preferred(self, names: Sequence[str], *, traced: Traced = lambda model: model) -> SummaryModel | None:
        """The models of a list as one: the first that exists is used. `traced` wraps each.

        A list ends at extraction, which is not a model; None if it begins with it.
        """
        models = [traced(self._model(name)) for name in takewhile(lambda name: not is_extractive(name), names)]
        if not models:
            return None
        self._models += models
        return models[0] if len(models) == 1 else PreferredModel(models)

    async def context_length(self, model: str) -> int | None:
        """A chat model's context length, if its provider knows it; None if it does not or cannot be asked."""
        provider, name = self._of(model)
        try:
            return await provider.context_length(name)
        except ModelError:
            return None

    async def tokenizer_json(self, model: str) -> str:
        """A chat model's own tokenizer. Raises VocabularyUnknown, or VocabularyAway if it can be asked for again."""
        provider, name = self._of(model)
        return await provider.tokenizer_json(name)

    async def close(self) -> None:
        """Stop the running calls of `preferred`'s models, then release the connections."""
        for model in self._models:
            await model.close()
        for provider in self._open.values():
            await provider.close()

    def _model(self, name: str) -> SummaryModel:
        provider, _, model = name.partition(":")
        assert provider in self._open, f"{provider} is no provider of the settings"
        return self._open[provider].model(model)

    def _of(self, model: str) -> tuple[OpenProvider, str]:
        """The provider of a chat model, and the model's name there. A name without a known prefix is the first's."""
        prefix, colon, name = model.partition(":")
        known = self._open.get(prefix) if colon else None
        return (known, name) if known is not None else (next(iter(self._open.values())), model)
