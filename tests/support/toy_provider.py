"""A provider outside the product: as small as one over HTTP can be, with a server to ask.

The wire is one call: POST /say has the body {"model", "system", "user"}, and the answer is {"text", "read", "written"}.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from abridged.service.config.settings import Settings
from abridged.service.models.deadline import Deadline
from abridged.service.models.http.address import parse_server
from abridged.service.models.http.errors import HostRefused
from abridged.service.models.http.host import ModelHost, reporting_to
from abridged.service.models.http.settings import HostSettings
from abridged.service.models.inventory import OK, Finding, Inventory
from abridged.service.models.model import Completion, CompletionRequest, ModelDescription, ModelError, OnProgress
from abridged.service.models.provider import OpenProvider, Provider, Surroundings
from abridged.service.models.settings import SettingsGroup
from tests.support.ollama_http import HttpReply, HttpRequest, HttpServer

WINDOW = 4_096


class ToyGroup(SettingsGroup):
    """The way to the toy."""

    url: str = "http://127.0.0.1:1"


class Toy(Provider[ToyGroup]):
    """One server."""

    name = "toy"
    example = "parrot"
    group = ToyGroup

    @property
    def window(self) -> int:
        """See Provider."""
        return WINDOW

    def open(self, around: Surroundings) -> OpenProvider:
        """See Provider."""
        return _OpenToy(self.settings, around)

    def host_labels(self) -> tuple[str, ...]:
        """See Provider."""
        return (parse_server(self.settings.url, whose="a toy").label,)

    async def inventory(self, *, timeout_s: float, clock: Callable[[], float]) -> Sequence[Inventory]:
        """See Provider."""
        return [Inventory((Finding(OK, f"toy at {self.settings.url}: {', '.join(self.models)}"),))]


class ToySettings(Settings):
    """The product's settings and the toy's: the two lines that a provider adds to `Settings`."""

    provider_types: ClassVar[tuple[type[Provider[Any]], ...]] = (*Settings.provider_types, Toy)
    toy: ToyGroup = ToyGroup()


class ToyModel:
    """See SummaryModel."""

    def __init__(self, name: str, host: ModelHost, clock: Callable[[], float]) -> None:
        self._model = name
        self._host = host
        self._clock = clock

    @property
    def name(self) -> str:
        """`toy:model`."""
        return f"toy:{self._model}"

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
        """See SummaryModel."""
        body = json.dumps({"model": self._model, "system": request.system, "user": request.user}).encode()
        deadline = Deadline(deadline_s, clock=self._clock)
        async with self._host.place(deadline):
            self._host.check_circuit()
            began = self._clock()
            with reporting_to(self._host.breaker):
                said = await self._host.post("/say", body, model=self._model, seconds=deadline_s, deadline=deadline)
        on_progress(len(said["text"]))
        return Completion(said["text"], self.name, "stop", said["read"], said["written"], self._clock() - began)

    async def describe(self) -> ModelDescription:
        """See SummaryModel."""
        return ModelDescription(WINDOW, window=WINDOW)

    async def idle(self) -> bool:
        """See SummaryModel."""
        return not self._host.in_flight

    async def close(self) -> None:
        """See SummaryModel."""


class _OpenToy(OpenProvider):
    def __init__(self, group: ToyGroup, around: Surroundings) -> None:
        self._clock = around.clock
        self._host = ModelHost(
            parse_server(group.url, whose="a toy"),
            HostSettings(),
            classify=_refused,
            clock=around.clock,
            on_breaker=around.on_breaker,
            on_asked=lambda address: around.on_asked(address.host, address.port),
        )

    def model(self, name: str) -> ToyModel:
        return ToyModel(name, self._host, self._clock)

    async def context_length(self, name: str, /) -> int | None:
        return (await self.model(name).describe()).context_length

    async def close(self) -> None:
        await self._host.close()


class FakeToy:
    """The server: says `text` at every request. `asked` has the requests' bodies."""

    def __init__(self, text: str) -> None:
        self.asked: list[Any] = []
        self._text = text
        self._http = HttpServer(self._say)

    async def __aenter__(self) -> FakeToy:
        await self._http.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.stop()

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self._http.port}"

    async def _say(self, request: HttpRequest, reply: HttpReply) -> None:
        assert (request.method, request.path) == ("POST", "/say")
        self.asked.append(request.json)
        read = len(request.json["user"]) // 4
        await reply.json(200, {"text": self._text, "read": read, "written": len(self._text) // 4})


def _refused(host: str, _model: str, status: int, _body: bytes, _retry_after_s: float | None) -> ModelError:
    return HostRefused(f"{host}: HTTP {status}")
