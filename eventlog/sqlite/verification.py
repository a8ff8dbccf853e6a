"""Checks a whole log, for an operator: reports every damaged stream by its first damage, instead of stopping at the
first.

No byte of a file is changed. Only its lock is created beside it, so that no process owns the log meanwhile, and an
empty index for a write-ahead log that has none.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from eventlog.chain import LogIdentity, Verified, content_hash, genesis, verify_chain
from eventlog.errors import LogCorrupt
from eventlog.event import RecordedEvent, SealedEvent, StreamId
from eventlog.log import PAGE_BYTES_MAX, PAGE_EVENTS_MAX
from eventlog.sqlite.engine import reader_engine, refuse_foreign, require_current, stored_identity
from eventlog.sqlite.errors import DATABASE_ERRORS, original
from eventlog.sqlite.file import FileLock, refuse_empty, size_bytes, wal_of
from eventlog.sqlite.integrity import appended_to, findings, findings_of, own_findings
from eventlog.sqlite.losses import RANGES_MAX, Loss, Suspect
from eventlog.sqlite.reader import SqliteReader
from eventlog.sqlite.sql import sealed
from eventlog.sqlite.survey import PAGE_ROWS, Ranges, Survey
from eventlog.sqlite.wal import require_whole
from eventlog.sqlite.writer import ends_of

__all__ = ["LogVerification", "listed", "log_id_of"]

EVENT_BYTES_MIN: Final = 96
"""Bytes of any event in a file: its three hashes and its id. They bound the positions where the last is not known."""

LEAF_EVENTS_MAX: Final = 4_096 // EVENT_BYTES_MIN
"""Events on one page of the log's file at most; more of them in a row are lost with a page that leads to others."""

_INDEXES = ("sqlite_autoindex_events_1", "sqlite_autoindex_events_2")
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
"""After every name: SQLite sorts bytes after texts."""
_TYPES = "SELECT id, name FROM types {}"
_INDEX_OF_TYPES = "INDEXED BY sqlite_autoindex_types_1"


class Finding(NamedTuple):
    """What is damaged; not the log's own is what a rebuild of the read table makes again."""

    what: str
    is_own: bool = True


def log_id_of(path: Path) -> str:
    """The id of the log in `path`, whoever owns it and whichever version wrote it. Raises LogCorrupt if it is not a
    log.

    Nothing else is checked.
    """
    path = path.resolve()
    refuse_foreign(path)
    with _read(path) as (_, identity):
        return identity.log_id


class LogVerification:
    """Checks of one file, created by `opened`; `reader` reads it as a running log would."""

    def __init__(self, path: Path, reader: SqliteReader, identity: LogIdentity) -> None:
        self.reader = reader
        self._wal = wal_of(path)
        self._identity = identity
        self._bytes = size_bytes(path)
        self._survey = Survey()

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator[LogVerification]:
        """Open the log in `path` for checks. Raises LogLocked when a process owns it, LogOlder or LogNewer when
        another version wrote it, LogForeign when it is no log, LogCorrupt when damage hides which it is."""
        path = path.resolve(strict=True)
        refuse_foreign(path)
        refuse_empty(path)
        with ExitStack() as resources:
            resources.callback(FileLock(path.with_name(path.name + ".lock")).release)
            try:
                reader, identity = resources.enter_context(_read(path))
                reader.read(require_current)
            except LogCorrupt:
                require_whole(wal_of(path))  # the reason, if the tables are missing because SQLite drops their frames
                raise
            yield cls(path, reader, identity)

    @property
    def log_id(self) -> str:
        """The log's own id."""
        return self._identity.log_id

    def secret(self, purpose: str) -> bytes:
        """The log's secret for a purpose, as EventLog has it."""
        return self._identity.secret(purpose)

    def event_count(self) -> int:
        """The number of events, whatever they contain; where pages of their table and of its index are lost, of those
        that can be read."""
        try:
            return int(self._either(_POSITIONS, _TABLE, _INDEX)[0][0])
        except LogCorrupt:
            return sum(self._ends.values())

    def structure(self) -> Iterator[Finding]:
        """What is wrong with the file, its write-ahead log, its indexes, and its positions."""
        try:
            require_whole(self._wal)
        except LogCorrupt as error:
            yield Finding(str(error))
        if found := self._findings:
            own = self._found(own_findings)
            yield from map(Finding, own)
            yield from (Finding(what, is_own=False) for what in found if what not in own)
        if self.nameless.count:
            numbers = listed(self.nameless.kept[:RANGES_MAX], len(self.nameless.kept) - RANGES_MAX)
            yield Finding(f"{self.nameless.count:,} streams have lost their names; their numbers: {numbers}")
        try:
            ((count, last),) = self._either(_POSITIONS, _TABLE, _INDEX)
        except LogCorrupt as error:
            yield Finding(f"the events and their index: {error}")
            return
        if count != last:
            yield Finding(f"{count} events have positions up to {last}")
        if count:
            try:
                self.reader.check_identity(self._identity)
            except LogCorrupt as error:
                yield Finding(f"the first streams: {error}")

    def require_start(self) -> None:
        """Raise LogCorrupt if no process can open the log: reads what a writer begins with."""
        require_whole(self._wal)
        try:
            self.reader.check_identity(self._identity)
        except LogCorrupt as error:
            raise LogCorrupt(f"the first streams: {error}") from error
        try:
            self.reader.read(lambda connection: ends_of(_driver(connection)))
        except LogCorrupt as error:
            raise LogCorrupt(f"the types, the last stream, or the last event cannot be read: {error}") from error

    def append_hazard(self) -> str:
        """What is damaged of the pages that an append to any stream may read, which stops the process that appends;
        empty if nothing is.

        Appends read pages beside their own where one is full.
        """
        if not self._findings:
            return ""
        with suppress(LogCorrupt):  # where a page of the events' own is lost, which their indexes may have survived
            if found := self.reader.read(partial(findings_of, table="events")):
                return f"the table events or an index of it is damaged: {found[0]}"
        for index in _INDEXES:
            try:
                self._asked(_POSITIONS.format(f"INDEXED BY {index}"))
            except LogCorrupt as error:
                return f"the index {index} of events is damaged: {error}"
        try:
            tables = self.reader.read(appended_to)
        except LogCorrupt as error:
            return str(error)
        for table in tables:
            if found := self._found(partial(findings_of, table=table)):
                return f"the table {table} or an index of it is damaged: {found[0]}"
        if free := [line for line in self._findings if "freelist" in line.lower()]:
            return free[0]
        if any(last - first >= LEAF_EVENTS_MAX for first, last in self._lost.kept):
            return "the table of events has lost a page that leads to others"
        return ""

    def streams(self) -> dict[StreamId, int]:
        """Every stream whose name can be read, with the number of its events in the table, or in the index beside
        it."""
        return {stream: self._ends.get(number, 0) for stream, number in self._numbers.items()}

    def pages(self, stream: StreamId) -> Iterator[Sequence[SealedEvent]]:
        """The stream's events in order, in pages. Raises LogCorrupt at the first that does not follow from those before
        it."""
        verified = Verified(0, genesis(self.log_id, stream))
        while page := self.reader.read_sealed(stream, after=verified.version, limit=PAGE_EVENTS_MAX):
            verified = verify_chain(page, after=verified)
            yield page

    def losses(self, ends: Mapping[StreamId, int]) -> Iterator[tuple[StreamId, Loss]]:
        """What each of these `streams` has lost, where `ends` has the events that it is known to have had, or 0.

        Reads the table of events once around what cannot be read, and then, where positions are lost, the index of
        each stream for the positions that are its own.
        """
        types = self._types()
        suspects = {self._numbers[stream]: Suspect(stream, genesis(self.log_id, stream)) for stream in ends}
        lost = self._lost
        for position, number, version in self._places():
            if (suspect := suspects.get(number)) is not None and isinstance(version, int):
                suspect.take(position, version, self._sealed(position, suspect.stream, types))
        for number, suspect in suspects.items():
            if lost.count:
                until = ends[suspect.stream] or suspect.version + lost.count
                for _, position in self._survey.rows(self._rows(_PLACES_OF, number), last=until):
                    if position in lost:
                        suspect.found(position)
            yield suspect.stream, suspect.loss(ends[suspect.stream])

    @property
    def gave_up(self) -> bool:
        """Whether so many reads failed that some of the file was not read: more may be lost than is named."""
        return self._survey.is_cut

    def read_stream(self, stream: StreamId, *, after: int, limit: int, backward: bool) -> list[RecordedEvent]:
        """A page of a stream, as EventLog reads it."""
        return self.reader.read_stream(stream, after=after, limit=limit, backward=backward, bytes_max=PAGE_BYTES_MAX)

    def has_content(self, sealed: SealedEvent, content: bytes) -> bool:
        """Whether repeats of the event with this content would be recognized."""
        return content_hash(self._identity.key, sealed.event.type, content) == sealed.content_hash

    @cached_property
    def _findings(self) -> list[str]:
        """Of SQLite's own check of the whole file."""
        return self._found(findings)

    def _found(self, check: Callable[[Connection], list[str]]) -> list[str]:
        try:
            return self.reader.read(check)
        except LogCorrupt as error:
            return [f"SQLite's own check cannot go on: {error}"]

    def _asked(self, query: str, *parameters: Any) -> list[Any]:
        return self.reader.read(
            lambda connection: [tuple(row) for row in connection.exec_driver_sql(query, parameters)]
        )

    def _either(self, query: str, *sources: str) -> list[Any]:
        """What the query answers from the first source none of whose pages is damaged."""
        *others, last = sources
        for source in others:
            with suppress(LogCorrupt):
                return self._asked(query.format(source))
        return self._asked(query.format(last))

    def _rows(self, query: str, *parameters: Any) -> Callable[[int, int], list[Any]]:
        return lambda first, limit: self._asked(query, *parameters, first, limit)

    @cached_property
    def _ends(self) -> dict[Any, int]:
        """The number of events of each stream, by the stream's number."""
        try:
            return dict(self._either(_ENDS, _TABLE, _INDEX))
        except LogCorrupt:
            return Counter(number for _, number, _ in self._places())

    @cached_property
    def _lost(self) -> Ranges:
        """The positions that the table of events has lost with its pages."""
        lost = Ranges()
        try:
            self._asked(_POSITIONS.format(_TABLE))
        except LogCorrupt:
            rows = self._survey.rows(self._rows(_PLACES), last=self._last_possible(), lost=lost.add)
            deque(rows, maxlen=0)
        return lost

    def _places(self) -> Iterator[Any]:
        """Position, stream and version of each event that the table has not lost, in order."""
        first = 1
        for lost, end in (*self._lost.kept, (self._last_possible() + 1, 0)):
            yield from self._survey.rows(self._rows(_PLACES), first=first, last=lost - 1)
            first = end + 1

    @cached_property
    def _names(self) -> tuple[dict[StreamId, int], Ranges]:
        """The number of each stream, and the numbers of streams without a name.

        What a damaged page of their table hides is looked for in the index of names, from both of its ends.
        """
        lost = Ranges()
        numbers = {}
        last = max([number for number in self._ends if isinstance(number, int)], default=0)
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
    def _numbers(self) -> dict[StreamId, int]:
        return self._names[0]

    @property
    def nameless(self) -> Ranges:
        """The numbers of streams whose names cannot be read, neither in their table nor in the index of names."""
        return self._names[1]

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

    def _types(self) -> dict[int, str]:
        try:
            return dict(self._either(_TYPES, _TABLE, _INDEX_OF_TYPES))
        except LogCorrupt:
            return {}

    def _sealed(self, position: int, stream: StreamId, types: Mapping[int, str]) -> SealedEvent | None:
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
            return min(most, int(self._either(_POSITIONS, _TABLE, _INDEX)[0][1]))
        except LogCorrupt:
            return most


def _driver(connection: Connection) -> sqlite3.Connection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


def listed(ranges: Iterable[tuple[int, int]], more: int = 0) -> str:
    """Ranges of numbers as a text, with the number of those that are left out."""
    named = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in ranges)
    return f"{named} and {more} more" if more > 0 else named


@contextmanager
def _read(path: Path) -> Iterator[tuple[SqliteReader, LogIdentity]]:
    with ExitStack() as resources:
        try:
            reader = SqliteReader(reader_engine(path, makes_files=False))
            resources.callback(reader.close)
            identity = reader.read(stored_identity)
            if identity is None:
                raise LogCorrupt("the file does not say which log it is")
            yield reader, identity
        except DATABASE_ERRORS as error:
            raise LogCorrupt(f"its tables are not those of a log: {original(error)}") from error
