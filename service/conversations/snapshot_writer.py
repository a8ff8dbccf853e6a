"""Writes snapshots of states, one at a time, away from the appends that led to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from eventlog.errors import EventLogError
from eventlog.event import StreamId
from eventlog.log import EventLog
from service.conversations.snapshots import Snapshot, SqlSnapshots, is_worth_keeping, put
from service.domain.conversation import Conversation

__all__ = ["SNAPSHOT_EVENTS", "SnapshotWriter", "crosses"]

SNAPSHOT_EVENTS = 256
"""Events of a conversation between two snapshots: folding them takes about as long as reading a snapshot."""

WAITING_MAX = 64
"""States that wait to be written; another one is left to the next crossing, or to the reader that folds it."""

Write = Callable[[Callable[[Any], None]], None]
"""Runs a function in a transaction of the log's database."""

_log = structlog.get_logger()


def crosses(before: int, after: int) -> bool:
    """Whether a snapshot is due between two versions of a stream."""
    return before // SNAPSHOT_EVENTS != after // SNAPSHOT_EVENTS


class SnapshotWriter:
    """Takes states on the event loop and writes each in a thread, the newest of a conversation alone."""

    def __init__(self, log: EventLog, snapshots: SqlSnapshots, write: Write) -> None:
        self.snapshots = snapshots
        self._log = log
        self._write = write
        self._waiting: dict[StreamId, Conversation] = {}
        self._task: asyncio.Task[None] | None = None

    def offer(self, key: StreamId, state: Conversation) -> None:
        """Write a snapshot of the state soon, unless it is too large or too many wait."""
        if not is_worth_keeping(state) or (key not in self._waiting and len(self._waiting) >= WAITING_MAX):
            return
        self._waiting[key] = state
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._drain())

    async def close(self) -> None:
        """Finish the snapshot that is being written; what waits is left to later ones."""
        self._waiting.clear()
        await self.settled()

    async def settled(self) -> None:
        """Return when all that was offered is written, or was not worth it."""
        while self._task is not None and not self._task.done():
            await asyncio.wait((self._task,))

    async def _drain(self) -> None:
        while self._waiting:
            key = next(iter(self._waiting))
            try:
                await asyncio.to_thread(self._take, key, self._waiting.pop(key))
            except EventLogError as error:
                # Whoever opens the conversation folds its stream. What the log itself suffers from, its appends report.
                _log.warning("snapshot.not_written", error_type=type(error).__name__)

    def _take(self, key: StreamId, state: Conversation) -> None:
        version = state.event_version
        for sealed in self._log.read_sealed(key, after=version - 1, limit=1):
            if sealed.event.version != version:
                return
            row = self.snapshots.row(key, Snapshot(state, version, sealed.event.position, sealed.chain))
            if row is not None:
                self._write(partial(put, row=row))
