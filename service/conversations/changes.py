"""Waits until a conversation reaches some state. Every commit is checked; few wake a waiter."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from abridged.eventlog.event import StreamId
from abridged.observability.stages import Stage, stage
from abridged.service.domain.conversation import Conversation


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    holds: Callable[[Conversation], bool]
    woken: asyncio.Future[None]

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class Changes:
    """Waiters by conversation. Lives on one event loop."""

    def __init__(self) -> None:
        self._waiters: dict[StreamId, set[_Waiter]] = {}
        self._closed = False

    @property
    def awaited(self) -> Collection[StreamId]:
        """The conversations that somebody waits for."""
        return self._waiters.keys()

    def notify(self, key: StreamId, state: Conversation) -> None:
        """Wake those who wait for this state."""
        for waiter in self._waiters.get(key, ()):
            if waiter.holds(state):
                waiter.wake()

    def close(self) -> None:
        """End every wait, now and later: at shutdown callers get the current state instead of an error."""
        self._closed = True
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.wake()

    async def until(
        self,
        key: StreamId,
        read: Callable[[], Awaitable[Conversation]],
        holds: Callable[[Conversation], bool],
        *,
        timeout_s: float,
        waiting: Stage = Stage.WAIT,
    ) -> Conversation:
        """The state once `holds` is true of it, or the current one after `timeout_s` or once this is closed.

        `waiting` is the stage of its caller that the wait is.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            waiter = _Waiter(holds, asyncio.get_running_loop().create_future())
            self._waiters.setdefault(key, set()).add(waiter)
            try:
                state = await read()
                left_s = deadline - asyncio.get_running_loop().time()
                if holds(state) or left_s <= 0 or self._closed:
                    return state
                with stage(waiting):
                    await asyncio.wait({waiter.woken}, timeout=left_s)
            finally:
                self._forget(key, waiter)

    def _forget(self, key: StreamId, waiter: _Waiter) -> None:
        waiters = self._waiters.get(key)
        if waiters is not None:
            waiters.discard(waiter)
            if not waiters:
                del self._waiters[key]
