"""The contract of a place that wrapped data keys are kept in, apart from the log and its backups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple, Protocol

from abridged.eventlog.event import StreamId

REWRAPPED_AT_ONCE: Final = 256
"""Keys that one transaction of a rotation wraps anew: a sidecar's own transactions wait for it."""

DUE: Final = 1 << 62
"""Added to the position of an erasure that the log does not have: beyond that of any event."""


class StoredKey(NamedTuple):
    """A data key as it is stored: `wrapped` by the operator's key with the id `wrapper`. Both are zeros of an erased
    one."""

    id: bytes
    wrapper: bytes
    wrapped: bytes

    @property
    def is_erased(self) -> bool:
        """Whether nobody can unwrap it any more."""
        return not any(self.wrapper)


class KeyStore(Protocol):
    """Data keys by id. Every method may run in any thread and is a transaction of its own, on disk when it returns.

    Methods raise KeysUnusable for something else than a store, or one that is no longer in its place, and
    LogUnavailable or LogFull where trying again can help.
    """

    def current(self) -> bytes:
        """The id of the operator's key that wraps new data keys; empty before the first."""
        ...

    def wrappers(self) -> set[bytes]:
        """The ids of the operator's keys that wrap any data key."""
        ...

    def add(self, keys: Sequence[StoredKey]) -> bool:
        """Keep new data keys, unless their wrapper is not `current`: returns whether it kept them."""
        ...

    def get(self, key_id: bytes) -> StoredKey | None:
        """The data key with this id; None if it was never kept here."""
        ...

    def drop(self, key_ids: Collection[bytes]) -> None:
        """Forget data keys that encrypted nothing."""
        ...

    def erase(self, key_ids: Collection[bytes], log_id: str, stream: StreamId, position: int) -> None:
        """Overwrite data keys with zeros, and note that the event at this position of a log erased the stream. A later
        position that is noted stays: there may be copies of the log that end between both."""
        ...

    def erased_after(self, log_id: str, position: int) -> list[StreamId]:
        """The streams of a log that events after this position erased, in their order. Each is returned again, whatever
        the position, until it is erased again or settled."""
        ...

    def settle(self, log_id: str, streams: Collection[StreamId]) -> None:
        """Return these streams of a log for what is noted of them alone."""
        ...

    def rewrap(self, wrapper: bytes, rewrapped: Callable[[StoredKey], StoredKey], done: Callable[[int], None]) -> int:
        """Make `wrapper` current, and put what `rewrapped` returns in the place of each data key with another one; a
        few in each transaction. `done` is called with their number so far; returns it."""
        ...

    def close(self) -> None:
        """Release the store."""
        ...
