"""Purges what was erased, redacted or archived, after the event that says so.

The keys of an erased conversation are erased, the contents of the events before it are blanked, snapshots are dropped,
the search index has forgotten them, the log's files are purged, and another event says so. Archived contents are
blanked only while their file is there as it was written; the file of a conversation that is erased or unarchived is
removed. A process that is killed in between leaves a mark in the read table, by which the next one goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

import structlog

from abridged.eventlog.backend import StreamKeys
from abridged.eventlog.errors import LogClosed, LogCorrupt, LogUnavailable, StreamCorrupt
from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.eventlog.log import PAGE_EVENTS_MAX, EventLog
from abridged.service.codec.events import ERASED, UnknownEvent, decode, encode
from abridged.service.conversations.archive_folder import ArchiveFolder
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.replay import recorded_events
from abridged.service.conversations.table import ConversationTable
from abridged.service.domain.commands import ConfirmPurge
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import ArchiveUnusable
from abridged.service.domain.events import (
    ConversationArchived,
    ConversationErased,
    ConversationUnarchived,
    ErasedEvent,
    Event,
    TextPurged,
)
from abridged.service.domain.redaction import Blanking

T = TypeVar("T")

RETRY_S = 0.05
"""Seconds before the next attempt at what stands in the way of a purge, at first; each attempt doubles them."""

RETRY_MAX_S = 5.0

_LAST_EVENTS = 8

Forgotten = Callable[[int], Awaitable[None]]
"""Returns when a search index has followed the log up to this position, and its file is purged. Raises LogUnavailable
when it does not follow the log."""

_log = structlog.get_logger()


class BlankedUpTo(NamedTuple):
    """The version of the newest event of a stream that takes contents away, 0 without one, whether any before it was
    still to be blanked, and whether all were."""

    version: int
    any: bool
    all: bool = False


class Purges:
    """The purges of one log, on its event loop. Start them before the first call, which may repeat an earlier one."""

    def __init__(
        self,
        log: EventLog,
        conversations: Conversations,
        table: ConversationTable,
        archives: ArchiveFolder,
        *,
        keys: StreamKeys | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`keys` are those of a log that is encrypted."""
        self._log = log
        self._conversations = conversations
        self._table = table
        self._keys = keys
        self.archives = archives
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
        """Return when no byte is left of what was taken from the conversation, by whichever process. Raises LogCorrupt
        when damage is in the way, ArchiveUnusable when its archive's file is, and LogClosed."""
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
                due[key] = await asyncio.to_thread(self._blank, key)
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
        """End the purge of a conversation with the damage that is in its way."""
        try:
            yield
        except (LogCorrupt, UnknownEvent, ArchiveUnusable) as error:
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

    def _blank(self, key: StreamId) -> BlankedUpTo:
        """Blank what the events of a stream have taken away from those before them.

        The first events come first: from a first event on that is erased, a fold goes on to the erasure.
        """
        row = self._table.row(key)
        if row is not None and row.erased:
            require_removable(self._log, key, self.archives)
            if self._keys is not None:  # first: the contents name their keys as long as they are there
                self._keys.erase(key, row.position)
            self.archives.remove(self._log.log_id, key)
            any_blanked = self._put_blanks(key, row.purge_due, _erased, partial(self._unchecked, key))
            return BlankedUpTo(row.purge_due, any_blanked, all=True)
        if row is not None and row.archive_file:
            version, archived = archived_in(self._log, key)
            self.archives.require(archived)
            # Another process may take it back or erase it from here on; its file is the only copy.
            unchecked = partial(self._unchecked, key)
            any_blanked = self._put_blanks(key, version, _erased, unchecked, expected_version=row.event_version)
            self.archives.remove(self._log.log_id, key, before=version, but=archived.file)
            return BlankedUpTo(version, any_blanked, all=True)
        blanking = Blanking.of(self._whole(key))
        left = partial(redacted_payload, blanking)
        any_blanked = self._put_blanks(key, blanking.end, left, partial(self._in_clear, key))
        if row is not None:
            self.archives.remove(self._log.log_id, key, before=row.event_version)
        return BlankedUpTo(max(blanking.end, row.purge_due if row is not None else 0), any_blanked)

    def _whole(self, key: StreamId) -> Iterator[tuple[int, Event]]:
        """The events with their versions. Raises StreamCorrupt for one whose content is in an archive, which has to
        stay: another process has blanked it while this one put it back."""
        for recorded in recorded_events(self._log, key):
            event = decode(recorded.type, recorded.schema_version, recorded.payload)
            if isinstance(event, ErasedEvent):
                raise StreamCorrupt(f"position {recorded.position} is in an archive", key, recorded.version)
            yield recorded.version, event

    def _put_blanks(
        self,
        key: StreamId,
        end: int,
        left: Callable[[RecordedEvent], bytes],
        page_of: Callable[[int, int], Sequence[RecordedEvent]],
        *,
        expected_version: int | None = None,
    ) -> bool:
        """Put the payloads that are `left` in the places of those before version `end`. Return whether any changed.
        `page_of` reads the events after a version up to a number of them."""
        any_blanked, after = False, 0
        while after < end - 1 and (page := page_of(after, min(PAGE_EVENTS_MAX, end - 1 - after))):
            lefts = {event.version: left(event) for event in page}
            changed = {event.version for event in page if lefts[event.version] != event.payload}
            if changed:
                payloads = {version: lefts[version] for version in sorted(changed)}
                self._log.blank(key, payloads, expected_version=expected_version)
                any_blanked = True
            after = page[-1].version
        return any_blanked

    def _unchecked(self, key: StreamId, after: int, limit: int) -> list[RecordedEvent]:
        """Events as they are stored, damaged or not."""
        return [sealed.event for sealed in self._log.read_sealed(key, after=after, limit=limit)]

    def _in_clear(self, key: StreamId, after: int, limit: int) -> list[RecordedEvent]:
        return self._log.read_stream(key, after=after, limit=limit)


def archived_in(log: EventLog, key: StreamId) -> tuple[int, ConversationArchived]:
    """The event by which a conversation is archived, and its version. Raises StreamCorrupt without one."""
    before = 0
    while page := log.read_stream(key, after=before, limit=_LAST_EVENTS, backward=True):
        for recorded in page:
            if recorded.type == ConversationArchived.__name__:
                event = decode(recorded.type, recorded.schema_version, recorded.payload)
                if isinstance(event, ConversationArchived):
                    return recorded.version, event
        before = page[-1].version
    raise StreamCorrupt("an archived conversation without an event that says so", key)


def require_removable(log: EventLog, key: StreamId, archives: ArchiveFolder) -> None:
    """Raise ArchiveUnusable for an erased conversation that may still have an archive where no folder is set. Types of
    events stay when they are blanked, and are read of damaged ones, too."""
    if archives.is_set:
        return
    stored = log.read_sealed(key, after=max(0, log.stream_version(key) - _LAST_EVENTS))
    last = [name for each in reversed(stored) if (name := each.event.type) != ConversationErased.__name__]
    purged = last[:1] == [TextPurged.__name__]
    ended = {ConversationArchived.__name__, *(() if purged else (ConversationUnarchived.__name__,))}
    if last[purged : purged + 1] and last[purged] in ended:
        raise ArchiveUnusable("log.archive_dir is not set", file=key.name)


def _erased(_recorded: RecordedEvent) -> bytes:
    return ERASED


def redacted_payload(blanking: Blanking, recorded: RecordedEvent) -> bytes:
    """The payload that redactions leave of the next event of their stream. Raises UnknownEvent."""
    event = decode(recorded.type, recorded.schema_version, recorded.payload)
    left = blanking.left(recorded.version, event)
    return recorded.payload if left == event else encode(left)[2]


async def nothing_required() -> None:
    """Forbid nothing: what is erased already may be erased further."""
