"""Passes that wait for a worker: namespaces take turns, and an emergency comes before what has waited longer.

Invariant: a conversation stands in a line once, and a namespace has no more workers than it leaves to others, so that
neither many passes of one namespace nor slow ones keep another's waiting.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

from eventlog.event import StreamId
from service.shares import Shares

__all__ = ["PassLine"]

EMERGENCY_HEADSTART_TURNS = 8
"""By so many turns an emergency counts as having waited longer: it overtakes, and no stream of emergencies keeps the
others out for ever."""


class PassLine:
    """Conversations in line for `workers`. `shared` says whether there is more than one namespace."""

    def __init__(self, *, workers: int, shared: bool) -> None:
        self.workers = workers
        self._busy = Shares(workers, shared=shared)
        self._waiting: dict[bool, defaultdict[str, dict[StreamId, None]]] = {
            urgent: defaultdict(dict) for urgent in (True, False)
        }
        self._last_turn: defaultdict[str, int] = defaultdict(int)
        self._turn = 0
        self._changed = asyncio.Event()
        self._closed = False

    def put(self, key: StreamId, *, urgent: bool = False) -> None:
        """The conversation's pass waits; one that is `urgent` stays so."""
        if key in self._waiting[True][key.namespace]:
            return
        if urgent:
            self._waiting[False][key.namespace].pop(key, None)
        self._waiting[urgent][key.namespace].setdefault(key)
        self._changed.set()

    def discard(self, key: StreamId) -> None:
        """It waits no longer."""
        for waiting in self._waiting.values():
            waiting[key.namespace].pop(key, None)

    def hurry(self, key: StreamId) -> None:
        """If it waits, it is an emergency now."""
        if key in self._waiting[False][key.namespace]:
            self.put(key, urgent=True)

    async def take(self) -> StreamId | None:
        """The next conversation, for a worker that says `done` when it is through with it; None in a closed line."""
        while not self._closed:
            if (key := self._next()) is not None:
                self._busy.take(key.namespace)
                return key
            self._changed.clear()
            await self._changed.wait()
        return None

    def done(self, key: StreamId) -> None:
        """A worker is through with what it took."""
        self._busy.give_back(key.namespace)
        self._changed.set()

    def close(self) -> None:
        """Give nothing out from now on."""
        self._closed = True
        self._changed.set()

    def _next(self) -> StreamId | None:
        turns = [
            (self._last_turn[namespace] - urgent * EMERGENCY_HEADSTART_TURNS, namespace, urgent)
            for urgent, waiting in self._waiting.items()
            for namespace, keys in waiting.items()
            if keys and self._busy.has_room(namespace)
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
