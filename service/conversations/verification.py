"""Checks a log as the conversations in it: every stream is walked, folded, and compared with the read table.

Only what the fold determines is compared: `held_by` also depends on the current policy, and the row's seal covers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from abridged.eventlog.chain import is_blanked
from abridged.eventlog.encryption.framing import is_encrypted
from abridged.eventlog.errors import KeyLost, LogCorrupt
from abridged.eventlog.event import SealedEvent, StreamId
from abridged.eventlog.rows import Fault
from abridged.eventlog.verification import FAILURES_MAX, RANGES_MAX, LogVerification, Loss, Ranges, listed
from abridged.service.codec.events import ERASED, ERASING, UnknownEvent, content_of
from abridged.service.conversations.replay import PAGE_EVENTS, evolved
from abridged.service.conversations.row import Row
from abridged.service.conversations.snapshots import ConversationSnapshots, Snapshot
from abridged.service.conversations.table import ConversationTable, ListQuery, is_row_of
from abridged.service.domain.conversation import initial_state
from abridged.service.domain.events import ConversationErased, ConversationUnarchived


class Damage(NamedTuple):
    """A damage, and where: `where` is a conversation as `namespace/id`, or empty for the log itself.

    A rebuild of the read table, which writes the file anew, mends damage that is `of_table`; a row that knows of later
    events is not. `is_lost` is true of a conversation some of whose events are not there, as they were written.
    """

    where: str
    what: str
    of_table: bool = False
    is_lost: bool = False


class Service(NamedTuple):
    """A sidecar's service of a file: the reason for which it does not start, or else the hazard at an append."""

    refusal: str
    hazard: str


def damages(
    log: LogVerification,
    table: ConversationTable | None,
    snapshots: ConversationSnapshots | None = None,
    *,
    walked: Callable[[int], None],
    unread: Callable[[StreamId, str], None] = lambda _stream, _lost: None,
) -> Iterator[Damage]:
    """Every damaged conversation, usually by its first damage, and what is damaged in the log itself.

    `table` and `snapshots` are None if they cannot be compared, because another version made them. `walked` is called
    with the number of events after each conversation, and `unread` with each whose contents are encrypted, and whose
    key is not there or was erased: its chain is checked, and no more. The text that comes with it tells of a lost key.
    Memory holds what is served of one conversation and, of each stream, its name and a few ranges.
    """
    try:
        for finding in log.structure():
            yield Damage("", finding.what, of_table=not finding.is_own)
    except LogCorrupt as error:
        yield Damage("", str(error))
    streams = log.streams()
    suspects: dict[StreamId, str] = {}
    done = 0
    for stream, count in sorted(streams.items(), key=str):
        for damage in _of_conversation(log, table, snapshots, stream, count, unread):
            if damage.is_lost:
                suspects[stream] = damage.what
            else:
                yield damage
        done += count
        walked(done)
    for stream, loss in log.losses({stream: _end(table, stream) for stream in suspects}) if suspects else ():
        yield _suspected(log, snapshots, stream, suspects[stream], loss)
    if log.gave_up:
        yield Damage("", f"{FAILURES_MAX:,} reads have failed, and no more was read: more may be lost than is named")
    if table is None:
        return
    unlisted = 0
    for namespace in sorted({str(stream.namespace) for stream in streams}):
        try:
            table.page(ListQuery(namespace, limit=1))
        except LogCorrupt as error:
            unlisted += 1
            if unlisted <= RANGES_MAX:
                yield Damage("", f"the read table of namespace {namespace}: {error}", of_table=True)
    if unlisted > RANGES_MAX:
        yield Damage("", f"the read table of {unlisted - RANGES_MAX:,} more namespaces", of_table=True)


def service_of(log: LogVerification, table: ConversationTable | None) -> Service:
    """Judge how a sidecar serves the file: read the pages that its start reads, and those that appends write to.

    `table` is None if the read table has a fault.
    """
    refusal = hazard = ""
    try:
        log.require_start()
        if log.fault in (Fault.NEWER, Fault.DAMAGED):
            raise LogCorrupt(f"the read table {log.fault}")
        _require_rows(log, table)
        hazard = log.append_hazard()
    except LogCorrupt as error:
        refusal = str(error)
    return Service(refusal, hazard)


def _require_rows(log: LogVerification, table: ConversationTable | None) -> None:
    try:
        log.require_same_head()
        if table is not None:
            table.attention()
            table.calibrations()
            table.purging()
    except LogCorrupt as error:
        raise LogCorrupt(f"the read table: {error}") from error


class _Contents:
    """The events of a stream whose content was taken out though no later event says so, and those that have theirs
    though a later one erases it. Archived events may have theirs: a process was killed while it put them back."""

    def __init__(self) -> None:
        self.taken_out, self.put_back, self._readable = Ranges(RANGES_MAX), Ranges(RANGES_MAX), Ranges(RANGES_MAX)
        self._unreadable = Ranges(RANGES_MAX)

    def add(self, sealed: SealedEvent) -> None:
        """Note the next event."""
        event = sealed.event
        if is_blanked(sealed.salt):
            self.taken_out.add(event.position)
        elif event.type in ERASING:
            self.taken_out = Ranges(RANGES_MAX)
            if event.type == ConversationErased.__name__:
                self.put_back, self._readable = self._readable, Ranges(RANGES_MAX)
        elif event.type == ConversationUnarchived.__name__:
            self.taken_out, self._unreadable = self._unreadable, Ranges(RANGES_MAX)
        (self._unreadable if event.payload == ERASED else self._readable).add(event.position)


def _of_conversation(
    log: LogVerification,
    table: ConversationTable | None,
    snapshots: ConversationSnapshots | None,
    stream: StreamId,
    count: int,
    unread: Callable[[StreamId, str], None],
) -> Iterator[Damage]:
    where = f"{stream.namespace}/{stream.name}"
    state = initial_state()
    snapshot, damage = _snapshot(snapshots, stream)
    if damage:
        yield Damage(where, damage, of_table=True)
    version = position = 0
    is_readable, lost = True, ""
    repeatable, contents = Ranges(RANGES_MAX), _Contents()
    unknown: LogCorrupt | None = None
    try:
        for page in log.pages(stream):
            for sealed in page:
                version, position = sealed.event.version, sealed.event.position
                try:
                    event = log.in_clear(sealed.event) if is_readable else None
                except KeyLost as error:
                    event, lost = None, str(error)
                if event is None:
                    is_readable = False
                    continue
                if not log.has_content(sealed, content_of(event.type, event.payload)):
                    repeatable.add(position)
                contents.add(sealed)
                state = evolved(log, stream, state, (event,))
                if snapshot == Snapshot(state, version, position, sealed.chain):
                    snapshot = None
            unknown = unknown or _unknown(log, stream, page)
    except LogCorrupt as error:
        yield Damage(where, str(error), is_lost=True)
        return
    except UnknownEvent as error:
        yield Damage(where, str(error))
        return
    if version != count:
        yield Damage(where, f"{count} events are stored, and {version} can be read", is_lost=True)
        return
    if not is_readable:
        unread(stream, lost)
        yield from _of_row(table, stream, lambda row: _ends_at(row, version, position), version)
        return
    if repeatable.count:
        named = listed(repeatable.kept, repeatable.dropped)
        yield Damage(where, f"position {named}: sent again, it would be appended a second time")
    if contents.taken_out.count:
        named = listed(contents.taken_out.kept, contents.taken_out.dropped)
        yield Damage(where, f"position {named}: its content was taken out, and no later event says so")
        return
    if contents.put_back.count and not state.purge_due:
        named = listed(contents.put_back.kept, contents.put_back.dropped)
        yield Damage(where, f"position {named}: its content was erased, and is there again")
    if unknown is not None:
        yield Damage(where, f"{unknown}; {_INTACT.format(version)}")
        return
    if snapshot is not None:
        yield Damage(where, "its snapshot is not the fold of its events", of_table=True)

    def fits(row: Row) -> bool:
        # Encrypted still is one of an erasure before its purge, unread one of a key that has been put back since.
        still = is_encrypted(row.settings) or row.is_unread
        return _ends_at(row, version, position) if still else is_row_of(row, state, position)

    yield from _of_row(table, stream, fits, state.event_version)


def _ends_at(row: Row, version: int, position: int) -> bool:
    return (row.event_version, row.position) == (version, position)


def _of_row(
    table: ConversationTable | None, stream: StreamId, fits: Callable[[Row], bool], version: int
) -> Iterator[Damage]:
    """The damage to a conversation's row in the read table, which `fits` its events up to this version or does not."""
    if table is None:
        return
    where = f"{stream.namespace}/{stream.name}"
    try:
        row = table.row(stream)
    except LogCorrupt as error:
        yield Damage(where, str(error), of_table=True)
        return
    if row is None:
        yield Damage(where, "there is no row of it in the read table", of_table=True)
    elif not fits(row):
        what = "its row in the read table is not the fold of its events"
        is_lost = row.event_version > version
        yield Damage(where, what, of_table=not is_lost, is_lost=is_lost)


def _unknown(log: LogVerification, stream: StreamId, page: Iterable[SealedEvent]) -> LogCorrupt | None:
    """The reason why a repeat of these events would be taken for new, if it would."""
    ids = {sealed.event.event_id: sealed.event.position for sealed in page}
    try:
        known = log.known_ids(stream, ids) == ids
    except LogCorrupt as error:
        return error
    return None if known else LogCorrupt("the index of event ids is not what was written")


_INTACT = "its {:,} events are intact, and what leads to them is damaged"


def _suspected(
    log: LogVerification, snapshots: ConversationSnapshots | None, stream: StreamId, error: str, loss: Loss
) -> Damage:
    """The damage of a stream: the positions that are damaged, unless one alone is known, and what of the conversation
    is served all the same."""
    where = f"{stream.namespace}/{stream.name}"
    if loss.is_empty and not log.gave_up:
        return Damage(where, f"{error}; {_INTACT.format(loss.intact)}")
    named = listed(loss.ranges, loss.more)
    what = error if not named or error.startswith(f"position {named} ") else f"{error}; damaged: {named}"
    if loss.unplaced:
        return Damage(
            where, f"{what}; {loss.unplaced:,} more of its events are in no page that can be read", is_lost=True
        )
    snapshot, _ = _snapshot(snapshots, stream)
    if snapshot is not None and loss.last < snapshot.position and _is_read(log, stream, snapshot.event_version):
        what += f"; served from its snapshot at position {snapshot.position} on, until a read meets the damage"
    return Damage(where, what, is_lost=True)


def _is_read(log: LogVerification, stream: StreamId, version: int) -> bool:
    """Return whether a stream can be read from the event with this version to its end."""
    after = version - 1
    try:
        while page := log.read_sealed(stream, after=after, limit=PAGE_EVENTS):
            after = page[-1].event.version
    except LogCorrupt:
        return False
    return after >= version


def _end(table: ConversationTable | None, stream: StreamId) -> int:
    """The number of events that a stream has according to its row; 0 if no row can be read."""
    try:
        row = table.row(stream) if table is not None else None
    except LogCorrupt:
        return 0
    return row.event_version if row is not None else 0


def _snapshot(snapshots: ConversationSnapshots | None, stream: StreamId) -> tuple[Snapshot | None, str]:
    """The stream's snapshot, if this version can read it, and what is damaged about it."""
    if snapshots is None:
        return None, ""
    try:
        damaged = snapshots.stored.is_damaged(stream)
        return (None, "its snapshot is not what was written") if damaged else (snapshots.of(stream), "")
    except LogCorrupt as error:
        return None, f"its snapshot: {error}"
