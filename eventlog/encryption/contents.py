"""Encrypts the contents of a log on their way in, decrypts them on their way out, and remembers each stream's key."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from abridged.eventlog.encryption.data_key import DataKey, NotDecrypted, place_of_event
from abridged.eventlog.encryption.data_keys import DataKeys
from abridged.eventlog.encryption.framing import ClearTypes, is_encrypted, key_id_of
from abridged.eventlog.errors import KeyLost, StreamCorrupt
from abridged.eventlog.event import RecordedEvent, StreamId

STREAMS_MAX: Final = 4_096
"""The number of streams whose keys are remembered; the events of any other name its key."""


class Contents:
    """Encrypts and decrypts with `keys`. Methods may be called in any thread."""

    def __init__(self, keys: DataKeys, clear: ClearTypes) -> None:
        self.keys = keys
        self.clear = clear
        self._lock = threading.Lock()
        self._of_stream: dict[StreamId, DataKey] = {}
        self._writing: dict[StreamId, tuple[DataKey, int]] = {}

    def known_key(self, stream: StreamId) -> DataKey | None:
        """The stream's key, if an append is being written with it or it is remembered."""
        writing = self._writing.get(stream)
        return self._of_stream.get(stream) if writing is None else writing[0]

    def hold(self, stream: StreamId, key: DataKey) -> DataKey:
        """Return the key for an append to the stream: that of an append which is being written, else `key`. It is known
        until it is released, however many streams are remembered meanwhile: the append's row needs it, too."""
        with self._lock:
            key, appends = self._writing.get(stream, (key, 0))
            self._writing[stream] = key, appends + 1
        return key

    def release(self, stream: StreamId) -> None:
        """Say that an append which held the stream's key was written, or refused."""
        with self._lock:
            key, appends = self._writing.pop(stream)
            if appends > 1:
                self._writing[stream] = key, appends - 1

    def remember(self, stream: StreamId, key: DataKey) -> None:
        """Remember the stream's key."""
        known = self._of_stream.get(stream)
        if known is not None and known.id == key.id:
            return
        with self._lock:
            self._of_stream.pop(stream, None)
            if len(self._of_stream) >= STREAMS_MAX:
                del self._of_stream[next(iter(self._of_stream))]
            self._of_stream[stream] = key

    def forget(self, stream: StreamId) -> None:
        """Remember no key of the stream."""
        with self._lock:
            self._of_stream.pop(stream, None)

    def key_in(self, stored: bytes) -> DataKey | None:
        """The key that encrypted these bytes; None if they are in clear, or it was erased. Raises the errors of
        DataKeys.of."""
        return self.keys.of(key_id_of(stored)) if is_encrypted(stored) else None

    def encrypted(self, key: DataKey, event_type: str, payload: bytes, place: bytes) -> bytes:
        """The payload as it is stored."""
        return payload if self.clear.have(event_type, payload) else key.encrypted(payload, place)

    def opened(self, event: RecordedEvent) -> RecordedEvent:
        """The event in clear, or with the payload of an erased one if its key was erased. Raises KeysUnusable, and
        StreamCorrupt if the payload does not decrypt."""
        found = self.opened_if_readable(event)
        return event._replace(payload=self.clear.erased) if found is None else found

    def opened_in_passing(self, event: RecordedEvent) -> RecordedEvent:
        """The event as `opened` returns it, or with the payload of an erased one if its key is lost, so that whoever
        reads many streams goes on. Raises the other errors of `opened`."""
        try:
            return self.opened(event)
        except KeyLost:
            return event._replace(payload=self.clear.erased)

    def opened_if_readable(self, event: RecordedEvent) -> RecordedEvent | None:
        """The event in clear; None if its key was erased. Raises the errors of `opened`."""
        if not is_encrypted(event.payload):
            return event
        try:
            key = self.keys.of(key_id_of(event.payload))
        except KeyLost as lost:
            raise lost.of(event.stream) from lost
        return None if key is None else self._decrypted(key, event)

    def opened_beside(self, stored: bytes, stream: StreamId, place: bytes) -> bytes | None:
        """Decrypt bytes that are kept beside a stream. Return None if their key was erased. Raises the errors of
        `opened`: callers that go on without what KeyLost takes can list the others, and erase it."""
        if not is_encrypted(stored):
            return stored
        key = self.keys.of(key_id_of(stored))
        if key is None:
            return None
        try:
            return key.decrypted(stored, place)
        except NotDecrypted as error:
            raise StreamCorrupt("what is kept beside it is not what was encrypted", stream) from error

    def _decrypted(self, key: DataKey, event: RecordedEvent) -> RecordedEvent:
        try:
            payload = key.decrypted(event.payload, place_of_event(event.stream, event))
        except NotDecrypted as error:
            what = f"position {event.position} is not what was encrypted"
            raise StreamCorrupt(what, event.stream, event.version) from error
        self.remember(event.stream, key)
        return event._replace(payload=payload)


def keys_named(payloads: Sequence[bytes]) -> set[bytes]:
    """The ids of the keys that encrypted any of these payloads."""
    return {key_id_of(payload) for payload in payloads if is_encrypted(payload)}


class KeyErased(Exception):
    """A stream's key was erased, or is lost: nothing may be kept beside the stream any more."""


Found = Callable[[StreamId], DataKey | None]
"""Returns a stream's key; None if no event of it is encrypted. Raises KeyErased."""
