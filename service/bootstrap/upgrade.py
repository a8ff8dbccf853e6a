"""Upgrades the log of an older version to this version's schema, before anything else is opened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from eventlog.sqlite.rewrite import Rewrite, is_older, rewritten
from service.api.http import health_routes, http_server_at
from service.bootstrap.progress_lines import ProgressLines
from service.config.settings import Settings
from service.conversations.set_aside import carried
from service.conversations.table_schema import refuse_lost_end

__all__ = ["upgrade_if_due"]

_log = structlog.get_logger()


async def upgrade_if_due(settings: Settings, *, stop: asyncio.Event, free_bytes: Callable[[Path], int]) -> bool:
    """Upgrade the log of `settings` if an older version wrote it. Returns False, and leaves the file unchanged, if
    `stop` came first.

    Meanwhile the HTTP port is open: `/readyz` reports the progress, `/startupz` is 200. Raises an EventLogError if the
    log cannot be upgraded, LogFull if its volume has no room.
    """
    path = settings.log.path
    if settings.log.backend != "sqlite" or not is_older(path):
        return True
    progress = _Progress()
    async with AsyncExitStack() as resources:
        if settings.server.http_listen:
            routes = health_routes(started=lambda: False, busy=lambda: True, ready={"log": progress.reason}, details={})
            server = http_server_at(settings.server.http_listen, routes)
            await server.start()
            resources.push_async_callback(server.close)
        _log.info("log.upgrading", hint=await progress.reason())
        rewrite = Rewrite(refuse_lost_end, free_bytes, progress, lambda: not stop.is_set(), carried)
        done = await asyncio.to_thread(rewritten, path, rewrite)
    if done is None:
        return False
    _log.info("log.upgraded", events=done.events, bytes_before=done.bytes_before, bytes_after=done.bytes_after)
    return True


class _Progress:
    """Reports how far it is, on request and as lines."""

    def __init__(self) -> None:
        self._done = ""
        self._lines = ProgressLines("log.upgrading")

    def __call__(self, done: int, total: int) -> None:
        self._done = f": {done:,} of {total:,} events"
        self._lines(done, total)

    async def reason(self) -> str:
        return f"an older version wrote it, so it is written anew{self._done}"
