"""Vectors as the index keeps them: small, and compared by their angles alone.

A vector of d numbers takes d bytes in steps of 1/127 of its largest number, and d bits of signs. Signs find the nearest
few of many; the steps put these in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

STEPS = 127


class Vector(NamedTuple):
    """A vector in the two forms of the index."""

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
    steps = np.rint(rows[has_angle] * (STEPS / largest[has_angle])).astype(np.int8)
    signs = np.packbits(rows[has_angle] > 0, axis=1)
    made = iter([Vector(s.tobytes(), t.tobytes()) for s, t in zip(signs, steps, strict=True)])
    return [next(made) if known else None for known in has_angle]


def cosines(vector: Vector, steps: Sequence[bytes]) -> list[float]:
    """Return the cosine of `vector` with each of the vectors that `steps` encode: 1 for the same angle, -1 opposite."""
    import numpy as np

    if not steps:
        return []
    rows = np.frombuffer(b"".join(steps), np.int8).reshape(len(steps), -1).astype(np.float32)
    wanted = np.frombuffer(vector.steps, np.int8).astype(np.float32)
    lengths = np.sqrt(np.square(rows).sum(axis=1) * np.square(wanted).sum())
    return [float(cosine) for cosine in (rows * wanted).sum(axis=1) / lengths]
