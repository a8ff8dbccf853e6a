"""Decides where work runs: light work in a turn of the event loop, more in the pool of readers, and work of seconds in
a pool of its own, so that no read waits for it.

States and requests do not change, so any thread may read them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

TURN_WEIGHT_MAX: Final = 1_000
"""The most that may run in one turn: weight 1 takes up to 20 µs on a slow machine, such as to read, count or render a
message or a tool call; so a turn takes less than half of the 50 ms after which other callers would notice."""

LONG_THREADS: Final = 2

# All sidecars of a process share it, and none of them shuts it down: a cancelled call takes its waiting work out of the
# queue, idle threads keep nothing, and the interpreter joins them at its end.
_long: Final = ThreadPoolExecutor(LONG_THREADS, thread_name_prefix="long")


async def run_off_loop(weight: int, work: Callable[[], T]) -> T:
    """Return the result of `work`: run at once when it is light, else in a thread."""
    if weight <= TURN_WEIGHT_MAX:
        return work()
    return await asyncio.to_thread(work)


async def at_length(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of `work`, run in a thread for as long as a whole source takes."""
    return await asyncio.get_running_loop().run_in_executor(_long, partial(work, *args, **kwargs))
