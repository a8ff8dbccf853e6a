"""Which conversations have a pass pending, and since when: who waits for one waits here."""

from __future__ import annotations

import asyncio
from collections import Counter
from heapq import heapify, heappop, heappush

from eventlog.event import StreamId

__all__ = ["Backlog"]


class Backlog:
    """Pending passes by conversation, counted and not searched through. Lives on one event loop."""

    def __init__(self) -> None:
        self._since_us: dict[StreamId, int] = {}
        self._by_namespace: Counter[str] = Counter()
        self._oldest: list[tuple[int, StreamId]] = []
        self._idle: dict[str, asyncio.Event] = {}

    def add(self, key: StreamId, since_us: int) -> None:
        """The conversation has a pass pending since then, or since the earlier time that was given before."""
        before_us = self._since_us.get(key)
        if before_us is not None and before_us <= since_us:
            return
        if before_us is None:
            self._by_namespace[key.namespace] += 1
        self._since_us[key] = since_us
        heappush(self._oldest, (since_us, key))

    def remove(self, key: StreamId) -> None:
        """The conversation no longer has one."""
        if self._since_us.pop(key, None) is None:
            return
        self._by_namespace[key.namespace] -= 1
        if not self.of_namespace(key.namespace) and (idle := self._idle.pop(key.namespace, None)):
            idle.set()

    def __contains__(self, key: StreamId) -> bool:
        return key in self._since_us

    def __len__(self) -> int:
        return len(self._since_us)

    def of_namespace(self, namespace: str) -> int:
        """How many passes are pending in a namespace."""
        return self._by_namespace[namespace]

    @property
    def oldest_us(self) -> int:
        """Since when the oldest pass is pending; 0 when there is none."""
        if len(self._oldest) > 2 * len(self._since_us):
            self._oldest = [(since_us, key) for key, since_us in self._since_us.items()]
            heapify(self._oldest)
        while self._oldest and self._since_us.get(self._oldest[0][1]) != self._oldest[0][0]:
            heappop(self._oldest)
        return self._oldest[0][0] if self._oldest else 0

    async def idle(self, namespace: str) -> None:
        """Wait until the namespace has no pending pass."""
        while self.of_namespace(namespace):
            await self._idle.setdefault(namespace, asyncio.Event()).wait()
