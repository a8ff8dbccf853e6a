"""Pending passes: those that wait for a worker, and callers that wait for all to end.

Namespaces take turns for workers, and an emergency overtakes passes that have waited longer.

Invariant: a conversation is queued once, and a namespace leaves some workers to others, so neither many nor slow passes
of one namespace block another's.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from heapq import heapify, heappop, heappush

from abridged.eventlog.event import StreamId
from abridged.service.shares import Share, Shares

EMERGENCY_HEADSTART_TURNS = 8
"""An emergency counts as having waited this many turns longer: it overtakes, but a stream of them cannot block the
others for ever."""


class PassQueue:
    """Conversations that wait for one of `workers`. `multi_tenant` says whether there is more than one namespace."""

    def __init__(self, *, workers: int, multi_tenant: bool) -> None:
        self.workers = workers
        self._busy: defaultdict[str, Share] = defaultdict(Shares(workers, multi_tenant=multi_tenant).share)
        self._waiting: dict[bool, defaultdict[str, dict[StreamId, None]]] = {
            urgent: defaultdict(dict) for urgent in (True, False)
        }
        self._last_turn: defaultdict[str, int] = defaultdict(int)
        self._turn = 0
        self._changed = asyncio.Event()
        self._closed = False

    def put(self, key: StreamId, *, urgent: bool = False) -> None:
        """Queue the conversation's pass; an `urgent` one stays urgent."""
        if key in self._waiting[True][key.namespace]:
            return
        if urgent:
            self._waiting[False][key.namespace].pop(key, None)
        self._waiting[urgent][key.namespace].setdefault(key)
        self._changed.set()

    def __contains__(self, key: StreamId) -> bool:
        return any(key in waiting[key.namespace] for waiting in self._waiting.values())

    def discard(self, key: StreamId) -> None:
        """Remove the conversation."""
        for waiting in self._waiting.values():
            waiting[key.namespace].pop(key, None)

    def hurry(self, key: StreamId) -> None:
        """Make the conversation urgent if it is queued."""
        if key in self._waiting[False][key.namespace]:
            self.put(key, urgent=True)

    async def take(self) -> StreamId | None:
        """Wait for the next conversation, which the worker must return with `done`; None once the queue is closed."""
        while not self._closed:
            if (key := self._next()) is not None:
                self._busy[key.namespace].take()
                return key
            self._changed.clear()
            await self._changed.wait()
        return None

    def done(self, key: StreamId) -> None:
        """Give back the place that a worker took for a conversation."""
        self._busy[key.namespace].give_back()
        self._changed.set()

    def close(self) -> None:
        """Hand out nothing from now on."""
        self._closed = True
        self._changed.set()

    def _next(self) -> StreamId | None:
        turns = [
            (self._last_turn[namespace] - urgent * EMERGENCY_HEADSTART_TURNS, namespace, urgent)
            for urgent, waiting in self._waiting.items()
            for namespace, keys in waiting.items()
            if keys and self._busy[namespace].has_room()
        ]
        if not turns:
            return None
        _, namespace, urgent = min(turns)
        keys = self._waiting[urgent][namespace]
        key = next(iter(keys))
        del keys[key]
        self._turn += 1
        self._last_turn[namespace] = self._turn
        return key


class Backlog:
    """Pending passes by conversation, counted without a search. Lives on one event loop."""

    def __init__(self) -> None:
        self._since_us: dict[StreamId, int] = {}
        self._by_namespace: Counter[str] = Counter()
        self._oldest: list[tuple[int, StreamId]] = []
        self._idle: dict[str, asyncio.Event] = {}

    def add(self, key: StreamId, since_us: int) -> None:
        """Record a pass pending since then, unless an earlier time is known."""
        before_us = self._since_us.get(key)
        if before_us is not None and before_us <= since_us:
            return
        if before_us is None:
            self._by_namespace[key.namespace] += 1
        self._since_us[key] = since_us
        heappush(self._oldest, (since_us, key))

    def remove(self, key: StreamId) -> None:
        """The conversation's pass is no longer pending."""
        if self._since_us.pop(key, None) is None:
            return
        self._by_namespace[key.namespace] -= 1
        if not self.of_namespace(key.namespace) and (idle := self._idle.pop(key.namespace, None)):
            idle.set()

    def __contains__(self, key: object) -> bool:
        return key in self._since_us

    def __len__(self) -> int:
        return len(self._since_us)

    def of_namespace(self, namespace: str) -> int:
        """Count the passes that are pending in a namespace."""
        return self._by_namespace[namespace]

    @property
    def oldest_us(self) -> int:
        """The time since which the oldest pass is pending; 0 without any."""
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
