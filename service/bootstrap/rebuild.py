"""The read table made again: at a start that finds another version's, and on demand while nobody owns the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack

import structlog

from eventlog.event import StreamId
from service.bootstrap.core import open_core
from service.config.settings import Settings
from service.conversations.rebuild import Rebuild, RebuildReport, Rebuilt

__all__ = ["rebuild_if_due", "rebuilt_anew"]

LINE_EVENTS = 100_000
"""Events between two log lines: a second or two of folding."""

_log = structlog.get_logger()


async def rebuild_if_due(rebuild: Rebuild | None) -> None:
    """Make the read table again where it does not stand, with lines that say how far it is.

    Raises an EventLogError when that cannot be done, and also when the log is closed meanwhile.
    """
    if rebuild is None or not rebuild.is_due:
        return
    _log.info("read_table.rebuilding", hint=rebuild.reason())
    done = await asyncio.to_thread(rebuild, RebuildReport(_Lines(), _left_out))
    _log.info("read_table.rebuilt", conversations=done.conversations, events=done.events, left_out=done.left_out)


async def rebuilt_anew(settings: Settings, environ: Mapping[str, str], report: RebuildReport) -> Rebuilt:
    """Make the read table of `settings.log.path` again, whatever made it. Raises an EventLogError when it cannot be."""
    async with AsyncExitStack() as resources:
        core = open_core(settings, environ, resources, on_fatal=lambda _: None, now_us=_now_us, anew=True)
        assert core.rebuild is not None, "the log is a file"
        return await asyncio.to_thread(core.rebuild, report)


class _Lines:
    """A log line every LINE_EVENTS events."""

    def __init__(self) -> None:
        self._next = LINE_EVENTS

    def __call__(self, done: int, total: int) -> None:
        if done >= self._next:
            self._next = done + LINE_EVENTS
            _log.info("read_table.rebuilding", events=done, events_total=total)


def _left_out(stream: StreamId, error: Exception) -> None:
    _log.error("read_table.left_out", conversation_id=stream.name, error_type=type(error).__name__)


def _now_us() -> int:
    return time.time_ns() // 1_000
