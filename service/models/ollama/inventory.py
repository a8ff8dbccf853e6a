"""An Ollama host before passes depend on it: whether it is up, and which of the models it has."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.models.deadline import Deadline
from service.models.http.address import ServerAddress
from service.models.http.fields import name_of
from service.models.model import ModelError, ModelMissing
from service.models.ollama.description import canonical_name, names_of, read_description
from service.models.ollama.host import OllamaHost
from service.models.ollama.settings import OllamaSettings

OTHERS_MAX = 3
"""Most models that a remedy names."""

LISTED_MAX = 12
"""Most models whose capabilities are read to find these."""


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model on a host.

    Attributes:
        name: As requested.
        is_missing: Whether the host does not have it.
        context_length: The trained length in tokens; None if unknown.
        problem: Why it cannot be used; empty if it can.
        completes: Whether it answers prompts.
        thinks: Whether it thinks unless a request forbids it.
    """

    name: str
    is_missing: bool = False
    context_length: int | None = None
    problem: str = ""
    completes: bool = True
    thinks: bool = False


@dataclass(frozen=True, slots=True)
class HostInventory:
    """One host and its models.

    Attributes:
        host: Its label, `host:port`.
        version: Ollama's version; empty if unknown.
        models: The requested models, in order.
        others: If a requested model is missing, up to OTHERS_MAX other models that answer prompts.
        problem: Why the host cannot be used; empty if it can.
    """

    host: str
    version: str = ""
    models: tuple[ModelEntry, ...] = ()
    others: tuple[str, ...] = ()
    problem: str = ""

    @property
    def has_all(self) -> bool:
        """Whether the host and every requested model can be used."""
        return not self.problem and not any(model.problem for model in self.models)


async def inventory_of(
    address: ServerAddress,
    models: Sequence[str],
    *,
    token: str,
    timeout_s: float,
    clock: Callable[[], float],
) -> HostInventory:
    """Query one host, with `timeout_s` per request. Never raises ModelError."""
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
    """A remedy for a missing model: pull it, use one of `others`, or do without."""
    remedies = [f"pull it with `ollama pull {model}`"]
    if others:
        remedies.append(
            f"use one that the host has, `--set summarizer.models=ollama:{others[0]}`{_and_so_on(others[1:])}"
        )
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
    """Models of the host that complete prompts, or whose capabilities are unknown."""
    try:
        tags = await host.get("/api/tags", Deadline(timeout_s, clock=clock))
    except ModelError:
        # Some proxies forbid this; the remedy then names none.
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
