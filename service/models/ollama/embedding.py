"""Vectors from Ollama's `/api/embed`, through hosts of their own: no pass waits for an embedding, nor the reverse."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from service.models.deadline import Deadline
from service.models.http.host import reporting_to
from service.models.model import ModelUnavailable
from service.models.ollama.host import OllamaHost

EMBED_TEXTS_MAX = 16
"""Texts of one request: their vectors stay far below the largest object that is read from a server."""


class OllamaEmbedding:
    """A model that embeds, on the first host that can be asked."""

    def __init__(self, model: str, hosts: Sequence[OllamaHost], *, seconds: float, clock: Callable[[], float]) -> None:
        self.model = model
        self._hosts = hosts
        self._seconds = seconds
        self._clock = clock

    async def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text, all of one length. Raises ModelError, that of the last host when every one fails."""
        found: list[list[float]] = []
        for start in range(0, len(texts), EMBED_TEXTS_MAX):
            found += await self._vectors(texts[start : start + EMBED_TEXTS_MAX])
        return found

    async def close(self) -> None:
        """Release the hosts' connections."""
        for host in self._hosts:
            await host.close()

    async def _vectors(self, texts: Sequence[str]) -> list[list[float]]:
        # A text that is too long for the model is cut there: its first part still says what it is about.
        body = json.dumps({"model": self.model, "input": list(texts), "truncate": True}).encode()
        for host in self._hosts[:-1]:
            try:
                return await self._from(host, body, len(texts))
            except ModelUnavailable:
                continue
        return await self._from(self._hosts[-1], body, len(texts))

    async def _from(self, host: OllamaHost, body: bytes, count: int) -> list[list[float]]:
        host.check_circuit()
        deadline = Deadline(self._seconds, clock=self._clock)
        async with host.place(deadline):
            with reporting_to(host.breaker):
                answer = await host.post("/api/embed", body, model=self.model, seconds=self._seconds, deadline=deadline)
        vectors = answer.get("embeddings")
        if not isinstance(vectors, list) or len(vectors) != count or not all(map(_is_vector, vectors)):
            raise ModelUnavailable(f"{host.label}: the answer to /api/embed has not one vector per text")
        if len({len(vector) for vector in vectors}) != 1:
            raise ModelUnavailable(f"{host.label}: the answer to /api/embed has vectors of several lengths")
        return vectors


def _is_vector(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(number, int | float) for number in value)
