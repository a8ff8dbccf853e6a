"""Erases conversations, and then every byte of them, or of the messages that were redacted.

An erasure is an event: from its commit on the conversation is gone for every caller. After that the contents of its
other events are blanked and its snapshots dropped, the search index has forgotten it, the log's files are purged, and
another event says so. A process that is killed in between leaves a mark in the read table, by which the next goes on.
A redaction is the same for a part of the contents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import NamedTuple

import structlog

from abridged.eventlog.errors import EventLogError, LogClosed, LogCorrupt, LogUnavailable
from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.eventlog.log import PAGE_EVENTS_MAX, EventFilter, EventLog
from abridged.service.codec.events import ERASED, UnknownEvent, decode, encode
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.replay import recorded_events
from abridged.service.conversations.row import Row
from abridged.service.conversations.table import ConversationTable, ListQuery
from abridged.service.domain.commands import ConfirmPurge, EraseConversation
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import ConversationHasForks, ConversationNotFound
from abridged.service.domain.events import (
    ConversationErased,
    Event,
    MessageAppended,
    MessagesRedacted,
    SummarizationCompleted,
)
from abridged.service.domain.redaction import Blanking

ROWS_PAGE = 500

RETRY_S = 0.05
"""Seconds before the next attempt at what stands in the way of a purge, at first; each attempt doubles them."""

RETRY_MAX_S = 5.0

Forgotten = Callable[[int], Awaitable[None]]
"""Returns when a search index has followed the log up to this position, and its file is purged. Raises LogUnavailable
when it does not follow the log."""

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


class Blanked(NamedTuple):
    """The version of the newest event of a stream that takes contents away, 0 without one, whether any before it was
    still to be blanked, and whether the conversation is erased."""

    version: int
    any: bool
    of_erased: bool = False


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
        self._erasing: set[asyncio.Task[Erased]] = set()

    async def start(self, forgotten: Forgotten) -> None:
        """Go on where earlier processes ended, before the first call, which may repeat theirs. `forgotten` is that of
        the search index."""
        self._forgotten = forgotten
        for key in await asyncio.to_thread(self._table.purging):
            self._is_due(key)

    def changed(self, key: StreamId, state: Conversation, _events: Sequence[Event]) -> None:
        """Act on a commit that erased something, also if its caller has gone."""
        if state.purge_due:
            self._is_due(key)

    async def stop(self) -> None:
        """Leave what is not purged to the next start."""
        tasks = [*self._erasing, *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def of(self, key: StreamId, *, forks: bool, dry_run: bool) -> Erased:
        """Erase a conversation, and with `forks` those that were forked from it. Raises ConversationNotFound,
        ConversationHasForks or an EventLogError."""
        if await asyncio.to_thread(self._table.row, key) is None:
            raise ConversationNotFound(key.name)
        if forks:
            return await self._erase([key], dry_run=dry_run)
        await self._require_no_forks(key)
        return await self._erase([key], dry_run=dry_run, forks=Forks.REFUSE)

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
        keys = await asyncio.to_thread(self._unchanged, time_us)
        return await self._erase(keys, forks=Forks.SPARE, unchanged_since_us=time_us)

    async def purged(self, key: StreamId) -> None:
        """Return when no byte of what was erased of the conversation is left. Raises LogCorrupt when damage is in the
        way."""
        if (due := self._due.get(key)) is not None:
            await asyncio.shield(due)

    def _matching(self, namespace: str, labels: tuple[tuple[str, str], ...], user_id: str) -> list[StreamId]:
        keys = [row.key for row in self._listed(ListQuery(namespace, limit=ROWS_PAGE, labels=labels))]
        if not user_id:
            return keys
        users = self._conversations_of(namespace, user_id)
        return [key for key in keys if key in users]

    def _listed(self, query: ListQuery) -> Iterator[Row]:
        while page := self._table.page(query):
            yield from page
            query = replace(query, before=page[-1].position)

    def _unchanged(self, time_us: int) -> list[StreamId]:
        before = self._first_since(time_us)
        unchanged = {
            row.key
            for namespace in self._table.namespaces()
            for row in self._listed(ListQuery(namespace, ROWS_PAGE, before, changed_before_us=time_us))
        }
        forks = self._table.forks()
        return [key for key in unchanged if unchanged.issuperset(those_with_forks([key], forks))]

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
        if dry_run:
            return Erased(len(left), sum(row.message_version for row in left))
        command = EraseConversation(self._new_id(), len(left), unchanged_since_us)
        erasing = asyncio.get_running_loop().create_task(self._erase_each(left, command, forks))
        self._erasing.add(erasing)
        erasing.add_done_callback(self._erasing.discard)
        erased = await asyncio.shield(erasing)
        for row in rows:
            await self.purged(row.key)
        return erased

    async def _erase_each(self, rows: Sequence[Row], command: EraseConversation, forks: Forks) -> Erased:
        """Erase these conversations, each after what was forked from it: a fork is folded from the one before it."""
        found = [event for row in rows for event in await self._erase_one(row.key, command, forks)]
        return Erased(len(found), sum(event.messages for event in found), command.erasure_id if found else "")

    async def _erase_one(self, key: StreamId, command: EraseConversation, forks: Forks) -> list[ConversationErased]:
        """Return the events of the conversation and of the forks that were erased with it."""
        found: list[ConversationErased] = []
        while True:
            try:
                events = await self._conversations.end(key, command, require=partial(self._require_no_forks, key))
                break
            except ConversationHasForks:  # since the look at all forks
                if forks is Forks.REFUSE:
                    raise
                if forks is Forks.SPARE:
                    return found
                found += await self._erase_forks(key, command)
        found += [event for event in events if isinstance(event, ConversationErased)]
        # Of another sidecar, which was as fast: its caller learns that the conversation is erased.
        return found + await self._erase_forks(key, command)

    async def _erase_forks(self, key: StreamId, command: EraseConversation) -> list[ConversationErased]:
        forks = await asyncio.to_thread(self._table.forks_of, key)
        command = replace(command, unchanged_since_us=None)
        return [event for fork in forks for event in await self._erase_one(fork, command, Forks.ERASE)]

    async def _require_no_forks(self, key: StreamId) -> None:
        if forks := await asyncio.to_thread(self._table.forks_of, key):
            raise ConversationHasForks(forks=len(forks))

    def _rows(self, keys: Iterable[StreamId], *, with_forks: bool) -> list[Row]:
        rows = map(self._table.row, those_with_forks(keys, self._table.forks()) if with_forks else keys)
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

        Raises LogUnavailable while a reader is in the way. Damage to one of them is not in the way of the others.
        """
        due: dict[StreamId, Blanked] = {}
        for key in keys:
            with self._unless_damaged(key):
                due[key] = await asyncio.to_thread(self._blank, key)
                await self._conversations.log.forget(key, before=due[key].version)
        if self._forgotten is not None:
            await self._forgotten(self._log.head())
        if not await asyncio.to_thread(self._log.purge):
            raise LogUnavailable("a reader of the log is in the way of a purge")
        for key, blanked in due.items():
            with self._unless_damaged(key):
                if await self._is_confirmed(key, blanked):
                    self._end(key)

    async def _is_confirmed(self, key: StreamId, blanked: Blanked) -> bool:
        """Say that the conversation is purged. Return whether nothing is due any more: another redaction may have
        followed, here or, if nothing was left to confirm, in another process."""
        command = ConfirmPurge(blanked.version)
        if blanked.of_erased:
            await self._conversations.end(key, command, require=_nothing_required)
            return True
        state, confirmed = await self._conversations.execute(key, lambda _: command)
        return not state.purge_due and (bool(confirmed) or not blanked.any)

    @contextmanager
    def _unless_damaged(self, key: StreamId) -> Iterator[None]:
        """End the purge of a conversation with the damage that is in its way."""
        try:
            yield
        except (LogCorrupt, UnknownEvent) as error:
            _log.error("erasure.stopped", conversation_id=key.name, hint=str(error))
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

    def _blank(self, key: StreamId) -> Blanked:
        """Blank what the events of a stream have taken away from those before them.

        The first events come first: from a first event on that is erased, a fold goes on to the erasure.
        """
        row = self._table.row(key)
        if row is not None and row.erased:
            return Blanked(row.purge_due, self._put_blanks(key, row.purge_due, _erased), of_erased=True)
        redactions: dict[int, MessagesRedacted] = {}
        records: set[str] = set()
        for recorded in recorded_events(self._log, key):
            event = decode(recorded.type, recorded.schema_version, recorded.payload)
            if isinstance(event, SummarizationCompleted):
                records.add(event.record.id)
            elif isinstance(event, MessagesRedacted):
                redactions[recorded.version] = event
        end = max(redactions, default=0)
        return Blanked(end, self._put_blanks(key, end, partial(_left, Blanking(redactions, records))))

    def _put_blanks(self, key: StreamId, end: int, left: Callable[[RecordedEvent], bytes]) -> bool:
        """Put the payloads that are `left` in the places of those before version `end`. Return whether any changed."""
        any_blanked, after = False, 0
        while page := self._log.read_sealed(key, after=after, limit=min(PAGE_EVENTS_MAX, max(0, end - 1 - after))):
            lefts = {sealed.event.version: left(sealed.event) for sealed in page}
            changed = {s.event.version for s in page if lefts[s.event.version] != s.event.payload}
            if changed:
                self._log.blank(key, {version: lefts[version] for version in sorted(changed)})
                any_blanked = True
            after = page[-1].event.version
        return any_blanked


def those_with_forks(keys: Iterable[StreamId], forks: Mapping[StreamId, Sequence[StreamId]]) -> list[StreamId]:
    """These conversations and what was forked from them, each before the one that it was forked from."""
    found = dict.fromkeys(keys)
    waiting = list(found)
    for key in waiting:
        for fork in forks.get(key, ()):
            found.pop(fork, None)
            found[fork] = None
            waiting.append(fork)
    return list(reversed(found))


async def _nothing_required() -> None:
    return


def _erased(_recorded: RecordedEvent) -> bytes:
    return ERASED


def _left(blanking: Blanking, recorded: RecordedEvent) -> bytes:
    event = decode(recorded.type, recorded.schema_version, recorded.payload)
    left = blanking.left(recorded.version, event)
    return recorded.payload if left == event else encode(left)[2]
