"""Reads a damaged log from two sources, a table and the index beside it, each around its unreadable pages."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, Final

from abridged.eventlog.errors import LogCorrupt
from abridged.eventlog.event import SealedEvent, StreamId
from abridged.eventlog.sqlite.reader import SqliteReader
from abridged.eventlog.sqlite.survey import PAGE_ROWS, Survey
from abridged.eventlog.stored_event import sealed
from abridged.eventlog.verification import Ranges

EVENT_BYTES_MIN: Final = 80
"""Bytes of any event in a file: its hashes, its salt and its id. They bound the positions where the last is not
known."""

LEAF_EVENTS_MAX: Final = 4_096 // EVENT_BYTES_MIN
"""Events on one page of the log's file at most; more of them in a row are lost with a page that leads to others."""

_TABLE, _INDEX = "NOT INDEXED", "INDEXED BY sqlite_autoindex_events_1"
_POSITIONS = "SELECT count(*), coalesce(max(position), 0) FROM events {}"
_ENDS = "SELECT stream, count(*) FROM events {} GROUP BY stream"
_PLACES = "SELECT position, stream, version FROM events NOT INDEXED WHERE position >= ? ORDER BY position LIMIT ?"
_PLACES_OF = (
    "SELECT version, position FROM events INDEXED BY sqlite_autoindex_events_1 "
    "WHERE stream = ? AND version >= ? ORDER BY version LIMIT ?"
)
_EVENT = (
    "SELECT position, version, event_id, type, schema_version, time_us, trace_context, payload, salt, commitment, "
    "content_hash, chain FROM events NOT INDEXED WHERE position = ?"
)
_NUMBERS = "SELECT id, namespace, name FROM streams NOT INDEXED WHERE id >= ? ORDER BY id LIMIT ?"
_LAST_STREAM = "SELECT coalesce(max(id), 0) FROM streams NOT INDEXED"
_NAMES_AFTER = (
    "SELECT id, namespace, name FROM streams INDEXED BY sqlite_autoindex_streams_1 "
    "WHERE (namespace, name) > (?, ?) ORDER BY namespace, name LIMIT ?"
)
_NAMES_BEFORE = (
    "SELECT id, namespace, name FROM streams INDEXED BY sqlite_autoindex_streams_1 "
    "WHERE (namespace, name) < (?, ?) ORDER BY namespace DESC, name DESC LIMIT ?"
)
_BEYOND_TEXT = b"", b""
"""A key after every name: SQLite sorts bytes after texts."""
_TYPES = "SELECT id, name FROM types {}"
_INDEX_OF_TYPES = "INDEXED BY sqlite_autoindex_types_1"


class Sources:
    """The tables of a log of `size_bytes`, read by `reader`; what one source hides is read from the other."""

    def __init__(self, reader: SqliteReader, size_bytes: int) -> None:
        self._read = reader.read
        self._bytes = size_bytes
        self._survey = Survey()

    def _asked(self, query: str, *parameters: Any) -> list[Any]:
        return self._read(lambda connection: connection.execute(query, parameters).fetchall())

    def _either(self, query: str, *sources: str) -> list[Any]:
        """Ask the first source of which no page is damaged."""
        *others, last = sources
        for source in others:
            with suppress(LogCorrupt):
                return self._asked(query.format(source))
        return self._asked(query.format(last))

    def _rows(self, query: str, *parameters: Any) -> Callable[[int, int], list[Any]]:
        return lambda first, limit: self._asked(query, *parameters, first, limit)

    @cached_property
    def ends(self) -> dict[Any, int]:
        """The number of events of each stream, by the stream's number."""
        try:
            return dict(self._either(_ENDS, _TABLE, _INDEX))
        except LogCorrupt:
            return Counter(number for _, number, _ in self.places())

    @cached_property
    def lost(self) -> Ranges:
        """The positions that the table of events has lost with its pages."""
        lost = Ranges()
        try:
            self._asked(_POSITIONS.format(_TABLE))
        except LogCorrupt:
            rows = self._survey.rows(self._rows(_PLACES), last=self._last_possible(), lost=lost.add)
            deque(rows, maxlen=0)
        return lost

    def places(self) -> Iterator[Any]:
        """Position, stream and version of each event that the table has not lost, in order."""
        first = 1
        for lost, end in (*self.lost.kept, (self._last_possible() + 1, 0)):
            yield from self._survey.rows(self._rows(_PLACES), first=first, last=lost - 1)
            first = end + 1

    @cached_property
    def _named(self) -> tuple[dict[StreamId, int], Ranges]:
        """The number of each stream, and the numbers of streams without a name.

        Names that a damaged page of their table hides are looked for in the index of names, from both of its ends.
        """
        lost = Ranges()
        numbers = {}
        last = max([number for number in self.ends if isinstance(number, int)], default=0)
        with suppress(LogCorrupt):
            last = max(last, int(self._asked(_LAST_STREAM)[0][0]))
        for number, *name in self._survey.rows(self._rows(_NUMBERS), last=last, lost=lost.add):
            if all(isinstance(part, str) for part in name):
                numbers[StreamId(*name)] = number
            else:
                lost.add(number)
        found = set()
        if lost.count:
            for number, *name in (*self._walked(_NAMES_AFTER, ("", "")), *self._walked(_NAMES_BEFORE, _BEYOND_TEXT)):
                if number in lost and all(isinstance(part, str) for part in name):
                    numbers[StreamId(*name)] = number
                    found.add(number)
        nameless = Ranges()
        for number in (number for first, end in lost.kept for number in range(first, end + 1)):
            if number not in found:
                nameless.add(number)
        return numbers, nameless

    @property
    def numbers(self) -> dict[StreamId, int]:
        """The number of each stream whose name can be read."""
        return self._named[0]

    @property
    def nameless(self) -> Ranges:
        """The numbers of streams whose names cannot be read, neither in their table nor in the index of names."""
        return self._named[1]

    def _walked(self, query: str, start: tuple[Any, Any]) -> Iterator[Any]:
        """The streams from one end of the index of names up to what cannot be read."""
        limit = PAGE_ROWS
        while limit:
            try:
                page = self._asked(query, *start, limit)
            except LogCorrupt:
                limit //= 2
                continue
            if not page:
                return
            yield from page
            start = page[-1][1:]

    def types(self) -> dict[int, str]:
        """The names of event types, by number; none if they cannot be read."""
        try:
            return dict(self._either(_TYPES, _TABLE, _INDEX_OF_TYPES))
        except LogCorrupt:
            return {}

    def event(self, position: int, stream: StreamId, types: Mapping[int, str]) -> SealedEvent | None:
        """The event at a position, read without the tables of names and any index; None if it cannot be read."""
        try:
            ((_, version, event_id, type_number, *header, payload, salt, commitment, digest, chain),) = self._asked(
                _EVENT, position
            )
            row = (position, *stream, version, event_id, types.get(type_number), *header, payload)
            return sealed((*row, salt, commitment, digest, chain))
        except (LogCorrupt, ValueError):
            return None

    def _last_possible(self) -> int:
        """The last position, if the table or its index tells it; else the most that a file of its size can have."""
        most = self._bytes // EVENT_BYTES_MIN
        try:
            return min(most, self.positions()[1])
        except LogCorrupt:
            return most

    def positions(self) -> tuple[int, int]:
        """The number of events and the last position, from their table or its index; raises LogCorrupt if both are
        damaged."""
        ((count, last),) = self._either(_POSITIONS, _TABLE, _INDEX)
        return count, last

    def places_of(self, number: int, *, last: int) -> Iterator[Any]:
        """Version and position of a stream's events up to the version `last`, as far as the index of versions has
        them."""
        return self._survey.rows(self._rows(_PLACES_OF, number), last=last)

    def walk(self, index: str) -> None:
        """Read each page of an index of the events. Raises LogCorrupt if one is damaged."""
        self._asked(_POSITIONS.format(f"INDEXED BY {index}"))

    @property
    def is_cut(self) -> bool:
        """True if reading ended after too many failures: more of the file may be lost than is named."""
        return self._survey.is_cut
