"""Checks a whole log, for an operator: reports every damaged stream by its first damage, instead of stopping at the
first.

No byte of a file is changed. Only its lock is created beside it, so that no process owns the log meanwhile, and an
empty index for a write-ahead log that has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection

from eventlog.chain import LogIdentity, Verified, check_commitment, content_hash, genesis, verify_chain
from eventlog.errors import LogCorrupt
from eventlog.event import RecordedEvent, SealedEvent, StreamId
from eventlog.log import PAGE_BYTES_MAX, PAGE_EVENTS_MAX
from eventlog.sqlite.engine import reader_engine, refuse_foreign, require_current, stored_identity
from eventlog.sqlite.errors import DATABASE_ERRORS, original
from eventlog.sqlite.file import FileLock, refuse_empty, wal_of
from eventlog.sqlite.integrity import findings, own_findings
from eventlog.sqlite.reader import SqliteReader
from eventlog.sqlite.wal import require_whole

__all__ = ["LogVerification", "log_id_of"]

_POSITIONS = "SELECT count(*), coalesce(max(position), 0) FROM events NOT INDEXED"
_POSITIONS_INDEXED = "SELECT count(*), coalesce(max(position), 0) FROM events INDEXED BY sqlite_autoindex_events_1"
_ENDS = "SELECT stream, count(*) FROM events NOT INDEXED GROUP BY stream"
_ENDS_INDEXED = "SELECT stream, count(*) FROM events INDEXED BY sqlite_autoindex_events_1 GROUP BY stream"
_NUMBERS = "SELECT id, namespace, name FROM streams NOT INDEXED"
_NUMBERS_INDEXED = "SELECT id, namespace, name FROM streams INDEXED BY sqlite_autoindex_streams_1"
_PLACES = "SELECT version, position FROM events INDEXED BY sqlite_autoindex_events_1 WHERE stream = ? ORDER BY version"
"""Table and index say the same, so that what a damaged page of one hides is read from the other."""


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
        self._numbers: dict[StreamId, Any] = {}

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
        """The number of events, whatever they contain."""
        return int(self._asked(_POSITIONS, _POSITIONS_INDEXED)[0][0])

    def structure(self) -> Iterator[Finding]:
        """What is wrong with the file, its write-ahead log, its indexes, and its positions."""
        try:
            require_whole(self._wal)
        except LogCorrupt as error:
            yield Finding(str(error))
        if found := self._found(findings):
            own = self._found(own_findings)
            yield from map(Finding, own)
            yield from (Finding(what, is_own=False) for what in found if what not in own)
        for number, *names in self._asked(_NUMBERS, _NUMBERS_INDEXED):
            if not all(isinstance(name, str) for name in names):
                yield Finding(f"stream {number} has no name")
        ((count, last),) = self._asked(_POSITIONS, _POSITIONS_INDEXED)
        if count != last:
            yield Finding(f"{count} events have positions up to {last}")
        if count:
            try:
                self.reader.check_identity(self._identity)
            except LogCorrupt as error:
                yield Finding(str(error))

    def streams(self) -> dict[StreamId, int]:
        """Every stream that has a name, with the number of its events in the table, or in the index beside it."""
        counts: dict[Any, int] = dict(self._asked(_ENDS, _ENDS_INDEXED))
        self._numbers = {
            StreamId(namespace, name): number
            for number, namespace, name in self._asked(_NUMBERS, _NUMBERS_INDEXED)
            if isinstance(namespace, str) and isinstance(name, str)
        }
        return {stream: counts.get(number, 0) for stream, number in self._numbers.items()}

    def events(self, stream: StreamId) -> Iterator[SealedEvent]:
        """The stream's events in order. Raises LogCorrupt at the first that does not follow from those before it."""
        verified = Verified(0, genesis(self.log_id, stream))
        while page := self.reader.read_sealed(stream, after=verified.version, limit=PAGE_EVENTS_MAX):
            for sealed in page:
                verified = verify_chain((sealed,), after=verified)
                yield sealed

    def damaged_positions(self, stream: StreamId) -> Iterator[int]:
        """The positions of one of the `streams` whose events cannot be read, are not as written, or do not follow from
        the event before. The index of versions tells which there are; raises LogCorrupt if that is damaged.
        """
        before: Verified | None = Verified(0, genesis(self.log_id, stream))
        for version, position in self._asked(_PLACES, parameters=(self._numbers[stream],)):
            try:
                (found,) = self.reader.read_sealed(stream, after=version - 1, limit=1)
                if found.event.position != position:
                    raise LogCorrupt("the index leads to another event")
                if before is None:
                    check_commitment(found.event, found.salt, found.commitment)
                    before = Verified(version, found.chain)
                else:
                    before = verify_chain((found,), after=before)
            except (LogCorrupt, ValueError):
                before = None
                yield position

    def read_stream(self, stream: StreamId, *, after: int, limit: int, backward: bool) -> list[RecordedEvent]:
        """A page of a stream, as EventLog reads it."""
        return self.reader.read_stream(stream, after=after, limit=limit, backward=backward, bytes_max=PAGE_BYTES_MAX)

    def has_content(self, sealed: SealedEvent, content: bytes) -> bool:
        """Whether repeats of the event with this content would be recognized."""
        return content_hash(self._identity.key, sealed.event.type, content) == sealed.content_hash

    def _found(self, check: Callable[[Connection], list[str]]) -> list[str]:
        try:
            return self.reader.read(check)
        except LogCorrupt as error:
            return [str(error)]

    def _asked(self, query: str, instead: str = "", *, parameters: tuple[Any, ...] = ()) -> list[Any]:
        """The rows of `query`; if a page of it is damaged, those of the query `instead`."""

        def read(connection: Connection) -> list[Any]:
            return [tuple(row) for row in connection.exec_driver_sql(query, parameters)]

        try:
            return self.reader.read(read)
        except LogCorrupt:
            if not instead:
                raise
        return self._asked(instead, parameters=parameters)


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
