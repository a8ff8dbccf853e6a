"""Snapshots of streams, encrypted with the keys of their events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from abridged.eventlog.encryption.contents import Contents, Found, KeyErased
from abridged.eventlog.encryption.data_key import place_in_stream
from abridged.eventlog.encryption.framing import key_id_of
from abridged.eventlog.errors import KeyLost, LogCorrupt
from abridged.eventlog.event import StreamId
from abridged.eventlog.snapshots import Snapshots, StoredSnapshot

_ENCRYPTED: Final = "encrypted:"
"""The prefix of the codec of an encrypted state: the first byte of a state in clear may be any."""


class EncryptedSnapshots:
    """The Snapshots in `stored`. Snapshots of streams without a key are in clear, like their events; there
    are no snapshots of a stream whose key was erased."""

    def __init__(self, stored: Snapshots, contents: Contents, key_of: Found) -> None:
        self._stored = stored
        self._contents = contents
        self._key_of = key_of

    def of(self, key: StreamId) -> StoredSnapshot | None:
        """See Snapshots. Returns None, too, if the key was erased or is lost, or the state does not decrypt."""
        found = self._stored.of(key)
        if found is None or not found.codec.startswith(_ENCRYPTED):
            return found
        found = found._replace(codec=found.codec.removeprefix(_ENCRYPTED))
        try:
            state = self._contents.opened_beside(found.state, key, _place(found))
        except (LogCorrupt, KeyLost):
            return None
        if state is None:
            return None
        if (own := self._contents.keys.of(key_id_of(found.state))) is not None:
            self._contents.remember(key, own)  # for the next append: the events may not be read
        return found._replace(state=state)

    def is_damaged(self, key: StreamId) -> bool:
        return self._stored.is_damaged(key)

    def version_of(self, key: StreamId) -> int:
        return self._stored.version_of(key)

    def put(self, snapshot: StoredSnapshot, *, unless: Callable[[], bool] = lambda: False) -> None:
        encrypted = self._encrypted(snapshot)
        if encrypted is not None:
            self._stored.put(encrypted, unless=unless)

    def set_aside(self, key: StreamId, newer: StoredSnapshot | None = None) -> int:
        return self._stored.set_aside(key, None if newer is None else self._encrypted(newer))

    def set_aside_rest(self) -> int:
        return self._stored.set_aside_rest()

    def drop(self, key: StreamId) -> None:
        self._stored.drop(key)

    def drop_proven(self, proven: Mapping[StreamId, int]) -> int:
        return self._stored.drop_proven(proven)

    def _encrypted(self, snapshot: StoredSnapshot) -> StoredSnapshot | None:
        try:
            key = self._key_of(snapshot.stream)
        except KeyErased:
            return None
        if key is None:
            return snapshot
        state = key.encrypted(snapshot.state, _place(snapshot))
        return snapshot._replace(codec=_ENCRYPTED + snapshot.codec, state=state)


def _place(snapshot: StoredSnapshot) -> bytes:
    return place_in_stream(snapshot.stream, f"snapshot {snapshot.event_version} {snapshot.codec}")
