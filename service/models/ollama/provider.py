"""The provider of models that Ollama serves."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import MappingProxyType

from abridged.service.models.http.address import AddressError
from abridged.service.models.inventory import FAIL, OK, WARN, Finding, Inventory, ModelSpeed
from abridged.service.models.ollama.description import DescriptionCache
from abridged.service.models.ollama.host import open_hosts
from abridged.service.models.ollama.inventory import HostInventory, ModelEntry, inventory_of, missing_remedy, speed_of
from abridged.service.models.ollama.model import PROVIDER, OllamaModel
from abridged.service.models.ollama.settings import OllamaGroup
from abridged.service.models.ollama.vocabulary import Vocabularies
from abridged.service.models.provider import OpenProvider, Provider, Surroundings
from abridged.service.models.settings import text_of

WITHOUT_MODEL = "set summarizer.models=extractive:default, which needs none"


class Ollama(Provider[OllamaGroup]):
    """One host or several, all with the same settings."""

    name = PROVIDER
    example = "qwen2.5:3b"
    variables = MappingProxyType({"OLLAMA_HOST": "hosts", "OLLAMA_API_KEY": "api_key"})
    group = OllamaGroup

    @property
    def window(self) -> int:
        return self.settings.num_ctx

    def open(self, around: Surroundings) -> OpenProvider:
        return _Hosts(self.settings, around)

    def checks(self) -> Iterator[tuple[str, Callable[[], object]]]:
        for index, host in enumerate(self.settings.hosts):
            yield f"hosts[{index}]", partial(self.settings.address, host)

    def host_labels(self) -> tuple[str, ...]:
        """The hosts describe chat models, whoever makes the records."""
        return tuple(address.label for address in self.settings.addresses())

    async def inventory(self, *, timeout_s: float, clock: Callable[[], float]) -> Sequence[Inventory]:
        hosts = self.settings.hosts if self.models else ()
        return [await self._inventory(host, timeout_s, clock) for host in hosts]

    async def missing_remedy(self, *, clock: Callable[[], float]) -> str:
        """Only the first host is asked."""
        if not self.models:
            return ""
        model = self.models[0]
        settings = self.settings
        found = await inventory_of(
            settings.address(settings.hosts[0]),
            [model],
            token=text_of(settings.api_key),
            timeout_s=settings.connect_timeout_s,
            clock=clock,
        )
        return missing_remedy(model, found.others)

    async def _inventory(self, host: str, timeout_s: float, clock: Callable[[], float]) -> Inventory:
        settings = self.settings
        try:
            address = settings.address(host)
        except AddressError as error:
            return Inventory((Finding(FAIL, f"ollama.hosts: {error}", "see docs/configuration.md"),))
        token = text_of(settings.api_key)
        found = await inventory_of(address, self.models, token=token, timeout_s=timeout_s, clock=clock)

        async def speed(model: ModelEntry) -> ModelSpeed:
            return await speed_of(address, model, settings.calls(), clock=clock, nonce=uuid.uuid4().hex)

        speeds = {model.name: partial(speed, model) for model in found.models if not model.problem}
        return Inventory(tuple(_findings(found, settings.num_ctx)), speeds)


class _Hosts(OpenProvider):
    def __init__(self, settings: OllamaGroup, around: Surroundings) -> None:
        self._settings = settings.calls()
        self._clock = around.clock
        self._hosts = open_hosts(
            settings.addresses(),
            self._settings,
            clock=around.clock,
            on_breaker=around.on_breaker,
            on_asked=lambda address: around.on_asked(address.host, address.port),
        )
        directory = settings.cache_dir or around.cache_dir
        self._descriptions = DescriptionCache(directory)
        self._vocabularies = Vocabularies(self._hosts, self._settings, clock=around.clock, directory=directory)

    def model(self, name: str) -> OllamaModel:
        return OllamaModel(name, self._hosts, self._settings, clock=self._clock, descriptions=self._descriptions)

    async def context_length(self, name: str, /) -> int | None:
        return (await self.model(name).describe()).context_length

    async def tokenizer_json(self, name: str) -> str:
        return await self._vocabularies.tokenizer_json(name)

    async def close(self) -> None:
        for host in self._hosts:
            await host.close()


def _findings(found: HostInventory, num_ctx: int) -> Iterator[Finding]:
    if found.problem:
        remedy = f"start it with `ollama serve`, set OLLAMA_HOST to its address, or {WITHOUT_MODEL}"
        yield Finding(WARN, f"Ollama {found.problem}", f"passes fail until it responds: {remedy}")
        return
    yield Finding(OK, f"Ollama {found.host}: version {found.version or 'not said'}")
    for model in found.models:
        if model.problem:
            remedy = missing_remedy(model.name, found.others)
            hint = f"passes fail until it is there: {remedy}" if model.is_missing else ""
            yield Finding(WARN, f"model {model.name}: {model.problem}", hint)
        elif model.context_length is not None and model.context_length < num_ctx:
            what = f"model {model.name}: context length {model.context_length:,}, below ollama.num_ctx {num_ctx:,}"
            yield Finding(WARN, what, "calls use the smaller one; longer sources are split")
        else:
            length = f"{model.context_length:,}" if model.context_length is not None else "not said"
            yield Finding(OK, f"model {model.name}: context length {length}, called with {num_ctx:,}")
