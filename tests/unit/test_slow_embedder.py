"""A model that makes vectors slowly is asked for as many at a time as it has time for."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from abridged.service.models.ollama.host import open_hosts
from abridged.service.models.ollama.settings import parse_address
from abridged.service.recall.embedders import EMBED_TEXTS_MAX, OllamaEmbedder
from abridged.service.recall.errors import EmbedderAway
from tests.support.ollama_model import PATIENT
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S

TEXTS = [f"The importer reads table orders_{n}." for n in range(40)]


@asynccontextmanager
async def embedder_over(server: FakeOllama, *, seconds: float) -> AsyncIterator[OllamaEmbedder]:
    """An embedder of the server's first model, whose requests have so long."""
    hosts = open_hosts([parse_address(server.url)], PATIENT, clock=time.monotonic)
    embedder = OllamaEmbedder(server.models[0].name, hosts, seconds=seconds, clock=time.monotonic)
    try:
        yield embedder
    finally:
        await embedder.close()


def sizes(server: FakeOllama) -> list[int]:
    """Texts of each request."""
    return [len(request.json["input"]) for request in server.requests if request.path == "/api/embed"]


async def test_a_slow_model_makes_every_vector():
    """Sixteen texts take 3.2 s, and a request has 2: after the first it gets fewer at a time."""
    async with FakeOllama() as server, embedder_over(server, seconds=2.0) as embedder:
        server.embedding_s = 0.2
        rows = await embedder.embed(TEXTS)

    assert len(rows) == len(TEXTS)
    assert sizes(server)[0] == 1
    assert max(sizes(server)) <= 5


async def test_a_quick_model_is_asked_for_as_many_as_a_request_may_have():
    """The full requests begin with the second one."""
    async with FakeOllama() as server, embedder_over(server, seconds=PATIENCE_S) as embedder:
        await embedder.embed(TEXTS)

    assert sizes(server) == [1, EMBED_TEXTS_MAX, EMBED_TEXTS_MAX, 7]


async def test_a_model_that_becomes_slow_is_asked_for_less_after_a_failure():
    """The time of a request in vain counts as that of its texts."""
    async with FakeOllama() as server, embedder_over(server, seconds=1.0) as embedder:
        await embedder.embed(TEXTS[:2])
        server.embedding_s = 0.07
        with pytest.raises(EmbedderAway):
            await embedder.embed(TEXTS)
        rows = await embedder.embed(TEXTS[:16])

    assert len(rows) == 16
    assert sizes(server)[2] == EMBED_TEXTS_MAX
    assert max(sizes(server)[3:]) <= EMBED_TEXTS_MAX // 2
