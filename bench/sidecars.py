"""Two sidecars on one log in PostgreSQL: how late the second one shows what the first has acknowledged."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bench.figures import percentile
from bench.load import in_turns
from bench.processes import sidecar_child
from bench.rpc import SidecarCalls


@asynccontextmanager
async def sidecars(
    folder: Path, seconds: float, database: str
) -> AsyncIterator[Callable[[], Awaitable[Mapping[str, float]]]]:
    """One client appends to one sidecar, and watches at the other; another appends to one and gets the window of it, or
    of the other, in turns."""
    settings = {"summarizer.models": "extractive:", "log.url": database}
    async with AsyncExitStack() as resources:
        one, other = [
            await resources.enter_async_context(
                SidecarCalls.connected(resources.enter_context(sidecar_child(folder, name, settings)).address)
            )
            for name in ("one", "other")
        ]

        async def measure() -> Mapping[str, float]:
            run = secrets.token_hex(4)
            delivered = await other.deliveries_s(one, f"{run}-watched", seconds=seconds)
            latencies = await in_turns(
                {"own": one.turns(f"{run}-own", calls=2), "other": one.turns(f"{run}-other", calls=2, window_of=other)},
                seconds,
                clients=1,
            )
            return {
                "shared.delivered_p50": percentile(delivered, 0.5) * 1e3,
                "shared.delivered_p99": percentile(delivered, 0.99) * 1e3,
                **{f"shared.{name}_p50": percentile(found, 0.5) * 1e3 for name, found in latencies.items()},
            }

        yield measure
