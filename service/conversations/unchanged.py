"""The conversations to which nothing was written for a time, by their rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import structlog

from abridged.eventlog.errors import LogCorrupt
from abridged.eventlog.log import EventLog
from abridged.eventlog.salvage import VACANT
from abridged.service.conversations.row import Row
from abridged.service.conversations.table import ConversationTable, ListQuery

ROWS_PAGE = 500

_log = structlog.get_logger()


def unchanged_rows(
    log: EventLog, table: ConversationTable, time_us: int, *, namespace: str = "", closed: bool | None = None
) -> Iterator[Row]:
    """Rows of conversations that have not changed since, of one namespace or of all that can be listed. Raises
    LogCorrupt."""
    query = ListQuery(namespace, ROWS_PAGE, first_since(log, time_us), closed=closed, changed_before_us=time_us)
    if namespace:
        yield from table.listed(query)
        return
    for each in table.namespaces():
        if each == VACANT:  # what a salvage names there is nobody's text
            continue
        try:
            rows = list(table.listed(replace(query, namespace=each)))
        except LogCorrupt as error:
            _log.warning("unchanged.skipped", namespace=each, error_type=type(error).__name__, hint=str(error))
            continue
        yield from rows


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
    was set back makes it any position between an earlier event and one that is not, damage the one after the last."""
    first, end = 1, log.head() + 1
    while first < end:
        middle = (first + end) // 2
        try:
            (event,) = log.scan(after=middle - 1, limit=1).events
        except LogCorrupt:
            return log.head() + 1
        first, end = (middle + 1, end) if event.time_us < time_us else (first, middle)
    return first
