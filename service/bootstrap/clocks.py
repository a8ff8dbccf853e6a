"""The machine's clock, and one that runs as it does and that a test moves on, with all that waits for it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime


def now_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1_000


class VirtualClock:
    """The clock of one process. Timers of its loops go by it, and so do the times of events."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def now_us(self) -> int:
        """Microseconds since the epoch."""
        return now_us() + round(self.ahead_s * 1e6)

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """Make an event loop whose timers go by this clock."""
        return _Loop(self)

    async def advance(self, seconds: float, woken: Callable[[], Awaitable[None]]) -> str:
        """Move on, and return the time that it is then, as RFC 3339 has it, when `woken` has returned.

        Work that has waited for a moment that has passed begins before; a call that waits may meet its deadline. Raises
        ValueError for a time that lies before, or beyond what events can have.
        """
        if not (math.isfinite(seconds) and seconds >= 0):
            raise ValueError("the clock moves by seconds, and not back")
        then = datetime.fromtimestamp(self.now_us() / 1e6 + seconds, UTC) if seconds < 1e11 else None
        if then is None:
            raise ValueError("the clock moves no further than the year 9999")
        self.ahead_s += seconds
        # The loop looks for timers that are due once in each turn, and calls them in the next.
        for _ in range(2):
            await asyncio.sleep(0)
        await woken()
        return then.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: VirtualClock) -> None:
        self._virtual_clock = clock
        super().__init__()

    def time(self) -> float:
        return super().time() + self._virtual_clock.ahead_s
