"""Proves the events of a damaged file, each by itself, and keeps them in a scratch database.

An event is proven if its commitment fits its envelope and payload. The names of its stream and type are part of the
envelope, so that whichever name fits is the right one. Bytes that no page's directory leads to, as a message may have
them that imitates an event, must also have their content's hash under the log's secret. A blanked event has no such
hash: the chain must lead to it, or from it, whose hashes nobody knows who only writes messages.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from abridged.eventlog.chain import LogIdentity, content_hash, envelope, genesis, is_blanked, is_bound, link
from abridged.eventlog.event import RecordedEvent, SealedEvent, StreamId
from abridged.eventlog.row_columns import columns_of
from abridged.eventlog.rows import seal_of
from abridged.eventlog.salvage import Meaning
from abridged.eventlog.sqlite.carving import Carved, carved_events, carved_identities, carved_names, cells
from abridged.eventlog.sqlite.image import Image
from abridged.eventlog.sqlite.sources import EVENT_BYTES_MIN
from abridged.eventlog.stored_event import NOT_AS_WRITTEN, Row

GUESSES_MAX: Final = 100_000
"""Names of rows that are tried for streams that have lost theirs, each with every type: a few seconds."""

_SCRATCH = """
CREATE TABLE found (position INTEGER PRIMARY KEY, stream INTEGER, version INTEGER, event_id BLOB, type TEXT,
    schema_version INTEGER, time_us INTEGER, trace_context TEXT, payload BLOB, content_hash BLOB, salt BLOB,
    commitment BLOB, chain BLOB, UNIQUE (stream, version), UNIQUE (stream, event_id));
CREATE TABLE loose (namespace TEXT, name TEXT, position INTEGER, version INTEGER, event_id BLOB, type TEXT,
    schema_version INTEGER, time_us INTEGER, trace_context TEXT, payload BLOB, content_hash BLOB, salt BLOB,
    commitment BLOB, chain BLOB, PRIMARY KEY (position, commitment, salt));
CREATE TABLE places (position INTEGER PRIMARY KEY, stream INTEGER, version INTEGER);
CREATE TABLE requests (stream INTEGER, key TEXT, content_hash BLOB, first_position INTEGER, last_position INTEGER,
    last_version INTEGER, PRIMARY KEY (stream, key));
"""
_FOUND = "INSERT OR IGNORE INTO found VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_KNOWN = "SELECT 1 FROM found WHERE position = ? AND commitment = ? AND length(salt) >= ?"
_BLANK = "UPDATE found SET payload = ?, content_hash = ?, salt = ? WHERE position = ? AND commitment = ?"
_LOOSE = "INSERT OR IGNORE INTO loose VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ALL_LOOSE = (
    "SELECT * FROM loose ORDER BY namespace, name, version",
    "SELECT * FROM loose ORDER BY namespace, name, version DESC",
)
_AT = "SELECT * FROM found WHERE stream = ? AND version = ?"
_PLACE = "INSERT OR IGNORE INTO places VALUES (?, ?, ?)"
_REQUEST = "INSERT OR IGNORE INTO requests VALUES (?, ?, ?, ?, ?, ?)"
_PLACES_BY_STREAM = "CREATE INDEX places_by_stream ON places (stream, version)"

_PLACE_OF_AN_EVENT = (int, int, int)
_REQUEST_OF_A_STREAM = (int, str, bytes, int, int, int)
_PROJECTION = (str, int, str, int)


class _Proven(NamedTuple):
    sealed: SealedEvent
    is_placed: bool


class Proof:
    """The events that the pages of `image` prove, in `scratch`; `walked` gets the pages read, and all of them.

    `identity` is that of the damaged log as far as events confirm it: an id or a secret that none does is empty. The id
    of a log in which no stream begins is believed if it stands beside a secret that is confirmed. `ends` has, by the
    sealed rows of streams, the number of their events and the last position; `erased` are those streams that a row says
    to be erased, and `lost_keys` those with events whose key is lost, which are not among the events that are found.
    """

    def __init__(
        self, image: Image, scratch: sqlite3.Connection, meaning: Meaning, walked: Callable[[int, int], None]
    ) -> None:
        self._image = image
        self._scratch = scratch
        self._meaning = meaning
        self._walked = walked
        self._streams: dict[int, list[StreamId]] = defaultdict(list)
        self._types: dict[int, list[str]] = defaultdict(list)
        self._numbers: dict[StreamId, int] = {}
        self._nameless: set[int] = set()
        self._done = 0
        self._guesses_left = GUESSES_MAX
        self.streams: dict[int, StreamId] = {}
        self.ends: dict[StreamId, tuple[int, int]] = {}
        self.erased: set[StreamId] = set()
        self.lost_keys: set[StreamId] = set()
        self.identity = LogIdentity("", b"")
        self.created_us = 0

    def names(self) -> dict[int, StreamId]:
        """Names of streams by number: the proven ones, and of others the first that was found."""
        return {**{number: names[0] for number, names in self._streams.items()}, **self.streams}

    def collect(self) -> None:
        """Read the pages: names first, which any page may have, then what confirms the identity, then events. Streams
        that have no name then may have it in their first events."""
        self._scratch.executescript(_SCRATCH)
        identities = self._collect_names()
        self._identify(identities)
        self._collect_events()
        if self._nameless - self.streams.keys():
            self._collect_openings()
            self._identify(identities)
            self._collect_events()
        for query in _ALL_LOOSE:
            for row in self._scratch.execute(query):
                self._take_loose(row)
        self._scratch.execute(_PLACES_BY_STREAM)

    def _collect_events(self) -> None:
        # Without a secret nothing tells an imitation, which may have no position that a real event has.
        for only_placed in (False,) if self.identity.key else (True, False):
            for page in self._pages():
                for carved in carved_events(page, self._image):
                    self._take(carved, only_placed=only_placed)

    def _collect_openings(self) -> None:
        namespaces = {*self._meaning.namespaces, *(stream.namespace for stream in (*self._numbers, *self.ends))}
        for page in self._pages():
            for carved in carved_events(page, self._image):
                if carved.version == 1 and carved.stream in self._nameless:
                    names = {name for payload in carved.payloads for name in self._meaning.opens(payload)}
                    for stream in (StreamId(namespace, name) for namespace in namespaces for name in names):
                        _add(self._streams[carved.stream], stream)

    def _pages(self) -> Iterator[bytes]:
        """The pages of the image, with their progress: most often they are read twice."""
        for page in self._image.pages():
            yield page
            self._done += 1
            self._walked(self._done, max(2 * self._image.page_count, self._done))

    def _collect_names(self) -> set[tuple[str, bytes, int]]:
        identities: set[tuple[str, bytes, int]] = set()
        floats = [column.type is float for column in columns_of(self._meaning.table)]
        columns = {*map(len, (_PLACE_OF_AN_EVENT, _REQUEST_OF_A_STREAM, _PROJECTION)), len(floats)}
        seen: set[bytes] = set()
        for page in self._pages():
            for number, names in carved_names(page):
                if len(names) == 1:
                    _add(self._types[number], names[0])
                else:
                    _add(self._streams[number], StreamId(*names))
            identities.update(carved_identities(page))
            for values in cells(page, self._image, columns, seen):
                self._take_cell(values, floats, identities)
        return identities

    def _take_cell(
        self, values: tuple[Any, ...], floats: Sequence[bool], identities: set[tuple[str, bytes, int]]
    ) -> None:
        kinds = tuple(map(type, values))
        if kinds == _PLACE_OF_AN_EVENT:
            stream, version, position = values
            if 1 <= version <= position:
                self._scratch.execute(_PLACE, (position, stream, version))
        elif kinds == _REQUEST_OF_A_STREAM:
            self._scratch.execute(_REQUEST, values)
        elif kinds == _PROJECTION:
            identities.add((values[2], b"", 0))
        elif len(values) == len(floats) and kinds[-1] is bytes:
            # SQLite stores a whole number as one, also where its column has fractions.
            row = [
                float(value) if real and isinstance(value, int) else value
                for value, real in zip(values, floats, strict=True)
            ]
            if row.pop() == seal_of(row):
                self._take_row(self._meaning.table.row(*row))

    def _take_row(self, row: Any) -> None:
        stream = StreamId(row[0], row[1])
        end = self._meaning.events_of(row), row[2]
        self.ends[stream] = max(end, self.ends.get(stream, end))
        if self._meaning.is_erased(row):
            self.erased.add(stream)

    def _identify(self, identities: Iterable[tuple[str, bytes, int]]) -> None:
        """Read placed events until one confirms the id, and one the secret, of those that were found: an imitator of an
        event has a secret for it, too."""
        ids = {log_id for log_id, _, _ in identities}
        keys = {key: (log_id, created_us) for log_id, key, created_us in identities if key}
        log_id, secret, is_begun = "", b"", False
        for page in self._image.pages() if ids else ():
            for carved in carved_events(page, self._image):
                proven = self._proven(carved)
                if proven is None or not proven.is_placed:
                    continue
                sealed = self._remembered(carved, proven)
                log_id = log_id or next((each for each in ids if _begins(sealed, each)), "")
                secret = secret or next((key for key in keys if self._is_repeatable(sealed, key)), b"")
                is_begun = is_begun or sealed.event.version == 1
            if log_id and secret:
                break
        of_secret, self.created_us = keys.get(secret, ("", 0))
        self.identity = LogIdentity(log_id or ("" if is_begun else of_secret), secret)

    def _take(self, carved: Carved, *, only_placed: bool) -> None:
        if self._scratch.execute(_KNOWN, (carved.places[0][0], carved.commitment, len(carved.salt))).fetchone():
            return
        proven = self._proven(carved)
        if proven is None:
            return
        if not self._meaning.is_readable(proven.sealed.event):
            if proven.is_placed:
                self._miss(carved, proven.sealed.event)
            return
        if not proven.is_placed and self._needs_chain(proven.sealed):
            (position, stream, *rest), *seals = proven.sealed
            self._scratch.execute(_LOOSE, (*stream, position, *rest, *seals))
        elif proven.is_placed or (not only_placed and self._is_own(proven.sealed)):
            self._put(self._remembered(carved, proven))

    def _miss(self, carved: Carved, event: RecordedEvent) -> None:
        """Note the place of an event whose key is lost: the event counts as missing."""
        self.lost_keys.add(event.stream)
        self._name_first(carved, event)
        self._scratch.execute(_PLACE, (event.position, carved.stream, event.version))

    def _needs_chain(self, sealed: SealedEvent) -> bool:
        """Return whether the chain alone proves an event that no directory names: a blanked one, and without the secret
        one that takes other contents away."""
        if self.identity.key or is_blanked(sealed.salt):
            return is_blanked(sealed.salt)
        event = sealed.event
        return event.type in self._meaning.erasing or bool(self._meaning.rest(event.stream, (event,), False).erasure)

    def _put(self, sealed: SealedEvent) -> None:
        """Keep an event. A blanked one takes the place of what it was before."""
        (position, stream, *rest), *seals = sealed
        if is_blanked(sealed.salt):
            blank = sealed.event.payload, sealed.content_hash, sealed.salt, position, sealed.commitment
            self._scratch.execute(_BLANK, blank)
        self._scratch.execute(_FOUND, (position, self._numbers[stream], *rest, *seals))

    def enter(self, sealed: SealedEvent) -> None:
        """Enter an event for a stream of which none is proven."""
        stream = sealed.event.stream
        known = (number for number, names in self._streams.items() if stream in names and number not in self.streams)
        number = self._numbers[stream] = next(known, max(self.streams) + 1)
        self.streams[number] = stream
        self._put(sealed)

    def _take_loose(self, row: Row) -> None:
        """Take an event that no directory names if its own before it was blanked has its commitment, or the
        chain leads to it from the event before, or from it to the one behind."""
        namespace, name, position, *rest = row
        number = self._numbers.get(StreamId(namespace, name))
        if number is None:
            return
        sealed = self.sealed((position, number, *rest))
        version, own = sealed.event.version, envelope(sealed.event)
        before, there, behind = (
            [self.sealed(found) for found in self._scratch.execute(_AT, (number, each))]
            for each in (version - 1, version, version + 1)
        )
        if (
            any(each.commitment == sealed.commitment for each in there)
            or any(link(each.chain, own, sealed.commitment) == sealed.chain for each in before)
            or any(link(sealed.chain, envelope(each.event), each.commitment) == each.chain for each in behind)
        ):
            self._put(sealed)

    def sealed(self, row: Row) -> SealedEvent:
        """The event of a row of `found`."""
        position, number, version, event_id, event_type, schema_version, time_us, trace_context, payload, *seals = row
        event = RecordedEvent(
            position,
            self.streams[number],
            version,
            event_id,
            event_type,
            schema_version,
            time_us,
            trace_context,
            payload,
        )
        return SealedEvent(event, *seals)

    def _proven(self, carved: Carved) -> _Proven | None:
        """The event with the names that its commitment confirms; None if none does."""
        for event, is_placed in self._readings(carved):
            with suppress(*NOT_AS_WRITTEN):
                if is_bound(event, carved.salt, carved.commitment):
                    seals = (carved.content_hash, carved.salt, carved.commitment, carved.chain)
                    return _Proven(SealedEvent(event, *seals), is_placed)
        if carved.stream not in self.streams:
            self._nameless.add(carved.stream)
        return None

    def _remembered(self, carved: Carved, proven: _Proven) -> SealedEvent:
        """The event, whose names are tried first from now on for its numbers: it is no imitation. The stream keeps the
        number that it is first found under, unless that is another's, because nothing proves numbers."""
        event = proven.sealed.event
        self._name_first(carved, event)
        if event.stream not in self._numbers:
            number = carved.stream if carved.stream not in self.streams else max(self.streams) + 1
            self._numbers[event.stream] = number
            self.streams[number] = event.stream
        return proven.sealed

    def _name_first(self, carved: Carved, event: RecordedEvent) -> None:
        """Try the names of the event first from now on for its numbers."""
        names = self._streams[carved.stream]
        if event.stream in names:
            names.remove(event.stream)
        names.insert(0, event.stream)
        self._types[carved.type] = [event.type]

    def _readings(self, carved: Carved) -> Iterator[tuple[RecordedEvent, bool]]:
        """Yield the events that the bytes may be, the likeliest first, each with whether a directory says so."""
        for payload in carved.payloads:
            for position, is_placed in carved.places:
                for stream in self._names_of(carved.stream):
                    for event_type in self._types_of(carved.type):
                        event = RecordedEvent(
                            position,
                            stream,
                            carved.version,
                            carved.event_id,
                            event_type,
                            carved.schema_version,
                            carved.time_us,
                            carved.trace_context,
                            payload,
                        )
                        yield event, is_placed

    def _names_of(self, number: int) -> Iterator[StreamId]:
        """The names that a stream may have: those found with its number, then those of rows."""
        yield from self._streams.get(number, ())
        for stream in self.ends:
            if self._guesses_left <= 0:
                return
            self._guesses_left -= 1
            yield stream

    def _types_of(self, number: int) -> Iterator[str]:
        found = self._types.get(number, ())
        yield from found
        yield from (name for name in self._meaning.types if name not in found)

    def _is_own(self, sealed: SealedEvent) -> bool:
        """Return whether the log's secret says that the event is its own or, where that is lost, its position may
        be."""
        if not self.identity.key:
            return sealed.event.position <= self._image.size_bytes // EVENT_BYTES_MIN
        return self._is_repeatable(sealed, self.identity.key)

    def _is_repeatable(self, sealed: SealedEvent, key: bytes) -> bool:
        """Return whether the event's content has its hash under `key`, which nobody has who only writes messages."""
        return content_hash(key, sealed.event.type, self.content_of(sealed)) == sealed.content_hash

    def content_of(self, sealed: SealedEvent) -> bytes:
        """The content by which repeats of the event are known."""
        return self._meaning.content(sealed.event)


def _begins(sealed: SealedEvent, log_id: str) -> bool:
    event = sealed.event
    return event.version == 1 and (
        link(genesis(log_id, event.stream), envelope(event), sealed.commitment) == sealed.chain
    )


def _add(names: list[Any], name: Any) -> None:
    if name not in names:
        names.append(name)
