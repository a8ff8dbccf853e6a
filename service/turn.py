"""What may be done in one turn of the event loop; what weighs more is done by the pool of readers.

States and requests do not change, so any thread may read them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["TURN_WEIGHT_MAX", "aside"]

T = TypeVar("T")

TURN_WEIGHT_MAX: Final = 1_000
"""What weighs 1 takes up to 20 µs on a slow machine, such as to read, count or render a message or a tool call; so a
turn takes less than half of the 50 ms after which other callers would notice."""


async def aside(weight: int, work: Callable[[], T]) -> T:
    """What `work` returns or raises: done at once when it is light, else in a thread."""
    if weight <= TURN_WEIGHT_MAX:
        return work()
    return await asyncio.to_thread(work)
