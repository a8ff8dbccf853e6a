"""A fold from a snapshot is the fold of the whole stream, and a snapshot that does not fit is ignored."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, closing
from itertools import count, pairwise
from pathlib import Path
from random import Random
from threading import Event as Released
from typing import Any, cast

import pytest

from abridged.eventlog.errors import LogCorrupt, StreamCorrupt
from abridged.eventlog.event import StreamId
from abridged.eventlog.log import EventLog
from abridged.eventlog.snapshots import PURPOSE, Snapshots, StoredSnapshot
from abridged.eventlog.sqlite.backend import SqliteBackend
from abridged.eventlog.sqlite.log import SqliteEventLog
from abridged.eventlog.sqlite.snapshots import SqliteSnapshots
from abridged.service.codec.values import canonical, message_to_proto
from abridged.service.conversations.conversation_log import ConversationLog, SentMessages
from abridged.service.conversations.row import READ_TABLE
from abridged.service.conversations.snapshot_writer import EVENTS_MAX, EVENTS_MIN, SnapshotWriter, is_due
from abridged.service.conversations.snapshots import BYTES_MAX, MESSAGES_MAX, ConversationSnapshots, Snapshot
from abridged.service.conversations.state_size import state_size, whole_window_size
from abridged.service.conversations.table import ConversationTable, Projected
from abridged.service.conversations.verification import damages
from abridged.service.domain.amendments import needed
from abridged.service.domain.conversation import Conversation, initial_state
from abridged.service.domain.events import ConversationOpened, Event, MessageAppended, Settings
from abridged.service.domain.fold import evolve
from abridged.service.domain.message import Message, Role
from abridged.service.domain.sequence import Sequence
from abridged.service.domain.tokens import TokenSource
from tests.support.patience import PATIENCE_S
from tests.support.simulation import SimulatedChat

KEY = StreamId("default", "c")


class Room:
    """A log with its read table and its snapshots, and one conversation in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now_us = 1
        self.state = initial_state()
        self.in_memory = False
        backend = SqliteBackend(path)
        rows = backend.rows(READ_TABLE)
        self.table = ConversationTable(rows)
        log, kept, *_ = backend.open(rows, clock_us=lambda: self.now_us, hook=self.table.project)
        assert isinstance(log, SqliteEventLog)
        assert kept is not None
        self.log = log
        self.stored = kept.snapshots
        self.snapshots = ConversationSnapshots(self.stored)
        self.writer = SnapshotWriter(self.log, self.snapshots)
        ids = count(1)
        self.plain = ConversationLog(self.log, table=self.table, new_id=lambda: f"e{next(ids)}", traceparent=str)
        self.resuming = ConversationLog(
            self.log,
            table=self.table,
            new_id=lambda: f"e{next(ids)}",
            traceparent=str,
            snapshots=self.writer,
            cached=lambda _: self.state if self.in_memory else None,
        )

    async def write(self, *events: Event, originals: list[MessageAppended] | None = None) -> None:
        """Append events that follow the state."""
        sent = {e.message.id: canonical(message_to_proto(e.message)) for e in events if isinstance(e, MessageAppended)}
        projected = Projected(self.state, events, originals=originals or [])
        log = self.resuming
        await log.post(KEY, projected, SentMessages(sent), on_disk=lambda *_: None, on_outcome=lambda _: None)
        assert projected.after is not None
        self.state = projected.after

    async def say(self, messages: int) -> None:
        """Open the conversation if it is new, and append that many messages."""
        if not self.state.is_open:
            await self.write(ConversationOpened(KEY.name, Settings(context_length=1_000_000)))
        first = self.state.message_version + 1
        for start in range(first, first + messages, 500):
            numbers = range(start, min(start + 500, first + messages))
            await self.write(*[_said(number) for number in numbers])

    async def take(self, state: Conversation | None = None) -> None:
        """Take a snapshot of the conversation as it is, or of the state that is passed for it."""
        self.writer.offer(KEY, state or self.state)
        await self.writer.settled()

    def taken_at(self) -> int:
        """The version of the snapshot that fits; 0 without one."""
        found = self.snapshots.fitting(KEY, self.log)
        return found.event_version if found else 0

    def changed(self, statement: str, *parameters: object) -> None:
        """Change the file as something else would."""
        with closing(sqlite3.connect(self.path)) as database:
            database.execute(statement, parameters)
            database.commit()


@asynccontextmanager
async def room(path: Path) -> AsyncIterator[Room]:
    """A room of its own, closed at the end."""
    opened = Room(path)
    try:
        yield opened
    finally:
        await opened.writer.close()
        opened.log.close()


def _said(number: int, text: str = "a word") -> MessageAppended:
    return MessageAppended(number, Message(f"m{number}", Role.USER, text), 2, TokenSource.ESTIMATE, "estimate")


@pytest.mark.parametrize("seed", range(24))
async def test_a_fold_from_any_snapshot_is_the_fold_of_the_stream(tmp_path, seed):
    """Passes, failures, revocations, pins, rewinds and marks may come before and after the snapshot."""
    chat, random = SimulatedChat(seed, amendments=0.25), Random(seed)
    async with room(tmp_path / "log.db") as it:
        compared = 0
        for step in chat.steps():
            if not step.events:
                continue
            it.now_us = max(1, step.now_us)
            await it.write(*step.events, originals=chat.originals(needed(step.before, step.command)))
            if random.random() < 0.2 or step.before.event_version == 0:
                await it.take()
            elif random.random() < 0.5:
                compared += it.taken_at() > 0
                assert await it.resuming.fold(KEY) == await it.plain.fold(KEY) == it.state
                # What follows is folded from a state of which nothing was looked at.
                it.state = await it.resuming.fold(KEY)
        assert compared, "a snapshot was read"


async def test_only_what_follows_the_snapshot_is_read(tmp_path):
    """An event before it that is damaged is found by any read of it, and by `abridged log verify`."""
    async with room(tmp_path / "log.db") as it:
        await it.say(20)
        await it.take()
        await it.say(5)
        it.changed("UPDATE events SET payload = x'00' WHERE version = 3")

        assert await it.resuming.fold(KEY) == it.state
        with pytest.raises(LogCorrupt):
            await it.plain.fold(KEY)


async def test_a_message_of_the_window_whose_repeat_would_not_be_known_is_damage(tmp_path):
    """The index of ids is asked for those of the window that are repeated, and for those after the snapshot at once."""
    async with room(tmp_path / "log.db") as it:
        await it.say(20)
        await it.take()
        await it.say(5)
        it.changed("UPDATE events SET event_id = ? WHERE version = 3", b"another id".rjust(16))
        state = await it.resuming.fold(KEY)
        lost, kept, later, new = (_said(number).message for number in (2, 3, 21, 99))

        assert it.resuming.kept_ids(state, [lost, kept, later, new]) == {"m2", "m3"}
        await it.resuming.require_found(KEY, it.resuming.kept_ids(state, [kept, new]), {"m3": 3})
        with pytest.raises(StreamCorrupt):
            await it.resuming.require_found(KEY, it.resuming.kept_ids(state, [lost, kept]), {"m3": 3})
        assert it.resuming.is_doubted(KEY)


class _Forgetful:
    """A log whose index has lost every id."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def known_ids(self, _stream: StreamId, _event_ids: Collection[bytes]) -> dict[bytes, int]:
        return {}


class _Astray(_Forgetful):
    """A log whose index of names leads from one stream to the row of another."""

    def known_ids(self, _stream: StreamId, _event_ids: Collection[bytes]) -> dict[bytes, int]:
        raise LogCorrupt("a stream is not in the table that its name was found for")


async def test_a_stream_whose_row_is_anothers_is_not_resumed_without_newer_events(tmp_path):
    """The log is asked also where the snapshot has all ids: it looks at the stream's own row first."""
    async with room(tmp_path / "log.db") as it:
        await it.say(20)
        await it.take()
        log = ConversationLog(
            cast("EventLog", _Astray(it.log)), table=it.table, new_id=str, traceparent=str, snapshots=it.writer
        )
        row = it.table.row(KEY)

        assert row is not None
        assert log._resumed(KEY, row) is None
        assert it.resuming._resumed(KEY, row) is not None


async def test_an_id_after_the_snapshot_that_the_index_has_lost_is_found_at_once(tmp_path):
    """No snapshot has the ids of these events."""
    async with room(tmp_path / "log.db") as it:
        await it.say(20)
        await it.take()
        await it.say(5)
        log = ConversationLog(
            cast("EventLog", _Forgetful(it.log)), table=it.table, new_id=str, traceparent=str, snapshots=it.writer
        )
        row = it.table.row(KEY)

        assert row is not None
        assert log._resumed(KEY, row) is None
        assert it.resuming._resumed(KEY, row) is not None


async def test_an_append_below_the_trigger_reads_no_message_of_the_window(tmp_path):
    """Figures of the window are beside it; the first look reads all, and is a state like any other."""
    async with room(tmp_path / "log.db") as it:
        await it.say(20)
        await it.take()
        await it.say(1)
        whole = it.state

        it.state = await it.resuming.fold(KEY)
        await it.say(2)
        sizes = whole_window_size(it.state.window), state_size(it.state)

        assert it.state.window.is_deferred
        assert [m.number for m in it.state.window] == list(range(1, 24))
        assert not it.state.window.is_deferred
        assert sizes[0] == whole_window_size(Sequence(it.state.window))
        assert sizes[1].window == sizes[0]
        assert it.state == await it.plain.fold(KEY) != whole


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE snapshots SET state = x'00'",
        "UPDATE snapshots SET seal = x'00'",
        "UPDATE snapshots SET position = position + 1",
        "UPDATE snapshots SET event_version = event_version - 1",
        "UPDATE snapshots SET event_version = 'three'",
    ],
)
async def test_a_snapshot_that_is_not_what_was_written_is_ignored_and_reported(tmp_path, change):
    """The stream is folded; `abridged log verify` names the conversation, and a rebuild mends it."""
    async with room(tmp_path / "log.db") as it:
        await it.say(20)
        await it.take()
        it.changed(change)

        assert it.taken_at() == 0
        assert await it.resuming.fold(KEY) == it.state
    assert _damages(tmp_path / "log.db") == [("default/c", "its snapshot is not what was written", True)]


async def test_a_snapshot_after_another_event_than_the_logs_is_ignored_and_reported(tmp_path):
    """Sealed under this log's secret, as in a file put together from two copies that went different ways."""
    async with room(tmp_path / "log.db") as it:
        await it.say(20)
        (at,) = it.log.read_sealed(KEY, after=it.state.event_version - 1, limit=1)
        other = Snapshot(it.state, it.state.event_version, at.event.position, bytes(32))
        snapshot = it.snapshots.encoded(KEY, other)
        assert snapshot is not None
        it.stored.put(snapshot)

        assert it.taken_at() == 0
        assert await it.resuming.fold(KEY) == it.state
    assert _damages(tmp_path / "log.db") == [("default/c", "its snapshot is not the fold of its events", True)]


async def test_a_snapshot_that_does_not_lead_to_the_row_is_ignored_and_reported(tmp_path):
    """A program that folded the same events to something else would write such a snapshot."""
    async with room(tmp_path / "log.db") as it:
        await it.say(20)
        await it.take(it.state._replace(exact_tokens=7))

        assert it.taken_at() == it.state.event_version, "it fits the log"
        assert await it.resuming.fold(KEY) == it.state
    assert _damages(tmp_path / "log.db") == [("default/c", "its snapshot is not the fold of its events", True)]


async def test_a_snapshot_of_another_version_of_the_program_is_neither_read_nor_damage(tmp_path):
    """States of another version have other fields, or its fold makes another state of the same events."""
    async with room(tmp_path / "log.db") as it:
        await it.say(20)
        it.writer.snapshots = ConversationSnapshots(it.stored, codec="another")
        await it.take()

        assert it.taken_at() == 0
        assert await it.resuming.fold(KEY) == it.state
    assert _damages(tmp_path / "log.db") == []


async def test_a_conversation_that_is_doubted_without_cause_keeps_its_snapshot(tmp_path):
    """A damaged row of another one that bears its name causes such doubt: its whole stream is folded, once."""
    async with room(tmp_path / "log.db") as it:
        await it.say(20)
        await it.take()
        with pytest.raises(StreamCorrupt):
            async with it.resuming.noticing():
                raise StreamCorrupt("a row that bears its name", KEY, 3)
        assert (it.resuming.is_doubted(KEY), it.writer.fitting(KEY)) == (True, None)

        assert await it.resuming.fold(KEY) == it.state

        assert not it.resuming.is_doubted(KEY)
        assert it.taken_at() == it.state.event_version


async def test_a_fold_that_began_with_a_snapshot_counts_for_nothing_once_there_is_doubt(tmp_path):
    """The fold has not looked at the damaged event that a read finds meanwhile."""
    async with room(tmp_path / "log.db") as it:
        await it.say(20)
        await it.take()
        it.changed("UPDATE events SET payload = x'00' WHERE version = 3")

        def read(query: Callable[[sqlite3.Connection], Any]) -> Any:
            found = it.log.read(query)
            it.writer.doubted.add(KEY)
            return found

        it.writer.snapshots = ConversationSnapshots(SqliteSnapshots(it.log.secret(PURPOSE), read))
        with pytest.raises(LogCorrupt):
            await it.resuming.fold(KEY)


async def test_no_snapshot_is_written_of_a_conversation_that_is_doubted(tmp_path):
    """A snapshot of it would take the place of the kept one, and no event would prove it."""
    async with room(tmp_path / "log.db") as it:
        await it.say(20)
        await it.take()
        it.changed("UPDATE events SET payload = x'00' WHERE version = 3")
        with pytest.raises(LogCorrupt):
            async with it.resuming.noticing():
                it.log.read_stream(KEY)

        await it.take()

        assert it.stored.version_of(KEY) == 0


async def test_what_is_forgotten_stays_so_and_later_states_are_kept(tmp_path):
    """A state that waits, or comes late, has the texts that were taken away."""
    async with room(tmp_path / "log.db") as it:
        await it.say(20)
        old = it.state
        await it.take()
        await it.say(5)

        await it.writer.forget(KEY, before=it.state.event_version)
        await it.take(old)
        assert it.stored.version_of(KEY) == 0
        await it.take()

        assert it.taken_at() == it.state.event_version


async def test_a_snapshot_of_more_events_than_are_left_is_not_dropped_as_proven(tmp_path):
    """Events that the log has lost may be in it alone."""
    async with room(tmp_path / "log.db") as it:
        await it.say(20)
        await it.take()
        at = it.state.event_version

        dropped = it.stored.drop_proven({KEY: at - 1})
        kept = it.stored.set_aside_rest()

        assert (dropped, kept, it.taken_at()) == (0, 1, 0)
        assert it.stored.set_aside(KEY) == at


async def test_a_snapshot_is_taken_whenever_a_conversation_has_grown_by_half(tmp_path):
    """Any append may take it: a conversation that was never opened cold has one at the next start."""
    taken: list[int] = []
    async with room(tmp_path / "log.db") as it:
        for _ in range(10 * EVENTS_MIN // 8):
            await it.say(8)
            await it.writer.settled()
            taken.append(it.taken_at())

    (none, *at) = sorted(set(taken))
    assert (none, at[0]) == (0, EVENTS_MIN + 1)
    steps = [(after - before, before) for before, after in pairwise(at)]
    assert all(max(EVENTS_MIN, before // 2) <= step <= max(EVENTS_MIN, before // 2 + 2 * 8) for step, before in steps)
    assert steps[-1][0] > EVENTS_MIN


def test_a_long_history_makes_snapshots_rarer_up_to_a_bound():
    """Records and passes are written with each; but the fold of a start after a crash stays bounded."""
    *_, last = SimulatedChat(1).steps()
    ages = [last.after._replace(passes=Sequence([last.after.passes[0]] * passes)) for passes in (0, 400, 100_000)]

    due = [next(beyond for beyond in range(10_000) if is_due(state, beyond)) for state in ages]

    assert (due[0], due[2]) == (EVENTS_MIN, EVENTS_MAX)
    assert EVENTS_MIN < due[1] < EVENTS_MAX


async def test_an_orderly_stop_takes_a_snapshot_of_what_has_grown(tmp_path):
    """The conversation must be in memory, and must have grown by more than a little."""
    async with room(tmp_path / "log.db") as it:
        await it.say(400)
        await it.writer.settled()
        first = it.taken_at()
        await it.say(EVENTS_MIN - 1)
        it.in_memory = True
        await it.resuming.finish()
        assert it.taken_at() == first == 401

        await it.say(1)
        it.in_memory = False
        await it.resuming.finish()
        assert it.taken_at() == first
        it.in_memory = True
        await it.resuming.finish()
        assert it.taken_at() == it.state.event_version == first + EVENTS_MIN


class _Stuck:
    """A store of snapshots that writes nothing before it is released."""

    def __init__(self) -> None:
        self.released = Released()
        self.written: list[StreamId] = []

    def put(self, snapshot: StoredSnapshot, *, unless: Callable[[], bool] = lambda: False) -> None:
        self.released.wait(PATIENCE_S)
        self.written.append(snapshot.stream)


async def test_an_orderly_stop_writes_what_waits_and_ends_in_time(tmp_path):
    """The disk may be slow; a conversation whose snapshot is not written is folded from its events."""
    async with room(tmp_path / "log.db") as it:
        await it.say(3)
        stuck = _Stuck()
        it.writer.snapshots = ConversationSnapshots(cast("Snapshots", stuck))
        it.writer.offer(KEY, it.state)
        await it.writer.finish([(KEY, it.state)], within_s=0.001)
        assert stuck.written == []

        stuck.released.set()
        it.writer.offer(KEY, it.state)
        await it.writer.finish(())
        assert stuck.written == [KEY, KEY]


async def test_a_state_whose_last_event_was_lost_has_no_snapshot(tmp_path):
    """A primary loses such an event if its standby did not have it: another event has its version."""
    async with room(tmp_path / "log.db") as it:
        await it.say(3)
        lost = it.state._replace(updated_us=it.state.updated_us + 1)
        await it.take(lost)
        await it.writer.finish([(KEY, lost)])
        assert it.taken_at() == 0

        await it.take()
        assert it.taken_at() == it.state.event_version


async def test_whoever_folds_a_long_stream_takes_a_snapshot(tmp_path):
    """A log from before there were snapshots gets one, and so does one whose snapshot was ignored."""
    async with room(tmp_path / "log.db") as it:
        await it.say(EVENTS_MIN)
        await it.writer.settled()
        it.changed("DELETE FROM snapshots")

        await it.resuming.fold(KEY)
        await it.writer.settled()

        assert it.taken_at() == it.state.event_version


async def test_a_window_of_thousands_of_messages_is_not_kept(tmp_path):
    """Reading it back would take as long as its fold, and each snapshot as much of the file as its events."""
    async with room(tmp_path / "log.db") as it:
        await it.say(MESSAGES_MAX + 1)
        await it.writer.settled()
        it.changed("DELETE FROM snapshots")
        await it.take()
        assert it.taken_at() == 0


async def test_a_state_of_megabytes_is_not_kept(tmp_path):
    """A snapshot's row is written beside the appends, which must not wait for it."""
    async with room(tmp_path / "log.db") as it:
        await it.say(1)
        large = evolve(it.state, _said(2, Random(0).randbytes(BYTES_MAX).hex()), 0)
        small = evolve(it.state, _said(2), 0)

        rows = [it.snapshots.encoded(KEY, Snapshot(state, 3, 3, b"chain")) is None for state in (small, large)]

        assert rows == [False, True]


def _damages(path: Path) -> list[tuple[str, str, bool]]:
    backend = SqliteBackend(path)
    rows = backend.rows(READ_TABLE)
    with backend.verification(rows) as verification:
        assert verification.snapshots is not None
        snapshots = ConversationSnapshots(verification.snapshots)
        found = damages(verification, ConversationTable(rows), snapshots, walked=lambda _: None)
        return [damage[:3] for damage in found]
