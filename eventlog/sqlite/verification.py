"""Checks a whole log, for an operator: reports every damaged stream by its first damage, instead of stopping at the
first.

No byte of a file is changed. Only its lock is created beside it, so that no process owns the log meanwhile, and an
empty index for a write-ahead log that has none.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from abridged.eventlog.chain import LogIdentity, genesis
from abridged.eventlog.checked_log import CheckedLog
from abridged.eventlog.errors import LogCorrupt, LogLocked
from abridged.eventlog.event import StreamId
from abridged.eventlog.losses import Suspect
from abridged.eventlog.rows import Fault
from abridged.eventlog.snapshots import PURPOSE
from abridged.eventlog.sqlite.connection import readers_of
from abridged.eventlog.sqlite.database import require_current, stored_identity
from abridged.eventlog.sqlite.file import FileLock, refuse_empty, refuse_orphan, size_bytes, wal_of
from abridged.eventlog.sqlite.integrity import appended_to, findings, findings_of, own_findings
from abridged.eventlog.sqlite.ownership import refuse_anothers_wal, refuse_foreign
from abridged.eventlog.sqlite.reader import SqliteReader
from abridged.eventlog.sqlite.rows import SqliteRows
from abridged.eventlog.sqlite.snapshots import SqliteSnapshots, has_snapshots
from abridged.eventlog.sqlite.sources import LEAF_EVENTS_MAX, Sources
from abridged.eventlog.sqlite.wal import require_whole
from abridged.eventlog.sqlite.writer import ends_of
from abridged.eventlog.verification import RANGES_MAX, Finding, Loss, Ranges, listed

_INDEXES = ("sqlite_autoindex_events_1", "sqlite_autoindex_events_2")


def log_id_of(path: Path) -> str:
    """The id of the log in `path`, whoever owns it and whichever version wrote it. Raises LogCorrupt if it is not a
    log.

    The call checks nothing else.
    """
    path = path.resolve()
    refuse_foreign(path)
    with _read(path) as (_, identity):
        return identity.log_id


class SqliteVerification(CheckedLog[SqliteReader]):
    """Checks of one file, created by `opened`; `reader` reads it as a running log would."""

    def __init__(self, path: Path, rows: SqliteRows[Any], reader: SqliteReader, identity: LogIdentity) -> None:
        rows.through(reader.read)
        super().__init__(reader, identity)
        self._rows = rows
        self._path = path
        self._wal = wal_of(path)
        self._sources = Sources(reader, size_bytes(path))

    @classmethod
    @contextmanager
    def opened(cls, path: Path, rows: SqliteRows[Any], *, is_owned: bool = True) -> Iterator[SqliteVerification]:
        """Open the log in `path`, with the table of its `rows`, for checks, or, unless it `is_owned` meanwhile, for
        reads of events. Raises LogLocked when a process owns it that is to be owned, LogOlder or LogNewer when another
        version wrote it, LogGone when only its write-ahead log is there, LogForeign for another program's file,
        LogCorrupt when damage hides which it is."""
        path = path.resolve()
        refuse_orphan(path)
        refuse_foreign(path.resolve(strict=True))
        refuse_empty(path)
        with ExitStack() as resources:
            is_written = False
            try:
                resources.enter_context(closing(FileLock(path)))
            except LogLocked:
                if is_owned:
                    raise
                is_written = True
            else:
                refuse_anothers_wal(path)
            try:
                reader, identity = resources.enter_context(_read(path, is_written=is_written))
                reader.read(require_current)
            except LogCorrupt:
                require_whole(wal_of(path))  # the reason, if the tables are missing because SQLite drops their frames
                raise
            yield cls(path, rows, reader, identity)

    @cached_property
    def _head(self) -> int:
        return self._sources.positions()[1]

    @cached_property
    def fault(self) -> Fault | None:
        """The fault of the table of rows; None when its rows can be read."""
        try:
            return self.reader.read(self._rows.fault)
        except LogCorrupt:  # also of a page that was found damaged: SQLite repeats it when the snapshot ends
            return Fault.DAMAGED

    @cached_property
    def snapshots(self) -> SqliteSnapshots | None:
        """The log's snapshots; None if they cannot be read."""
        try:
            there = self.reader.read(has_snapshots)
        except LogCorrupt:
            return None
        return SqliteSnapshots(self._identity.secret(PURPOSE), self.reader.read) if there else None

    def event_count(self) -> int:
        """The number of events, whatever they contain; where pages of their table and of its index are lost, of those
        that can be read."""
        try:
            return self._sources.positions()[0]
        except LogCorrupt:
            return sum(self._sources.ends.values())

    def structure(self) -> Iterator[Finding]:
        """Yield the damage to the file, its write-ahead log, its indexes, and its positions."""
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
            count, last = self._sources.positions()
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
        """Raise LogCorrupt if no process can open the log: reads the parts that a writer begins with."""
        require_whole(self._wal)
        try:
            self.reader.check_identity(self._identity)
        except LogCorrupt as error:
            raise LogCorrupt(f"the first streams: {error}") from error
        try:
            self.reader.read(ends_of)
        except LogCorrupt as error:
            raise LogCorrupt(f"the types, the last stream, or the last event cannot be read: {error}") from error

    def require_same_head(self) -> None:
        """Raise LogCorrupt when events are missing that the table of rows knows of."""
        self.reader.read(self._rows.require_same_head)

    def append_hazard(self) -> str:
        """Describe the damage to pages that an append to any stream may read, which stops the process that appends;
        empty without any.

        Appends read pages beside their own where one is full.
        """
        if not self._findings:
            return ""
        with suppress(LogCorrupt):  # where a page of the events' own is lost, which their indexes may have survived
            if found := self.reader.read(partial(findings_of, table="events")):
                return f"the table events or an index of it is damaged: {found[0]}"
        for index in _INDEXES:
            try:
                self._sources.walk(index)
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
        if any(last - first >= LEAF_EVENTS_MAX for first, last in self._sources.lost.kept):
            return "the table of events has lost a page that leads to others"
        return ""

    def streams(self) -> dict[StreamId, int]:
        """Every stream whose name can be read, with the number of its events in the table, or in the index beside
        it."""
        return {stream: self._sources.ends.get(number, 0) for stream, number in self._sources.numbers.items()}

    def losses(self, ends: Mapping[StreamId, int]) -> Iterator[tuple[StreamId, Loss]]:
        """Return the losses of each of these `streams`; `ends` has the number of events that each is known to have had,
        or 0.

        Reads the table of events once around what cannot be read, and then, where positions are lost, the index of
        each stream for the positions that are its own.
        """
        types = self._sources.types()
        suspects = {self._sources.numbers[stream]: Suspect(stream, genesis(self.log_id, stream)) for stream in ends}
        lost = self._sources.lost
        for position, number, version in self._sources.places():
            if (suspect := suspects.get(number)) is not None and isinstance(version, int):
                suspect.take(position, version, self._sources.event(position, suspect.stream, types))
        for number, suspect in suspects.items():
            if lost.count:
                until = ends[suspect.stream] or suspect.version + lost.count
                for _, position in self._sources.places_of(number, last=until):
                    if position in lost:
                        suspect.found(position)
            yield suspect.stream, suspect.loss(ends[suspect.stream])

    def sizes(self) -> dict[str, int]:
        """Bytes of the file, of its write-ahead log, and of the pages that neither needs."""
        asked = [self.reader.read(partial(_number, query=query)) for query in ("freelist_count", "page_size")]
        file = self._path.stat().st_size
        return {"file": file, "write-ahead log": size_bytes(self._path) - file, "free pages": asked[0] * asked[1]}

    @property
    def nameless(self) -> Ranges:
        """The numbers of streams whose names cannot be read, neither in their table nor in the index of names."""
        return self._sources.nameless

    @property
    def gave_up(self) -> bool:
        """True if reading ended after too many failures: more of the file may be lost than is named."""
        return self._sources.is_cut

    @cached_property
    def _findings(self) -> list[str]:
        """Findings of SQLite's own check of the whole file."""
        return self._found(findings)

    def _found(self, check: Callable[[sqlite3.Connection], list[str]]) -> list[str]:
        try:
            return self.reader.read(check)
        except LogCorrupt as error:
            return [f"SQLite's own check cannot go on: {error}"]


def _number(connection: sqlite3.Connection, query: str) -> int:
    return int(connection.execute(f"PRAGMA {query}").fetchone()[0])


@contextmanager
def _read(path: Path, *, is_written: bool = False) -> Iterator[tuple[SqliteReader, LogIdentity]]:
    """Read the log in `path`, and change no byte of its files unless it `is_written` by another process."""
    with ExitStack() as resources:
        try:
            reader = SqliteReader(readers_of(path, makes_files=is_written))
            resources.callback(reader.close)
            identity = reader.read(stored_identity)
            if identity is None:
                raise LogCorrupt("the file does not say which log it is")
            yield reader, identity
        except sqlite3.Error as error:
            raise LogCorrupt(f"it is damaged: {error}") from error
