"""Makes the models that the settings name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path

from observability.facts import BreakerState, ChatAsked
from observability.metrics import Metrics
from observability.tracing import note
from service.config.settings import OllamaSettings as OllamaGroup
from service.models.breaker import BreakerState as HostState
from service.models.model import ModelError, SummaryModel
from service.models.ollama.address import parse_address
from service.models.ollama.description import DescriptionCache
from service.models.ollama.host import OllamaHost, open_hosts
from service.models.ollama.provider import OllamaModel
from service.models.ollama.settings import OllamaSettings
from service.models.preference import PreferredModel
from service.models.scripted import load_script
from service.summarizer.by_extraction import is_extractive

__all__ = ["Providers", "Traced", "host_labels", "ollama_settings"]

Traced = Callable[[SummaryModel], SummaryModel]
"""Wraps a model so that its calls are spans."""

_BREAKER = {state: BreakerState(state.value) for state in HostState}


def host_labels(group: OllamaGroup) -> tuple[str, ...]:
    """The hosts' names in metrics."""
    return tuple(parse_address(h, allow_insecure=group.allow_insecure_hosts).label for h in group.hosts)


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


class Providers:
    """Makes models. All models of Ollama share its hosts, their limits and breakers."""

    def __init__(
        self,
        group: OllamaGroup,
        *,
        metrics: Metrics,
        clock_s: Callable[[], float],
        cache_dir: Path | None,
    ) -> None:
        self._clock_s = clock_s
        self._settings = ollama_settings(group)
        addresses = [parse_address(h, allow_insecure=group.allow_insecure_hosts) for h in group.hosts]
        self._hosts: tuple[OllamaHost, ...] = open_hosts(
            addresses,
            self._settings,
            clock=clock_s,
            on_breaker=lambda host, state: metrics.breaker_changed(host, _BREAKER[state]),
            on_asked=lambda address: note(ChatAsked(address.host, address.port)),
        )
        self._descriptions = DescriptionCache(cache_dir)
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
        """A chat model's context length, if Ollama knows it; None if it does not or cannot be asked."""
        # Clients choose these names, so nothing is cached by name; descriptions are cached by digest.
        try:
            return (await self._ollama(model.removeprefix("ollama:")).describe()).context_length
        except ModelError:
            return None

    async def close(self) -> None:
        """Stop the running calls of `preferred`'s models, then release the hosts' connections."""
        for model in self._models:
            await model.close()
        for host in self._hosts:
            await host.close()

    def _model(self, name: str) -> SummaryModel:
        provider, _, model = name.partition(":")
        match provider:
            case "scripted":
                return load_script(model or "default", clock=self._clock_s)
            case "ollama":
                return self._ollama(model)
            case _:
                raise AssertionError(f"{provider} is a provider of the settings, and nothing here makes its models")

    def _ollama(self, model: str) -> OllamaModel:
        return OllamaModel(model, self._hosts, self._settings, clock=self._clock_s, descriptions=self._descriptions)
