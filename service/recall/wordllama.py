"""Vectors without a server: the mean of a text's token vectors, from the weights in the wheel of `wordllama`.

The package itself is not imported. It sets up logging, and its loader looks for the vocabulary in a folder that the
wheel does not have and would fetch it over the network. The weights are a table of half floats, mapped into memory.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from service.recall.file import require_installed

_WEIGHTS = "wordllama/weights/l2_supercat_256.safetensors"
_VOCABULARY = "wordllama/tokenizers/l2_supercat_tokenizer_config.json"
_TENSOR = "embedding.weight"
_HEADER_LENGTH_BYTES = 8


class WordLlamaEmbedder:
    """Embeds some thousand short texts a second.

    The first 64, 128 or 192 numbers of a vector serve by themselves, as the weights were trained for. Raises
    RecallMissing when the extra is not installed.
    """

    def __init__(self, dimension: int) -> None:
        require_installed()
        from tokenizers import Tokenizer

        package = distribution("wordllama")
        self._tokenizer = Tokenizer.from_file(str(package.locate_file(_VOCABULARY)))
        self._table = _mapped(Path(str(package.locate_file(_WEIGHTS))))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.dimension = dimension
        self.name = "wordllama:l2_supercat"

    async def embed(self, texts: Sequence[str]) -> Any:
        return await asyncio.to_thread(self._embedded, texts)

    async def close(self) -> None:
        """See Embedder."""

    def _embedded(self, texts: Sequence[str]) -> Any:
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
