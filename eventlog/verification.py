"""The contract of a check of a whole log, and what such a check reports."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from abridged.eventlog.event import RecordedEvent, SealedEvent, StreamId
from abridged.eventlog.rows import Fault
from abridged.eventlog.snapshots import Snapshots

FAILURES_MAX: Final = 50_000
"""Failed reads of one survey: about 10 s, and as many rows as a thousand lost pages had."""

RANGES_MAX: Final = 20
"""Ranges of damaged positions that are held of one stream."""


class Ranges:
    """Ascending whole numbers as ranges; only the first `kept_max` ranges are held, and `dropped` counts the others."""

    def __init__(self, kept_max: int = FAILURES_MAX) -> None:
        self.kept: list[tuple[int, int]] = []
        self.dropped = 0
        self.count = 0
        self.last = 0
        self._kept_max = kept_max

    def add(self, number: int) -> None:
        """Add a number after all others; one that is not after them counts as a range of its own."""
        self.count += 1
        follows, self.last = number == self.last + 1 and self.count > 1, max(self.last, number)
        if follows and not self.dropped:
            self.kept[-1] = self.kept[-1][0], number
        elif len(self.kept) < self._kept_max and not self.dropped:
            self.kept.append((number, number))
        elif not follows:
            self.dropped += 1

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self.kept, number, key=lambda kept: kept[0])
        return place > 0 and number <= self.kept[place - 1][1]


class Loss(NamedTuple):
    """The damaged and lost events of a stream.

    `ranges` are the first RANGES_MAX of damaged positions and `more` the number of the others, `last` is the last
    damaged position, `intact` the number of events that are as written, `unplaced` that of lost events whose positions
    nothing tells.
    """

    ranges: tuple[tuple[int, int], ...]
    more: int
    last: int
    intact: int
    unplaced: int

    @property
    def is_empty(self) -> bool:
        """True if every event is there, as it was written."""
        return not self.ranges and not self.unplaced


class Finding(NamedTuple):
    """A damage; a rebuild of the read table makes again whatever is not the log's own."""

    what: str
    is_own: bool = True


class LogVerification(Protocol):
    """An open check of a log that no process owns, which reads it as a running log would and changes nothing.

    Every read raises LogCorrupt for what is not as written.
    """

    @property
    def log_id(self) -> str:
        """The log's own id."""
        ...

    @property
    def fault(self) -> Fault | None:
        """The fault of the table of rows; None when its rows can be read."""
        ...

    @property
    def snapshots(self) -> Snapshots | None:
        """The log's snapshots; None if they cannot be read."""
        ...

    @property
    def nameless(self) -> Ranges:
        """The numbers of streams whose names cannot be read."""
        ...

    @property
    def gave_up(self) -> bool:
        """True if reading ended after too many failures: more of the log may be lost than is named."""
        ...

    def event_count(self) -> int:
        """The number of events that are there, as far as it can be read."""
        ...

    def structure(self) -> Iterator[Finding]:
        """Yield the damage to the files or tables of the events, and to their positions."""
        ...

    def require_start(self) -> None:
        """Raise LogCorrupt if no process can open the log."""
        ...

    def require_same_head(self) -> None:
        """Raise LogCorrupt when events are missing that the table of rows knows of."""
        ...

    def append_hazard(self) -> str:
        """Describe the damage that stops a process at an append to any stream; empty without any."""
        ...

    def streams(self) -> dict[StreamId, int]:
        """Every stream whose name can be read, with the number of its events."""
        ...

    def pages(self, stream: StreamId) -> Iterator[Sequence[SealedEvent]]:
        """The stream's events in order, in pages. Raises LogCorrupt at the first that does not follow from those before
        it."""
        ...

    def losses(self, ends: Mapping[StreamId, int]) -> Iterator[tuple[StreamId, Loss]]:
        """Return the losses of each of these streams; `ends` has the number of events that each is known to have had,
        or 0."""
        ...

    def sizes(self) -> dict[str, int]:
        """Bytes of each part of the log's storage, by the part's name."""
        ...

    def read_all(self, *, after: int, limit: int, in_clear: Container[StreamId] | None = None) -> list[RecordedEvent]:
        """Events of the whole log by position, as EventLog reads them; encrypted ones of streams that are not to be
        `in_clear` are as they are stored. Without it all are in clear."""
        ...

    def read_stream(self, stream: StreamId, *, after: int, limit: int, backward: bool) -> list[RecordedEvent]:
        """A page of a stream, as EventLog reads it."""
        ...

    def read_sealed(self, stream: StreamId, *, after: int = 0, limit: int) -> list[SealedEvent]:
        """A page of a stream with its seals, as EventLog reads it."""
        ...

    def known_ids(self, stream: StreamId, event_ids: Collection[bytes]) -> dict[bytes, int]:
        """Positions, by id, of the events that a repeat would find, as EventLog does."""
        ...

    def in_clear(self, event: RecordedEvent) -> RecordedEvent | None:
        """Return an event of `pages`, which have them as they are stored, in clear; None if its contents are encrypted,
        and the log is checked without keys or their key was erased. Raises KeyLost if it is not there or is damaged,
        and LogCorrupt for an event that is not what was encrypted."""
        ...

    def has_content(self, sealed: SealedEvent, content: bytes) -> bool:
        """Return whether repeats of the event with this content would be recognized."""
        ...


def listed(ranges: Iterable[tuple[int, int]], more: int = 0) -> str:
    """Ranges of numbers as a text, with the number of those that are left out."""
    named = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in ranges)
    return f"{named} and {more} more" if more > 0 else named
