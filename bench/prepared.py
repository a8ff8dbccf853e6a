"""The wait of a caller for a pass, with and without a preparation, when the model takes MODEL_S.

A scripted model sleeps: the figures show whether callers wait for it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bench.figures import percentile
from bench.processes import sidecar_child
from bench.rpc import SidecarCalls

MODEL_S = 5
MARGIN_S = 3
"""Seconds beside the model's time, for all that a preparation does."""

CONVERSATIONS = 30
"""Prepared at the same time in each round, and then read one after the other."""

CONTEXT_LENGTH = 8_192
MESSAGE_TOKENS = 480
"""The caller's count: 12 messages are 0.70 of the budget, and 14 are 0.82."""

BEFORE, BEHIND = 12, 2

_runs = itertools.count()


@asynccontextmanager
async def prepared(folder: Path) -> AsyncIterator[Callable[[], Awaitable[Mapping[str, float]]]]:
    """Two sidecars in turns, one with `prepare_token_ratio`."""
    script = folder / "slow.json"
    script.write_text(json.dumps({"steps": [{"default": True, "delay_s": MODEL_S}]}))
    common = {"summarizer.models": f"scripted:{script}", "summarizer.concurrent_passes": str(CONVERSATIONS)}
    settings = {"unprepared": common, "prepared": {**common, "policy.prepare_token_ratio": "0.65"}}
    async with AsyncExitStack() as resources:
        sidecars = {
            name: await resources.enter_async_context(
                SidecarCalls.connected(resources.enter_context(sidecar_child(folder, name, own)).address)
            )
            for name, own in settings.items()
        }

        async def measure() -> Mapping[str, float]:
            values: dict[str, float] = {}
            for name, sidecar in sidecars.items():
                waits_s = await _waits(sidecar, one_by_one=name == "prepared")
                values |= {f"{name}.wait_p{share}": percentile(waits_s, share / 100) * 1e3 for share in (50, 99)}
            return values

        yield measure


async def _waits(sidecar: SidecarCalls, *, one_by_one: bool) -> list[float]:
    """Seconds of each wait. Waits that take as long as the model does run at the same time."""
    run = next(_runs)
    names = [f"waits{run}-{number}" for number in range(CONVERSATIONS)]
    for name in names:
        await sidecar.turned(name, 0, tokens=[MESSAGE_TOKENS] * BEFORE, context_length=CONTEXT_LENGTH)
    if one_by_one:
        await asyncio.sleep(MODEL_S + MARGIN_S)
        return [await _wait(sidecar, name) for name in names]
    return list(await asyncio.gather(*(_wait(sidecar, name) for name in names)))


async def _wait(sidecar: SidecarCalls, name: str) -> float:
    await sidecar.turned(name, 1, tokens=[MESSAGE_TOKENS] * BEHIND, context_length=CONTEXT_LENGTH)
    seconds, compacted = await sidecar.waited_s(name)
    assert compacted, "the pass has ended with a record"
    return seconds
