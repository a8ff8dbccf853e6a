"""Growth of the work for a text with the text: two sizes measured within one run, never a number of seconds.

Invariant: a slow or busy machine slows both sizes. A disturbance makes a measurement longer, so the shortest of several
counts, and the sizes take turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import TypeVar

T = TypeVar("T")

TIMES_LARGER = 4
LINEAR_AT_MOST = 8.0
"""The bound that is as far from 4, linear work at four times the size, as from 16, quadratic work."""

ROUNDS_MIN = 3
ROUNDS_MAX = 12


def grows_linearly(
    work: Callable[[T], object],
    material: Callable[[int], T],
    *,
    size: int,
    clock_s: Callable[[], float] = time.thread_time,
) -> bool:
    """Return whether `work` on material of `size` costs about four times its cost on a quarter of that, or less."""
    quarter, whole = material(size // TIMES_LARGER), material(size)
    return takes_at_most(LINEAR_AT_MOST, work, whole, than=quarter, clock_s=clock_s)


def takes_at_most(
    times: float,
    work: Callable[[T], object],
    one: T,
    *,
    than: T,
    clock_s: Callable[[], float] = time.thread_time,
) -> bool:
    """Return whether `work` on `one` costs at most `times` what it costs on `than`.

    Measured again while the answer is no, up to ROUNDS_MAX times: a disturbance passes, a cost stays.
    """
    one_s = than_s = inf
    for measured in range(1, ROUNDS_MAX + 1):
        than_s = min(than_s, _cost(work, than, clock_s))
        one_s = min(one_s, _cost(work, one, clock_s))
        if measured >= ROUNDS_MIN and one_s <= times * than_s:
            return True
    return False


def _cost(work: Callable[[T], object], material: T, clock_s: Callable[[], float]) -> float:
    begun = clock_s()
    work(material)
    return clock_s() - begun
