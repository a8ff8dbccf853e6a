"""Erases conversations whose time is over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from abridged.eventlog.errors import EventLogError, LogClosed
from abridged.service.conversations.erasures import Erasures
from abridged.service.domain.errors import DomainError

LOOK_S = 3_600.0
"""Seconds between two looks: a conversation lives up to this much longer."""

_log = structlog.get_logger()


async def erase_unchanged(
    erasures: Erasures,
    *,
    after_s: float,
    now_us: Callable[[], int],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Erase conversations to which nothing was written for `after_s` seconds, until cancelled."""
    while True:
        try:
            erased = await erasures.unchanged_since(now_us() - int(after_s * 1e6))
            if erased.conversations:
                _log.info("time_to_live.erased", conversations=erased.conversations, messages=erased.messages)
        except LogClosed:
            return
        except (EventLogError, DomainError) as error:
            _log.warning("time_to_live.delayed", error_type=type(error).__name__)
        await sleep(min(LOOK_S, after_s))
