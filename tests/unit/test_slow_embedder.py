"""A model that makes vectors slowly is asked for as many at a time as it has time for.

Time is the server's word alone: each text that it is asked for moves the clock on.
"""

from __future__ import annotations

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


class ModelClock:
    """The seconds of a model that takes `text_s` for each text, and drops a request of more than PATIENCE_S."""

    def __init__(self, text_s: float = 0.0) -> None:
        self.text_s = text_s
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_for(self, texts: int) -> None:
        """Move on by the time of these texts."""
        takes_s = self.text_s * texts
        self.now += min(takes_s, PATIENCE_S)
        if takes_s > PATIENCE_S:
            raise ConnectionAbortedError


@asynccontextmanager
async def embedder_over(server: FakeOllama, clock: ModelClock) -> AsyncIterator[OllamaEmbedder]:
    """An embedder of the server's first model, whose requests have PATIENCE_S each."""
    server.on_embedding = clock.pass_for
    hosts = open_hosts([parse_address(server.url)], PATIENT, clock=clock)
    embedder = OllamaEmbedder(server.models[0].name, hosts, seconds=PATIENCE_S, clock=clock)
    try:
        yield embedder
    finally:
        await embedder.close()


def sizes(server: FakeOllama) -> list[int]:
    """Texts of each request."""
    return [len(request.json["input"]) for request in server.requests if request.path == "/api/embed"]


async def test_a_slow_model_makes_every_vector():
    """Sixteen texts take longer than a request may: after the first it gets those of half the time."""
    async with FakeOllama() as server, embedder_over(server, ModelClock(text_s=PATIENCE_S / 10)) as embedder:
        rows = await embedder.embed(TEXTS)

    assert len(rows) == len(TEXTS)
    assert sizes(server) == [1, *[5] * 7, 4]


async def test_a_quick_model_is_asked_for_as_many_as_a_request_may_have():
    """The full requests begin with the second one."""
    async with FakeOllama() as server, embedder_over(server, ModelClock()) as embedder:
        await embedder.embed(TEXTS)

    assert sizes(server) == [1, EMBED_TEXTS_MAX, EMBED_TEXTS_MAX, 7]


async def test_a_model_that_becomes_slow_is_asked_for_less_after_a_failure():
    """The time of a request in vain counts as that of its texts: half of them next, then by what these took."""
    clock = ModelClock()
    async with FakeOllama() as server, embedder_over(server, clock) as embedder:
        await embedder.embed(TEXTS[:2])
        clock.text_s = PATIENCE_S / 15
        with pytest.raises(EmbedderAway):
            await embedder.embed(TEXTS)
        rows = await embedder.embed(TEXTS[:16])

    assert len(rows) == 16
    assert sizes(server) == [1, 1, EMBED_TEXTS_MAX, EMBED_TEXTS_MAX // 2, 7, 1]
