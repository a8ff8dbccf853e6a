"""The one connection that writes and checkpoints, used by one thread at a time.

A group of appends is one transaction, BEGIN IMMEDIATE to COMMIT, and COMMIT returns once it is flushed. The writer
changes what it keeps in memory between groups (head, newest events of recent streams) only after that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from abridged.eventlog.admission import Admitted, KnownEvent, KnownRequest, StreamState, admit
from abridged.eventlog.chain import LogIdentity, genesis
from abridged.eventlog.errors import EventLogError, LogCorrupt, LogFailed, LogFull, LogGone, LogUnavailable
from abridged.eventlog.event import StreamId
from abridged.eventlog.log import Append, AppendHook, AppendResult, Outcome
from abridged.eventlog.sqlite.connection import BEGIN_IMMEDIATE, BUSY_WAIT_MS, transaction
from abridged.eventlog.sqlite.database import has_newest_revision, raise_revision
from abridged.eventlog.sqlite.errors import is_read_only, no_room, translated
from abridged.eventlog.sqlite.file import NO_ROOM, OpenFiles, has_room, wal_of
from abridged.eventlog.sqlite.schema import events, requests, streams, types
from abridged.eventlog.sqlite.sql import (
    insert_into,
    runs,
    select_known_events,
    select_known_requests,
    select_streams,
)
from abridged.eventlog.sqlite.table import Table
from abridged.eventlog.stored_event import event_row

WAL_BYTES_MAX = 48 << 20
"""The size past which the writer waits for readers to move on and truncates the write-ahead log."""

WAL_LOOK_BYTES = 1 << 18
"""Payload written between two checks of its size: each is a system call, and commits are far more frequent."""

TRUNCATE_AGAIN_BYTES = 8 << 20
"""Payload written before the next attempt if a reader was in the way: an attempt may wait CHECKPOINT_WAIT_MS."""

CHECKPOINT_WAIT_MS = 100

STREAMS_KEPT_MAX = 10_000
"""Streams whose newest event is cached; any other costs a look-up."""

T = TypeVar("T")

_LAST_POSITION = "SELECT coalesce(max(position), 0) FROM events"
_TYPES = "SELECT name, id FROM types"
_LAST_STREAM = "SELECT coalesce(max(id), 0) FROM streams"
_CHECKPOINT = "PRAGMA wal_checkpoint(TRUNCATE)"
_DROP_PAGES = "PRAGMA shrink_memory"
_BUSY_TIMEOUT = "PRAGMA busy_timeout = {}"


class _Tip(NamedTuple):
    """A stream's number and its newest event; version 0 if this group creates the stream."""

    number: int
    version: int
    chain: bytes


_States = dict[StreamId, StreamState]
_Judged = tuple[_States, Admitted]
_Judge = Callable[[Sequence[Append], dict[StreamId, _Tip]], _Judged]
"""Decides on a group of appends, and returns the streams' states after it."""


class Ends(NamedTuple):
    """The state that a writer begins with: the numbers of event types by name, the last stream's number, the last
    position."""

    types: dict[str, int]
    last_stream: int
    head: int


def ends_of(connection: sqlite3.Connection) -> Ends:
    """The ends of the log as they are on disk. Raises what SQLite raises for a damaged page."""
    return Ends(
        dict(connection.execute(_TYPES).fetchall()),
        connection.execute(_LAST_STREAM).fetchone()[0],
        connection.execute(_LAST_POSITION).fetchone()[0],
    )


class _HookRefused(Exception):
    """The hook raised its own error, which is neither the database's nor the log's."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class SqliteWriter:
    """Commits groups of appends. `fatal` is called once, with an error after which nothing may be acknowledged.

    `flush_found` flushes what a killed process left, if there was no room for that when the log was opened. No group is
    written before it has succeeded.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        path: Path,
        identity: LogIdentity,
        hook: AppendHook | None,
        clock_us: Callable[[], int],
        fatal: Callable[[EventLogError], None],
        flush_found: Callable[[], None] | None,
    ) -> None:
        self._connection = connection
        self._path = path
        self._wal = wal_of(path)
        self._files = OpenFiles(path)
        self._has_room = partial(has_room, path)
        self._identity = identity
        self._hook = hook
        self._clock_us = clock_us
        self._fatal = fatal
        self._flush_found = flush_found
        self._failed: EventLogError | None = None
        self._payload_bytes = 0
        self._next_look = 0
        self._tips: dict[StreamId, _Tip] = {}
        self._types, self._last_stream, self.head = ends_of(connection)
        self._has_newest_revision = has_newest_revision(connection)

    def commit(self, appends: Sequence[Append]) -> Sequence[Outcome]:
        """Write the admissible appends of the group and flush them; returns one outcome per append, in order."""
        if self._failed is not None:
            return [_again(self._failed) for _ in appends]
        try:
            self._require_flushed()
            try:
                return self._transaction(appends, self._taken_for_new)
            except sqlite3.IntegrityError:  # an id or a key that was taken for new is on disk
                return self._transaction(appends, self._looked_up)
        except _HookRefused as refused:
            if len(appends) == 1:
                return [refused.reason]
            return [outcome for append in appends for outcome in self.commit([append])]
        except LogGone as gone:
            self._stop(gone)
            return [LogGone(str(gone)) for _ in appends]
        except (LogFull, LogFailed) as refusal:
            return [type(refusal)(str(refusal)) for _ in appends]
        except (sqlite3.IntegrityError, LogCorrupt) as error:
            # The look-up and the constraint disagree, or the look-up found something else: damage.
            if len(appends) == 1:
                return [LogCorrupt(f"the log's indexes contradict each other: {error}")]
            return [outcome for append in appends for outcome in self.commit([append])]
        except sqlite3.Error as error:
            return [self._translated(error) for _ in appends]

    def write(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run `query` in its own transaction. Raises what an append would fail with, but LogUnavailable for a file that
        can only be read: nothing is in doubt, and appends find out by themselves."""
        if self._failed is not None:
            raise _again(self._failed)
        try:
            self._require_flushed()
            with transaction(self._connection, BEGIN_IMMEDIATE):
                written = query(self._connection)
            self._files.check()
        except LogGone as gone:
            self._stop(gone)
            raise
        except sqlite3.Error as error:
            if is_read_only(error):
                raise LogUnavailable("the file can only be read") from error
            raise self._translated(error) from error
        return written

    def checkpoint(self) -> bool:
        """Copy the write-ahead log into the file and truncate it; False if a reader was in the way."""
        if self._failed is not None or self._flush_found is not None:
            return False
        try:
            self._files.check()
            self._connection.execute(_BUSY_TIMEOUT.format(CHECKPOINT_WAIT_MS))
            try:
                busy: int = self._connection.execute(_CHECKPOINT).fetchone()[0]
            finally:
                self._connection.execute(_BUSY_TIMEOUT.format(BUSY_WAIT_MS))
            if not busy:
                self._files.wal_was_cut()
        except LogGone as gone:
            self._stop(gone)
            return False
        except sqlite3.Error as error:
            self._translated(error)
            return False
        return busy == 0

    def purge(self, zero: Callable[[], None]) -> bool:
        """Cut the write-ahead log to nothing, run `zero` on the file while nobody can write to it, and drop the pages
        in memory, which have what it overwrote; False if a reader was in the way. Raises as `write` does."""
        if not self.checkpoint():
            return False

        def alone(_connection: sqlite3.Connection) -> None:
            if self._wal.stat().st_size:
                raise LogUnavailable("another program writes to the log")
            zero()

        self.write(alone)
        self._connection.execute(_DROP_PAGES)
        return True

    def close(self) -> None:
        """Checkpoint, except after a failure: copying half of the write-ahead log would ruin the file.

        Call it while the log's readers are open, because the last connection to close checkpoints by itself.
        """
        self.checkpoint()
        if self._failed is not None:
            self._connection.close()

    def bound_wal(self) -> None:
        """Keep the write-ahead log under its limit; if a reader is in the way, retry after more payload."""
        if self._failed is not None or self._payload_bytes < self._next_look:
            return
        self._next_look = self._payload_bytes + WAL_LOOK_BYTES
        if self._wal.stat().st_size >= WAL_BYTES_MAX and not self.checkpoint():
            self._next_look = self._payload_bytes + TRUNCATE_AGAIN_BYTES

    def _transaction(self, appends: Sequence[Append], judge: _Judge) -> Sequence[Outcome]:
        with transaction(self._connection, BEGIN_IMMEDIATE):
            tips = self._find(appends)
            states, admitted = judge(appends, tips)
            numbers = self._numbers(admitted)
            self._write(admitted, tips, numbers)
            if self._hook is not None and admitted.committed:
                self._call_hook(self._hook, admitted)
            self._files.check()
        # Again, because a file may have disappeared during the flush.
        self._files.check()
        self._remember(states, tips)
        self._types = numbers
        self.head += len(admitted.events)
        self._has_newest_revision = self._has_newest_revision or bool(admitted.events)
        self._payload_bytes += sum(len(sealed.event.payload) for sealed in admitted.events)
        return admitted.outcomes

    def _taken_for_new(self, appends: Sequence[Append], tips: dict[StreamId, _Tip]) -> _Judged:
        """Nearly all ids and keys are new. One that is not breaks a constraint when written, and nothing stays.

        No append is refused without a look-up, because a known id outranks a wrong version.
        """
        states = _unasked(tips)
        admitted = self._admitted(appends, states)
        if all(isinstance(outcome, AppendResult) for outcome in admitted.outcomes):
            return states, admitted
        return self._looked_up(appends, tips)

    def _looked_up(self, appends: Sequence[Append], tips: dict[StreamId, _Tip]) -> _Judged:
        states = self._states(appends, tips)
        return states, self._admitted(appends, states)

    def _admitted(self, appends: Sequence[Append], states: _States) -> Admitted:
        return admit(
            appends,
            states,
            head=self.head,
            time_us=self._clock_us(),
            identity=self._identity,
        )

    def _require_flushed(self) -> None:
        """Raise LogFull while there is no room to flush what was found, and stop the log if that fails otherwise."""
        if self._flush_found is None:
            return
        try:
            self._flush_found()
        except OSError as error:
            if error.errno in NO_ROOM:
                raise no_room(self._path, error.strerror) from error
            failed = LogFailed(f"what a killed process left cannot be flushed: {error.strerror}")
            self._stop(failed)
            raise failed from error
        self._flush_found = None

    def _call_hook(self, hook: AppendHook, admitted: Admitted) -> None:
        try:
            hook(self._connection, admitted.committed)
        except sqlite3.Error:
            raise
        except Exception as error:  # whatever the hook raises is the outcome of its appends, not of the other appends
            raise _HookRefused(error) from error

    def _find(self, appends: Sequence[Append]) -> dict[StreamId, _Tip]:
        """Number and newest event of each stream of the group; new streams get the next numbers."""
        tips = {append.stream: self._tips.get(append.stream) for append in appends}
        asked = [(stream.namespace, stream.name) for stream, tip in tips.items() if tip is None]
        for size, parameters in runs(asked):
            for namespace, name, *tip in self._connection.execute(select_streams(size), parameters):
                tips[StreamId(namespace, name)] = _Tip(*tip)
        number = self._last_stream
        found: dict[StreamId, _Tip] = {}
        for stream, known in tips.items():
            if known is None:
                number += 1
                known = _Tip(number, 0, genesis(self._identity.log_id, stream))
            found[stream] = known
        return found

    def _states(self, appends: Sequence[Append], tips: dict[StreamId, _Tip]) -> _States:
        """The streams with those of the group's event ids and request keys that they know."""
        states = _unasked(tips)
        by_number = {tip.number: states[stream] for stream, tip in tips.items()}
        old = [append for append in appends if tips[append.stream].version]
        ids = {(tips[append.stream].number, event.event_id): None for append in old for event in append.events}
        for size, parameters in runs(list(ids)):
            rows = self._connection.execute(select_known_events(size), parameters)
            for number, event_id, position, version, digest in rows:
                if number not in by_number:
                    raise LogCorrupt(f"the index of event ids leads from one stream to position {position} of another")
                by_number[number].events[event_id] = KnownEvent(position, version, digest)
        keys = {(tips[append.stream].number, append.request.key): None for append in old if append.request is not None}
        for size, parameters in runs(list(keys)):
            rows = self._connection.execute(select_known_requests(size), parameters)
            for number, key, digest, first, last, last_version in rows:
                if number not in by_number:
                    raise LogCorrupt("the index of request keys leads from one stream to a request of another")
                by_number[number].requests[key] = KnownRequest(digest, first, last, last_version)
        return states

    def _numbers(self, admitted: Admitted) -> dict[str, int]:
        """Numbers of all types; new ones get the next numbers."""
        new = {sealed.event.type for sealed in admitted.events} - self._types.keys()
        if not new:
            return self._types
        first = max(self._types.values(), default=0) + 1
        return self._types | {name: first + place for place, name in enumerate(sorted(new))}

    def _write(self, admitted: Admitted, tips: dict[StreamId, _Tip], numbers: dict[str, int]) -> None:
        if admitted.events and not self._has_newest_revision:
            raise_revision(self._connection)
        self._insert(types, [(number, name) for name, number in numbers.items() if name not in self._types])
        written = {sealed.event.stream for sealed in admitted.events if sealed.event.version == 1}
        self._insert(streams, [(tips[stream].number, stream.namespace, stream.name) for stream in written])
        rows = [event_row(s, tips[s.event.stream].number, numbers[s.event.type]) for s in admitted.events]
        self._insert(events, rows)
        self._insert(requests, [(tips[stream].number, key, *first) for stream, key, first in admitted.requests])

    def _insert(self, table: Table, rows: Sequence[tuple[object, ...]]) -> None:
        for size, parameters in runs(rows):
            self._connection.execute(insert_into(table, size), parameters)

    def _remember(self, states: _States, tips: dict[StreamId, _Tip]) -> None:
        for stream, state in states.items():
            if state.version == 0:
                continue
            number = tips[stream].number
            self._last_stream = max(self._last_stream, number)
            self._tips.pop(stream, None)
            self._tips[stream] = _Tip(number, state.version, state.chain)
        while len(self._tips) > STREAMS_KEPT_MAX:
            del self._tips[next(iter(self._tips))]

    def _translated(self, error: sqlite3.Error) -> Exception:
        """The outcome for an error of the database; the first one that leaves the disk in doubt stops the log."""
        outcome = translated(error, has_room=self._has_room)
        if outcome is None:
            return error
        if isinstance(outcome, LogFull):
            outcome = no_room(self._path, outcome)
        outcome.__cause__ = error
        if isinstance(outcome, LogFailed | LogCorrupt):
            self._stop(outcome)
        return outcome

    def _stop(self, error: EventLogError) -> None:
        if self._failed is None:
            self._failed = error
            self._fatal(error)


def _again(failed: EventLogError) -> EventLogError:
    """The refusal of everything after the error that stopped the log."""
    kind = LogGone if isinstance(failed, LogGone) else LogFailed
    return kind(str(failed))


def _unasked(tips: dict[StreamId, _Tip]) -> _States:
    """The streams as if they knew none of the group's event ids and request keys."""
    return {stream: StreamState(tip.version, tip.chain) for stream, tip in tips.items()}
