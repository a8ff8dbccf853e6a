"""The provider of models behind an OpenAI-compatible API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from abridged.service.models.deadline import Deadline
from abridged.service.models.http.address import AddressError
from abridged.service.models.http.errors import AnswerInvalid, HostRefused
from abridged.service.models.http.host import ModelHost
from abridged.service.models.inventory import FAIL, OK, WARN, Finding, Inventory
from abridged.service.models.model import ModelError
from abridged.service.models.openai.errors import KeyRefused
from abridged.service.models.openai.model import MODELS_PATH, PROVIDER, OpenAIModel, listed, open_endpoint
from abridged.service.models.openai.settings import OpenAIGroup
from abridged.service.models.openai.wire import is_same_model
from abridged.service.models.provider import OpenProvider, Provider, Surroundings


class OpenAI(Provider[OpenAIGroup]):
    """One endpoint, to which nothing is sent unless a setting names a model of it."""

    name = PROVIDER
    example = "gpt-4o-mini"
    variables = MappingProxyType({"OPENAI_BASE_URL": "url", "OPENAI_API_KEY": "api_key"})
    group = OpenAIGroup

    @property
    def window(self) -> int:
        return self.settings.context_length

    def open(self, around: Surroundings) -> OpenProvider:
        return _Endpoint(self.settings, around)

    def checks(self) -> Iterator[tuple[str, Callable[[], object]]]:
        # Other programs read OPENAI_BASE_URL too: whatever it says, it stops no sidecar that does not use it.
        if self.models:
            yield "url", self.settings.address

    def host_labels(self) -> tuple[str, ...]:
        return (self.settings.address().label,) if self.models else ()

    def unused(self) -> str:
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
        if not self.models:
            unused = self.unused()
            return [Inventory((Finding(WARN, f"endpoint: {unused}"),))] if unused else []
        try:
            address = self.settings.address()
        except AddressError as error:
            return [Inventory((Finding(FAIL, f"openai.url: {error}", "see docs/configuration.md"),))]
        called = replace(self.settings.calls(), connect_s=timeout_s, probe_s=timeout_s)
        host = open_endpoint(address, called, clock=clock)
        try:
            answer = await host.get(MODELS_PATH, Deadline(timeout_s, clock=clock))
            return [Inventory(tuple(_listed(host.label, self.models, answer)))]
        except KeyRefused as error:
            finding = Finding(WARN, f"endpoint {error}", "passes fail until it responds: set openai.api_key")
        except (AnswerInvalid, HostRefused):
            where = "check that openai.url ends as the server's own examples do, mostly in /v1"
            finding = Finding(WARN, f"endpoint {host.label}: responds, but does not list its models", where)
        except ModelError as error:
            remedy = "set openai.url, or summarizer.models=extractive:default, which needs no model"
            finding = Finding(WARN, f"endpoint {error}", f"passes fail until it responds: {remedy}")
        finally:
            await host.close()
        return [Inventory((finding,))]


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


def _listed(label: str, models: Sequence[str], answer: dict[str, Any]) -> Iterator[Finding]:
    names = [name for name, _ in listed(answer)]
    yield Finding(OK, f"endpoint {label}: responds, and its list of models is open to the key")
    for model in models:
        if any(is_same_model(model, name) for name in names):
            yield Finding(OK, f"model {model}: listed")
        else:
            yield Finding(WARN, f"model {model}: the endpoint does not list it", "passes fail unless it serves it")
