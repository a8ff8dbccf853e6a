"""Events as rows of a database: a row has its stream and its type by number, whose names are remembered.

Without joins a page costs SQLite a fifth less. A row is checked as `stored_event` says, and handed to it if it does
not pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import blake2b
from threading import Lock
from typing import Any

from abridged.eventlog.chain import ENVELOPE_NUMBERS, SEAL_SIZES, envelope_names
from abridged.eventlog.errors import LogCorrupt
from abridged.eventlog.event import RecordedEvent, SealedEvent, StreamId
from abridged.eventlog.stored_event import NOT_AS_WRITTEN, Row, recorded, sealed

ROW_COLUMNS = (
    "e.position, e.stream, e.version, e.event_id, e.type, e.schema_version, e.time_us, e.trace_context, e.payload, "
    "e.salt, e.commitment"
)
"""The columns of a row, where `e` are events."""

STREAM, TYPE, PAYLOAD = 1, 4, 8
"""Places among the columns."""

KEPT_MAX = 4_096
"""Names of streams that are remembered, and ends of envelopes."""

_LookUp = Callable[[Collection[Any]], Iterable[tuple[Any, Any, Any]]]


class EventRows:
    """Makes events of rows; safe in any thread.

    `streams` looks up numbers and returns each with its namespace and name, `types` each with None and its name. A
    number that they leave out has no name, and no event was written with it.
    """

    def __init__(self, streams: _LookUp, types: _LookUp) -> None:
        self._streams = _Names(streams)
        self._types = _Names(types)
        self._alike: dict[tuple[Any, ...], tuple[StreamId, str, bytes]] = {}

    def are_of(self, namespace: str, rows: Sequence[Row]) -> bool:
        """Return whether each row's stream is one of the namespace."""
        numbers = {row[STREAM] for row in rows}
        names = self._streams.of(numbers)
        return all(names.get(number, _NAMELESS)[0] == namespace for number in numbers)

    def recorded(self, rows: Sequence[Row], stream: StreamId | None = None) -> list[RecordedEvent]:
        """The events of the rows, whose stream is `stream` if it is given. Raises LogCorrupt at the first that is not
        as written."""
        # Catching up spends its time here: what events have in common is made once, and only C is called for each.
        alike = self._alike if stream is None else {}
        if stream is None:
            self._streams.of({row[STREAM] for row in rows})
        new, pack = tuple.__new__, ENVELOPE_NUMBERS.pack
        events: list[RecordedEvent] = []
        for row in rows:
            position, number, version, event_id, kind, schema_version, time_us, trace_context, payload = row[:9]
            try:
                known = alike.get((number, kind, trace_context))
                if known is None:
                    known = self._learned(row, stream or self._named_stream(number), alike)
                its_stream, its_type, names = known
                numbers = pack(position, version, schema_version, time_us, event_id)
                size = len(row[10])
                digest = blake2b(numbers + names + payload, key=row[9], digest_size=size).digest()
            except NOT_AS_WRITTEN:
                digest = None
            if digest is None or digest != row[10] or size not in SEAL_SIZES:
                events.append(self._with_care(row, stream))
                continue
            fields = (
                position,
                its_stream,
                version,
                event_id,
                its_type,
                schema_version,
                time_us,
                trace_context,
                payload,
            )
            events.append(new(RecordedEvent, fields))
        return events

    def sealed(self, rows: Sequence[Row], stream: StreamId) -> list[SealedEvent]:
        """The events of rows of `stream` with their seals, unchecked except for the types of their columns."""
        return [sealed(self._named(row, stream)) for row in rows]

    def _with_care(self, row: Row, stream: StreamId | None) -> RecordedEvent:
        """The event of a row that is blanked, damaged, or of a number that was given anew: a standby that takes over
        without the last commits of its primary gives their numbers to others. Raises LogCorrupt."""
        try:
            return recorded(self._named(row, stream))
        except LogCorrupt:
            self._streams.forget()
            self._types.forget()
            self._alike.clear()
            return recorded(self._named(row, stream))

    def _named_stream(self, number: Any) -> StreamId:
        """The stream of a number, whose names are None where it has none."""
        return StreamId(*self._streams.of({number}).get(number, _NAMELESS))

    def _learned(self, row: Row, stream: StreamId, alike: dict[tuple[Any, ...], Any]) -> tuple[StreamId, str, bytes]:
        """Remember and return the names and the end of the envelope that this row shares with others. Raises
        AttributeError for one without names."""
        number, kind, trace_context = row[STREAM], row[TYPE], row[7]
        event_type = self._types.of({kind}).get(kind, _NAMELESS)[1]
        known = stream, event_type, envelope_names(stream, event_type, trace_context)
        if len(alike) >= KEPT_MAX:
            alike.clear()
        alike[number, kind, trace_context] = known
        return known

    def _named(self, row: Row, stream: StreamId | None) -> Row:
        """The row with names, as `stored_event` takes it."""
        number, kind = row[STREAM], row[TYPE]
        names = stream or self._named_stream(number)
        event_type = self._types.of({kind}).get(kind, _NAMELESS)[1]
        return (row[0], *names, *row[2:4], event_type, *row[5:])


class _Names:
    """Names by number, looked up once."""

    def __init__(self, look_up: _LookUp) -> None:
        self._look_up = look_up
        self._kept: dict[Any, tuple[Any, Any]] = {}
        self._changing = Lock()

    def forget(self) -> None:
        """Look all of them up again."""
        with self._changing:
            self._kept = {}

    def of(self, numbers: Collection[Any]) -> dict[Any, tuple[Any, Any]]:
        """The names of at least those of `numbers` that have one."""
        kept = self._kept
        unknown = [number for number in numbers if number not in kept]
        if unknown:
            found = {number: (namespace, name) for number, namespace, name in self._look_up(unknown)}
            with self._changing:
                # A new table instead of a changed one, which another thread may be reading. What was forgotten
                # meanwhile does not come back.
                is_current = self._kept is kept
                kept = (kept if len(kept) + len(found) <= KEPT_MAX else {}) | found
                if is_current:
                    self._kept = kept
        return kept


def payload_bytes(row: Row) -> int:
    """The size of a row's payload; 0 for one that is not as written."""
    payload = row[PAYLOAD]
    return len(payload) if isinstance(payload, bytes) else 0


_NAMELESS = None, None
