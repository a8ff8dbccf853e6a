"""Rebuilds the read table: at a start that finds another version's, and on demand while no process owns the log."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress

import structlog

from abridged.eventlog.backend import Backend
from abridged.eventlog.encryption.probe import ENCRYPTED
from abridged.eventlog.errors import LogCorrupt, LogEncrypted
from abridged.eventlog.event import StreamId
from abridged.service.bootstrap.backends import log_backend
from abridged.service.bootstrap.core import open_unserved
from abridged.service.bootstrap.open_log import require_no_archives
from abridged.service.bootstrap.progress import ProgressSteps
from abridged.service.bootstrap.stored import is_encrypted
from abridged.service.config.settings import Settings
from abridged.service.conversations.rebuild import Rebuild, RebuildReport, Rebuilt
from abridged.service.conversations.row import READ_TABLE

LINE_EVENTS = 100_000
"""Events between two log lines: a second or two of folding."""

_log = structlog.get_logger()


async def rebuild_if_due(rebuild: Rebuild | None) -> None:
    """Rebuild the read table if necessary, logging the progress.

    Raises an EventLogError if that fails or the log is closed meanwhile.
    """
    if rebuild is None or not rebuild.is_due:
        return
    _log.info("read_table.rebuilding", hint=rebuild.reason())
    done = await asyncio.to_thread(rebuild, RebuildReport(ProgressSteps(LINE_EVENTS, _rebuilding), _left_out))
    _log.info("read_table.rebuilt", conversations=done.conversations, events=done.events, left_out=done.left_out)


async def rebuilt_anew(settings: Settings, environ: Mapping[str, str], report: RebuildReport) -> Rebuilt:
    """Rebuild the read table of the log of `settings`, whichever version made it and however damaged it is.

    A file is copied into a new one without it, because a damaged table does not tell which pages are its own. Raises an
    EventLogError if that fails, as LogFull without room for a copy, or SettingUnusable: a file is as it was then, and
    so is a database without the keys of its log.
    """
    await asyncio.to_thread(_require_readable, settings)
    ended = threading.Event()
    backend, loop = log_backend(settings), asyncio.get_running_loop()
    done: list[Rebuilt] = []

    def fill(new: Backend) -> None:
        made = asyncio.run_coroutine_threadsafe(_made(settings, environ, new, report), loop)
        done.append(made.result())

    try:
        await asyncio.to_thread(backend.rewrite, backend.rows(READ_TABLE), fill, goes_on=lambda: not ended.is_set())
    finally:
        ended.set()
    return done[0]


async def _made(settings: Settings, environ: Mapping[str, str], log: Backend, report: RebuildReport) -> Rebuilt:
    """Make the read table of a log that has none."""
    async with AsyncExitStack() as resources:
        core = open_unserved(settings, environ, resources, backend=log)
        assert core.rebuild is not None, "the log outlives the process"
        made = await asyncio.to_thread(core.rebuild, report)
        if core.keys is not None:
            await asyncio.to_thread(require_no_archives, core.table)
        return made


def _require_readable(settings: Settings) -> None:
    """Raise LogEncrypted or KeysUnusable for a log whose events these settings do not let read. A damaged one passes:
    writing it anew says what is damaged."""
    with suppress(LogCorrupt):
        if settings.encryption.is_on:
            from abridged.service.bootstrap.encryption import require_own_keys

            require_own_keys(settings)
        elif is_encrypted(settings.log):
            raise LogEncrypted(ENCRYPTED)


def _rebuilding(done: int, total: int) -> None:
    _log.info("read_table.rebuilding", events=done, events_total=total)


def _left_out(stream: StreamId, error: Exception) -> None:
    _log.error("read_table.left_out", conversation_id=stream.name, error_type=type(error).__name__)
