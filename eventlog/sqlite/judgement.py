"""Judges which of the proven events a new log keeps, and names what is missing.

A stream keeps its events up to the first that is missing, and none if it begins from a stream that does not keep what
it begins with. The sealed row of a stream tells how far it went and whose a lost position was, and so does the index of
versions.

Content that an event of a stream takes away stays away, in whatever copy it was found. An erased stream of which an
event is missing is kept as a stub: the event that says that it is erased, alone.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterator
from hashlib import blake2b
from itertools import groupby
from typing import Final

from abridged.eventlog.chain import SALT_BYTES, LogIdentity, blanked, commit_to, envelope, genesis, is_blanked, link
from abridged.eventlog.event import EVENT_ID_BYTES, NUMBER_MAX, RecordedEvent, SealedEvent, StreamId
from abridged.eventlog.salvage import Lost, Meaning, Rest
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
_TAKEN = "SELECT DISTINCT stream FROM found WHERE length(salt) > ? OR type IN (SELECT value FROM json_each(?))"
_SAID = "SELECT max(version) FROM found WHERE stream = ? AND version <= ? AND type IN (SELECT value FROM json_each(?))"
_BLANK = "UPDATE found SET payload = ?, content_hash = x'', salt = ? WHERE position = ?"
_REQUESTS = """
SELECT r.stream, r.key, CASE WHEN EXISTS (
    SELECT 1 FROM found AS b WHERE b.stream = r.stream AND length(b.salt) > ?
    AND b.position BETWEEN r.first_position AND r.last_position
) THEN x'' ELSE r.content_hash END, r.first_position, r.last_position, r.last_version
FROM requests AS r JOIN found AS e ON e.position = r.last_position
WHERE e.stream = r.stream AND e.version = r.last_version AND r.first_position BETWEEN 1 AND r.last_position
"""


class Judgement:
    """The fate of each stream that `proof` knows of, and of each position up to `head`.

    `first_us` is the time of the first event.
    """

    def __init__(
        self,
        proof: Proof,
        scratch: sqlite3.Connection,
        meaning: Meaning,
    ) -> None:
        self._proof = proof
        self._scratch = scratch
        self._meaning = meaning
        self._erasing = json.dumps([*meaning.erasing])
        fresh = LogIdentity.new(proof.identity.log_id)
        self.identity = LogIdentity(fresh.log_id, proof.identity.key or fresh.key)
        self.lost: list[Lost] = []
        self._kept: dict[int, int] = {}
        self._by_name: dict[StreamId, int] = {}
        self._said: dict[int, int] = {}
        self._erased: set[StreamId] = set()
        self._stubs: dict[int, RecordedEvent] = {}
        self._taken = {number for (number,) in scratch.execute(_TAKEN, (SALT_BYTES, self._erasing))}
        self._enter_erased()
        self._names = proof.names()
        self._place_ends()
        self.head, self.first_us = self._ends()
        for (number,) in scratch.execute(_STREAMS).fetchall():
            self._judge(number, proof.streams[number])
        self._judge_unproven()

    def kept_events(self) -> Iterator[tuple[int, SealedEvent]]:
        """The events that are kept, by position, each with its stream's number."""
        for row in self._scratch.execute(_BY_POSITION):
            number, version = row[_STREAM], row[_VERSION]
            stub = self._stubs.get(number)
            if stub is not None and stub.position == row[0]:
                yield number, _sealed_anew(stub)
            elif version <= self._kept[number]:
                sealed = self._proof.sealed(row)
                is_said = version < self._said.get(number, 0)
                # Blanked by an event that is not kept, which no later one would say.
                yield number, sealed if is_said or not is_blanked(sealed.salt) else _sealed_anew(sealed.event)

    def kept_streams(self) -> dict[int, StreamId]:
        """The streams of which events are kept, by number."""
        return {
            number: self._proof.streams[number] for number, kept in self._kept.items() if kept or number in self._stubs
        }

    def remnants(self) -> Iterator[RecordedEvent]:
        """The events that are proven and not kept, stream by stream."""
        for number, kept in self._kept.items():
            if number in self._stubs:
                continue
            for row in self._scratch.execute(_OF_STREAM, (number, kept)):
                yield self._proof.sealed(row).event

    def requests(self) -> Iterator[Row]:
        """The keys of requests whose events are kept."""
        return (row for row in self._scratch.execute(_REQUESTS, (SALT_BYTES,)) if row[-1] <= self._kept[row[0]])

    def vacancy(self, position: int) -> tuple[str, bool]:
        """Tell why the position is vacant, and whether it is known whose it was."""
        for query, what in ((_AT, "is not kept"), (_PLACED, "is lost")):
            for number, version in self._scratch.execute(query, (position,)):
                name = self._names.get(number)
                return f"event {version} of {'/'.join(name) if name else f'stream {number}'} {what}", True
        return "an event is lost", False

    def _enter_erased(self) -> None:
        """Enter an erasure for each stream of which nothing but its row is left, which says that it is erased, in the
        place of its last event: its name stays taken."""
        for stream in self._proof.erased.difference(self._proof.streams.values()):
            erasure = self._meaning.rest(stream, (), True).erasure
            assert erasure is not None, "a stream that is known to be erased has an erasure"
            position, time_us = self._proof.ends[stream][1], self._scratch.execute(_ENDS).fetchone()[1]
            event_id = blake2b(str(position).encode(), digest_size=EVENT_ID_BYTES).digest()
            event_type, schema_version, payload = erasure
            self._proof.enter(
                _sealed_anew(
                    RecordedEvent(position, stream, 1, event_id, event_type, schema_version, time_us, "", payload)
                )
            )

    def _place_ends(self) -> None:
        """Enter the ends of streams that sealed rows tell among those of the index of versions, which no seal covers. A
        stream without a number gets one."""
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
        is_erased = stream in self._proof.erased
        rest = self._take_out(number, stream, is_erased=is_erased) if is_erased or number in self._taken else None
        kept, origin = self._followed(number, stream)
        if origin in self._erased and (rest is None or rest.erasure is None):
            rest = self._take_out(number, stream, is_erased=True)
        is_erased = rest is not None and rest.erasure is not None
        if rest is not None and is_erased:
            self._erased.add(stream)
            if not 0 < rest.erased_at <= kept:
                self._stubs[number] = self._stub(number, rest)
                kept = 0
        if rest is not None:
            self._said[number] = self._scratch.execute(_SAID, (number, kept, self._erasing)).fetchone()[0] or 0
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
            remnants = 0 if number in self._stubs else found - kept
            self._lose(number, Lost(stream, kept, missing, Ranges(), remnants, origin, is_erased))

    def _take_out(self, number: int, stream: StreamId, *, is_erased: bool) -> Rest:
        """Blank what the events of a stream have taken away, in whatever copy it was found."""
        rest = self._meaning.rest(stream, (sealed.event for sealed in self._of_stream(number)), is_erased)
        rows = []
        for sealed in self._of_stream(number):
            left = rest.left(sealed.event)
            if left != sealed.event.payload:
                rows += blanked([sealed], stream, {sealed.event.version: left})
        self._scratch.executemany(_BLANK, [(row.event.payload, row.salt, row.event.position) for row in rows])
        return rest

    def _stub(self, number: int, rest: Rest) -> RecordedEvent:
        """The event that says that a stream was erased, as its only one: where that is found, or else in the place of
        the last one."""
        assert rest.erasure is not None, "the stream is erased"
        *_, last = (s.event for s in self._of_stream(number) if s.event.version <= (rest.erased_at or NUMBER_MAX))
        event_type, schema_version, payload = rest.erasure
        return last._replace(version=1, type=event_type, schema_version=schema_version, payload=payload)

    def _of_stream(self, number: int) -> Iterator[SealedEvent]:
        return map(self._proof.sealed, self._scratch.execute(_OF_STREAM, (number, 0)))

    def _followed(self, number: int, stream: StreamId) -> tuple[int, StreamId | None]:
        """The number of a stream's first events, none of which is missing and which do not contradict each other; and
        the stream that it begins from, if that does not keep what it begins with."""
        rows = self._of_stream(number)
        chain = stored = genesis(self.identity.log_id, stream)
        kept, this = 0, next(rows, None)
        while this is not None and this.event.version == kept + 1:
            begins_from = self._meaning.origin(this.event) if not kept else None
            if begins_from is not None and (
                begins_from[0] in self._erased or self._by_name.get(begins_from[0], 0) < begins_from[1]
            ):
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
        self.lost.append(lost._replace(has_lost_key=lost.stream in self._proof.lost_keys))

    def _place_of(self, number: int, version: int) -> int:
        """The position of an event that nothing proves, as the index of versions has it; 0 if it does not."""
        place = self._scratch.execute(_PLACE_OF, (number, version, self.head)).fetchone()
        return place[0] if place else 0


def _sealed_anew(event: RecordedEvent) -> SealedEvent:
    """The event with a commitment to its present payload."""
    salt = secrets.token_bytes(SALT_BYTES)
    return SealedEvent(event, b"", salt, commit_to(salt, envelope(event), event.payload), b"")


def _linked(before: bytes, sealed: SealedEvent) -> bytes:
    """The chain hash of an event behind one with the chain hash `before`."""
    return link(before, envelope(sealed.event), sealed.commitment)


def _add(numbers: Ranges, first: int, end: int) -> None:
    for number in range(first, end):
        numbers.add(number)
