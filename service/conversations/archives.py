"""Archives conversations into files, and takes them back.

The file is checked, then an event says that it has the content, and then the content leaves the log (`purges`). The way
back puts the content into the log before an event says so. A repeat goes on from any step at which a process was
killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import NamedTuple

import structlog

from abridged.eventlog.errors import EventLogError, LogCorrupt
from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.eventlog.log import PAGE_BYTES_MAX, PAGE_EVENTS_MAX, EventLog
from abridged.service.codec.events import ERASED, UnknownEvent, content_of, decoded
from abridged.service.conversations.blanks import archived_in
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.purges import Purges, nothing_required
from abridged.service.conversations.replay import evolved, recorded_events, replayed
from abridged.service.conversations.row import Row
from abridged.service.conversations.table import ConversationTable
from abridged.service.conversations.unchanged import unchanged_rows
from abridged.service.domain.commands import ArchiveConversation, UnarchiveConversation
from abridged.service.domain.conversation import Conversation, initial_state
from abridged.service.domain.errors import (
    ArchiveUnusable,
    ConversationIsErased,
    ConversationIsOpen,
    ConversationNotFound,
    DomainError,
)
from abridged.service.domain.events import ConversationArchived, MessageAppended
from abridged.service.domain.redaction import is_redacted

_log = structlog.get_logger()


class Archived(NamedTuple):
    """Counts of one call: conversations that it archived, or would archive, and their messages."""

    conversations: int = 0
    messages: int = 0


class Archives:
    """Archives conversations of one log, on its event loop."""

    def __init__(
        self,
        log: EventLog,
        conversations: Conversations,
        table: ConversationTable,
        purges: Purges,
    ) -> None:
        self._log = log
        self._conversations = conversations
        self._table = table
        self._purges = purges
        self._folder = purges.blanks.archives

    async def of(self, key: StreamId, *, dry_run: bool) -> Archived:
        """Archive a conversation. Raises ConversationNotFound, ConversationIsErased, ConversationIsOpen,
        ConversationHasForks, ArchiveUnusable or an EventLogError."""
        row = await self._row(key)
        if not row.closed:
            raise ConversationIsOpen(key.name)
        self._folder.require_set(key.name)
        await asyncio.to_thread(self._table.require_no_forks, key)
        if dry_run:
            return Archived() if row.archive_file else Archived(1, row.message_version)
        return await self._purges.carried_out(self._archived([row]))

    async def unchanged_since(self, time_us: int, *, namespace: str = "", dry_run: bool = False) -> Archived:
        """Archive the closed conversations, of a namespace or of all, that have not changed since and have no forks.
        Leaves one that cannot be archived now to the next call. Raises ArchiveUnusable if there are any and no folder
        for them, or an EventLogError."""
        rows = await asyncio.to_thread(self._due, time_us, namespace)
        for row in rows[:1]:
            self._folder.require_set(row.id)
        if dry_run:
            return Archived(len(rows), sum(row.message_version for row in rows))
        return await self._purges.carried_out(self._archived(rows, is_any=True))

    async def unarchive(self, key: StreamId) -> Conversation:
        """Put the content of a conversation back in its place, and return its state. Raises ConversationNotFound,
        ConversationIsErased, ArchiveUnusable or an EventLogError."""
        row = await self._row(key)
        if row.archive_file or row.purge_due:
            await self._purges.carried_out(self._unarchived(key))
        await self._purges.purged(key)
        return await self._conversations.state(key)

    async def _row(self, key: StreamId) -> Row:
        row = await asyncio.to_thread(self._table.row, key)
        if row is None:
            raise ConversationNotFound(key.name)
        if row.erased:
            raise ConversationIsErased(key.name)
        return row

    def _due(self, time_us: int, namespace: str) -> list[Row]:
        forks = self._table.forks()
        rows = unchanged_rows(self._log, self._table, time_us, namespace=namespace, closed=True)
        return [
            row
            for row in rows
            if not row.archive_file and row.key not in forks and not self._table.possible_forks(row.key)
        ]

    async def _archived(self, rows: Sequence[Row], *, is_any: bool = False) -> Archived:
        """Archive these conversations, and have them purged together."""
        done: list[Row] = []
        for row in rows:
            try:
                if await self._archive(row.key):
                    done.append(row)
            except (DomainError, EventLogError, UnknownEvent) as error:
                if not is_any:
                    raise
                _log.warning(
                    "archive.skipped", conversation_id=row.id, error_type=type(error).__name__, hint=str(error)
                )
        for row in rows if not is_any else done:
            await self._purges.purged(row.key)
        for row in done:
            # Another sidecar was as fast to fork it: forks are folded from it, so it comes back.
            if await asyncio.to_thread(self._table.forks_of, row.key):
                await self._unarchived(row.key)
                done = [each for each in done if each != row]
        return Archived(len(done), sum(row.message_version for row in done))

    async def _archive(self, key: StreamId) -> bool:
        """Write the file, then append the event. Return False if another process was as fast, or the conversation
        changed."""
        if (await self._row(key)).archive_file:
            return False
        await self._purges.purged(key)
        state = (await asyncio.to_thread(replayed, self._log, key)).state
        if state.archive_file:
            return False
        try:
            archive = await asyncio.to_thread(self._folder.write, self._log, key, state.event_version)
        except ArchiveUnusable:
            if (await self._row(key)).archive_file:  # by another process, which has blanked it
                return False
            raise
        event = ConversationArchived(
            conversation_id=key.name,
            messages=state.message_version,
            events=state.event_version,
            **archive._asdict(),
            labels=state.settings.labels,
            title=state.shown_title,
            forked_from=state.ancestors[0].conversation_id if state.ancestors else "",
        )
        require = partial(asyncio.to_thread, self._table.require_no_forks, key)
        try:
            return bool(await self._conversations.end(key, ArchiveConversation(event), require=require))
        except ConversationIsErased:  # the purge may have looked for the file before it was written
            await asyncio.to_thread(self._folder.remove, self._log.log_id, key)
            raise

    async def _unarchived(self, key: StreamId) -> None:
        # The way back goes on if a purge cannot: the content may be in the log all the same, or be blanked once more.
        with suppress(ArchiveUnusable, LogCorrupt):
            await self._purges.purged(key)
        await self._conversations.end(
            key, UnarchiveConversation(), require=nothing_required, before_archiving=partial(self._back, key)
        )

    async def _back(self, key: StreamId) -> Conversation | None:
        """Put the content back in the conversation's turn, in which nobody erases it, and return the state before."""
        row = await self._row(key)
        try:
            if await asyncio.to_thread(self._is_blanked, key):
                await asyncio.to_thread(self._put_back, row)
            return await asyncio.to_thread(self._before, key) if row.archive_file else None
        except (ArchiveUnusable, LogCorrupt):
            # Of another process, which has erased it or taken it back meanwhile.
            if (await self._row(key)).event_version == row.event_version:
                raise
            return await self._back(key)

    def _is_blanked(self, key: StreamId) -> bool:
        """Return whether the log lacks contents: it was purged, and no killed process has put all of them back."""
        return any(event.payload == ERASED for event in recorded_events(self._log, key))

    def _put_back(self, row: Row) -> None:
        """Put the contents that the file has into their places, unless another process has erased the conversation."""
        archived = self._archiving(row.key)
        page: list[RecordedEvent] = []
        size = 0
        for event in self._folder.events(self._log, row.key, archived):
            page.append(event)
            size += len(event.payload)
            if len(page) == PAGE_EVENTS_MAX or size > PAGE_BYTES_MAX:
                self._put(row, page)
                page, size = [], 0
        self._put(row, page)

    def _put(self, row: Row, page: Sequence[RecordedEvent]) -> None:
        if page:
            payloads = {event.version: event.payload for event in page}
            contents = {e.version: content_of(e.type, e.payload) for e in page if _is_as_written(e)}
            self._log.blank(row.key, payloads, contents=contents, expected_version=row.event_version)

    def _before(self, key: StreamId) -> Conversation:
        """The state before the archiving."""
        archived = self._archiving(key)
        events = islice(recorded_events(self._log, key, head=archived.events), archived.events)
        return evolved(self._log, key, initial_state(), events)

    def _archiving(self, key: StreamId) -> ConversationArchived:
        """The event of the archiving. Raises ArchiveUnusable if the log has lost events before it, by a salvage."""
        version, archived = archived_in(self._log, key)
        if version != archived.events + 1:
            raise ArchiveUnusable(
                "the log has lost events of the conversation; `abridged log import` makes a log of the file",
                file=archived.file,
            )
        return archived


def _is_as_written(recorded: RecordedEvent) -> bool:
    """Return whether repeats of the event are known by its content: of a redacted message nobody has it any more."""
    if recorded.type != MessageAppended.__name__:
        return True
    event = decoded(recorded)
    return isinstance(event, MessageAppended) and not is_redacted(event.message)
