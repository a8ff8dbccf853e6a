"""The appends of one conversation that are queued and not yet on disk, each decided on the state that the one before it
leads to.

Invariant: such a state is a guess until its append is written. When one is not, all behind it were decided on a state
that never was: the log refuses them by their expected versions, and nothing is decided on any of them from then on.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from service.conversations.table import Projected
from service.domain.conversation import Conversation

__all__ = ["Pipeline", "Queued"]


@dataclass(slots=True)
class Queued:
    """An append on its way. `state` is the one that it leads to, but for the times that the log will give."""

    state: Conversation
    projected: Projected


class Pipeline:
    """Whoever decides on the conversation holds `turn`."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self._newest: Queued | None = None
        self._under_way = 0
        self._nothing_under_way = asyncio.Event()

    async def newest(self) -> Queued | None:
        """The append to decide behind; None when all is on disk, which is waited for when one was not written."""
        if self._newest is None:
            await self.settled()
        return self._newest

    async def settled(self) -> None:
        """Wait until nothing is under way: the conversation is what is on disk. For whoever has the turn."""
        while self._under_way:
            self._nothing_under_way.clear()
            await self._nothing_under_way.wait()

    def began(self, queued: Queued) -> None:
        """It is queued behind the newest one."""
        self._newest = queued
        self._under_way += 1

    def ended(self, queued: Queued, *, written: bool) -> None:
        """Its outcome is known; when it was not written, neither will be what was decided behind it."""
        self._under_way -= 1
        if not written or self._newest is queued:
            self._newest = None
        if not self._under_way:
            self._nothing_under_way.set()
