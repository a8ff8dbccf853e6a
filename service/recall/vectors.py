"""Vectors as the index keeps them: small, and compared by their angles alone.

A vector of d numbers takes d / 2 bytes of steps and d bits of signs. Signs find the nearest few of many; the steps put
these in order. A number has one of 16 steps, at the distance that loses least of normally distributed numbers (Max,
Quantizing for Minimum Distortion, IRE Transactions on Information Theory 6, 1960), as those of an embedding nearly
are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

STEPS = 16

STEP = 0.3352
"""Max's distance between steps, in root mean squares of a vector's numbers."""


class Vector(NamedTuple):
    """A vector in the two forms of the index: a bit a number, and four."""

    signs: bytes
    steps: bytes


class Embedder(Protocol):
    """A model that turns texts into vectors.

    Attributes:
        name: The name as `provider:model`; vectors of different names are never compared.
        dimension: Numbers of each vector; 0 where only an answer tells.
    """

    name: str
    dimension: int

    async def embed(self, texts: Sequence[str]) -> Any:
        """One row of floats per text, as a numpy array. A text without words has a row of zeros.

        Raises EmbedderAway when the model cannot be asked now.
        """
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


def quantized(rows: Any) -> list[Vector | None]:
    """Each row as the index keeps it; None for one of zeros, which has no angle."""
    import numpy as np

    largest = np.abs(rows).max(axis=1, initial=0.0, keepdims=True)
    has_angle = np.isfinite(largest[:, 0]) & (largest[:, 0] > 0)
    # Squares of the shares of the largest number neither overflow nor vanish.
    rows = rows[has_angle] / largest[has_angle]
    step = STEP * np.sqrt(np.square(rows).mean(axis=1, keepdims=True))
    steps = np.clip(np.floor(rows / step) + STEPS // 2, 0, STEPS - 1).astype(np.uint8)
    if steps.shape[1] % 2:
        steps = np.pad(steps, ((0, 0), (0, 1)), constant_values=STEPS // 2)
    steps = steps[:, ::2] << 4 | steps[:, 1::2]
    signs = np.packbits(rows > 0, axis=1)
    made = iter([Vector(s.tobytes(), t.tobytes()) for s, t in zip(signs, steps, strict=True)])
    return [next(made) if known else None for known in has_angle]


def cosines(vector: Vector, steps: Sequence[bytes]) -> list[float]:
    """Return the cosine of `vector` with each of the vectors that `steps` encode: 1 for the same angle, -1 opposite."""
    import numpy as np

    if not steps:
        return []
    pairs = np.frombuffer(b"".join((vector.steps, *steps)), np.uint8).reshape(1 + len(steps), -1)
    # The steps lie around 0, the first above it a half away.
    numbers = np.concatenate((pairs >> 4, pairs & 15), axis=1).astype(np.float32) - (STEPS - 1) / 2
    wanted, rows = numbers[0], numbers[1:]
    lengths = np.sqrt(np.square(rows).sum(axis=1) * np.square(wanted).sum())
    return [float(cosine) for cosine in (rows * wanted).sum(axis=1) / lengths]
