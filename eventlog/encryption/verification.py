"""A check of an encrypted log with its keys: reads contents in clear, and everything else as it is stored."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence

from abridged.eventlog.encryption.contents import Contents
from abridged.eventlog.encryption.snapshots import EncryptedSnapshots
from abridged.eventlog.event import RecordedEvent, SealedEvent, StreamId
from abridged.eventlog.rows import Fault
from abridged.eventlog.snapshots import Snapshots
from abridged.eventlog.verification import Finding, LogVerification, Loss, Ranges


class EncryptedVerification:
    """The LogVerification `log` with `contents`."""

    def __init__(self, log: LogVerification, contents: Contents) -> None:
        self._log = log
        self.contents = contents

    @property
    def log_id(self) -> str:
        return self._log.log_id

    @property
    def fault(self) -> Fault | None:
        return self._log.fault

    @property
    def snapshots(self) -> Snapshots | None:
        stored = self._log.snapshots
        return None if stored is None else EncryptedSnapshots(stored, self.contents, lambda _: None)

    @property
    def nameless(self) -> Ranges:
        return self._log.nameless

    @property
    def gave_up(self) -> bool:
        return self._log.gave_up

    def event_count(self) -> int:
        return self._log.event_count()

    def structure(self) -> Iterator[Finding]:
        return self._log.structure()

    def require_start(self) -> None:
        self._log.require_start()

    def require_same_head(self) -> None:
        self._log.require_same_head()

    def append_hazard(self) -> str:
        return self._log.append_hazard()

    def streams(self) -> dict[StreamId, int]:
        return self._log.streams()

    def pages(self, stream: StreamId) -> Iterator[Sequence[SealedEvent]]:
        return self._log.pages(stream)

    def losses(self, ends: Mapping[StreamId, int]) -> Iterator[tuple[StreamId, Loss]]:
        return self._log.losses(ends)

    def sizes(self) -> dict[str, int]:
        return self._log.sizes()

    def read_all(self, *, after: int, limit: int, in_clear: Container[StreamId] | None = None) -> list[RecordedEvent]:
        page = self._log.read_all(after=after, limit=limit)
        return [
            self.contents.opened(event) if in_clear is None or event.stream in in_clear else event for event in page
        ]

    def read_stream(self, stream: StreamId, *, after: int, limit: int, backward: bool) -> list[RecordedEvent]:
        page = self._log.read_stream(stream, after=after, limit=limit, backward=backward)
        return [self.contents.opened(event) for event in page]

    def read_sealed(self, stream: StreamId, *, after: int = 0, limit: int) -> list[SealedEvent]:
        return self._log.read_sealed(stream, after=after, limit=limit)

    def known_ids(self, stream: StreamId, event_ids: Collection[bytes]) -> dict[bytes, int]:
        return self._log.known_ids(stream, event_ids)

    def in_clear(self, event: RecordedEvent) -> RecordedEvent | None:
        return self.contents.opened_if_readable(event)

    def has_content(self, sealed: SealedEvent, content: bytes) -> bool:
        """See LogVerification. The event's own key, if it has one, hashes the content."""
        key = self.contents.key_in(sealed.event.payload)
        return self._log.has_content(sealed, content if key is None else key.hashed(content))
