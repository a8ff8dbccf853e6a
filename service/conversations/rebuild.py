"""Rebuilds the read table from its log, conversation by conversation, in batches of rows.

A rebuild starts with an empty table, and the last batch marks it complete, so an interrupted rebuild starts over.
Memory holds one conversation, a batch of rows and a page of names, however long the log is.

The snapshots of conversations that were read to their end go, because their events make better ones. Snapshots of other
conversations may be all that is left of their state: they are set aside.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import structlog

from abridged.eventlog.errors import KeyLost, LogCorrupt, StreamCorrupt
from abridged.eventlog.event import StreamId
from abridged.eventlog.log import EventLog
from abridged.eventlog.rows import StoredRows
from abridged.eventlog.snapshots import NotSetAside, Snapshots
from abridged.service.codec.events import UnknownEvent
from abridged.service.conversations.figures import figures_of, is_erased_since
from abridged.service.conversations.replay import Replayed, replayed, require_known
from abridged.service.conversations.row import Row
from abridged.service.conversations.table import ConversationTable
from abridged.service.conversations.unread_forks import UnreadForks

BATCH_ROWS = 256
"""Rows per transaction: as many as one statement takes."""


class Rebuilt(NamedTuple):
    """The result of a rebuild; `left_out` conversations cannot be read: they have no row, or if a key is lost one with
    their figures alone."""

    conversations: int
    events: int
    left_out: int


class RebuildReport(NamedTuple):
    """Called on the rebuild's thread with events done and their total, with each unreadable stream, and with each of
    them that has snapshots set aside, and the version of the newest."""

    walked: Callable[[int, int], None] = lambda _done, _total: None
    left_out: Callable[[StreamId, Exception], None] = lambda _stream, _error: None
    kept: Callable[[StreamId, int], None] = lambda _stream, _version: None


_UNHEARD = RebuildReport()
_log = structlog.get_logger()


class Rebuild:
    """Rebuilds the `rows` of a table; called once, in a thread, before anything is appended."""

    def __init__(self, log: EventLog, table: ConversationTable, rows: StoredRows[Row], snapshots: Snapshots) -> None:
        self._log = log
        self._table = table
        self._rows = rows
        self._snapshots = snapshots
        self._done = 0

    @property
    def is_due(self) -> bool:
        """True if the table cannot be read until this has run."""
        return not self._rows.is_complete

    def reason(self) -> str:
        """The progress, for callers who ask why nothing is served; empty once it is done."""
        return f"made again from the log: {self._done:,} of {self._log.head():,} events" if self.is_due else ""

    def __call__(self, report: RebuildReport = _UNHEARD) -> Rebuilt:
        """Read the whole log and write all rows.

        An unreadable conversation gets no row: like any damaged one it is refused on request, and the next start tries
        again. One whose key is lost, or was erased since this copy of the log was made, gets a row with its figures, by
        which it is listed and erased, until then. Raises
        LogCorrupt if events belong to no stream that can be found, and errors of reading and writing; the table then
        stays incomplete.
        """
        head = self._log.head()
        conversations = unread = 0
        left_out: dict[StreamId, int] = {}
        forks = UnreadForks(self._log)
        batch: list[Row] = []
        for stream in self._rows.streams():
            conversations += 1
            try:
                row = self._row(stream)
            except (LogCorrupt, UnknownEvent, KeyLost) as error:
                unread += 1
                report.left_out(stream, error)
                if version := self._beside(partial(self._snapshots.set_aside, stream)):
                    report.kept(stream, version)
                found = self._unread(stream, error, forks)
                if found is None:
                    left_out[stream] = error.version if isinstance(error, StreamCorrupt) else 0
                    continue
                row = found
            batch.append(row)
            self._done += row.event_version
            report.walked(self._done, head)
            if len(batch) == BATCH_ROWS:
                self._insert(batch)
                batch = []
        self._insert(batch)
        if not left_out and (self._done, conversations) != (head, self._rows.stream_count()):
            raise LogCorrupt(
                f"of {head} events {self._done} are found in {conversations} streams; `abridged log verify` says more"
            )
        self._beside(self._snapshots.set_aside_rest)
        self._table.unread_forks = forks
        self._rows.complete(left_out=left_out, for_now=unread > len(left_out))
        return Rebuilt(conversations - unread, self._done, unread)

    def _row(self, stream: StreamId) -> Row:
        found = self._whole(stream, replayed(self._log, stream))
        return self._table.row_of(stream, found.state, found.position)

    def _unread(self, stream: StreamId, error: Exception, forks: UnreadForks) -> Row | None:
        """Return the row of a conversation that cannot be read, if it gets one, and note it in `forks` if it is a fork
        and has none that says of which."""
        row, fork = None, forks.found(stream, error)
        parent = fork.parent if fork is not None else ""
        with suppress(LogCorrupt, UnknownEvent, KeyLost):
            if isinstance(error, KeyLost) or is_erased_since(self._log, stream):
                figures = self._whole(stream, figures_of(self._log, stream))
                row = self._table.unread_row_of(stream, figures.state, figures.position, parent)
        if fork is not None and (row is None or not parent):
            forks.add(stream, fork)
        return row

    def _whole(self, stream: StreamId, found: Replayed) -> Replayed:
        if not found.positions:
            raise LogCorrupt("a stream without events")
        require_known(self._log, stream, found.positions)
        return found

    def _insert(self, rows: list[Row]) -> None:
        if rows:
            proven = {StreamId(row.namespace, row.id): row.event_version for row in rows if not row.is_unread}
            self._rows.insert(rows)
            self._beside(partial(self._snapshots.drop_proven, proven))

    def _beside(self, change: Callable[[], int]) -> int:
        """Change the snapshots; a change that fails leaves them as they are, and returns 0."""
        try:
            return change()
        except NotSetAside as error:
            _log.warning("snapshot.not_set_aside", error_type=type(error.__cause__).__name__, hint=str(error))
            return 0
