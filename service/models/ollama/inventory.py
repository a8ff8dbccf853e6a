"""What a person should know of an Ollama host before passes depend on it: does it answer, and has it the models?"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.models.deadline import Deadline
from service.models.model import ModelError, ModelMissing
from service.models.ollama.address import OllamaAddress
from service.models.ollama.description import canonical_name, names_of, read_description
from service.models.ollama.host import OllamaHost
from service.models.ollama.json import name_of
from service.models.ollama.settings import OllamaSettings

__all__ = ["HostInventory", "ModelEntry", "inventory_of", "missing_remedy"]

OTHERS_MAX = 3
"""Models that a remedy names: enough to choose from."""

LISTED_MAX = 12
"""Models that are asked what they can do, to find these."""


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model. `problem` is empty when it is there, `context_length` None when not said.

    `completes` is whether it answers prompts, `thinks` whether it thinks unless it is told not to.
    """

    name: str
    is_missing: bool = False
    context_length: int | None = None
    problem: str = ""
    completes: bool = True
    thinks: bool = False


@dataclass(frozen=True, slots=True)
class HostInventory:
    """One host. `problem` is empty when it answers. `others` are models of the host that can answer a prompt, at most
    OTHERS_MAX; they are looked for when one that was asked for is missing."""

    host: str
    version: str = ""
    models: tuple[ModelEntry, ...] = ()
    others: tuple[str, ...] = ()
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
        missing = any(entry.is_missing for entry in found)
        others = await _others(host, models, timeout_s, clock) if missing else ()
    except ModelError as error:
        return HostInventory(host.label, problem=str(error))
    finally:
        await host.close()
    return HostInventory(host.label, name_of(answer.get("version")), tuple(found), others)


def missing_remedy(model: str, others: Sequence[str]) -> str:
    """What to do about a missing model, for a person: fetch it, take one of `others`, or do without."""
    remedies = [f"fetch it with `ollama pull {model}`"]
    if others:
        remedies.append(f"use one that is there, `--set summarizer.models=ollama:{others[0]}`{_and_so_on(others[1:])}")
    return ", or ".join([*remedies, "`--set summarizer.models=extractive:default`, which needs none"])


def _and_so_on(others: Sequence[str]) -> str:
    return f" (also {', '.join(others)})" if others else ""


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
    description = read_description(show, "")
    return ModelEntry(
        model,
        context_length=description.context_length,
        completes=not description.capabilities or "completion" in description.capabilities,
        thinks="thinking" in description.capabilities,
    )


async def _others(
    host: OllamaHost, models: Sequence[str], timeout_s: float, clock: Callable[[], float]
) -> tuple[str, ...]:
    """Models of the host that say that they complete prompts, or do not say what they can."""
    try:
        tags = await host.get("/api/tags", Deadline(timeout_s, clock=clock))
    except ModelError:
        # Some proxies forbid it; the remedy then names none.
        return ()
    asked = {canonical_name(model) for model in models}
    found: list[str] = []
    for name in names_of(tags)[:LISTED_MAX]:
        if canonical_name(name) in asked or len(found) == OTHERS_MAX:
            continue
        entry = await _entry(host, name, timeout_s, clock)
        if not entry.problem and entry.completes:
            found.append(name)
    return tuple(found)
