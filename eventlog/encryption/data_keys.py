"""The data keys of one log in one process: makes new ones ahead, and keeps those in use in memory.

A new key is on disk before it encrypts anything. Only a stream's events name the keys of the stream.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from abridged.eventlog.encryption.data_key import SECRET_BYTES, DataKey
from abridged.eventlog.encryption.framing import KEY_ID_BYTES
from abridged.eventlog.encryption.key_store import KeyStore, StoredKey
from abridged.eventlog.encryption.operator_keys import OperatorKeys
from abridged.eventlog.errors import EventLogError, KeyLost, KeysUnusable, LogUnavailable
from abridged.eventlog.event import StreamId

BATCH: Final = 128
"""The number of keys that one flush of the disk stores."""

KEPT_MAX: Final = 4_096
"""The number of keys in memory, of about a thousand bytes each: fewer conversations have their states there."""

ATTEMPTS_MAX: Final = 3


class Rewrapped(NamedTuple):
    """The result of a rotation: the number of data keys that were wrapped anew, the ids of those that no given key
    unwraps, since they are damaged or their own key is missing, and whether the first one now wraps all others."""

    wrapped: int
    damaged: tuple[bytes, ...]
    is_whole: bool


class DataKeys:
    """The keys in `store`. Methods may be called in any thread."""

    def __init__(self, store: KeyStore, operator_keys: OperatorKeys) -> None:
        """Raises KeysUnusable if the key that wraps new data keys is not among the operator's, or if those wrap no data
        key of the store."""
        self.store = store
        self._operator_keys = operator_keys
        self._strange = self._strange_wrappers()
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._kept: dict[bytes, DataKey | None] = {}
        self._new: list[DataKey] = []
        self._closed = False

    @property
    def lacking(self) -> str:
        """Say which operator's keys are missing, by the data keys that name them; empty if all are there. What they
        wrap is lost until they are given, or, where a damaged page made a name up, until the page is as it was."""
        if not self._strange:
            return ""
        first, *others = sorted(wrapper.hex() for wrapper in self._strange)
        more = f" and of {len(others):,} more" if others else ""
        return f"{self.store} has data keys of the operator's key {first}{more}, which is missing, or damaged there"

    def of(self, key_id: bytes) -> DataKey | None:
        """The key with this id; None if it was erased. Raises KeyLost if the store does not have it, or not as it was
        stored, and KeysUnusable."""
        with self._lock:
            if key_id in self._kept:
                return self._kept[key_id]
        stored = self.store.get(key_id)
        if stored is None:
            raise KeyLost(f"{self.store} does not have data key {key_id.hex()}")
        key = None if stored.is_erased else DataKey(key_id, self._unwrapped(stored))
        self._keep(key_id, key)
        return key

    def know(self, key_id: bytes) -> bool:
        """Return whether the store has a key with this id, whole, damaged or erased. Raises KeysUnusable."""
        return self.store.get(key_id) is not None

    def taken(self) -> DataKey:
        """A new key, which is on disk and which no other caller gets."""
        with self._lock:
            key = self._new.pop() if self._new else None
            is_low = len(self._new) < BATCH // 2
        if key is None:
            with self._making:
                if not self._new:
                    self._make()
            return self.taken()
        if is_low:
            self.make_ahead()
        self._keep(key.id, key)
        return key

    def make_ahead(self) -> None:
        """Start a thread that makes keys, unless one is at work."""
        if self._making.acquire(blocking=False):
            try:
                threading.Thread(target=self._made_ahead, daemon=True).start()
            except RuntimeError:  # the machine has no thread left: whoever needs a key makes it
                self._making.release()

    def erase(self, key_ids: Collection[bytes], log_id: str, stream: StreamId, position: int) -> None:
        """Erase these keys of the stream for good, and note that the event at this position of the log erased it."""
        self.store.erase(key_ids, log_id, stream, position)
        for key_id in key_ids:
            self._keep(key_id, None)

    @property
    def is_rewrapped(self) -> bool:
        """True if the operator's first key wraps every data key."""
        return self.store.wrappers() <= {self._operator_keys.first.id}

    def rewrap(self, done: Callable[[int], None]) -> Rewrapped:
        """Wrap every data key with the operator's first key. Sidecars may go on meanwhile. Calls `done` with the number
        of those that another key wrapped, so far."""
        first = self._operator_keys.first
        count, damaged = 0, []

        def rewrapped(stored: StoredKey) -> StoredKey | None:
            nonlocal count
            try:
                secret = self._unwrapped(stored)
            except KeyLost:
                damaged.append(stored.id)
                if stored.wrapper in self._strange:  # the name may be all that tells which key is missing
                    return None
                return stored._replace(wrapper=first.id)  # no start needs the old key for one that it does not unwrap
            if stored.wrapper == first.id:
                return None
            count += 1
            return first.wrapped(stored.id, secret)

        self.store.set_current(first.id)
        after: bytes | None = b""
        while after is not None:
            after = self.store.rewrap_some(rewrapped, after=after)
            done(count)
        return Rewrapped(count, tuple(damaged), self.store.wrappers() <= {first.id, *self._strange})

    def close(self) -> None:
        """Forget the keys that were made ahead, and release the store."""
        with self._making:
            self._closed = True
            with self._lock:
                unused, self._new = [key.id for key in self._new], []
            try:
                if unused:
                    self.store.drop(unused)
            except EventLogError:
                pass  # the keys stay as rows that no event names
            self.store.close()

    def _strange_wrappers(self) -> set[bytes]:
        """The names of wrappers that no key of the operator's has, nor is the wrapper in spite of its name."""
        wrappers = self.store.wrappers()
        strange: dict[bytes, KeysUnusable] = {}
        for wrapper in wrappers - self._operator_keys.ids:
            try:
                if (one := self.store.one_of(wrapper)) is not None:
                    self._operator_keys.unwrapped(one)
            except KeysUnusable as error:
                strange[wrapper] = error
        refused = wrappers if strange.keys() == wrappers else {self.store.current()}
        for wrapper in strange.keys() & refused:
            raise strange[wrapper]
        return set(strange)

    def _unwrapped(self, stored: StoredKey) -> bytes:
        """The data key's secret. Raises KeyLost if it is damaged, or its wrapper was not among the keys at the start;
        KeysUnusable if its wrapper is another one: a rotation may be at work, and reading anew helps."""
        try:
            return self._operator_keys.unwrapped(stored)
        except KeysUnusable as error:
            if stored.wrapper in self._strange:
                raise KeyLost(str(error)) from error
            raise

    def _made_ahead(self) -> None:
        try:
            if not self._closed:
                self._make()
        except EventLogError:
            return  # the caller who needs a key makes it, and gets the error
        finally:
            self._making.release()

    def _make(self) -> None:
        secrets = {os.urandom(KEY_ID_BYTES): os.urandom(SECRET_BYTES) for _ in range(BATCH)}
        for _ in range(ATTEMPTS_MAX):
            current = self.store.current()
            wrapper = self._operator_keys.named(current) if current else self._operator_keys.first
            if self.store.add([wrapper.wrapped(key_id, secret) for key_id, secret in secrets.items()]):
                break
        else:
            raise LogUnavailable(f"{self.store} is being rotated again and again")
        with self._lock:
            self._new += [DataKey(key_id, secret) for key_id, secret in secrets.items()]

    def _keep(self, key_id: bytes, key: DataKey | None) -> None:
        with self._lock:
            self._kept.pop(key_id, None)
            if len(self._kept) >= KEPT_MAX:
                del self._kept[next(iter(self._kept))]
            self._kept[key_id] = key
