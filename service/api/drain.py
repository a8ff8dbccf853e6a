"""How a server stops taking calls without leaving one unanswered.

When gRPC is stopped, it cancels without a word what it holds and has not handed over. So the handing over goes on until
nothing more comes, and whoever comes meanwhile is told to come back.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from service.api.errors import ServerStopping

__all__ = ["Drain"]

LOOK_S = 0.01
QUIET_LOOKS = 5
"""Looks in a row at which nothing runs and nothing has come: then the transport holds nothing back. One long look might
be a busy loop, several are not."""


class Drain:
    """The unary calls that run, and whether more are taken."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._arrived_s = 0.0
        self._begun = False

    def take_up(self) -> None:
        """Count a call that has come. Raises ServerStopping when it comes too late."""
        self._arrived_s = time.monotonic()
        if self._begun:
            raise ServerStopping

    def enter(self) -> None:
        """The call of this task runs, until `leave`."""
        task = asyncio.current_task()
        assert task is not None, "a transport runs each call as a task"
        self._running.add(task)

    def leave(self) -> None:
        """The call of this task has ended."""
        self._running.discard(asyncio.current_task())

    def meaning_of(self, error: BaseException) -> BaseException:
        """ServerStopping where `finish` ended the call, which looks as if its client had gone; else the error."""
        return ServerStopping() if self._begun and isinstance(error, asyncio.CancelledError) else error

    async def finish(self, *, within_s: float) -> None:
        """Take no more; returns when no call runs and no more come. Ends the calls that run longer than `within_s`."""
        self._begun = True
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                quiet = self._quiet_already()
                while quiet < QUIET_LOOKS:
                    arrived_s = self._arrived_s
                    await asyncio.sleep(LOOK_S)
                    quiet = quiet + 1 if arrived_s == self._arrived_s and not self._running else 0
        for task in self._running:
            task.cancel()

    def _quiet_already(self) -> int:
        quiet_s = time.monotonic() - self._arrived_s
        return QUIET_LOOKS if quiet_s > LOOK_S * QUIET_LOOKS and not self._running else 0
