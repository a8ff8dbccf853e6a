"""Models that turn texts into vectors: the weights in wordllama's wheel, without a server, or a model of Ollama."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from abridged.service.models.deadline import Deadline
from abridged.service.models.figures import RecentHigh
from abridged.service.models.http.host import reporting_to
from abridged.service.models.model import ModelError, ModelUnavailable
from abridged.service.models.ollama.host import OllamaHost
from abridged.service.recall.errors import EmbedderAway
from abridged.service.recall.file import require_installed

EMBED_TEXTS_MAX = 16
"""Texts of one request to Ollama: their vectors stay far below the largest object that is read from a server."""

EMBED_TIME_SHARE = 0.5
"""Share of a request's limit that its texts should take by what earlier ones took; the first request has one text."""

MOMENT_S = 1e-3
"""Seconds, less than any text takes that is worth measuring."""

_WEIGHTS = "wordllama/weights/l2_supercat_256.safetensors"
_VOCABULARY = "wordllama/tokenizers/l2_supercat_tokenizer_config.json"
_TENSOR = "embedding.weight"
_HEADER_LENGTH_BYTES = 8


class WordLlamaEmbedder:
    """The mean of a text's token vectors, for some thousand short texts a second.

    The package itself is not imported. WordLlama sets up logging, and its loader looks for the vocabulary in a folder
    that the wheel does not have and would fetch it over the network. The weights are a table of half floats, mapped
    into memory.

    The first 64, 128 or 192 numbers of a vector serve by themselves, as the weights were trained for. Raises
    RecallMissing when the extra is not installed.
    """

    def __init__(self, dimension: int) -> None:
        require_installed("wordllama")
        from tokenizers import Tokenizer

        package = distribution("wordllama")
        self._tokenizer = Tokenizer.from_file(str(package.locate_file(_VOCABULARY)))
        self._table = _mapped(Path(str(package.locate_file(_WEIGHTS))))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.dimension = dimension
        self.name = "wordllama:l2_supercat"

    async def embed(self, texts: Sequence[str]) -> Any:
        return await asyncio.to_thread(self.embedded, texts)

    async def close(self) -> None:
        """See Embedder."""

    def embedded(self, texts: Sequence[str]) -> Any:
        """One row of floats per text, in the thread of the caller."""
        import numpy as np

        rows = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            # One by one: a batch would be spread over all processors.
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids
            if ids:
                row[:] = self._table[ids, : self.dimension].astype(np.float32).mean(axis=0)
        return rows


def _mapped(path: Path) -> Any:
    """The one tensor of a safetensors file: the length of a JSON header, the header, the numbers."""
    import numpy as np

    with path.open("rb") as file:
        header_length = int.from_bytes(file.read(_HEADER_LENGTH_BYTES), "little")
        tensor = json.loads(file.read(header_length))[_TENSOR]
    assert tensor["dtype"] == "F16", "the weights of the locked version are half floats"
    offset = _HEADER_LENGTH_BYTES + header_length + tensor["data_offsets"][0]
    return np.memmap(path, dtype=np.float16, mode="r", offset=offset, shape=tuple(tensor["shape"]))


class OllamaEmbedder:
    """Asks the first host that answers `/api/embed`, in the model's own dimension.

    The embedder owns its hosts: no pass waits for an embedding, nor the reverse. `seconds` limits each request.
    """

    dimension = 0

    def __init__(self, model: str, hosts: Sequence[OllamaHost], *, seconds: float, clock: Callable[[], float]) -> None:
        self.name = f"ollama:{model}"
        self._model = model
        self._hosts = hosts
        self._seconds = seconds
        self._clock = clock
        self._text_s = RecentHigh()

    async def embed(self, texts: Sequence[str]) -> Any:
        """The error is that of the last host."""
        import numpy as np

        found: list[list[float]] = []
        try:
            while len(found) < len(texts):
                found += await self._vectors(texts[len(found) : len(found) + self._texts_max])
        except ModelError as error:
            raise EmbedderAway(str(error)) from error
        return np.asarray(found, dtype=np.float32)

    async def close(self) -> None:
        for host in self._hosts:
            await host.close()

    @property
    def _texts_max(self) -> int:
        """Texts of the next request, as many as the model has time for."""
        text_s = self._text_s.value
        if text_s is None:
            return 1
        return min(EMBED_TEXTS_MAX, max(1, int(EMBED_TIME_SHARE * self._seconds / max(text_s, MOMENT_S))))

    async def _vectors(self, texts: Sequence[str]) -> list[list[float]]:
        # A text that is too long for the model is cut there: its first part still says what it is about.
        body = json.dumps({"model": self._model, "input": list(texts), "truncate": True}).encode()
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
            began_s = self._clock()
            try:
                with reporting_to(host.breaker):
                    answer = await host.post(
                        "/api/embed", body, model=self._model, seconds=self._seconds, deadline=deadline
                    )
            finally:
                self._text_s.see((self._clock() - began_s) / count)
        vectors = answer.get("embeddings")
        if not isinstance(vectors, list) or len(vectors) != count or not all(map(_is_vector, vectors)):
            raise ModelUnavailable(f"{host.label}: the answer to /api/embed has not one vector per text")
        if len({len(vector) for vector in vectors}) != 1:
            raise ModelUnavailable(f"{host.label}: the answer to /api/embed has vectors of several lengths")
        return vectors


def _is_vector(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(number, int | float) for number in value)
