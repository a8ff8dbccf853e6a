"""Erases conversations whose time is over, and archives closed ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from abridged.eventlog.errors import EventLogError, LogClosed
from abridged.service.conversations.archives import Archived, Archives
from abridged.service.conversations.erasures import Erased, Erasures
from abridged.service.domain.errors import DomainError

LOOK_S = 3_600.0
"""Seconds between two looks: a conversation stays up to this much longer."""

Sleep = Callable[[float], Awaitable[None]]

_log = structlog.get_logger()


async def erase_unchanged(
    erasures: Erasures, *, after_s: float, now_us: Callable[[], int], sleep: Sleep = asyncio.sleep
) -> None:
    """Erase conversations to which no caller has written for `after_s` seconds, until cancelled."""

    async def erase() -> None:
        erased = await erasures.unchanged_since(now_us() - int(after_s * 1e6))
        _report("time_to_live.erased", erased)

    await _repeat(erase, "time_to_live.delayed", after_s, sleep)


async def archive_unchanged(
    archives: Archives, *, after_s: float, now_us: Callable[[], int], sleep: Sleep = asyncio.sleep
) -> None:
    """Archive closed conversations to which nothing was written for `after_s` seconds, until cancelled."""

    async def archive() -> None:
        archived = await archives.unchanged_since(now_us() - int(after_s * 1e6))
        _report("archive.archived", archived)

    await _repeat(archive, "archive.delayed", after_s, sleep)


def _report(done: str, counts: Erased | Archived) -> None:
    if counts.conversations:
        _log.info(done, conversations=counts.conversations, messages=counts.messages)


async def _repeat(work: Callable[[], Awaitable[None]], delayed: str, after_s: float, sleep: Sleep) -> None:
    while True:
        try:
            await work()
        except LogClosed:
            return
        except (EventLogError, DomainError) as error:
            _log.warning(delayed, error_type=type(error).__name__, hint=str(error))
        await sleep(min(LOOK_S, after_s))
