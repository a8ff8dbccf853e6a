"""Examines an Ollama host before passes depend on it: whether it is up, which models it has, and how fast they are."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from abridged.service.models.deadline import Deadline
from abridged.service.models.http.address import ServerAddress
from abridged.service.models.http.fields import count_of, name_of, seconds_of
from abridged.service.models.inventory import ModelSpeed
from abridged.service.models.model import ModelError, ModelMissing
from abridged.service.models.ollama.description import canonical_name, names_of, read_description
from abridged.service.models.ollama.host import OllamaHost
from abridged.service.models.ollama.settings import OllamaSettings
from abridged.service.models.ollama.wire import load_body

OTHERS_MAX = 3
"""Limit on the models that a remedy names."""

LISTED_MAX = 12
"""Limit on the models whose capabilities are read to find these."""

LINES = 16
"""Lines of the question's prompt, about 15 tokens each: enough to outweigh fixed costs, and read in 20 s at 12
tokens/s."""

OUTPUT_TOKENS = 24


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model on a host.

    Attributes:
        name: The name as requested.
        is_missing: True if the host does not have it.
        context_length: The trained length in tokens; None if unknown.
        problem: Why it cannot be used; empty if it can.
        completes: True if it answers prompts.
        thinks: True if it thinks unless a request forbids it.
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
        host: The host's label, `host:port`.
        version: Ollama's version; empty if unknown.
        models: The requested models, in order.
        others: Up to OTHERS_MAX other models that answer prompts, if a requested model is missing.
        problem: Why the host cannot be used; empty if it can.
    """

    host: str
    version: str = ""
    models: tuple[ModelEntry, ...] = ()
    others: tuple[str, ...] = ()
    problem: str = ""

    @property
    def has_all(self) -> bool:
        """True if the host and every requested model can be used."""
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


async def speed_of(
    address: ServerAddress, model: ModelEntry, settings: OllamaSettings, *, clock: Callable[[], float], nonce: str
) -> ModelSpeed:
    """Ask `model` a question and read the durations in its answer. `nonce` defeats the host's prompt cache.

    Waits for the load and for the answer as long as a pass would, `first_byte_s` each: a shorter wait could abandon a
    prompt that the host keeps reading, and the next pass would have to wait for it. Raises ModelError.
    """
    host = OllamaHost(address, settings, clock=clock, on_breaker=lambda _host, _state: None)
    try:
        for body in (_runner(model, settings), _question(model, settings, nonce)):
            answer = await host.post(
                "/api/chat",
                json.dumps(body).encode(),
                model=model.name,
                seconds=settings.first_byte_s,
                deadline=Deadline(math.inf, clock=clock),
            )
    finally:
        await host.close()
    # The first token of an answer arrives with the end of the prompt, before the duration begins.
    return ModelSpeed(
        read=_rate(count_of(answer.get("prompt_eval_count")), answer.get("prompt_eval_duration")),
        written=_rate((count_of(answer.get("eval_count")) or 1) - 1, answer.get("eval_duration")),
    )


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


def _runner(model: ModelEntry, settings: OllamaSettings) -> dict[str, Any]:
    """The body that loads the model as a pass does: other options would make the next pass reload it."""
    window = min(settings.num_ctx, model.context_length or settings.num_ctx)
    body: dict[str, Any] = json.loads(load_body(model=model.name, num_ctx=window))
    return body


def _question(model: ModelEntry, settings: OllamaSettings, nonce: str) -> dict[str, Any]:
    body = _runner(model, settings)
    lines = (f"{number}. The worker of shard {number} wrote its invoices late." for number in range(1, LINES + 1))
    text = "\n".join([f"{nonce} is a report.", *lines, "Say in one sentence what this report is about."])
    body |= {"messages": [{"role": "user", "content": text}], "truncate": False}
    body["options"] |= {"num_predict": OUTPUT_TOKENS, "temperature": 0}
    return body | ({"think": False} if model.thinks else {})


def _rate(tokens: int | None, nanoseconds: object) -> float | None:
    """Tokens per second; None if either value is zero, which answers omit, or invalid."""
    seconds = seconds_of(nanoseconds)
    return tokens / seconds if tokens and seconds else None
