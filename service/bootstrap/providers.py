"""Makes the models that the settings name."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path

import structlog

from observability.facts import ChatAsked
from observability.metrics import Metrics
from observability.tracing import note
from service.config.settings import OllamaSettings as OllamaGroup
from service.config.settings import OpenAISettings as OpenAIGroup
from service.config.settings import Settings, TokenSettings
from service.models.breaker import BreakerState
from service.models.http.address import ServerAddress
from service.models.http.host import ModelHost
from service.models.model import ModelError, SummaryModel
from service.models.ollama.address import parse_address
from service.models.ollama.description import DescriptionCache
from service.models.ollama.host import OllamaHost, open_hosts
from service.models.ollama.provider import OllamaModel
from service.models.ollama.settings import OllamaSettings
from service.models.ollama.vocabulary import Vocabularies
from service.models.openai.dialect import Dialect
from service.models.openai.provider import OpenAIModel, open_endpoint
from service.models.openai.settings import OpenAISettings, parse_endpoint
from service.models.preference import PreferredModel
from service.models.scripted import load_script
from service.summarizer.by_extraction import is_extractive
from service.tokenizers.choice import counter_named
from service.tokenizers.exact import require_exact
from service.tokenizers.of_models import ModelCounters

Traced = Callable[[SummaryModel], SummaryModel]
"""Wraps a model so that its calls are spans."""

_OPENAI = "openai:"

_log = structlog.get_logger()


def asks_openai(settings: Settings) -> bool:
    """Whether a setting names a model of the OpenAI-compatible endpoint; nothing is sent there otherwise."""
    return any(model.startswith(_OPENAI) for model in (*settings.summarizer.models, *settings.titles.models))


def unused_endpoint(settings: Settings) -> str:
    """Say how to use an endpoint that is configured while no model of it is; empty for all others."""
    group, given = settings.openai, []
    if group.url != OpenAIGroup.model_fields["url"].default:
        given.append("openai.url (OPENAI_BASE_URL)")
    if group.api_key:
        given.append("openai.api_key (OPENAI_API_KEY)")
    if not given or asks_openai(settings):
        return ""
    verb = "is" if len(given) == 1 else "are"
    return f'{" and ".join(given)} {verb} set but not used: to use it, set summarizer.models=["openai:NAME"]'


def host_labels(settings: Settings) -> tuple[str, ...]:
    """The hosts' names in metrics."""
    group = settings.ollama
    hosts = tuple(parse_address(h, allow_insecure=group.allow_insecure_hosts).label for h in group.hosts)
    if not asks_openai(settings):
        return hosts
    endpoint = parse_endpoint(settings.openai.url, allow_insecure=settings.openai.allow_insecure_url).label
    # The first names alone get series, so the endpoint comes after the first host.
    return tuple(dict.fromkeys((*hosts[:1], endpoint, *hosts[1:])))


def ollama_settings(group: OllamaGroup) -> OllamaSettings:
    """The provider's settings from the operator's."""
    return OllamaSettings(
        connect_s=group.connect_timeout_s,
        first_byte_s=group.first_byte_timeout_s,
        stall_s=group.stall_timeout_s,
        calls_max=group.concurrency,
        queue_max=group.queue_max,
        num_ctx=group.num_ctx,
        bearer_token=group.api_key.get_secret_value() if group.api_key else "",
    )


def openai_settings(group: OpenAIGroup) -> OpenAISettings:
    """The same for the OpenAI-compatible endpoint."""
    return OpenAISettings(
        connect_s=group.connect_timeout_s,
        first_byte_s=group.first_byte_timeout_s,
        stall_s=group.stall_timeout_s,
        calls_max=group.concurrency,
        queue_max=group.queue_max,
        window=group.context_length,
        other_models=group.other_models,
        bearer_token=group.api_key.get_secret_value() if group.api_key else "",
    )


def model_counters(group: TokenSettings, providers: Providers) -> ModelCounters:
    """Return the counter of the settings, and models' own tokenizers if they are asked for.

    Raises UnknownCounter, and TokenizerMissing without the extra that the settings need.
    """
    if group.is_exact:
        require_exact()
    return ModelCounters(
        counter_named(group.counter_name),
        files=group.tokenizer_files,
        fetch=providers.vocabularies.tokenizer_json if group.exact else None,
        now_s=time.monotonic,
    )


class Providers:
    """Makes models. All models of a provider share its hosts, their limits and breakers.

    The OpenAI-compatible endpoint gets no call before a model of it was asked for by `preferred`.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        metrics: Metrics,
        clock_s: Callable[[], float],
        cache_dir: Path | None,
    ) -> None:
        self._clock_s = clock_s
        self._metrics = metrics
        self._openai_group = settings.openai
        self._endpoint: ModelHost | None = None
        group = settings.ollama
        self._settings = ollama_settings(group)
        addresses = [parse_address(h, allow_insecure=group.allow_insecure_hosts) for h in group.hosts]
        self._hosts: tuple[OllamaHost, ...] = open_hosts(
            addresses,
            self._settings,
            clock=clock_s,
            on_breaker=self._breaker_changed,
            on_asked=_asked,
        )
        self._descriptions = DescriptionCache(cache_dir)
        self.vocabularies = Vocabularies(self._hosts, self._settings, clock=clock_s, directory=cache_dir)
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
        # Clients choose these names, so nothing is cached by name; descriptions are cached by digest.
        try:
            if model.startswith(_OPENAI):
                if self._endpoint is None:
                    return None
                return (await self._openai(model.removeprefix(_OPENAI), self._endpoint).describe()).context_length
            return (await self._ollama(model.removeprefix("ollama:")).describe()).context_length
        except ModelError:
            return None

    async def close(self) -> None:
        """Stop the running calls of `preferred`'s models, then release the hosts' connections."""
        for model in self._models:
            await model.close()
        for host in self._hosts:
            await host.close()
        if self._endpoint is not None:
            await self._endpoint.close()

    def _model(self, name: str) -> SummaryModel:
        provider, _, model = name.partition(":")
        match provider:
            case "scripted":
                return load_script(model or "default", clock=self._clock_s)
            case "ollama":
                return self._ollama(model)
            case "openai":
                return self._openai(model, self._opened())
            case _:
                raise AssertionError(f"{provider} is a provider of the settings, and nothing here makes its models")

    def _ollama(self, model: str) -> OllamaModel:
        return OllamaModel(model, self._hosts, self._settings, clock=self._clock_s, descriptions=self._descriptions)

    def _opened(self) -> ModelHost:
        """The endpoint, opened with the first model that is asked there."""
        if self._endpoint is None:
            group = self._openai_group
            self._endpoint = open_endpoint(
                parse_endpoint(group.url, allow_insecure=group.allow_insecure_url),
                openai_settings(group),
                clock=self._clock_s,
                on_breaker=self._breaker_changed,
                on_asked=_asked,
            )
        return self._endpoint

    def _openai(self, model: str, endpoint: ModelHost) -> OpenAIModel:
        return OpenAIModel(
            model,
            endpoint,
            openai_settings(self._openai_group),
            clock=self._clock_s,
            on_dialect=_dialect_changed,
        )

    def _breaker_changed(self, host: str, state: BreakerState) -> None:
        self._metrics.breaker_changed(host, state)


def _asked(address: ServerAddress) -> None:
    note(ChatAsked(address.host, address.port))


def _dialect_changed(model: str, dialect: Dialect) -> None:
    _log.warning("model.asked_for_less", model=model, hint=dialect.described)
