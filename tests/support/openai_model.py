"""The real provider over a fake OpenAI-compatible server."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from abridged.service.models.http.host import OnBreaker
from abridged.service.models.openai.dialect import Dialect
from abridged.service.models.openai.model import OpenAIModel, open_endpoint
from abridged.service.models.openai.settings import OpenAISettings, parse_endpoint
from tests.support.openai_server import FAKE_MODEL, FakeOpenAI
from tests.support.patience import PATIENCE_S

PATIENT = OpenAISettings(first_byte_s=PATIENCE_S, stall_s=PATIENCE_S, probe_s=PATIENCE_S, window=2_048)
"""Clocks that a loaded test machine does not reach."""

LATE_SOON = replace(PATIENT, first_byte_s=0.3)
"""Clocks for a first byte that never comes; the others wait, so that no slow machine ends a call by one of them."""

STALLED_SOON = replace(PATIENT, stall_s=0.3)
"""Clocks for an answer that stops midway."""


@asynccontextmanager
async def openai_over(
    server: FakeOpenAI | str,
    *,
    settings: OpenAISettings = PATIENT,
    model: str = FAKE_MODEL,
    clock: Callable[[], float] = time.monotonic,
    on_breaker: OnBreaker = lambda _host, _state: None,
    on_dialect: Callable[[str, Dialect], None] = lambda _model, _dialect: None,
) -> AsyncIterator[OpenAIModel]:
    """A model over a running fake or at an address, closed at the end."""
    address = parse_endpoint(server if isinstance(server, str) else server.url)
    host = open_endpoint(address, settings, clock=clock, on_breaker=on_breaker)
    provider = OpenAIModel(model, host, settings, clock=clock, on_dialect=on_dialect)
    try:
        yield provider
    finally:
        await provider.close()
        await host.close()
