"""Waiting for a conversation to change: woken by every commit, carries no data."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from eventlog.event import StreamId
from service.domain.conversation import Conversation

__all__ = ["Changes"]


class Changes:
    """Waiters by conversation. Lives on one event loop."""

    def __init__(self) -> None:
        self._waiters: dict[StreamId, set[asyncio.Future[None]]] = {}
        self._closed = False

    def notify(self, key: StreamId) -> None:
        """The conversation has changed."""
        for waiter in self._waiters.pop(key, ()):
            if not waiter.done():
                waiter.set_result(None)

    def close(self) -> None:
        """End every wait, now and later: the server stops, and who waits gets what is known instead of an error."""
        self._closed = True
        for key in list(self._waiters):
            self.notify(key)

    async def until(
        self,
        key: StreamId,
        read: Callable[[], Awaitable[Conversation]],
        holds: Callable[[Conversation], bool],
        *,
        timeout_s: float,
    ) -> Conversation:
        """The state as soon as it `holds`, or as it is after `timeout_s` or when this is closed."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.setdefault(key, set()).add(waiter)
            try:
                state = await read()
                left_s = deadline - asyncio.get_running_loop().time()
                if holds(state) or left_s <= 0 or self._closed:
                    return state
                await asyncio.wait({waiter}, timeout=left_s)
            finally:
                self._forget(key, waiter)

    def _forget(self, key: StreamId, waiter: asyncio.Future[None]) -> None:
        waiters = self._waiters.get(key)
        if waiters is not None:
            waiters.discard(waiter)
            if not waiters:
                del self._waiters[key]
