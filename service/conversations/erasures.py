"""Erases conversations by an event, from whose commit on they are gone for every caller; `purges` does the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import NamedTuple

import structlog

from abridged.eventlog.errors import KeyLost, LogCorrupt
from abridged.eventlog.event import StreamId
from abridged.eventlog.log import EventFilter, EventLog
from abridged.service.codec.events import decoded
from abridged.service.conversations.blanks import archived_in
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.purges import STOPS_PURGE, Purges
from abridged.service.conversations.replay import recorded_events
from abridged.service.conversations.row import Row
from abridged.service.conversations.table import ConversationTable, ListQuery
from abridged.service.conversations.unchanged import ROWS_PAGE, unused_rows
from abridged.service.conversations.unread_forks import UnreadFork
from abridged.service.domain.commands import EraseConversation
from abridged.service.domain.errors import ArchiveUnusable, ConversationHasForks, ConversationNotFound
from abridged.service.domain.events import (
    ConversationErased,
    ErasedEvent,
    Event,
    MessageAppended,
)

_log = structlog.get_logger()


class Forks(StrEnum):
    """Tell apart an erasure that takes the forks of a conversation along, one that they forbid, and one that leaves the
    conversation for their sake."""

    ERASE = "erase"
    REFUSE = "refuse"
    SPARE = "spare"


class Erased(NamedTuple):
    """Counts of one call: conversations that it erased, or would erase, and their messages. The id of the erasure is
    empty if it erased nothing."""

    conversations: int
    messages: int
    erasure_id: str = ""


class Erasures:
    """Erases conversations of one log, on its event loop."""

    def __init__(
        self,
        log: EventLog,
        conversations: Conversations,
        table: ConversationTable,
        purges: Purges,
        *,
        new_id: Callable[[], str],
    ) -> None:
        self._log = log
        self._conversations = conversations
        self._table = table
        self._purges = purges
        self._archives = purges.blanks.archives
        self._new_id = new_id

    async def of(self, key: StreamId, *, forks: bool, dry_run: bool) -> Erased:
        """Erase a conversation, and with `forks` those that were forked from it. Raises ConversationNotFound,
        ConversationHasForks or an EventLogError."""
        if await asyncio.to_thread(self._table.row, key) is None:
            raise ConversationNotFound(key.name)
        if forks:
            return await self._erase([key], dry_run=dry_run)
        await asyncio.to_thread(self._table.require_no_forks, key)
        return await self._erase([key], dry_run=dry_run, forks=Forks.REFUSE)

    async def matching(
        self, namespace: str, *, labels: Sequence[tuple[str, str]], user_id: str, dry_run: bool
    ) -> Erased:
        """Erase the conversations of a namespace that have all the labels and, unless it is empty, a message of the
        user, and those that were forked from them. Returns when all that was erased in the namespace is purged, since a
        repeat finds no label of it. Raises ArchiveUnusable, or an EventLogError: KeyLost for one of which nobody can
        read the labels or, if a user is named, the messages."""
        keys = await asyncio.to_thread(self._matching, namespace, tuple(labels), user_id)
        erased = await self._erase(keys, dry_run=dry_run)
        if not dry_run:
            for key in await asyncio.to_thread(self._purging, namespace):
                with suppress(*STOPS_PURGE):  # a repeat mends neither: whoever erased it has the reason
                    await self._purges.purged(key)
        return erased

    async def unchanged_since(self, time_us: int) -> Erased:
        """Erase the conversations that no caller has changed since, with their forks; those of which a caller has
        changed a fork stay. Raises an EventLogError."""
        keys = await asyncio.to_thread(self._unchanged, time_us)
        return await self._erase(keys, forks=Forks.SPARE, unchanged_since_us=time_us)

    def _matching(self, namespace: str, labels: tuple[tuple[str, str], ...], user_id: str) -> list[StreamId]:
        query = ListQuery(namespace, limit=ROWS_PAGE, labels=labels, every_label=True)
        rows = list(self._table.listed(query))
        if not user_id:
            return [row.key for row in rows]
        users, unread = self._conversations_of(namespace, user_id)
        keys = [row.key for row in rows]
        return [key for key in keys if key in users or (key in unread and self._unread_has(key, user_id))]

    def _purging(self, namespace: str) -> list[StreamId]:
        rows = [self._table.row(key) for key in self._table.purging() if key.namespace == namespace]
        return [row.key for row in rows if row is not None and row.erased]

    def _unchanged(self, time_us: int) -> list[StreamId]:
        unchanged = {row.key for row in unused_rows(self._log, self._table, time_us)}
        forks = self._table.forks()
        found: list[StreamId] = []
        unread: dict[StreamId, UnreadFork] = {}
        for key in unchanged:
            possible = self._table.possible_forks(key)
            if unchanged.issuperset((*those_with_forks([key], forks), *possible)):
                found.append(key)
                unread |= possible
        # The last ones are erased first: each may have been forked from those before it.
        return sorted(found, key=lambda key: unread[key].position if key in unread else 0)

    def _unread_has(self, key: StreamId, user_id: str) -> bool:
        """Return whether a conversation of which a scan has not read every message has one of a user, in its archive or
        in the log: another call may have archived, unarchived or erased it. Raises KeyLost if nobody can read it."""
        row = self._table.row(key)
        if row is None or row.erased:
            return False
        if row.archive_file:
            if self._archives.is_given_up(row.archive_file):
                return False
            _, archived = archived_in(self._log, key)
            events = self._archives.events(self._log, key, archived)
        else:
            events = recorded_events(self._log, key)
        return any(_is_of(user_id, decoded(event)) for event in events if event.type == MessageAppended.__name__)

    def _conversations_of(self, namespace: str, user_id: str) -> tuple[set[StreamId], set[StreamId]]:
        """The conversations with messages of a user, and those with messages that have no content, from all events: no
        table has users."""
        found: set[StreamId] = set()
        unread: set[StreamId] = set()
        matching = EventFilter(namespace=namespace, types=frozenset({MessageAppended.__name__}))
        cursor, head = 0, self._log.head()
        while cursor < head:
            page = self._log.scan(after=cursor, matching=matching)
            for event in page.events:
                said = decoded(event) if event.stream not in found else None
                if isinstance(said, ErasedEvent):
                    unread.add(event.stream)
                elif _is_of(user_id, said):
                    found.add(event.stream)
            cursor = page.cursor
        return found, unread

    async def _erase(
        self,
        keys: Sequence[StreamId],
        *,
        dry_run: bool = False,
        forks: Forks = Forks.ERASE,
        unchanged_since_us: int | None = None,
    ) -> Erased:
        """Erase these conversations and what was forked from them, also when the caller is gone."""
        rows = await asyncio.to_thread(self._rows, keys, with_forks=forks is not Forks.REFUSE)
        left = [row for row in rows if not row.erased]
        if forks is Forks.SPARE:
            left = await self._with_reachable_archives(left)
        else:
            for row in left:
                await asyncio.to_thread(self._table.require_known_forks, row.key)
        if dry_run:
            return Erased(len(left), sum(row.message_version for row in left))
        for row in left:
            await self._require_erasable(row)
        command = EraseConversation(self._new_id(), len(left), unchanged_since_us)
        erased = await self._purges.carried_out(self._erase_each(left, command, forks))
        for row in rows:
            try:
                await self._purges.purged(row.key)
            except STOPS_PURGE:
                if forks is not Forks.SPARE:  # by age the purge has said so
                    raise
        return erased

    async def _with_reachable_archives(self, rows: Sequence[Row]) -> list[Row]:
        """Leave out archived conversations whose files cannot be removed now."""
        found = []
        for row in rows:
            try:
                await self._require_erasable(row)
                found.append(row)
            except ArchiveUnusable as error:
                _log.warning("time_to_live.archive_missing", conversation_id=row.id, hint=str(error))
        return found

    async def _require_erasable(self, row: Row) -> None:
        if row.archive_file:
            await asyncio.to_thread(self._archives.require_erasable, self._log.log_id, row.key, row.archive_file)

    async def _erase_each(self, rows: Sequence[Row], command: EraseConversation, forks: Forks) -> Erased:
        """Erase these conversations, each after what was forked from it: a fork is folded from the one before it."""
        found: list[ConversationErased] = []
        for row in rows:
            try:
                found += await self._erase_one(row.key, command, forks)
            except (LogCorrupt, KeyLost) as error:
                if forks is not Forks.SPARE:
                    raise
                _log.warning(
                    "time_to_live.skipped", conversation_id=row.id, error_type=type(error).__name__, hint=str(error)
                )
        return Erased(len(found), sum(event.messages for event in found), command.erasure_id if found else "")

    async def _erase_one(self, key: StreamId, command: EraseConversation, forks: Forks) -> list[ConversationErased]:
        """Return the events of the conversation and of the forks that were erased with it."""
        found: list[ConversationErased] = []
        require = partial(asyncio.to_thread, self._table.require_no_forks, key)
        while True:
            try:
                events = await self._conversations.end(key, command, require=require)
                break
            except ConversationHasForks:  # since the look at all forks
                if forks is Forks.REFUSE:
                    raise
                if forks is Forks.SPARE:
                    return found
                found += await self._erase_forks(key, command)
        if not events and forks is Forks.SPARE:  # a caller has changed it meanwhile, and may have forked it
            return found
        found += [event for event in events if isinstance(event, ConversationErased)]
        # Of another sidecar, which was as fast: its caller learns that the conversation is erased.
        return found + await self._erase_forks(key, command)

    async def _erase_forks(self, key: StreamId, command: EraseConversation) -> list[ConversationErased]:
        forks = await asyncio.to_thread(self._table.forks_of, key)
        command = replace(command, unchanged_since_us=None)
        return [event for fork in forks for event in await self._erase_one(fork, command, Forks.ERASE)]

    def _rows(self, keys: Iterable[StreamId], *, with_forks: bool) -> list[Row]:
        rows = map(self._table.row, those_with_forks(keys, self._table.forks()) if with_forks else keys)
        return [row for row in rows if row is not None]


def _is_of(user_id: str, event: Event | None) -> bool:
    return isinstance(event, MessageAppended) and event.message.user_id == user_id


def those_with_forks(keys: Iterable[StreamId], forks: Mapping[StreamId, Sequence[StreamId]]) -> list[StreamId]:
    """Conversations with what was forked from them, each before the one that it was forked from."""
    found = dict.fromkeys(keys)
    waiting = list(found)
    for key in waiting:
        for fork in forks.get(key, ()):
            found.pop(fork, None)
            found[fork] = None
            waiting.append(fork)
    return list(reversed(found))
