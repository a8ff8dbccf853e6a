"""Purges what was erased, redacted or archived, after the event that says so.

Contents are blanked, snapshots are dropped, the search index has forgotten them, the log's files are purged, and
another event says so. A process that is killed in between leaves a mark in the read table, by which the next one
goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import structlog

from abridged.eventlog.errors import KeyLost, LogClosed, LogCorrupt, LogUnavailable
from abridged.eventlog.event import StreamId
from abridged.eventlog.log import EventLog
from abridged.service.codec.events import UnknownEvent
from abridged.service.conversations.blanks import BlankedUpTo, Blanks
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.table import ConversationTable
from abridged.service.domain.commands import ConfirmPurge
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import ArchiveUnusable
from abridged.service.domain.events import Event

T = TypeVar("T")

RETRY_S = 0.05
"""Seconds before the next attempt at what stands in the way of a purge, at first; each attempt doubles them."""

RETRY_MAX_S = 5.0

STOPS_PURGE = (LogCorrupt, KeyLost, UnknownEvent, ArchiveUnusable)
"""The errors that end a purge: damage, a lost key, an event of a later version, and an archive out of reach."""

Forgotten = Callable[[int], Awaitable[None]]
"""Returns when a search index has followed the log up to this position, and its file is purged. Raises LogUnavailable
when it does not follow the log."""

_log = structlog.get_logger()


class Purges:
    """The purges of one log, on its event loop. Start them before the first call, which may repeat an earlier one."""

    def __init__(
        self,
        log: EventLog,
        conversations: Conversations,
        table: ConversationTable,
        blanks: Blanks,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._log = log
        self._conversations = conversations
        self._table = table
        self.blanks = blanks
        self._sleep = sleep
        self._forgotten: Forgotten | None = None
        self._due: dict[StreamId, asyncio.Future[None]] = {}
        self._task: asyncio.Task[None] | None = None
        self._works: set[asyncio.Task[Any]] = set()

    async def start(self, forgotten: Forgotten) -> None:
        """Go on where earlier processes ended. `forgotten` is that of the search index."""
        self._forgotten = forgotten
        for key in await asyncio.to_thread(self._table.purging):
            self._is_due(key)

    def changed(self, key: StreamId, state: Conversation, _events: Sequence[Event]) -> None:
        """Act on a commit that erased something, also if its caller has gone."""
        if state.purge_due:
            self._is_due(key)

    async def stop(self) -> None:
        """Leave what is not purged to the next start."""
        tasks = [*self._works, *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def carried_out(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of work that leads to purges, and goes on when its caller is gone."""
        task = asyncio.get_running_loop().create_task(work)
        self._works.add(task)
        task.add_done_callback(self._works.discard)
        return await asyncio.shield(task)

    async def purged(self, key: StreamId) -> None:
        """Return when no byte is left of what was taken from the conversation, by whichever process. Raises one
        of STOPS_PURGE that is in the way, and LogClosed."""
        row = await asyncio.to_thread(self._table.row, key)
        if row is not None and row.purge_due:
            self._is_due(key)
        if (due := self._due.get(key)) is not None:
            await asyncio.shield(due)

    def _is_due(self, key: StreamId) -> None:
        if key not in self._due:
            self._due[key] = asyncio.get_running_loop().create_future()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._purge_all())

    async def _purge_all(self) -> None:
        pause_s = RETRY_S
        while self._due:
            try:
                await self._purge(tuple(self._due))
                pause_s = RETRY_S
            except LogClosed as error:
                for key in tuple(self._due):
                    self._end(key, error)
            except Exception as error:  # noqa: BLE001 - supervision: whatever is in the way, callers wait for the purge
                _log.warning("purge.delayed", error_type=type(error).__name__, hint=str(error))
                await self._sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_MAX_S)

    async def _purge(self, keys: Sequence[StreamId]) -> None:
        """Purge what was erased of these conversations, together: the log's files are purged once for all of them.

        Raises LogUnavailable while a reader is in the way. Damage to one of them is not in the way of the others.
        """
        due: dict[StreamId, BlankedUpTo] = {}
        for key in keys:
            with self._unless_damaged(key):
                due[key] = await asyncio.to_thread(self.blanks.put, key)
                await self._conversations.log.forget(key, before=due[key].version)
        if self._forgotten is not None:
            try:
                await self._forgotten(self._log.head())
            except LogUnavailable as error:  # until somebody makes the index again: nothing to wait for
                _log.error("purge.stopped", hint=str(error))
                for key in keys:
                    self._end(key, error)
                return
        if not await asyncio.to_thread(self._log.purge):
            raise LogUnavailable("a reader of the log is in the way of a purge")
        for key, blanked in due.items():
            with self._unless_damaged(key):
                if await self._is_confirmed(key, blanked):
                    self._end(key)

    async def _is_confirmed(self, key: StreamId, blanked: BlankedUpTo) -> bool:
        """Say that the conversation is purged. Return whether nothing is due any more: another redaction may have
        followed, here or, if nothing was left to confirm, in another process."""
        command = ConfirmPurge(blanked.version)
        if blanked.all:
            await self._conversations.end(key, command, require=nothing_required)
            return True
        state, confirmed = await self._conversations.execute(key, lambda _: command)
        return not state.purge_due and (bool(confirmed) or not blanked.any)

    @contextmanager
    def _unless_damaged(self, key: StreamId) -> Iterator[None]:
        """End the purge of a conversation with the damage, or the lost key, that is in its way."""
        try:
            yield
        except STOPS_PURGE as error:
            _log.error("purge.stopped", conversation_id=key.name, hint=str(error))
            self._end(key, error)

    def _end(self, key: StreamId, error: Exception | None = None) -> None:
        due = self._due.pop(key, None)
        if due is None:
            return
        if error is None:
            due.set_result(None)
        else:
            due.set_exception(error)
            due.exception()  # it is no fault if nobody waits


async def nothing_required() -> None:
    """Forbid nothing: what is erased already may be erased further."""
