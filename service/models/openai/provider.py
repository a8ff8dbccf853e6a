"""The provider of models behind an OpenAI-compatible API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import MappingProxyType

from service.models.http.address import AddressError
from service.models.http.host import ModelHost
from service.models.inventory import FAIL, OK, WARN, Finding, Inventory
from service.models.openai.inventory import EndpointInventory, endpoint_inventory
from service.models.openai.model import PROVIDER, OpenAIModel, open_endpoint
from service.models.openai.settings import OpenAIGroup
from service.models.provider import OpenProvider, Provider, Surroundings


class OpenAI(Provider[OpenAIGroup]):
    """One endpoint, to which nothing is sent unless a setting names a model of it."""

    name = PROVIDER
    example = "gpt-4o-mini"
    variables = MappingProxyType({"OPENAI_BASE_URL": "url", "OPENAI_API_KEY": "api_key"})
    group = OpenAIGroup

    @property
    def window(self) -> int:
        """See Provider."""
        return self.settings.context_length

    def open(self, around: Surroundings) -> OpenProvider:
        """See Provider."""
        return _Endpoint(self.settings, around)

    def checks(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """See Provider."""
        # Other programs read OPENAI_BASE_URL too: whatever it says, it stops no sidecar that does not use it.
        if self.models:
            yield "url", self.settings.address

    def host_labels(self) -> tuple[str, ...]:
        """See Provider."""
        return (self.settings.address().label,) if self.models else ()

    def unused(self) -> str:
        """See Provider."""
        given = []
        if self.settings.url != OpenAIGroup.model_fields["url"].default:
            given.append("openai.url (OPENAI_BASE_URL)")
        if self.settings.api_key:
            given.append("openai.api_key (OPENAI_API_KEY)")
        if not given or self.models:
            return ""
        verb = "is" if len(given) == 1 else "are"
        return f'{" and ".join(given)} {verb} set but not used: to use it, set summarizer.models=["openai:NAME"]'

    async def inventory(self, *, timeout_s: float, clock: Callable[[], float]) -> Sequence[Inventory]:
        """See Provider."""
        if not self.models:
            unused = self.unused()
            return [Inventory((Finding(WARN, f"endpoint: {unused}"),))] if unused else []
        try:
            address = self.settings.address()
        except AddressError as error:
            return [Inventory((Finding(FAIL, f"openai.url: {error}", "see docs/configuration.md"),))]
        called = self.settings.calls()
        found = await endpoint_inventory(address, self.models, called, timeout_s=timeout_s, clock=clock)
        return [Inventory(tuple(_findings(found, self.models)))]


class _Endpoint(OpenProvider):
    def __init__(self, settings: OpenAIGroup, around: Surroundings) -> None:
        self._settings = settings
        self._around = around
        self._host: ModelHost | None = None

    def model(self, name: str) -> OpenAIModel:
        if self._host is None:
            around = self._around
            self._host = open_endpoint(
                self._settings.address(),
                self._settings.calls(),
                clock=around.clock,
                on_breaker=around.on_breaker,
                on_asked=lambda address: around.on_asked(address.host, address.port),
            )
        return self._model(name, self._host)

    async def context_length(self, name: str, /) -> int | None:
        # An endpoint of which the settings name no model is not asked, whatever clients name.
        return (await self._model(name, self._host).describe()).context_length if self._host is not None else None

    async def close(self) -> None:
        if self._host is not None:
            await self._host.close()

    def _model(self, name: str, host: ModelHost) -> OpenAIModel:
        return OpenAIModel(
            name,
            host,
            self._settings.calls(),
            clock=self._around.clock,
            on_dialect=lambda model, dialect: self._around.on_less(model, dialect.described),
        )


def _findings(found: EndpointInventory, models: Sequence[str]) -> Iterator[Finding]:
    if found.problem:
        address = "set openai.url, or summarizer.models=extractive:default, which needs no model"
        remedy = "set openai.api_key" if found.refuses_key else address
        yield Finding(WARN, f"endpoint {found.problem}", f"passes fail until it responds: {remedy}")
        return
    if not found.lists_models:
        where = "check that openai.url ends as the server's own examples do, mostly in /v1"
        yield Finding(WARN, f"endpoint {found.host}: responds, but does not list its models", where)
        return
    yield Finding(OK, f"endpoint {found.host}: responds, and its list of models is open to the key")
    for model in models:
        if model in found.missing:
            yield Finding(WARN, f"model {model}: the endpoint does not list it", "passes fail unless it serves it")
        else:
            yield Finding(OK, f"model {model}: listed")
