"""What passes get from outside: made once, handed on whole, so that a pass and its questions share one clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from service.domain.tokens import TokenCounter

__all__ = ["Surroundings"]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Time, chance and counting. `hash_key` keys the hashes of bad answers."""

    counter: TokenCounter
    clock_s: Callable[[], float]
    now_us: Callable[[], int]
    sleep: Callable[[float], Awaitable[None]]
    rng: Random
    hash_key: bytes
