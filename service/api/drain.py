"""Stops taking calls without dropping any.

A stopped transport silently cancels the calls that it has not handed over yet, so it keeps running until no more
arrive. Callers that retry at once would keep it running forever. Towards the end, new calls are therefore held instead
of refused; when every caller waits, the transport announces that it goes away, and only then are the calls refused, so
that their retries go elsewhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NoReturn

from abridged.service.api.errors import ServerStopping

LOOK_S = 0.01
QUIET_LOOKS = 15
"""Looks in a row without a new call: then the transport holds nothing back, and a caller that retries within 0.1 s is
held. One long look might be a busy loop; several are not."""

HELD_PART = 0.5
"""The share of its time that a drain keeps for the calls that arrive at its end."""

HELD_MAX = 1_000
"""Calls that are held at the end: as many as can be refused in the time that the transport has for its last responses.
More are refused at once."""


class Drain:
    """The unary calls that run, and whether more are taken."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._arrived_s = 0.0
        self._begun = False
        self._end: asyncio.Event | None = None
        self._held = 0

    def enter(self) -> None:
        """The call of this task runs, until `leave`."""
        task = asyncio.current_task()
        assert task is not None, "a transport runs each call as a task"
        self._running.add(task)

    def leave(self) -> None:
        """The call of this task has ended."""
        self._running.discard(asyncio.current_task())

    def takes_up(self) -> bool:
        """Count a call that has arrived. Returns whether it is taken; if not, `turn_away` ends it."""
        self._arrived_s = time.monotonic()
        return not self._begun

    async def turn_away(self) -> NoReturn:
        """Raise ServerStopping: at once, and at the end of the drain when `let_go` is called."""
        self.leave()
        if self._end is not None and self._held < HELD_MAX:
            self._held += 1
            try:
                await self._end.wait()
            finally:
                self._held -= 1
        raise ServerStopping

    def meaning_of(self, error: BaseException) -> BaseException:
        """ServerStopping where `finish` ended the call, which looks as if its client had gone; else the error."""
        return ServerStopping() if self._begun and isinstance(error, asyncio.CancelledError) else error

    async def finish(self, *, within_s: float) -> None:
        """Take no more; returns when no call runs and no more come, or `within_s` is over.

        Ends the calls that run longer than their part of it. Calls that have come at the end are held until `let_go`.
        """
        began_s = time.monotonic()
        self._begun = True
        if not self._is_quiet():
            await _until(lambda: not self._running, within_s=within_s * (1 - HELD_PART))
        for task in self._running:
            task.cancel()
        self._end = asyncio.Event()
        if not self._is_quiet():
            await self._quiet(within_s=began_s + within_s - time.monotonic())

    def let_go(self) -> None:
        """Refuse the held calls. Call this once the transport takes no more."""
        assert self._end is not None, "the drain has finished"
        self._end.set()

    def _is_quiet(self) -> bool:
        return time.monotonic() - self._arrived_s > LOOK_S * QUIET_LOOKS and not self._running

    async def _quiet(self, *, within_s: float) -> None:
        quiet, arrived_s = 0, self._arrived_s

        def is_quiet() -> bool:
            nonlocal quiet, arrived_s
            quiet = quiet + 1 if arrived_s == self._arrived_s and not self._running else 0
            arrived_s = self._arrived_s
            return quiet > QUIET_LOOKS

        await _until(is_quiet, within_s=within_s)


async def _until(holds: Callable[[], bool], *, within_s: float) -> None:
    """Return when it holds, looked at now and every LOOK_S, or when the time is over."""
    until_s = time.monotonic() + within_s
    while True:
        if holds() or time.monotonic() >= until_s:
            return
        await asyncio.sleep(LOOK_S)
