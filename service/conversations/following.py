"""Wakes callers that wait for a conversation when another process appends to it.

Events are read only while somebody waits, those of the whole log after the last one that is known.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from concurrent.futures import Executor

import structlog

from abridged.eventlog.errors import EventLogError
from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.eventlog.log import EventLog
from abridged.eventlog.subscription import Batch, Timing, WakeUp, log_pages, subscribe
from abridged.service.conversations.changes import Changes
from abridged.service.conversations.conversations import Conversations
from abridged.service.domain.errors import DomainError

RETRY_S = 1.0
"""Time before a log that could not be read is read again."""

_log = structlog.get_logger()


class _HeadFell(Exception):
    """The log ends before the cursor."""


class Following:
    """Follows a log that several processes write to, on one event loop."""

    def __init__(
        self, log: EventLog, executor: Executor, wake_up: WakeUp, changes: Changes, conversations: Conversations
    ) -> None:
        self._log = log
        self._pages = log_pages(log, executor)
        self._wake_up = wake_up
        self._changes = changes
        self._conversations = conversations

    async def run(self) -> None:
        """Follow until it is cancelled, whatever the log does meanwhile."""
        cursor = self._log.head()
        while True:
            try:
                if cursor > (head := self._log.head()):
                    # A primary took its last events with it, and their positions are given out anew.
                    cursor = head
                    await self._notify(self._changes.awaited)
                async for item in subscribe(
                    self._read, self._wake_up, after=cursor, clock=time.monotonic, timing=Timing()
                ):
                    if isinstance(item, Batch):
                        await self._notify({event.stream for event in item.events})
                    cursor = item.cursor
            except _HeadFell:
                continue
            except Exception as error:  # noqa: BLE001 - supervision: what cannot be read now must not end the following
                _log.warning("log.not_followed", error_type=type(error).__name__)
                await asyncio.sleep(RETRY_S)

    async def _read(self, after: int) -> Batch[RecordedEvent]:
        head = self._log.head()
        if head < after:
            raise _HeadFell
        if self._changes.awaited:
            return await self._pages(after)
        return Batch((), head, head)

    async def _notify(self, changed: Collection[StreamId]) -> None:
        # The state in memory may have the events already, by a fold that woke nobody.
        for key in [key for key in changed if key in self._changes.awaited]:
            try:
                self._changes.notify(key, await self._conversations.state(key))
            except (DomainError, EventLogError) as error:
                # Whoever waits for it reads it again at the end of the wait, and gets the error.
                _log.warning("conversation.not_followed", conversation_id=key.name, error_type=type(error).__name__)
