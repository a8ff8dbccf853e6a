"""Rebuilds the read table from its log, conversation by conversation, in batches of rows.

It starts with an empty table, and the last batch marks it complete, so an interrupted rebuild starts over. Memory holds
one conversation, a batch of rows and a page of names, however long the log is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from eventlog.errors import LogCorrupt
from eventlog.event import StreamId
from eventlog.log import EventLog
from service.codec.events import UnknownEvent
from service.conversations.replay import replayed, require_known
from service.conversations.row import Row
from service.conversations.sql_table import SqlConversationTable

__all__ = ["BATCH_ROWS", "Rebuild", "RebuildReport", "Rebuilt"]

BATCH_ROWS = 256
"""Rows per transaction: as many as one statement takes."""

Write = Callable[[Callable[[Any], None]], None]
"""Runs a function in a transaction of the log's database."""


class Rebuilt(NamedTuple):
    """The result of a rebuild; `left_out` conversations have no row, because their streams cannot be read."""

    conversations: int
    events: int
    left_out: int


class RebuildReport(NamedTuple):
    """Called on the rebuild's thread with events done and their total, and with each unreadable stream."""

    walked: Callable[[int, int], None] = lambda _done, _total: None
    left_out: Callable[[StreamId, Exception], None] = lambda _stream, _error: None


_UNHEARD = RebuildReport()


class Rebuild:
    """Rebuilds the rows of one table; called once, in a thread, before anything is appended."""

    def __init__(self, log: EventLog, table: SqlConversationTable, write: Write) -> None:
        self._log = log
        self._table = table
        self._write = write
        self._done = 0

    @property
    def is_due(self) -> bool:
        """Whether the table cannot be read until this has run."""
        return not self._table.is_complete

    def reason(self) -> str:
        """The progress, for callers who ask why nothing is served; empty once it is done."""
        return f"made again from the log: {self._done:,} of {self._log.head():,} events" if self.is_due else ""

    def __call__(self, report: RebuildReport = _UNHEARD) -> Rebuilt:
        """Read the whole log and write all rows.

        An unreadable conversation gets no row: like any damaged one it is refused on request, and the next start tries
        again. Raises LogCorrupt if events belong to no stream that can be found, and errors of reading and writing; the
        table then stays incomplete.
        """
        head = self._log.head()
        conversations = 0
        left_out: set[StreamId] = set()
        batch: list[Row] = []
        for stream in self._streams():
            conversations += 1
            try:
                row = self._row(stream)
            except (LogCorrupt, UnknownEvent) as error:
                left_out.add(stream)
                report.left_out(stream, error)
                continue
            batch.append(row)
            self._done += row.event_version
            report.walked(self._done, head)
            if len(batch) == BATCH_ROWS:
                self._insert(batch)
                batch = []
        self._insert(batch)
        if not left_out and (self._done, conversations) != (head, self._table.stream_count()):
            raise LogCorrupt(
                f"of {head} events {self._done} are found in {conversations} streams; `abridged log verify` says more"
            )
        self._write(lambda transaction: self._table.complete(transaction, left_out=left_out))
        return Rebuilt(conversations - len(left_out), self._done, len(left_out))

    def _streams(self) -> Iterator[StreamId]:
        last = 0
        while page := self._table.streams(last):
            yield from page.values()
            last = max(page)

    def _row(self, stream: StreamId) -> Row:
        found = replayed(self._log, stream)
        if not found.positions:
            raise LogCorrupt("a stream without events")
        require_known(self._log, stream, found.positions)
        return self._table.row_of(stream, found.state, found.position)

    def _insert(self, rows: list[Row]) -> None:
        if rows:
            self._write(lambda transaction: self._table.insert(transaction, rows))
