"""The conversations to which nothing was written for a time, by their rows."""

from __future__ import annotations

from collections.abc import Iterator

from abridged.eventlog.log import EventLog
from abridged.eventlog.salvage import VACANT
from abridged.service.conversations.row import Row
from abridged.service.conversations.table import ConversationTable, ListQuery

ROWS_PAGE = 500


def unchanged_rows(
    log: EventLog, table: ConversationTable, time_us: int, *, namespace: str = "", closed: bool | None = None
) -> Iterator[Row]:
    """Rows of conversations that have not changed since, of one namespace or of all. Raises LogCorrupt."""
    before = first_since(log, time_us)
    for each in (namespace,) if namespace else table.namespaces():
        if each != VACANT:  # what a salvage names there is nobody's text
            yield from table.listed(ListQuery(each, ROWS_PAGE, before, closed=closed, changed_before_us=time_us))


def unused_rows(log: EventLog, table: ConversationTable, time_us: int) -> Iterator[Row]:
    """Rows of conversations of which no caller changed any since, whatever passes that fail have written to them.

    Others are found once nothing else has changed them either. Raises LogCorrupt.
    """
    yield from unchanged_rows(log, table, time_us)
    for row in table.written_to():
        if row.namespace != VACANT and not row.erased and row.used_us < time_us:
            yield row


def first_since(log: EventLog, time_us: int) -> int:
    """The position of the first event that was written at this time or later, or the one after the last. A clock that
    was set back makes it any position between an earlier event and one that is not."""
    first, end = 1, log.head() + 1
    while first < end:
        middle = (first + end) // 2
        (event,) = log.scan(after=middle - 1, limit=1).events
        first, end = (middle + 1, end) if event.time_us < time_us else (first, middle)
    return first
