"""Snapshots of what was folded of streams, kept beside the events so that opening a long stream reads only its end.

A log knows nothing of the state in one. The log keeps the newest of each stream, sealed under its own secret; those
whose events do not prove them are set aside, as they were written, and nothing removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from abridged.eventlog.errors import EventLogError
from abridged.eventlog.event import StreamId

SET_ASIDE = "snapshots_set_aside"
"""The table of the snapshots that were set aside."""


PURPOSE = "snapshots"
"""The purpose of the log's secret under which snapshots are sealed."""

SEAL_BYTES = 16


class NotSetAside(EventLogError):
    """Snapshots could not be moved, for lack of room or because a page is damaged: they are where they were."""


class StoredSnapshot(NamedTuple):
    """A state, encoded by `codec`, after the event that has this version, position and chain hash."""

    stream: StreamId
    event_version: int
    position: int
    chain: bytes
    codec: str
    state: bytes


def seal_of(secret: bytes, values: Sequence[Any]) -> bytes:
    """The seal of the values of a stored snapshot, the last of which is its state."""
    # How Python writes values tells their types too: a number is not its text.
    *place, state = values
    digest = blake2b(repr(place).encode(), key=secret, digest_size=SEAL_BYTES)
    digest.update(state if isinstance(state, bytes) else repr(state).encode())
    return digest.digest()


class Snapshots(Protocol):
    """One snapshot for each stream, and those set aside. Methods may be called in any thread; writes are transactions
    of their own between two groups of appends."""

    def of(self, key: StreamId) -> StoredSnapshot | None:
        """The stream's snapshot; None without one, or if it is damaged."""
        ...

    def is_damaged(self, key: StreamId) -> bool:
        """Return whether the stream has a snapshot whose seal does not fit."""
        ...

    def version_of(self, key: StreamId) -> int:
        """The version after which the stream's snapshot was taken, damaged or not; 0 without one."""
        ...

    def put(self, snapshot: StoredSnapshot, *, unless: Callable[[], bool] = lambda: False) -> None:
        """Write the snapshot in the place of the stream's earlier one, unless `unless` is true within the
        transaction."""
        ...

    def set_aside(self, key: StreamId, newer: StoredSnapshot | None = None) -> int:
        """Set the stream's snapshot aside, if it has one, and beside it a `newer` one that was never written.

        Returns the version of the newest that is set aside, 0 without any. Raises NotSetAside.
        """
        ...

    def set_aside_rest(self) -> int:
        """Set every snapshot aside that is left; returns how many. Raises NotSetAside."""
        ...

    def drop(self, key: StreamId) -> None:
        """Drop the stream's snapshots, those that are set aside too. Raises NotSetAside."""
        ...

    def drop_proven(self, proven: Mapping[StreamId, int]) -> int:
        """Drop the snapshots up to the versions to which their whole streams were folded; returns how many. Raises
        NotSetAside."""
        ...
