"""Judges which of the proven events a new log keeps, and names what is missing.

A stream keeps its events up to the first that is missing, and none if it begins from a stream that does not keep what
it begins with. How far a stream went, and whose a lost position was, its sealed row tells, and the index of versions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Final

from abridged.eventlog.chain import LogIdentity, envelope, genesis, link
from abridged.eventlog.event import NUMBER_MAX, RecordedEvent, SealedEvent, StreamId
from abridged.eventlog.salvage import Lost
from abridged.eventlog.sqlite.proof import Proof
from abridged.eventlog.stored_event import Row
from abridged.eventlog.verification import Ranges

_STREAM: Final = 1
_VERSION: Final = 2
"""Places among the columns of `found`."""

_STREAMS = "SELECT stream FROM found GROUP BY stream ORDER BY min(position)"
_OF_STREAM = "SELECT * FROM found WHERE stream = ? AND version > ? ORDER BY version"
_ENDS = "SELECT max(position), min(time_us) FROM found"
_BY_POSITION = "SELECT * FROM found ORDER BY position"
_AT = "SELECT stream, version FROM found WHERE position = ?"
_PLACE = "INSERT OR REPLACE INTO places VALUES (?, ?, ?)"
_ANY_PLACE = "SELECT 1 FROM places WHERE position = ?"
_PLACED = """
SELECT stream, version FROM places AS p
WHERE position = ? AND NOT EXISTS (SELECT 1 FROM found AS e WHERE e.stream = p.stream AND e.version = p.version)
"""
_PLACE_OF = """
SELECT position FROM places AS p WHERE stream = ? AND version = ? AND position <= ?
AND NOT EXISTS (SELECT 1 FROM found AS e WHERE e.position = p.position)
"""
_OF_UNPROVEN = """
SELECT stream, version, position FROM places AS p
WHERE position <= ? AND NOT EXISTS (SELECT 1 FROM found AS e WHERE e.stream = p.stream)
AND NOT EXISTS (SELECT 1 FROM found AS e WHERE e.position = p.position) ORDER BY stream, version
"""
_REQUESTS = """
SELECT r.* FROM requests AS r JOIN found AS e ON e.position = r.last_position
WHERE e.stream = r.stream AND e.version = r.last_version AND r.first_position BETWEEN 1 AND r.last_position
"""


class Judgement:
    """The fate of each stream that `proof` knows of, and of each position up to `head`.

    `origin` is that of Meaning. `first_us` is the time of the first event.
    """

    def __init__(
        self,
        proof: Proof,
        scratch: sqlite3.Connection,
        origin: Callable[[RecordedEvent], tuple[StreamId, int] | None],
    ) -> None:
        self._proof = proof
        self._scratch = scratch
        self._origin = origin
        fresh = LogIdentity.new(proof.identity.log_id)
        self.identity = LogIdentity(fresh.log_id, proof.identity.key or fresh.key)
        self.lost: list[Lost] = []
        self._kept: dict[int, int] = {}
        self._by_name: dict[StreamId, int] = {}
        self._names = proof.names()
        self._place_ends()
        self.head, self.first_us = self._ends()
        for (number,) in scratch.execute(_STREAMS).fetchall():
            self._judge(number, proof.streams[number])
        self._judge_unproven()

    def kept_events(self) -> Iterator[tuple[int, SealedEvent]]:
        """The events that are kept, by position, each with its stream's number."""
        for row in self._scratch.execute(_BY_POSITION):
            if row[_VERSION] <= self._kept[row[_STREAM]]:
                yield row[_STREAM], self._sealed(row)

    def kept_streams(self) -> dict[int, StreamId]:
        """The streams of which events are kept, by number."""
        return {number: self._proof.streams[number] for number, kept in self._kept.items() if kept}

    def remnants(self) -> Iterator[RecordedEvent]:
        """The events that are proven and not kept, stream by stream."""
        for number, kept in self._kept.items():
            for row in self._scratch.execute(_OF_STREAM, (number, kept)):
                yield self._sealed(row).event

    def requests(self) -> Iterator[Row]:
        """The keys of requests whose events are kept."""
        return (row for row in self._scratch.execute(_REQUESTS) if row[-1] <= self._kept[row[0]])

    def vacancy(self, position: int) -> tuple[str, bool]:
        """Tell why the position is vacant, and whether it is known whose it was."""
        for query, what in ((_AT, "is not kept"), (_PLACED, "is lost")):
            for number, version in self._scratch.execute(query, (position,)):
                name = self._names.get(number)
                return f"event {version} of {'/'.join(name) if name else f'stream {number}'} {what}", True
        return "an event is lost", False

    def _place_ends(self) -> None:
        """Enter what sealed rows tell of the ends of streams among what the index of versions tells, which no seal
        covers. A stream without a number gets one."""
        numbers = {stream: number for number, stream in self._names.items()}
        for stream, (version, position) in self._proof.ends.items():
            number = numbers.setdefault(stream, len(numbers) - NUMBER_MAX)
            self._names[number] = stream
            self._scratch.execute(_PLACE, (position, number, version))

    def _ends(self) -> tuple[int, int]:
        """The last position that anything tells of, and the time of the first event.

        The index of versions is believed as far as it goes on without a gap: a damaged entry may name any position.
        """
        last, first_us = self._scratch.execute(_ENDS).fetchone()
        head = max([last, *(position for _, position in self._proof.ends.values())])
        while self._scratch.execute(_ANY_PLACE, (head + 1,)).fetchone():
            head += 1
        return head, first_us

    def _judge(self, number: int, stream: StreamId) -> None:
        kept, origin = self._followed(number, stream)
        self._kept[number] = self._by_name[stream] = kept
        missing, found, last = Ranges(), 0, 0
        for row in self._scratch.execute(_OF_STREAM, (number, 0)):
            _add(missing, last + 1, row[_VERSION])
            last, found = row[_VERSION], found + 1
        end = max(last, self._proof.ends.get(stream, (0, 0))[0])
        while self._place_of(number, end + 1):
            end += 1
        _add(missing, last + 1, end + 1)
        if missing.count or kept < found:
            self._lose(number, Lost(stream, kept, missing, Ranges(), found - kept, origin))

    def _followed(self, number: int, stream: StreamId) -> tuple[int, StreamId | None]:
        """The number of a stream's first events, none of which is missing and which do not contradict each other; and
        the stream that it begins from, if that does not keep what it begins with."""
        rows = map(self._sealed, self._scratch.execute(_OF_STREAM, (number, 0)))
        chain = stored = genesis(self.identity.log_id, stream)
        kept, this = 0, next(rows, None)
        while this is not None and this.event.version == kept + 1:
            begins_from = self._origin(this.event) if not kept else None
            if begins_from is not None and self._by_name.get(begins_from[0], 0) < begins_from[1]:
                return 0, begins_from[0]
            following = next(rows, None)
            fits = this.chain in (_linked(chain, this), _linked(stored, this))
            chain, stored = _linked(chain, this), this.chain
            # A chain hash that does not fit may itself be damaged: then the next event follows from what it should be.
            after = following if following is not None and following.event.version == kept + 2 else None
            is_anchored = bool(kept or self._proof.identity.log_id)
            if is_anchored and not fits and after is not None and after.chain != _linked(chain, after):
                break
            kept, this = kept + 1, following
        return kept, None

    def _judge_unproven(self) -> None:
        """Name the streams of which no event is proven."""
        found = self._scratch.execute(_OF_UNPROVEN, (self.head,)).fetchall()
        for number, places in groupby(found, key=lambda row: row[0]):
            name = self._names.get(number)
            if name in self._by_name:
                continue
            end = self._proof.ends[name][0] if name in self._proof.ends else 0
            missing = Ranges()
            for version in sorted({*(version for _, version, _ in places), *range(1, end + 1)}):
                missing.add(version)
            self._lose(number, Lost(name or number, 0, missing, Ranges(), 0))

    def _lose(self, number: int, lost: Lost) -> None:
        for first, last in lost.missing.kept:
            for version in range(first, last + 1):
                if position := self._place_of(number, version):
                    lost.positions.add(position)
        self.lost.append(lost)

    def _place_of(self, number: int, version: int) -> int:
        """The position of an event that nothing proves, as the index of versions has it; 0 if it does not."""
        place = self._scratch.execute(_PLACE_OF, (number, version, self.head)).fetchone()
        return place[0] if place else 0

    def _sealed(self, row: Row) -> SealedEvent:
        position, number, version, event_id, event_type, schema_version, time_us, trace_context, payload, *seals = row
        event = RecordedEvent(
            position,
            self._proof.streams[number],
            version,
            event_id,
            event_type,
            schema_version,
            time_us,
            trace_context,
            payload,
        )
        return SealedEvent(event, *seals)


def _linked(before: bytes, sealed: SealedEvent) -> bytes:
    """The chain hash of an event behind one with the chain hash `before`."""
    return link(before, envelope(sealed.event), sealed.commitment)


def _add(numbers: Ranges, first: int, end: int) -> None:
    for number in range(first, end):
        numbers.add(number)
