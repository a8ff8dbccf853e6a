"""Writes snapshots of states, one at a time, away from the appends that led to them; and sets one aside when its stream
turns out to be damaged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from abridged.eventlog.errors import EventLogError, LogCorrupt
from abridged.eventlog.event import StreamId
from abridged.eventlog.log import EventLog
from abridged.eventlog.snapshots import StoredSnapshot
from abridged.service.codec.events import UnknownEvent
from abridged.service.conversations.replay import replayed, require_known
from abridged.service.conversations.snapshots import ConversationSnapshots, Snapshot, is_worth_keeping
from abridged.service.domain.conversation import Conversation

EVENTS_MIN, EVENTS_MAX = 64, 512
"""Events of a conversation between two snapshots, at least and at most. The fold of fewer takes about as long as a
beginning with a snapshot; and the events beyond the newest one are those that a start after a crash folds."""

WAITING_MAX = 64
"""States that wait to be written; another one is left to the next events, or to the reader that folds it."""

FINISHING_S = 2.0
"""Seconds that an orderly stop goes on to write snapshots."""

_log = structlog.get_logger()


def is_due(state: Conversation, beyond: int) -> bool:
    """Return whether a conversation with this many events beyond its snapshot needs a new one: it has grown by half
    since.

    The writer then writes the parts of a conversation three times while it grows, however large it becomes.
    """
    parts = len(state.window) + len(state.records) + len(state.passes) + len(state.revoked)
    return beyond >= min(max(parts // 3, EVENTS_MIN), EVENTS_MAX)


class SnapshotWriter:
    """Takes states on the event loop and writes each in a thread, the newest of a conversation alone.

    `doubted` are the conversations of which damaged events were read since they were last folded whole, whose snapshots
    are neither read nor written. The set changes on the event loop.
    """

    def __init__(self, log: EventLog, snapshots: ConversationSnapshots) -> None:
        self.snapshots = snapshots
        self.doubted: set[StreamId] = set()
        self._log = log
        self._waiting: dict[StreamId, Conversation] = {}
        self._task: asyncio.Task[None] | None = None
        self._moves: set[asyncio.Task[None]] = set()
        self._unmoved: set[StreamId] = set()
        self._forgotten: dict[StreamId, int] = {}

    def fitting(self, key: StreamId) -> Snapshot | None:
        """The snapshot from which the conversation may be folded; None without one, or when it is doubted."""
        return None if key in self.doubted else self.snapshots.fitting(key, self._log)

    async def doubt(self, key: StreamId, state: Conversation | None) -> None:
        """Have the conversation folded from its whole stream alone until that succeeds. Set the conversation's snapshot
        aside in the file if that fails now, and beside it `state`, which was in memory.

        A snapshot that cannot be moved stays where it is, is not read by this process, and is moved with the next
        doubt. The move goes on if the caller is cancelled.
        """
        if key in self.doubted and key not in self._unmoved:
            return
        self.doubted.add(key)
        self._unmoved.discard(key)
        self._waiting.pop(key, None)
        move = asyncio.get_running_loop().create_task(self._move(key, state))
        self._moves.add(move)
        move.add_done_callback(self._moves.discard)
        await asyncio.shield(move)

    async def forget(self, key: StreamId, *, before: int) -> None:
        """Drop the conversation's snapshots, those that are set aside too, and take no state of it any more that has
        fewer events."""
        self._forgotten[key] = before
        self._waiting.pop(key, None)
        await self.settled()
        await asyncio.to_thread(self.snapshots.stored.drop, key)

    async def _move(self, key: StreamId, state: Conversation | None) -> None:
        try:
            version = await asyncio.to_thread(self._set_aside_unless_proven, key, state)
        except EventLogError as error:
            self._unmoved.add(key)
            _log.warning("snapshot.not_set_aside", conversation_id=key.name, error_type=type(error).__name__)
        else:
            if version:
                _log.error("snapshot.set_aside", conversation_id=key.name, event_version=version)

    def offer(self, key: StreamId, state: Conversation) -> bool:
        """Write a snapshot of the state soon, unless it is too large or too many wait; returns whether it will be."""
        if (
            state.event_version < self._forgotten.get(key, 0)
            or not is_worth_keeping(state)
            or (key not in self._waiting and len(self._waiting) >= WAITING_MAX)
        ):
            return False
        self._waiting[key] = state
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._drain())
        return True

    async def finish(self, states: Iterable[tuple[StreamId, Conversation]], *, within_s: float = FINISHING_S) -> None:
        """Write snapshots of these states, and of those that wait, as far as the time allows."""
        self._waiting.update({key: state for key, state in states if is_worth_keeping(state)})
        if self._waiting and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._drain())
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=within_s)

    async def close(self) -> None:
        """Finish the snapshots that are being written or moved; those that wait are left to later ones."""
        self._waiting.clear()
        await self.settled()

    async def settled(self) -> None:
        """Return when all that was offered is written, or was not worth it."""
        while self._moves or (self._task is not None and not self._task.done()):
            await asyncio.wait({*self._moves, *((self._task,) if self._task is not None else ())})

    async def _drain(self) -> None:
        while self._waiting:
            key = next(iter(self._waiting))
            try:
                await asyncio.to_thread(self._take, key, self._waiting.pop(key))
            except EventLogError as error:
                # Whoever opens the conversation folds its stream. What the log itself suffers from, its appends report.
                _log.warning("snapshot.not_written", error_type=type(error).__name__)
                if not isinstance(error, LogCorrupt):
                    self._waiting.clear()  # the others would meet it, too

    def _take(self, key: StreamId, state: Conversation) -> None:
        snapshot = self._snapshot(key, state)
        if snapshot is not None:
            self.snapshots.stored.put(snapshot, unless=lambda: key in self.doubted)

    def _snapshot(self, key: StreamId, state: Conversation) -> StoredSnapshot | None:
        """The state's snapshot as it is stored; None if it is too large, or the log does not have its last event: one
        of another time took its place when a primary was lost.

        Raises LogCorrupt if that event is damaged.
        """
        version = state.event_version
        for sealed in self._log.read_sealed(key, after=version - 1, limit=1):
            if (sealed.event.version, sealed.event.time_us) == (version, state.updated_us):
                return self.snapshots.encoded(key, Snapshot(state, version, sealed.event.position, sealed.chain))
        return None

    def _set_aside_unless_proven(self, key: StreamId, state: Conversation | None) -> int:
        """The version of the newest snapshot that is set aside, 0 without one, or if the whole stream leads to it."""
        version = max(self.snapshots.stored.version_of(key), state.event_version if state is not None else 0)
        if not version:
            return 0
        try:
            found = replayed(self._log, key)
            require_known(self._log, key, found.positions)
            if found.state.event_version >= version:
                return 0
        except (LogCorrupt, UnknownEvent):
            pass
        newer = self._unproven(key, state) if state is not None else None
        return self.snapshots.stored.set_aside(key, newer)

    def _unproven(self, key: StreamId, state: Conversation) -> StoredSnapshot | None:
        """The state's snapshot as it is set aside: at position 0 with an empty chain hash if the log does not have the
        state's last event as it was written."""
        try:
            snapshot = self._snapshot(key, state)
        except LogCorrupt:
            snapshot = None
        return snapshot or self.snapshots.encoded(key, Snapshot(state, state.event_version, 0, b""))
