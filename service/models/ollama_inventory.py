"""What a person should know of an Ollama host before passes depend on it: does it answer, and has it the models?"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.models.deadline import Deadline
from service.models.model import ModelError, ModelMissing
from service.models.ollama_address import OllamaAddress
from service.models.ollama_description import read_description
from service.models.ollama_host import OllamaHost
from service.models.ollama_settings import OllamaSettings

__all__ = ["HostInventory", "ModelEntry", "inventory_of"]


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that was asked for. `problem` is empty when it is there; `context_length` None when not said."""

    name: str
    is_missing: bool = False
    context_length: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class HostInventory:
    """One host. `problem` is empty when it answers."""

    host: str
    version: str = ""
    models: tuple[ModelEntry, ...] = ()
    problem: str = ""

    @property
    def has_all(self) -> bool:
        """Whether it answers and has every model that was asked for."""
        return not self.problem and not any(model.problem for model in self.models)


async def inventory_of(
    address: OllamaAddress,
    models: Sequence[str],
    *,
    token: str,
    timeout_s: float,
    clock: Callable[[], float],
) -> HostInventory:
    """Ask one host, `timeout_s` for each of its answers; never raises ModelError."""
    settings = OllamaSettings(connect_s=timeout_s, probe_s=timeout_s, bearer_token=token)
    host = OllamaHost(address, settings, clock=clock, on_breaker=lambda _host, _state: None)
    try:
        answer = await host.get("/api/version", Deadline(timeout_s, clock=clock))
        found = [await _entry(host, model, timeout_s, clock) for model in models]
    except ModelError as error:
        return HostInventory(host.label, problem=str(error))
    finally:
        await host.close()
    version = answer.get("version")
    return HostInventory(host.label, version if isinstance(version, str) else "", tuple(found))


async def _entry(host: OllamaHost, model: str, timeout_s: float, clock: Callable[[], float]) -> ModelEntry:
    body = json.dumps({"model": model}).encode()
    try:
        show = await host.post(
            "/api/show", body, model=model, seconds=timeout_s, deadline=Deadline(timeout_s, clock=clock)
        )
    except ModelMissing as error:
        return ModelEntry(model, is_missing=True, problem=str(error))
    except ModelError as error:
        return ModelEntry(model, problem=str(error))
    return ModelEntry(model, context_length=read_description(show, "").context_length)
