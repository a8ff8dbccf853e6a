"""The contract of a store for wrapped data keys, apart from the log and its backups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from abridged.eventlog.event import StreamId

REWRAPPED_AT_ONCE: Final = 256
"""The number of keys that one transaction of a rotation reads and wraps anew, while the transactions of sidecars wait
for it."""

DUE: Final = 1 << 62
"""The number that is added to the position of an erasure that the log does not have: it leads beyond any event."""


class StoredKey(NamedTuple):
    """A data key as it is stored, `wrapped` by the operator's key with the id `wrapper`. An erased one has zeros for
    both."""

    id: bytes
    wrapper: bytes
    wrapped: bytes

    @property
    def is_erased(self) -> bool:
        """True if the data key is erased, so that nobody can unwrap it any more."""
        return bool(self.wrapper) and not any(self.wrapper + self.wrapped)


class KeyStore(Protocol):
    """Data keys by id. Every method may run in any thread and is a transaction of its own, on disk when it returns.

    Methods raise KeysUnusable if the place has no store of keys, or no longer has this one, and LogUnavailable or
    LogFull if another attempt can help.
    """

    def current(self) -> bytes:
        """The id of the operator's key that wraps new data keys; empty before the first of them."""
        ...

    def wrappers(self) -> set[bytes]:
        """The ids of the operator's keys that wrap any data key."""
        ...

    def one_of(self, wrapper: bytes) -> StoredKey | None:
        """A data key that the operator's key with this id wraps; None if it wraps nothing."""
        ...

    def add(self, keys: Sequence[StoredKey]) -> bool:
        """Keep new data keys if their wrapper is `current`; the first ones make it so. Return whether it kept them."""
        ...

    def get(self, key_id: bytes) -> StoredKey | None:
        """The data key with this id; None if the store does not have it."""
        ...

    def drop(self, key_ids: Collection[bytes]) -> None:
        """Delete data keys that encrypted nothing."""
        ...

    def erase(self, key_ids: Collection[bytes], log_id: str, stream: StreamId, position: int) -> None:
        """Overwrite data keys with zeros, and note that the event at this position of a log erased the stream. A later
        position that is noted stays: there may be copies of the log that end between both."""
        ...

    def erased_after(self, log_id: str, position: int) -> list[StreamId]:
        """The streams of a log that events after this position erased, in the order of those events. Later calls return
        each of them again, for any position, until it is erased again or settled."""
        ...

    def settle(self, log_id: str, streams: Collection[StreamId]) -> None:
        """Undo, for these streams of a log, that `erased_after` returns them for any position."""
        ...

    def set_current(self, wrapper: bytes) -> None:
        """Have the operator's key with this id wrap new data keys."""
        ...

    def rewrap_some(self, rewrapped: Callable[[StoredKey], StoredKey | None], *, after: bytes) -> bytes | None:
        """Replace each of the next REWRAPPED_AT_ONCE data keys, by their ids and after one, that is not erased by the
        one that `rewrapped` returns, if any. Return the last one's id, or None at the end."""
        ...

    def close(self) -> None:
        """Release the store."""
        ...


def replaced(keys: Iterable[StoredKey], rewrapped: Callable[[StoredKey], StoredKey | None]) -> list[StoredKey]:
    """The data keys that take the places of those of `keys` that are not erased; see KeyStore.rewrap_some."""
    return [new for key in keys if not key.is_erased and (new := rewrapped(key)) is not None]
