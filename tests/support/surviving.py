"""Events of a log that an image still has, by their bytes: an oracle that knows what was written, and where.

Every event is encoded as SQLite encodes its row, and looked for in the whole files. An event survives if a copy of all
that proves it is in the image as it was: envelope, salt, commitment and payload, with what leads from page to page, and
its stream's name, or the first event of that stream. An event's content hash and its chain hash may be lost: they prove
nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from abridged.eventlog.event import RecordedEvent, StreamId
from tests.support.damage import PAGE_BYTES, Image, Whole

_LOCAL_MAX = PAGE_BYTES - 35
_LOCAL_MIN = (PAGE_BYTES - 12) * 32 // 255 - 23
_WAL_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24

_EVENTS = """
SELECT e.position, s.namespace, s.name, e.version, t.name AS type_name, e.* FROM events AS e
JOIN streams AS s ON s.id = e.stream JOIN types AS t ON t.id = e.type ORDER BY e.position
"""


class _Span(NamedTuple):
    """Bytes of the file, or of the write-ahead log."""

    in_wal: bool
    begin: int
    end: int


_Copy = tuple[_Span, ...]
"""All that is needed of one copy."""


class Oracle:
    """The events of the log in `path`, whose files are those of `whole`, and where they are in them."""

    def __init__(self, path: Path, whole: Whole) -> None:
        self._whole = whole
        self.events: dict[int, RecordedEvent] = {}
        self._needed: dict[int, list[list[_Copy]]] = {}
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            database.row_factory = sqlite3.Row
            names = {row["id"]: self._name(row) for row in database.execute("SELECT * FROM streams")}
            for row in database.execute(_EVENTS):
                position = row["position"]
                self.events[position] = _event(row)
                parts = self._row(row)
                if row["version"] == 1 and len(parts) == 1:
                    names[row["stream"]] += parts[0]  # it says by which id its conversation opens
                self._needed[position] = [*parts, names[row["stream"]]]
                assert all(self._needed[position]), f"the oracle does not find event {position}"

    def surviving(self, image: Image) -> set[int]:
        """The positions of the events that the image still has."""
        kept: dict[_Span, bool] = {}

        def is_kept(span: _Span) -> bool:
            if span not in kept:
                before = self._whole.wal if span.in_wal else self._whole.file
                after = (image.wal if span.in_wal else image.file) or b""
                kept[span] = after[span.begin : span.end] == before[span.begin : span.end]
            return kept[span]

        return {
            position
            for position, needed in self._needed.items()
            if all(any(all(map(is_kept, copy)) for copy in copies) for copies in needed)
        }

    def _row(self, row: sqlite3.Row) -> list[list[_Copy]]:
        """The copies of each part of an event's row: what is on its leaf, and each page that follows."""
        values = [None, *(row[name] for name in _COLUMNS)]
        found, begins = record(values)
        here = _local(len(found))
        number = varint(row["position"])
        local = number + found[:here]
        hashes = [(len(number) + begins[at], len(number) + begins[at + 1]) for at in _UNNEEDED]
        parts: list[list[_Copy]] = [[_without(span, hashes) for span in self._spans(local)]]
        if here < len(found):
            *_, last = parts[0][0]
            number_at = self._number(last.in_wal, last.end)
            parts[0] = [(*spans, _Span(spans[-1].in_wal, spans[-1].end, spans[-1].end + 4)) for spans in parts[0]]
            parts += self._continued(found[here:], number_at)
        return parts

    def _continued(self, rest: bytes, page: int) -> Iterator[list[_Copy]]:
        while rest:
            here, rest = rest[: PAGE_BYTES - 4], rest[PAGE_BYTES - 4 :]
            copies = [
                (*header, _Span(in_wal, begin, begin + 4 + len(here)))
                for in_wal, begin, header in self._pages(page)
                if self._bytes(in_wal)[begin + 4 : begin + 4 + len(here)] == here
            ]
            yield copies
            page = self._number(copies[0][-1].in_wal, copies[0][-1].begin)

    def _pages(self, number: int) -> Iterator[tuple[bool, int, tuple[_Span, ...]]]:
        """Find a page: whether it is in the write-ahead log, its place, and the bytes that say that it is this page."""
        if number * PAGE_BYTES <= len(self._whole.file):
            yield False, (number - 1) * PAGE_BYTES, ()
        frame = _FRAME_HEADER_BYTES + PAGE_BYTES
        for begin in range(_WAL_HEADER_BYTES, len(self._whole.wal) - frame + 1, frame):
            if self._number(True, begin) == number:
                yield True, begin + _FRAME_HEADER_BYTES, (_Span(True, begin, begin + 4),)

    def _name(self, row: sqlite3.Row) -> list[_Copy]:
        """The copies of a stream's name with its number: in its table, and in the index beside it."""
        in_table, _ = record([None, row["namespace"], row["name"]])
        in_index, _ = record([row["namespace"], row["name"], row["id"]])
        return [(span,) for name in (varint(row["id"]) + in_table, in_index) for span in self._spans(name)]

    def _spans(self, needle: bytes) -> Iterator[_Span]:
        for in_wal in (False, True):
            content, at = self._bytes(in_wal), -1
            while (at := content.find(needle, at + 1)) >= 0:
                yield _Span(in_wal, at, at + len(needle))

    def _bytes(self, in_wal: bool) -> bytes:
        return self._whole.wal if in_wal else self._whole.file

    def _number(self, in_wal: bool, at: int) -> int:
        return int.from_bytes(self._bytes(in_wal)[at : at + 4], "big")


_COLUMNS = (
    "stream",
    "version",
    "event_id",
    "type",
    "schema_version",
    "time_us",
    "trace_context",
    "content_hash",
    "commitment",
    "chain",
    "salt",
    "payload",
)
_UNNEEDED = (1 + _COLUMNS.index("content_hash"), 1 + _COLUMNS.index("chain"))


def _event(row: sqlite3.Row) -> RecordedEvent:
    return RecordedEvent(
        row["position"],
        StreamId(row["namespace"], row["name"]),
        row["version"],
        row["event_id"],
        row["type_name"],
        row["schema_version"],
        row["time_us"],
        row["trace_context"],
        row["payload"],
    )


def events_in(path: Path) -> list[RecordedEvent]:
    """The events of a log's file, by position."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row
        return [_event(row) for row in database.execute(_EVENTS)]


def _without(span: _Span, left_out: Sequence[tuple[int, int]]) -> _Copy:
    """The span without the bytes from and to these places in it."""
    spans, begin = [], 0
    for first, end in left_out:
        spans.append(_Span(span.in_wal, span.begin + begin, span.begin + first))
        begin = end
    return (*spans, _Span(span.in_wal, span.begin + begin, span.end))


def record(values: Sequence[Any]) -> tuple[bytes, list[int]]:
    """A row as SQLite writes it, and where each value begins in it, and where the last one ends."""
    serials, bodies = zip(*map(_encoded, values), strict=True)
    types = b"".join(map(varint, serials))
    header = varint(len(types) + 1) + types
    begins = [len(header)]
    for body in bodies:
        begins.append(begins[-1] + len(body))
    return header + b"".join(bodies), begins


def _encoded(value: Any) -> tuple[int, bytes]:
    if value is None:
        return 0, b""
    if isinstance(value, bytes):
        return 12 + 2 * len(value), value
    if isinstance(value, str):
        return 13 + 2 * len(value.encode()), value.encode()
    if value in (0, 1):
        return 8 + value, b""
    for serial, width in ((1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (6, 8)):
        if -(1 << 8 * width - 1) <= value < 1 << 8 * width - 1:
            return serial, value.to_bytes(width, "big", signed=True)
    raise AssertionError("more than SQLite's integers hold")


def varint(number: int) -> bytes:
    found = [number & 0x7F]
    while number := number >> 7:
        found.append(number & 0x7F | 0x80)
    return bytes(reversed(found))


def _local(size: int) -> int:
    """Bytes of a row of this size that are on its leaf page."""
    if size <= _LOCAL_MAX:
        return size
    here = _LOCAL_MIN + (size - _LOCAL_MIN) % (PAGE_BYTES - 4)
    return here if here <= _LOCAL_MAX else _LOCAL_MIN
