"""The reads of a check of a log that a database keeps, whichever it is: those of a running log, and its pages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Container, Iterator, Sequence
from typing import Generic, TypeVar

from abridged.eventlog.chain import LogIdentity, content_hash, is_blanked
from abridged.eventlog.encryption.framing import is_encrypted
from abridged.eventlog.event import RecordedEvent, SealedEvent, StreamId
from abridged.eventlog.event_reader import EventReader
from abridged.eventlog.log import PAGE_BYTES_MAX

R = TypeVar("R", bound=EventReader)


class CheckedLog(ABC, Generic[R]):
    """Reads a log through `reader` as a running log would; see LogVerification."""

    def __init__(self, reader: R, identity: LogIdentity) -> None:
        self.reader = reader
        self._identity = identity

    @property
    @abstractmethod
    def _head(self) -> int:
        """The last position."""

    @property
    def log_id(self) -> str:
        return self._identity.log_id

    def pages(self, stream: StreamId) -> Iterator[Sequence[SealedEvent]]:
        """The stream's events in order, in pages. Raises LogCorrupt at the first that does not follow from those before
        it."""
        return self.reader.verified_pages(stream, log_id=self.log_id)

    def read_all(
        self,
        *,
        after: int,
        limit: int,
        in_clear: Container[StreamId] | None = None,  # noqa: ARG002 - all are as they are stored
    ) -> list[RecordedEvent]:
        """Events of the whole log by position, as EventLog reads them."""
        return self.reader.read_all(after=after, limit=limit, backward=False, head=self._head)

    def read_stream(self, stream: StreamId, *, after: int, limit: int, backward: bool) -> list[RecordedEvent]:
        """A page of a stream, as EventLog reads it."""
        return self.reader.read_stream(stream, after=after, limit=limit, backward=backward, bytes_max=PAGE_BYTES_MAX)

    def read_sealed(self, stream: StreamId, *, after: int = 0, limit: int) -> list[SealedEvent]:
        """A page of a stream with its seals, as EventLog reads it."""
        return self.reader.read_sealed(stream, after=after, limit=limit)

    def known_ids(self, stream: StreamId, event_ids: Collection[bytes]) -> dict[bytes, int]:
        """Positions, by id, of the events that a repeat would find, as EventLog does."""
        return self.reader.known_ids(stream, event_ids)

    def in_clear(self, event: RecordedEvent) -> RecordedEvent | None:
        """Return the event, unless it is encrypted."""
        return None if is_encrypted(event.payload) else event

    def has_content(self, sealed: SealedEvent, content: bytes) -> bool:
        """Return whether repeats of the event with this content would be recognized."""
        if is_blanked(sealed.salt) and not sealed.content_hash:
            return True
        return content_hash(self._identity.key, sealed.event.type, content) == sealed.content_hash
