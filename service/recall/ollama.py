"""Vectors from a model of Ollama."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service.models.model import ModelError
from service.models.ollama.embedding import OllamaEmbedding
from service.recall.errors import EmbedderAway


class OllamaEmbedder:
    """Asks Ollama's `/api/embed` for vectors, in the model's own dimension."""

    dimension = 0

    def __init__(self, embedding: OllamaEmbedding) -> None:
        self._embedding = embedding
        self.name = f"ollama:{embedding.model}"

    async def embed(self, texts: Sequence[str]) -> Any:
        import numpy as np

        try:
            return np.asarray(await self._embedding.vectors(texts), dtype=np.float32)
        except ModelError as error:
            raise EmbedderAway(str(error)) from error

    async def close(self) -> None:
        await self._embedding.close()
