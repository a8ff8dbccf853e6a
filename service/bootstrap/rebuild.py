"""Rebuilds the read table: at a start that finds another version's, and on demand while no process owns the log."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack

import structlog

from abridged.eventlog.event import StreamId
from abridged.service.bootstrap.backends import log_backend
from abridged.service.bootstrap.core import open_core
from abridged.service.bootstrap.progress_lines import ProgressLines
from abridged.service.config.settings import Settings
from abridged.service.conversations.rebuild import Rebuild, RebuildReport, Rebuilt
from abridged.service.conversations.row import READ_TABLE

_log = structlog.get_logger()


async def rebuild_if_due(rebuild: Rebuild | None) -> None:
    """Rebuild the read table if necessary, logging the progress.

    Raises an EventLogError if that fails or the log is closed meanwhile.
    """
    if rebuild is None or not rebuild.is_due:
        return
    _log.info("read_table.rebuilding", hint=rebuild.reason())
    done = await asyncio.to_thread(rebuild, RebuildReport(ProgressLines("read_table.rebuilding"), _left_out))
    _log.info("read_table.rebuilt", conversations=done.conversations, events=done.events, left_out=done.left_out)


async def rebuilt_anew(settings: Settings, environ: Mapping[str, str], report: RebuildReport) -> Rebuilt:
    """Rebuild the read table of the log of `settings`, whichever version made it and however damaged it is.

    A file is copied into a new one without it, because a damaged table does not tell which pages are its own. Raises an
    EventLogError if that fails: LogFull without room for a copy.
    """
    ended = threading.Event()
    backend = log_backend(settings)
    try:
        await asyncio.to_thread(backend.rewrite, backend.rows(READ_TABLE), goes_on=lambda: not ended.is_set())
    finally:
        ended.set()
    async with AsyncExitStack() as resources:
        core = open_core(settings, environ, resources, on_fatal=lambda _: None, now_us=_now_us)
        assert core.rebuild is not None, "the log outlives the process"
        return await asyncio.to_thread(core.rebuild, report)


def _left_out(stream: StreamId, error: Exception) -> None:
    _log.error("read_table.left_out", conversation_id=stream.name, error_type=type(error).__name__)


def _now_us() -> int:
    return time.time_ns() // 1_000
