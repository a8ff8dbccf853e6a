"""Shares of a work that one turn of the event loop does, beside a work that is known to be too much for one.

Both are measured within one run, in the loop thread's own processor time: other threads and programs do not count, and
a slow machine slows both.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from math import inf

ROUNDS_MIN = 3
ROUNDS_MAX = 6
PART = 2


class _Turns:
    """The most processor time that went by between two turns."""

    def __init__(self) -> None:
        self.most = 0.0

    async def watch(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.most, last = max(self.most, now - last), now


async def leaves_the_loop(work: Callable[[int], Awaitable[object]], *, too_much: Callable[[], object]) -> bool:
    """Return whether no turn, while `work` of a round's number is done, takes more than half of the time of `too_much`.

    Measured again while the answer is no, a few times: a disturbance passes, a cost stays.
    """
    turn_s = too_much_s = inf
    for number in range(ROUNDS_MAX):
        too_much_s = min(too_much_s, _cost(too_much))
        turn_s = min(turn_s, await _heaviest_turn(work(number)))
        if number + 1 >= ROUNDS_MIN and turn_s <= too_much_s / PART:
            return True
    return False


def _cost(work: Callable[[], object]) -> float:
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


async def _heaviest_turn(work: Awaitable[object]) -> float:
    turns = _Turns()
    watching = asyncio.create_task(turns.watch())
    await asyncio.sleep(0)
    await work
    await asyncio.sleep(0)
    watching.cancel()
    return turns.most
