"""Checks a whole log, for an operator: reports every damaged stream by its first damage, instead of stopping at the
first.

The check changes nothing. Processes may go on writing: their events of this time may be part of the check or not. Files
and indexes are the server's to check, by its checksums and `pg_amcheck`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cached_property, partial
from typing import Any

from abridged.eventlog.chain import LogIdentity, genesis
from abridged.eventlog.checked_log import CheckedLog
from abridged.eventlog.errors import LogCorrupt
from abridged.eventlog.event import SealedEvent, StreamId
from abridged.eventlog.losses import Suspect
from abridged.eventlog.postgres import sql
from abridged.eventlog.postgres.connections import Address, Readers
from abridged.eventlog.postgres.database import StoredLog, has_tables, stored_log
from abridged.eventlog.postgres.reader import PostgresReader
from abridged.eventlog.postgres.rows import PostgresRows
from abridged.eventlog.postgres.schema import OWN
from abridged.eventlog.postgres.snapshots import PostgresSnapshots, has_snapshots
from abridged.eventlog.rows import Fault
from abridged.eventlog.snapshots import PURPOSE
from abridged.eventlog.stored_event import Row, sealed
from abridged.eventlog.verification import RANGES_MAX, Finding, Loss, Ranges, listed

PLACES_PAGE = 256
"""Events of one read while losses are looked for: they may have a mebibyte each."""

_STREAM_NUMBER = 14
"""The index of the stream's number in a row of PLACES."""


class PostgresVerification(CheckedLog[PostgresReader]):
    """Checks of one log, created by `opened`; `reader` reads it as a running log would."""

    gave_up = False

    def __init__(self, log: int, rows: PostgresRows[Any], reader: PostgresReader, identity: LogIdentity) -> None:
        rows.through(reader.read)
        super().__init__(reader, identity)
        self._log = log
        self._rows = rows

    @classmethod
    @contextmanager
    def opened(cls, address: Address, name: str, rows: PostgresRows[Any]) -> Iterator[PostgresVerification]:
        """Open the log of a name, with the table of its `rows`, for checks. Raises LogOlder or LogNewer when another
        version made its tables, LogForeign for other tables, FileNotFoundError when there is no log."""
        # Counting a large log takes longer than any call may.
        readers = Readers(partial(address.connect, statement_max_ms=0))
        with closing(readers):
            there = readers.run(lambda connection: has_tables(connection) and stored_log(connection, name))
            if not isinstance(there, StoredLog):
                raise FileNotFoundError(f"there is no log {name} at {address}")
            log, identity = there
            yield cls(log, rows.of(log), PostgresReader(readers, log), identity)

    @cached_property
    def fault(self) -> Fault | None:
        """The fault of the table of rows; None when its rows can be read."""
        return self.reader.read(self._rows.fault)

    @cached_property
    def snapshots(self) -> PostgresSnapshots | None:
        """The log's snapshots; None if they cannot be read."""
        if not self.reader.read(has_snapshots):
            return None
        return PostgresSnapshots(self._log, self._identity.secret(PURPOSE), self.reader.read)

    @cached_property
    def nameless(self) -> Ranges:
        """The numbers of streams whose names are gone."""
        numbers = Ranges()
        for (number,) in self.reader.ask(sql.NAMELESS):
            numbers.add(number)
        return numbers

    def event_count(self) -> int:
        return self._positions[0]

    def structure(self) -> Iterator[Finding]:
        """Yield the damage to the names of streams, to positions, and to the log's id."""
        if self.nameless.count:
            numbers = listed(self.nameless.kept[:RANGES_MAX], len(self.nameless.kept) - RANGES_MAX)
            yield Finding(f"{self.nameless.count:,} streams have lost their names; their numbers: {numbers}")
        count, last = self._positions
        if count != last:
            yield Finding(f"{count} events have positions up to {last}")
        try:
            self.reader.check_identity(self._identity)
        except LogCorrupt as error:
            yield Finding(f"the first streams: {error}")

    def require_start(self) -> None:
        """Return always: a process that opens the log reads nothing that the opening of this check has not read."""

    def require_same_head(self) -> None:
        """Raise LogCorrupt when events are missing that the table of rows knows of."""
        if self.fault is not Fault.MISSING:
            self.reader.read(self._rows.require_same_head)

    def append_hazard(self) -> str:
        """Return no hazard: damage to one stream stops no append to another."""
        return ""

    def streams(self) -> dict[StreamId, int]:
        """Every stream, with the number of its events."""
        return {stream: count for stream, (_, count) in self._ends.items()}

    def losses(self, ends: Mapping[StreamId, int]) -> Iterator[tuple[StreamId, Loss]]:
        """Return the losses of each of these streams; `ends` has the number of events that each is known to have had,
        or 0. Reads the whole log once."""
        suspects = {self._ends[stream][0]: Suspect(stream, genesis(self.log_id, stream)) for stream in ends}
        for row in self._places():
            if (suspect := suspects.get(row[_STREAM_NUMBER])) is not None:
                suspect.take(row[0], row[3], _readable(row))
        for suspect in suspects.values():
            yield suspect.stream, suspect.loss(ends[suspect.stream])

    def sizes(self) -> dict[str, int]:
        """Bytes of the tables of every log in the schema."""
        ((size,),) = self.reader.ask(sql.SIZE, tables=[table.name for table in OWN])
        return {"tables of all logs": int(size)}

    @property
    def _head(self) -> int:
        return self._positions[1]

    @cached_property
    def _positions(self) -> tuple[int, int]:
        """The number of events and the last position."""
        count, last = self.reader.ask(sql.COUNT_AND_LAST)[0]
        return count, last

    @cached_property
    def _ends(self) -> dict[StreamId, tuple[int, int]]:
        """Number and number of events of each stream."""
        return {StreamId(*name): (number, count) for *name, number, count in self.reader.ask(sql.STREAM_ENDS)}

    def _places(self) -> Iterator[Row]:
        last = 0
        while page := self.reader.ask(sql.PLACES, after=last, limit=PLACES_PAGE):
            yield from page
            last = page[-1][0]


def _readable(row: Row) -> SealedEvent | None:
    try:
        return sealed(row)
    except LogCorrupt:
        return None
