"""Snapshots of conversations' states in the log, so that opening a long one reads only its end.

A snapshot is never trusted over the log: it counts only if its stream has, at its version, the event whose position and
chain hash it names. One that does not fit is ignored.
"""

from __future__ import annotations

from typing import NamedTuple

from abridged.eventlog.errors import EventLogError
from abridged.eventlog.event import StreamId
from abridged.eventlog.log import EventLog
from abridged.eventlog.snapshots import Snapshots, StoredSnapshot
from abridged.service.codec.state import STATE_CODEC, state_from_bytes, state_to_bytes
from abridged.service.domain.conversation import Conversation

MESSAGES_MAX = 4_096
"""Messages in the window of a state that is kept: reading more of them takes as long as folding them."""

BYTES_MAX = 4 << 20
"""Bytes of a state that is kept."""


class Snapshot(NamedTuple):
    """A conversation's state after the event that has this version, position and chain hash."""

    state: Conversation
    event_version: int
    position: int
    chain: bytes


class ConversationSnapshots:
    """The states in `stored`. Methods may be called in any thread."""

    def __init__(self, stored: Snapshots, *, codec: str = STATE_CODEC) -> None:
        self.stored = stored
        self._codec = codec

    def of(self, key: StreamId) -> Snapshot | None:
        """The conversation's snapshot; None without one, or if this version did not write it."""
        found = self.stored.of(key)
        if found is None or found.codec != self._codec:
            return None
        return Snapshot(state_from_bytes(found.state), found.event_version, found.position, found.chain)

    def fitting(self, key: StreamId, log: EventLog) -> Snapshot | None:
        """The conversation's snapshot, if the log has the event that it was taken after; else, or on an error, None."""
        try:
            found = self.of(key)
            if found is None or found.state.id != key.name or found.state.event_version != found.event_version:
                return None
            sealed = log.read_sealed(key, after=found.event_version - 1, limit=1)
        except EventLogError:
            return None
        at = [(s.event.version, s.event.position, s.chain) for s in sealed]
        return found if at == [(found.event_version, found.position, found.chain)] else None

    def encoded(self, key: StreamId, snapshot: Snapshot) -> StoredSnapshot | None:
        """The snapshot as it is stored; None for a state that is too large to keep."""
        state = state_to_bytes(snapshot.state)
        return None if len(state) > BYTES_MAX else StoredSnapshot(key, *snapshot[1:], self._codec, state)


def is_worth_keeping(state: Conversation) -> bool:
    """Return whether the window is small enough for a snapshot."""
    return len(state.window) <= MESSAGES_MAX
