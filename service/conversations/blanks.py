"""Takes the contents of erased, redacted and archived events out of their streams, and removes archives of them.

Erased conversations lose their keys first, and archived contents are blanked only while their file is there as it was
written. The file of a conversation that is erased or unarchived is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from abridged.eventlog.backend import StreamKeys
from abridged.eventlog.errors import StreamCorrupt
from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.eventlog.log import PAGE_EVENTS_MAX, EventLog
from abridged.service.codec.events import ERASED, decoded, encode
from abridged.service.conversations.archive_folder import ArchiveFolder
from abridged.service.conversations.replay import recorded_events
from abridged.service.conversations.table import ConversationTable
from abridged.service.domain.errors import ArchiveUnusable
from abridged.service.domain.events import (
    ConversationArchived,
    ConversationErased,
    ConversationUnarchived,
    ErasedEvent,
    Event,
    TextPurged,
)
from abridged.service.domain.redaction import Blanking

_LAST_EVENTS = 8


class BlankedUpTo(NamedTuple):
    """The version of the newest event of a stream that takes contents away, 0 without one, whether any before it was
    still to be blanked, and whether all were."""

    version: int
    any: bool
    all: bool = False


class Blanks:
    """The blank places of one log. Calls block."""

    def __init__(
        self, log: EventLog, table: ConversationTable, archives: ArchiveFolder, keys: StreamKeys | None = None
    ) -> None:
        """`keys` are those of a log that is encrypted."""
        self._log = log
        self._table = table
        self.archives = archives
        self._keys = keys

    def put(self, key: StreamId) -> BlankedUpTo:
        """Blank what the events of a stream have taken away from those before them.

        The first events come first: from a first event on that is erased, a fold goes on to the erasure.
        """
        row = self._table.row(key)
        if row is not None and row.erased:
            require_removable(self._log, key, self.archives)
            if self._keys is not None:  # first: the contents name their keys as long as they are there
                self._keys.erase(key, row.position)
            self.archives.remove(self._log.log_id, key)
            any_blanked = self._put_blanks(key, row.purge_due, _erased, partial(self._unchecked, key))
            return BlankedUpTo(row.purge_due, any_blanked, all=True)
        if row is not None and row.archive_file:
            version, archived = archived_in(self._log, key)
            self.archives.require(archived)
            # Another process may take it back or erase it from here on; its file is the only copy.
            unchecked = partial(self._unchecked, key)
            any_blanked = self._put_blanks(key, version, _erased, unchecked, expected_version=row.event_version)
            self.archives.remove(self._log.log_id, key, before=version, but=archived.file)
            return BlankedUpTo(version, any_blanked, all=True)
        blanking = Blanking.of(self._whole(key))
        left = partial(redacted_payload, blanking)
        any_blanked = self._put_blanks(key, blanking.end, left, partial(self._in_clear, key))
        if row is not None:
            self.archives.remove(self._log.log_id, key, before=row.event_version)
        return BlankedUpTo(max(blanking.end, row.purge_due if row is not None else 0), any_blanked)

    def _whole(self, key: StreamId) -> Iterator[tuple[int, Event]]:
        """The events with their versions. Raises StreamCorrupt for one whose content is in an archive, which has to
        stay: another process has blanked it while this one put it back."""
        for recorded in recorded_events(self._log, key):
            event = decoded(recorded)
            if isinstance(event, ErasedEvent):
                raise StreamCorrupt(f"position {recorded.position} is in an archive", key, recorded.version)
            yield recorded.version, event

    def _put_blanks(
        self,
        key: StreamId,
        end: int,
        left: Callable[[RecordedEvent], bytes],
        page_of: Callable[[int, int], Sequence[RecordedEvent]],
        *,
        expected_version: int | None = None,
    ) -> bool:
        """Put the payloads that are `left` in the places of those before version `end`. Return whether any changed.
        `page_of` reads the events after a version up to a number of them."""
        any_blanked, after = False, 0
        while after < end - 1 and (page := page_of(after, min(PAGE_EVENTS_MAX, end - 1 - after))):
            lefts = {event.version: left(event) for event in page}
            changed = {event.version for event in page if lefts[event.version] != event.payload}
            if changed:
                payloads = {version: lefts[version] for version in sorted(changed)}
                self._log.blank(key, payloads, expected_version=expected_version)
                any_blanked = True
            after = page[-1].version
        return any_blanked

    def _unchecked(self, key: StreamId, after: int, limit: int) -> list[RecordedEvent]:
        """Events as they are stored, damaged or not."""
        return [sealed.event for sealed in self._log.read_sealed(key, after=after, limit=limit)]

    def _in_clear(self, key: StreamId, after: int, limit: int) -> list[RecordedEvent]:
        return self._log.read_stream(key, after=after, limit=limit)


def archived_in(log: EventLog, key: StreamId) -> tuple[int, ConversationArchived]:
    """The event by which a conversation is archived, and its version. Raises StreamCorrupt without one."""
    before = 0
    while page := log.read_stream(key, after=before, limit=_LAST_EVENTS, backward=True):
        for recorded in page:
            if recorded.type == ConversationArchived.__name__:
                event = decoded(recorded)
                if isinstance(event, ConversationArchived):
                    return recorded.version, event
        before = page[-1].version
    raise StreamCorrupt("an archived conversation without an event that says so", key)


def require_removable(log: EventLog, key: StreamId, archives: ArchiveFolder) -> None:
    """Raise ArchiveUnusable for an erased conversation that may still have an archive where no folder is set. Types of
    events stay when they are blanked, and are read of damaged ones, too."""
    if archives.is_set:
        return
    stored = log.read_sealed(key, after=max(0, log.stream_version(key) - _LAST_EVENTS))
    last = [name for each in reversed(stored) if (name := each.event.type) != ConversationErased.__name__]
    purged = last[:1] == [TextPurged.__name__]
    ended = {ConversationArchived.__name__, *(() if purged else (ConversationUnarchived.__name__,))}
    if last[purged : purged + 1] and last[purged] in ended:
        raise ArchiveUnusable("log.archive_dir is not set", file=key.name)


def _erased(_recorded: RecordedEvent) -> bytes:
    return ERASED


def redacted_payload(blanking: Blanking, recorded: RecordedEvent) -> bytes:
    """The payload that redactions leave of the next event of their stream. Raises UnknownEvent."""
    event = decoded(recorded)
    left = blanking.left(recorded.version, event)
    return recorded.payload if left == event else encode(left)[2]
