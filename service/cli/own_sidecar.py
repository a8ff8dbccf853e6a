"""A sidecar inside the command, on its event loop: real ports and a real log, for as long as the command runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from service.bootstrap import Running, logging_as_set, serve
from service.config.settings import Settings

__all__ = ["own_sidecar"]


@asynccontextmanager
async def own_sidecar(settings: Settings, environ: Mapping[str, str]) -> AsyncIterator[Running]:
    """Serve while the body runs. Raises what `serve` raises, also if the sidecar stops before the body ends."""
    undo_logs = logging_as_set(settings.telemetry)
    stop = asyncio.Event()
    ready: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(settings, environ, stop=stop, ready=ready.set_result))
    either: set[asyncio.Future[Any]] = {serving, ready}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            await serving
        yield await ready
    finally:
        stop.set()
        try:
            await serving
        finally:
            undo_logs()
