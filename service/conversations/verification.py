"""Checks a log as the conversations in it: every stream is walked, folded, and compared with the read table.

Only what the fold determines is compared: `held_by` also depends on the current policy, and the row's seal covers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from eventlog.errors import LogCorrupt
from eventlog.event import SealedEvent, StreamId
from eventlog.sqlite.verification import LogVerification
from service.codec.events import UnknownEvent, decode, sent_content
from service.conversations.replay import originals_of
from service.conversations.snapshots import Snapshot, SqlSnapshots
from service.conversations.table import ConversationTable, ListQuery, is_row_of
from service.domain.conversation import Conversation, initial_state
from service.domain.events import MessageAppended
from service.domain.fold import Originals, fold
from service.domain.ranges import ranges_of

__all__ = ["Damage", "damages"]

RANGES_MAX: Final = 20
"""Ranges of damaged positions that are named of one conversation."""


class Damage(NamedTuple):
    """A damage, and where: `where` is a conversation as `namespace/id`, or empty for the log itself.

    What is `of_table` a rebuild of the read table mends, which writes the file anew; a row that knows of later events
    is not.
    """

    where: str
    what: str
    of_table: bool = False


def damages(
    log: LogVerification,
    table: ConversationTable | None,
    snapshots: SqlSnapshots | None = None,
    *,
    walked: Callable[[int], None],
) -> Iterator[Damage]:
    """Every damaged conversation, usually by its first damage, and what is damaged in the log itself.

    `table` and `snapshots` are None if they cannot be compared, because another version made them. `walked` is called
    with the number of events after each conversation.
    """
    try:
        for finding in log.structure():
            yield Damage("", finding.what, of_table=not finding.is_own)
    except LogCorrupt as error:
        yield Damage("", str(error))
    streams = log.streams()
    done = 0
    for stream, count in sorted(streams.items(), key=str):
        for what, of_table in _of_conversation(log, table, snapshots, stream, count):
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
    log: LogVerification,
    table: ConversationTable | None,
    snapshots: SqlSnapshots | None,
    stream: StreamId,
    count: int,
) -> Iterator[tuple[str, bool]]:
    """What is damaged, and whether that is the read table or a snapshot alone."""
    state, read = initial_state(), originals_of(log, stream)
    taken, damage = _snapshot(snapshots, stream)
    snapshot = taken
    if damage:
        yield damage, True
    ids: dict[bytes, int] = {}
    try:
        for sealed in log.events(stream):
            ids[sealed.event.event_id] = sealed.event.position
            if not log.has_content(sealed, _content(sealed)):
                yield f"position {sealed.event.position}: a repeat would not be known for one", False
            state = _evolved(state, sealed, read)
            if snapshot == Snapshot(state, state.event_version, sealed.event.position, sealed.chain):
                snapshot = None
    except (LogCorrupt, UnknownEvent) as error:
        yield f"{error}{_lost(log, stream, taken, str(error))}", False
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
    if snapshot is not None:
        yield "its snapshot is not the fold of its events", True
    if table is None:
        return
    try:
        row = table.row(stream)
    except LogCorrupt as error:
        yield str(error), True
        return
    if row is None:
        yield "there is no row of it in the read table", True
    elif not is_row_of(row, state, max(ids.values(), default=0)):
        yield "its row in the read table is not the fold of its events", row.event_version <= state.event_version


def _lost(log: LogVerification, stream: StreamId, snapshot: Snapshot | None, known: str) -> str:
    """Which positions are damaged, unless one alone is `known`, and what of the conversation is served all the same."""
    try:
        positions = list(log.damaged_positions(stream))
    except LogCorrupt as error:
        return f"; which positions are damaged is hidden: {error}"
    ranges = ranges_of(positions)
    named = ", ".join(str(r.first) if r.first == r.last else f"{r.first} to {r.last}" for r in ranges[:RANGES_MAX])
    more = f" and {len(ranges) - RANGES_MAX} more" if len(ranges) > RANGES_MAX else ""
    told = "" if known.startswith(f"position {named} ") else f"; damaged: {named}{more}"
    if snapshot is None or not positions or positions[-1] >= snapshot.position:
        return told
    return f"{told}; served from its snapshot at position {snapshot.position} on, until a read meets the damage"


def _snapshot(snapshots: SqlSnapshots | None, stream: StreamId) -> tuple[Snapshot | None, str]:
    """The stream's snapshot, if this version can read it, and what is damaged about it."""
    if snapshots is None:
        return None, ""
    try:
        damaged = snapshots.is_damaged(stream)
        return (None, "its snapshot is not what was written") if damaged else (snapshots.of(stream), "")
    except LogCorrupt as error:
        return None, f"its snapshot: {error}"


def _content(sealed: SealedEvent) -> bytes:
    is_message = sealed.event.type == MessageAppended.__name__
    return sent_content(sealed.event.payload) if is_message else sealed.event.payload


def _evolved(state: Conversation, sealed: SealedEvent, read: Originals) -> Conversation:
    stored = sealed.event
    event = decode(stored.type, stored.schema_version, stored.payload)
    return fold([(event, stored.time_us)], state, originals=read)
