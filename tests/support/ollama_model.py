"""The real provider over fake servers, and a request for a record: the beginning of most tests of models."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from abridged.service.domain.message import Role
from abridged.service.models.http.host import OnBreaker
from abridged.service.models.model import CompletionRequest
from abridged.service.models.ollama.description import DescriptionCache
from abridged.service.models.ollama.host import open_hosts
from abridged.service.models.ollama.model import OllamaModel
from abridged.service.models.ollama.settings import OllamaSettings, parse_address
from tests.support.ollama_catalogue import FakeModel
from tests.support.ollama_responder import count_tokens
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S

PATIENT = OllamaSettings(first_byte_s=PATIENCE_S, stall_s=PATIENCE_S, probe_s=PATIENCE_S, num_ctx=2_048)
"""Clocks that a loaded test machine does not reach."""

LATE_SOON = replace(PATIENT, first_byte_s=0.3)
"""Clocks for a first byte that never comes; the others wait, so that no slow machine ends a call by one of them."""

STALLED_SOON = replace(PATIENT, stall_s=0.3)
"""Clocks for an answer that stops midway."""

_STRINGS = {"type": "array", "items": {"type": "string", "maxLength": 200}, "maxItems": 10}
_FIELDS: dict[str, Any] = {
    "summary": {"type": "string", "maxLength": 800},
    "key_points": _STRINGS,
    "participants": _STRINGS,
    "decisions": _STRINGS,
    "action_items": {
        "type": "array",
        "maxItems": 10,
        "items": {
            "type": "object",
            "properties": {name: {"type": "string", "maxLength": 200} for name in ("task", "owner", "due")},
            "required": ["task", "owner", "due"],
            "additionalProperties": False,
        },
    },
    "unresolved": _STRINGS,
    "domain_entities": _STRINGS,
}
RECORD_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": _FIELDS,
    "required": list(_FIELDS),
    "additionalProperties": False,
}

_CHAT = (
    ("ana", Role.USER, "The nightly import of orders-db fails with timeout E4031 since version 2.7.1."),
    ("bob", Role.ASSISTANT, "The batch size was raised to 5000 rows. I would set import.batch_rows to 500 again."),
    ("ana", Role.USER, "Agreed, we go back to 500. Can you also tell Carol before Friday?"),
    ("bob", Role.ASSISTANT, "I will write to Carol. Whether the index on order_id is still used remains open."),
)


def record_request(*, prompt_tokens: int | None = None, words: int = 0, **fields: Any) -> CompletionRequest:
    """A request for the record of a short chat; the prompt is longer by the number of `words`."""
    system = "Summarize the conversation as JSON."
    said = "\n".join(f'<message {n} {role} "{name}">\n{text}' for n, (name, role, text) in enumerate(_CHAT, 1))
    user = f"<transcript>\n{said}\n</transcript>" + " filler" * words
    values: dict[str, Any] = {
        "system": system,
        "user": user,
        "schema": RECORD_SCHEMA,
        "prompt_tokens": count_tokens(system) + count_tokens(user) if prompt_tokens is None else prompt_tokens,
        "output_tokens_max": 600,
        "summary_tokens_max": 200,
        "temperature": 0.2,
        "seed": 7,
    }
    return CompletionRequest(**(values | fields))


@asynccontextmanager
async def model_over(
    *servers: FakeOllama,
    settings: OllamaSettings = PATIENT,
    model: str = FakeModel().name,
    clock: Callable[[], float] = time.monotonic,
    on_breaker: OnBreaker = lambda _host, _state: None,
    cache_dir: Path | None = None,
) -> AsyncIterator[OllamaModel]:
    """A model over running fakes, closed at the end."""
    addresses = [parse_address(server.url) for server in servers]
    hosts = open_hosts(addresses, settings, clock=clock, on_breaker=on_breaker)
    provider = OllamaModel(model, hosts, settings, clock=clock, descriptions=DescriptionCache(cache_dir))
    try:
        yield provider
    finally:
        await provider.close()
        for host in hosts:
            await host.close()
