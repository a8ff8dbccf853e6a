"""Vectors as the index keeps them: small, and compared by their angles alone.

A vector of d numbers takes d / 2 bytes of steps and d bits of signs. Signs find the nearest few of many; the steps put
these in order. A number has one of 16 steps, which lose least of normally distributed numbers (Max, Quantizing for
Minimum Distortion, IRE Transactions on Information Theory 6, 1960), as those of an embedding nearly are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

_UPPER_EDGES: Final = (0.2582, 0.5224, 0.7995, 1.0993, 1.4371, 1.8435, 2.4008)
"""The numbers between which a step lies, in root mean squares of a vector's numbers; those below 0 mirror them."""

_UPPER_STEPS: Final = (0.1284, 0.3880, 0.6568, 0.9423, 1.2562, 1.6180, 2.0690, 2.7326)
"""The numbers for which the steps above 0 stand; each is the mean of those between its edges."""

EDGES: Final = (*(-edge for edge in reversed(_UPPER_EDGES)), 0.0, *_UPPER_EDGES)
STEPS: Final = (*(-step for step in reversed(_UPPER_STEPS)), *_UPPER_STEPS)


class Vector(NamedTuple):
    """A vector in the two forms of the index: a bit a number, and four."""

    signs: bytes
    steps: bytes


class Direction(NamedTuple):
    """A vector that others are compared with: its signs, and its numbers as they are, a numpy array."""

    signs: bytes
    numbers: Any


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

    has_angle, scaled = _scaled(rows)
    steps = np.searchsorted(EDGES, scaled).astype(np.uint8)
    if steps.shape[1] % 2:
        steps = np.pad(steps, ((0, 0), (0, 1)))
    steps = steps[:, ::2] << 4 | steps[:, 1::2]
    made = iter([Vector(s, t.tobytes()) for s, t in zip(_signs(scaled), steps, strict=True)])
    return [next(made) if known else None for known in has_angle]


def direction(row: Any) -> Direction | None:
    """Return a row as others are compared with it; None for one of zeros, which has no angle."""
    _, scaled = _scaled(row[None])
    return Direction(_signs(scaled)[0], scaled[0]) if len(scaled) else None


def cosines(wanted: Direction, steps: Sequence[bytes]) -> list[float]:
    """Return the cosine of `wanted` with each of the vectors that `steps` encode: 1 for the same angle, -1 opposite."""
    import numpy as np

    if not steps:
        return []
    pairs = np.frombuffer(b"".join(steps), np.uint8).reshape(len(steps), -1)
    places = np.stack((pairs >> 4, pairs & 15), axis=2).reshape(len(steps), -1)[:, : len(wanted.numbers)]
    rows = np.asarray(STEPS, np.float32)[places]
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(wanted.numbers)
    return [float(cosine) for cosine in rows @ wanted.numbers / lengths]


def _scaled(rows: Any) -> tuple[Any, Any]:
    """Tell which rows have an angle, and return those in root mean squares of their numbers."""
    import numpy as np

    largest = np.abs(rows).max(axis=1, initial=0.0, keepdims=True)
    has_angle = np.isfinite(largest[:, 0]) & (largest[:, 0] > 0)
    # Squares of the shares of the largest number neither overflow nor vanish.
    rows = rows[has_angle] / largest[has_angle]
    return has_angle, rows / np.sqrt(np.square(rows).mean(axis=1, keepdims=True))


def _signs(rows: Any) -> list[bytes]:
    import numpy as np

    return [signs.tobytes() for signs in np.packbits(rows > 0, axis=1)]
