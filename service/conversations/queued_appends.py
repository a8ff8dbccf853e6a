"""The commits of one conversation that are under way, and the append among them that the next one is decided on.

Invariant: the state that a queued append leads to is a guess until the append is written. An append that is not written
has the log refuse every append that was decided on it, by its expected version, and nothing more is decided on that
guess.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from abridged.eventlog.log import AppendResult
from abridged.observability.stages import Stage, spent, stage
from abridged.service.conversations.table import Projected
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.fold import fold


@dataclass(slots=True)
class Queued:
    """An append under way."""

    projected: Projected
    is_written: bool = False
    _state: Conversation | None = None

    @property
    def state(self) -> Conversation:
        """The resulting state, except for the times, which the log assigns; folded when somebody decides on it."""
        if self._state is None:
            before = self.projected.state
            self._state = fold(((event, before.updated_us) for event in self.projected.events), before)
        return self._state


class _Turn:
    """The turn of one conversation: a lock whose wait is a stage of its caller."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> None:
        with stage(Stage.TURN):
            await self._lock.acquire()

    async def __aexit__(self, *error: object) -> None:
        self._lock.release()


class QueuedAppends:
    """A caller holds `turn` while it decides on the conversation. The turn may be free while commits are under way,
    including those of cancelled callers.
    """

    def __init__(self) -> None:
        self.turn = _Turn()
        self._newest: Queued | None = None
        self._under_way = 0
        self._ended = asyncio.Event()

    async def newest(self) -> Queued | None:
        """The append whose state to decide on; None once everything is on disk, after a wait if necessary."""
        if self._newest is None and self._under_way:
            await self.settled()
        return self._newest

    def may_queue_behind(self, queued: Queued | None) -> bool:
        """Return whether a decision on `queued`, which was `newest`, can still come true."""
        return queued is self._newest or queued is None or queued.is_written

    async def settled(self) -> None:
        """Wait until nothing is under way, so that the conversation is what is on disk. The caller holds `turn`."""
        with stage(Stage.TURN):
            await self.waited(lambda: False)

    async def waited(self, enough: Callable[[], bool]) -> None:
        """Wait until nothing is under way, or until `enough` is true after one of the commits has ended."""
        while self._under_way and not enough():
            self._ended.clear()
            await self._ended.wait()

    def began(self, queued: Queued | None) -> None:
        """Note that a commit is under way: an append to decide on, or None for a commit that is waited for."""
        self._newest = queued
        self._under_way += 1

    def ended(self, queued: Queued | None, *, written: bool) -> None:
        """Note the outcome of a commit; if it was not written, nothing that was decided on it will be."""
        self._under_way -= 1
        if queued is not None:
            queued.is_written = written
        if not written or self._newest is queued:
            self._newest = None
        self._ended.set()


async def written(projected: Projected, ended: asyncio.Future[AppendResult]) -> AppendResult:
    """The outcome of a commit that was just queued; its stages are its caller's, also of one that does not end."""
    began_s = time.perf_counter()
    try:
        return await ended
    finally:
        ended_s = time.perf_counter()
        reached_s = projected.reached_s or ended_s
        projected_s = projected.projected_s or ended_s
        spent(Stage.LOG_WAIT, max(0.0, reached_s - began_s))
        spent(Stage.PROJECTION, max(0.0, projected_s - reached_s))
        spent(Stage.FLUSH, max(0.0, ended_s - projected_s))
