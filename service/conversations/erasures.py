"""Erases conversations, and then every byte of them.

An erasure is an event: from its commit on the conversation is gone for every caller. After that the contents of its
other events are blanked and its snapshots dropped, the search index has forgotten it, the log's files are purged, and
another event says so. A process that is killed in between leaves a mark in the read table, by which the next goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import structlog

from abridged.eventlog.errors import EventLogError, LogClosed, LogCorrupt, LogUnavailable
from abridged.eventlog.event import StreamId
from abridged.eventlog.log import PAGE_EVENTS_MAX, EventFilter, EventLog
from abridged.service.codec.events import ERASED, decode
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.row import Row
from abridged.service.conversations.table import ConversationTable, ListQuery
from abridged.service.domain.commands import ConfirmPurge, EraseConversation
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import ConversationHasForks, ConversationNotFound
from abridged.service.domain.events import Event, MessageAppended

ROWS_PAGE = 500

RETRY_S = 0.05
"""Seconds before the next attempt at what stands in the way of a purge, at first; each attempt doubles them."""

RETRY_MAX_S = 5.0

Forgotten = Callable[[int], Awaitable[None]]
"""Returns when a search index has followed the log up to this position, and its file is purged. Raises LogUnavailable
when it does not follow the log."""

_log = structlog.get_logger()


class Erased(NamedTuple):
    """Counts of one call: conversations that it erased, or would erase, and their messages. The id of the erasure is
    empty if it erased nothing."""

    conversations: int
    messages: int
    erasure_id: str = ""


class Erasures:
    """Erases conversations of one log, on its event loop. Start it when the conversations are served."""

    def __init__(
        self,
        log: EventLog,
        conversations: Conversations,
        table: ConversationTable,
        *,
        new_id: Callable[[], str],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._log = log
        self._conversations = conversations
        self._table = table
        self._new_id = new_id
        self._sleep = sleep
        self._forgotten: Forgotten | None = None
        self._due: dict[StreamId, asyncio.Future[None]] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self, forgotten: Forgotten | None) -> None:
        """Go on where earlier processes ended, before the first call, which may repeat theirs. `forgotten` is that of
        the search index, if there is one."""
        self._forgotten = forgotten
        for key in await asyncio.to_thread(self._table.purging):
            self._is_due(key)

    def changed(self, key: StreamId, state: Conversation, _events: Sequence[Event]) -> None:
        """Act on a commit that erased something, also if its caller has gone."""
        if state.purge_due:
            self._is_due(key)

    async def stop(self) -> None:
        """Leave what is not purged to the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def of(self, key: StreamId, *, forks: bool, dry_run: bool) -> Erased:
        """Erase a conversation, and with `forks` those that were forked from it. Raises ConversationNotFound,
        ConversationHasForks or an EventLogError."""
        if await asyncio.to_thread(self._table.row, key) is None:
            raise ConversationNotFound(key.name)
        found = len(_with_forks([key], await asyncio.to_thread(self._table.forks))) - 1
        if found and not forks:
            raise ConversationHasForks(forks=found)
        return await self._erase([key], dry_run=dry_run)

    async def matching(
        self, namespace: str, *, labels: Sequence[tuple[str, str]], user_id: str, dry_run: bool
    ) -> Erased:
        """Erase the conversations of a namespace that have all the labels and, unless it is empty, a message of the
        user, and those that were forked from them. Raises an EventLogError."""
        keys = await asyncio.to_thread(self._matching, namespace, tuple(labels), user_id)
        return await self._erase(keys, dry_run=dry_run)

    async def unchanged_since(self, time_us: int) -> Erased:
        """Erase the conversations that have not changed since, with their forks; those of which a fork has stay. Raises
        an EventLogError."""
        return await self._erase(await asyncio.to_thread(self._unchanged, time_us), unchanged_since_us=time_us)

    async def purged(self, key: StreamId) -> None:
        """Return when no byte of what was erased of the conversation is left. Raises LogCorrupt when damage is in the
        way."""
        if (due := self._due.get(key)) is not None:
            await asyncio.shield(due)

    def _matching(self, namespace: str, labels: tuple[tuple[str, str], ...], user_id: str) -> list[StreamId]:
        keys = [row.key for row in self._rows(ListQuery(namespace, limit=ROWS_PAGE, labels=labels))]
        if not user_id:
            return keys
        users = self._conversations_of(namespace, user_id)
        return [key for key in keys if key in users]

    def _rows(self, query: ListQuery) -> Iterator[Row]:
        while page := self._table.page(query):
            yield from page
            query = replace(query, before=page[-1].position)

    def _unchanged(self, time_us: int) -> list[StreamId]:
        before = self._first_since(time_us)
        unchanged = {
            row.key
            for namespace in self._table.namespaces()
            for row in self._rows(ListQuery(namespace, ROWS_PAGE, before, changed_before_us=time_us))
        }
        forks = self._table.forks()
        return [key for key in unchanged if unchanged.issuperset(_with_forks([key], forks))]

    def _first_since(self, time_us: int) -> int:
        """The position of the first event that was written at this time or later, or the one after the last: where the
        clock was set back, any after which all are later."""
        first, end = 1, self._log.head() + 1
        while first < end:
            middle = (first + end) // 2
            (event,) = self._log.read_all(after=middle - 1, limit=1)
            first, end = (middle + 1, end) if event.time_us < time_us else (first, middle)
        return first

    def _conversations_of(self, namespace: str, user_id: str) -> set[StreamId]:
        """The conversations with messages of a user, from all events: no table has users."""
        found: set[StreamId] = set()
        matching = EventFilter(namespace=namespace, types=frozenset({MessageAppended.__name__}))
        cursor, head = 0, self._log.head()
        while cursor < head:
            page = self._log.scan(after=cursor, matching=matching)
            for event in page.events:
                said = decode(event.type, event.schema_version, event.payload) if event.stream not in found else None
                if isinstance(said, MessageAppended) and said.message.user_id == user_id:
                    found.add(event.stream)
            cursor = page.cursor
        return found

    async def _erase(
        self, keys: Sequence[StreamId], *, dry_run: bool = False, unchanged_since_us: int | None = None
    ) -> Erased:
        """Erase these conversations and what was forked from them, forks first: they are folded from what they were
        forked from. One that has changed since the time stays."""
        rows = await asyncio.to_thread(self._rows_with_forks, keys)
        left = [row for row in rows if not row.erased]
        messages = sum(row.message_version for row in left)
        if dry_run:
            return Erased(len(left), messages)
        command = EraseConversation(self._new_id(), len(left), unchanged_since_us)
        for row in left:
            await self._conversations.execute(row.key, lambda _: command)
        for row in rows:
            await self.purged(row.key)
        return Erased(len(left), messages, command.erasure_id if left else "")

    def _rows_with_forks(self, keys: Iterable[StreamId]) -> list[Row]:
        rows = map(self._table.row, _with_forks(keys, self._table.forks()))
        return [row for row in rows if row is not None]

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
            except LogClosed:
                return
            except (EventLogError, OSError) as error:
                _log.warning("erasure.delayed", error_type=type(error).__name__, hint=str(error))
                await self._sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_MAX_S)

    async def _purge(self, keys: Sequence[StreamId]) -> None:
        """Purge what was erased of these conversations, together: the log's files are purged once for all of them.

        Raises LogUnavailable while a reader is in the way.
        """
        due: dict[StreamId, int] = {}
        for key in keys:
            try:
                due[key] = await asyncio.to_thread(self._blank, key)
                await self._conversations.log.forget(key)
            except LogCorrupt as error:
                _log.error("erasure.stopped", conversation_id=key.name, hint=str(error))
                due.pop(key, None)
                self._end(key, error)
        if self._forgotten is not None:
            await self._forgotten(self._log.head())
        if not await asyncio.to_thread(self._log.purge):
            raise LogUnavailable("a reader of the log is in the way of a purge")
        for key, version in due.items():
            state, _ = await self._conversations.execute(key, partial(_confirmed, version))
            if not state.purge_due:
                self._end(key)

    def _end(self, key: StreamId, error: Exception | None = None) -> None:
        due = self._due.pop(key)
        if error is None:
            due.set_result(None)
        else:
            due.set_exception(error)
            due.exception()  # it is no fault if nobody waits

    def _blank(self, key: StreamId) -> int:
        """Blank the events before the newest erasure, and return the version of that; 0 without one.

        The first events come first: from a first event on that is erased, a fold goes on to the erasure.
        """
        row = self._table.row(key)
        end = row.purge_due if row is not None else 0
        after = 0
        while page := self._log.read_sealed(key, after=after, limit=min(PAGE_EVENTS_MAX, max(0, end - 1 - after))):
            if payloads := {sealed.event.version: ERASED for sealed in page if sealed.event.payload != ERASED}:
                self._log.blank(key, payloads)
            after = page[-1].event.version
        return end


def _with_forks(keys: Iterable[StreamId], forks: Mapping[StreamId, Sequence[StreamId]]) -> list[StreamId]:
    """These conversations and what was forked from them, each before the one that it was forked from."""
    found = dict.fromkeys(keys)
    waiting = list(found)
    for key in waiting:
        for fork in forks.get(key, ()):
            found.pop(fork, None)
            found[fork] = None
            waiting.append(fork)
    return list(reversed(found))


def _confirmed(version: int, _state: Conversation) -> ConfirmPurge:
    return ConfirmPurge(version)
