"""The meaning of an encrypted log's events, for a salvage, which reads them as they are stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from abridged.eventlog.encryption.contents import Contents
from abridged.eventlog.encryption.data_key import place_of_event
from abridged.eventlog.encryption.framing import is_encrypted, key_id_of
from abridged.eventlog.errors import KeyLost, KeysUnusable, StreamCorrupt
from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.eventlog.salvage import Meaning, Rest


def encrypted_meaning(meaning: Meaning, contents: Contents) -> Meaning:
    """Return the meaning of events whose contents are encrypted. Events whose key was erased stay as they are.

    A stream's first payload does not reveal the stream's name, because only the name decrypts it.
    """
    stored = _Stored(meaning, contents)
    return meaning._replace(
        opens=lambda _payload: (),
        content=stored.content,
        origin=stored.origin,
        is_readable=stored.is_readable,
        require_keys=stored.require_keys,
        rest=stored.rest,
        line=lambda log_id, event: meaning.line(log_id, contents.opened(event)),
    )


@dataclass(slots=True)
class _Stored:
    """The meaning of events as they are stored, made from the meaning of events in clear. `found` and `lost` count the
    times that an event's key was found, or was not."""

    meaning: Meaning
    contents: Contents
    found: int = 0
    lost: int = 0

    def is_readable(self, event: RecordedEvent) -> bool:
        """See Meaning. Contents whose key was erased are readable: they are those of an erased event."""
        if not is_encrypted(event.payload):
            return True
        try:
            self.contents.keys.of(key_id_of(event.payload))
        except KeyLost:
            self.lost += 1
            return False
        self.found += 1
        return True

    def require_keys(self) -> None:
        """See Meaning."""
        if self.lost and not self.found:
            raise KeysUnusable(f"{self.contents.keys.store} has no key of this log")

    def content(self, event: RecordedEvent) -> bytes:
        """See Meaning. The event's own key hashes the content, as it did when the event was written."""
        clear = self._in_clear(event)
        if clear is None:
            return b""
        content = self.meaning.content(clear)
        key = self.contents.key_in(event.payload)
        return content if key is None else key.hashed(content)

    def origin(self, event: RecordedEvent) -> tuple[StreamId, int] | None:
        """See Meaning."""
        clear = self._in_clear(event)
        return None if clear is None else self.meaning.origin(clear)

    def rest(self, stream: StreamId, events: Iterable[RecordedEvent], is_erased: bool) -> Rest:
        """See Meaning."""
        rest = self.meaning.rest(stream, self._all_in_clear(events), is_erased)

        def left(event: RecordedEvent) -> bytes:
            clear = self._in_clear(event) or event
            payload = rest.left(clear)
            if payload == clear.payload:
                return event.payload
            key = self.contents.key_in(event.payload)
            if key is None:
                return payload
            return self.contents.encrypted(key, event.type, payload, place_of_event(stream, event))

        return rest._replace(left=left)

    def _all_in_clear(self, events: Iterable[RecordedEvent]) -> Iterator[RecordedEvent]:
        return (clear for event in events if (clear := self._in_clear(event)) is not None)

    def _in_clear(self, event: RecordedEvent) -> RecordedEvent | None:
        try:
            return self.contents.opened_if_readable(event)
        except (StreamCorrupt, KeyLost):  # the fold reports the first, and what has no key counts as missing
            return None
