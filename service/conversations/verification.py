"""Checks a log as the conversations in it: every stream is walked, folded, and compared with the read table.

Only what the fold determines is compared: `held_by` also depends on the current policy, and the row's seal covers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from eventlog.errors import LogCorrupt
from eventlog.event import SealedEvent, StreamId
from eventlog.sqlite.verification import LogVerification
from service.codec.events import UnknownEvent, decode, sent_content
from service.codec.values import settings_to_bytes
from service.conversations.replay import originals_of
from service.conversations.row import Row
from service.conversations.table import ConversationTable, ListQuery, row_of
from service.domain.conversation import Conversation, initial_state
from service.domain.events import MessageAppended
from service.domain.fold import Originals, fold

__all__ = ["Damage", "damages"]


class Damage(NamedTuple):
    """A damage, and where: `where` is a conversation as `namespace/id`, or empty for the log itself.

    What is `of_table` a rebuild of the read table mends, which writes the file anew; a row that knows of later events
    is not.
    """

    where: str
    what: str
    of_table: bool = False


def damages(
    log: LogVerification, table: ConversationTable | None, *, walked: Callable[[int], None]
) -> Iterator[Damage]:
    """Every damaged conversation, usually by its first damage, and what is damaged in the log itself.

    `table` is None if it cannot be compared, because another version made it. `walked` is called with the number of
    events after each conversation.
    """
    try:
        for finding in log.structure():
            yield Damage("", finding.what, of_table=not finding.is_own)
    except LogCorrupt as error:
        yield Damage("", str(error))
    streams = log.streams()
    done = 0
    for stream, count in sorted(streams.items(), key=str):
        for what, of_table in _of_conversation(log, table, stream, count):
            yield Damage(f"{stream.namespace}/{stream.name}", what, of_table)
        done += count
        walked(done)
    if table is None:
        return
    for namespace in sorted({str(stream.namespace) for stream in streams}):
        try:
            table.page(ListQuery(namespace, limit=1))
        except LogCorrupt as error:
            yield Damage("", f"the read table of namespace {namespace}: {error}", of_table=True)


def _of_conversation(
    log: LogVerification, table: ConversationTable | None, stream: StreamId, count: int
) -> Iterator[tuple[str, bool]]:
    """What is damaged, and whether that is the read table alone."""
    state, read = initial_state(), originals_of(log, stream)
    ids: dict[bytes, int] = {}
    try:
        for sealed in log.events(stream):
            ids[sealed.event.event_id] = sealed.event.position
            if not log.has_content(sealed, _content(sealed)):
                yield f"position {sealed.event.position}: a repeat would not be known for one", False
            state = _evolved(state, sealed, read)
    except (LogCorrupt, UnknownEvent) as error:
        yield str(error), False
        return
    if len(ids) != count:
        yield f"{count} events are stored, and {len(ids)} can be read", False
        return
    try:
        if log.reader.known_ids(stream, ids) != ids:
            yield "the index of event ids is not what was written", False
    except LogCorrupt as error:
        yield str(error), False
        return
    if table is None:
        return
    try:
        row = table.row(stream)
    except LogCorrupt as error:
        yield str(error), True
        return
    expected = row_of(stream, state, max(ids.values(), default=0), settings_to_bytes(state.settings), None)
    if row is None:
        yield "there is no row of it in the read table", True
    elif _compared(row) != _compared(expected):
        yield "its row in the read table is not the fold of its events", row.event_version <= expected.event_version


def _content(sealed: SealedEvent) -> bytes:
    is_message = sealed.event.type == MessageAppended.__name__
    return sent_content(sealed.event.payload) if is_message else sealed.event.payload


def _evolved(state: Conversation, sealed: SealedEvent, read: Originals) -> Conversation:
    stored = sealed.event
    event = decode(stored.type, stored.schema_version, stored.payload)
    return fold([(event, stored.time_us)], state, originals=read)


def _compared(row: Row) -> Row:
    return row._replace(held_by="", seal=b"")
