"""The commits of one conversation that are under way, and the appends among them that the next one is decided on.

Invariant: the state that a queued append leads to is a guess until it is written. When one is not, all that was decided
on it never comes true: the log refuses those appends by their expected versions, and nothing more is decided on them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from service.conversations.table import Projected
from service.domain.conversation import Conversation

__all__ = ["Queued", "QueuedAppends"]


@dataclass(slots=True)
class Queued:
    """An append under way. `state` is the one that it leads to, but for the times that the log will give."""

    state: Conversation
    projected: Projected
    is_written: bool = False


class QueuedAppends:
    """Whoever decides on the conversation holds `turn`. It may be free while commits are under way, also those of
    callers that were cancelled.
    """

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self._newest: Queued | None = None
        self._under_way = 0
        self._nothing_under_way = asyncio.Event()

    async def newest(self) -> Queued | None:
        """The append to decide behind; None when all is on disk, having waited for that if need be."""
        if self._newest is None:
            await self.settled()
        return self._newest

    def may_follow(self, queued: Queued | None) -> bool:
        """Whether what was decided on `queued`, which was `newest`, can still come true."""
        return queued is self._newest or queued is None or queued.is_written

    async def settled(self) -> None:
        """Wait until nothing is under way: the conversation is what is on disk. For whoever has the turn."""
        while self._under_way:
            self._nothing_under_way.clear()
            await self._nothing_under_way.wait()

    def began(self, queued: Queued | None) -> None:
        """A commit is under way: an append to decide behind, or None for one that is waited for."""
        self._newest = queued
        self._under_way += 1

    def ended(self, queued: Queued | None, *, written: bool) -> None:
        """Its outcome is known; when it was not written, neither will be what was decided behind it."""
        self._under_way -= 1
        if queued is not None:
            queued.is_written = written
        if not written or self._newest is queued:
            self._newest = None
        if not self._under_way:
            self._nothing_under_way.set()
