"""Which conversations have a pass pending, and since when: who waits for one waits here."""

from __future__ import annotations

import asyncio

from eventlog.event import StreamId

__all__ = ["Backlog"]


class Backlog:
    """Pending passes by conversation. Lives on one event loop."""

    def __init__(self) -> None:
        self._since_us: dict[StreamId, int] = {}
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, key: StreamId, since_us: int) -> None:
        """The conversation has a pass pending since then, or since the earlier time that was told before."""
        self._since_us[key] = min(since_us, self._since_us.get(key, since_us))

    def remove(self, key: StreamId) -> None:
        """The conversation has none any more."""
        if self._since_us.pop(key, None) is not None:
            task = asyncio.get_running_loop().create_task(self._notify())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def __contains__(self, key: StreamId) -> bool:
        return key in self._since_us

    def __len__(self) -> int:
        return len(self._since_us)

    def of_namespace(self, namespace: str) -> int:
        """How many passes are pending in a namespace."""
        return sum(key.namespace == namespace for key in self._since_us)

    @property
    def oldest_us(self) -> int:
        """Since when the oldest pass is pending; 0 when there is none."""
        return min(self._since_us.values(), default=0)

    async def idle(self, namespace: str) -> None:
        """Wait until the namespace has no pending pass."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self.of_namespace(namespace))

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()
