"""Load that is bounded in time and clients: every client waits for its answer before it asks again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from bench.figures import percentile

CALLS_MAX = 200_000
"""Calls of one client at most, however fast they are."""

TURN_CLIENTS = 4
TURN_S = 0.25
"""Short, because the latencies of turns are compared with one another."""

Call = Callable[[int, int], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Load:
    """The outcome of a load."""

    seconds: float
    latencies_s: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Calls a second."""
        return len(self.latencies_s) / self.seconds

    @property
    def p50_ms(self) -> float:
        """The median latency."""
        return percentile(self.latencies_s, 0.5) * 1e3

    @property
    def p99_ms(self) -> float:
        """The latency that one call of a hundred exceeds."""
        return percentile(self.latencies_s, 0.99) * 1e3


async def closed_loop(call: Callable[[int, int], Awaitable[object]], *, clients: int, seconds: float) -> Load:
    """Let `clients` call `call(client, number)` one after another for `seconds`; raises what a call raises."""
    latencies: list[float] = []
    began = time.perf_counter()
    end = began + seconds

    async def client(place: int) -> None:
        for number in range(CALLS_MAX):
            asked = time.perf_counter()
            if asked >= end:
                return
            await call(place, number)
            latencies.append(time.perf_counter() - asked)

    await asyncio.gather(*(client(place) for place in range(clients)))
    return Load(time.perf_counter() - began, tuple(latencies))


async def in_turns(calls: Mapping[str, Call], seconds: float, *, clients: int = TURN_CLIENTS) -> dict[str, list[float]]:
    """Latencies of each, taken in short turns, so that what disturbs the machine disturbs all alike."""
    latencies: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(max(1, round(seconds / TURN_S))):
        for name, call in calls.items():
            load = await closed_loop(numbered(call, turn), clients=clients, seconds=TURN_S)
            latencies[name].extend(load.latencies_s)
    return latencies


def numbered(call: Call, turn: int) -> Call:
    """Return `call` with numbers that no other turn uses."""
    return lambda client, number: call(client, turn * CALLS_MAX + number)
