"""Finds the records of a log in the pages of a damaged file, by their form: no page has to lead to another.

An event is found wherever the header of its record stands, because the widths of its hashes, ids and salt make that
header unlike anything else. The event is `placed` if the directory of a leaf page names it; other bytes of that form
may also be the text of a message, which somebody has made to look like an event. Names are found alike, and mean
nothing until an event proves them. Everything else is read from cells that a page's directory names.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple

from abridged.eventlog.sqlite.image import PAGE_BYTES, Image

_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR = 13, 10, 2
_DIRECTORY = {_TABLE_LEAF: 8, _INDEX_LEAF: 8, _INDEX_INTERIOR: 12}
"""The byte at which the directory of a page begins, by the page's kind."""
_LOCAL_MAX = {
    _TABLE_LEAF: PAGE_BYTES - 35,
    _INDEX_LEAF: (PAGE_BYTES - 12) * 64 // 255 - 23,
    _INDEX_INTERIOR: (PAGE_BYTES - 12) * 64 // 255 - 23,
}
_LOCAL_MIN: Final = (PAGE_BYTES - 12) * 32 // 255 - 23
"""The least bytes on its own page of a record that goes on elsewhere; https://sqlite.org/fileformat2.html."""

_VARINT_BYTES_MAX = 9
_SEEN_MAX: Final = 50_000
"""Records that are remembered, a few hundred bytes each."""

_NUMBER = rb"[\x01-\x06\x08\x09]"
_TEXT = rb"(?:[\x0d-\x7f]|[\x81-\xff][\x00-\x7f])"
_SEALS = rb"(?:\x2c(?:\x2c\x2c|\x4c\x4c)\x2c|[\x0c\x2c](?:\x2c\x2c\x4c|\x4c\x4c\x6c))"
"""The types of a content hash, a commitment, a chain hash and a salt, one after the other; of a blanked event the first
is empty until its content comes back, and the last is followed by a commitment. Commitment and chain hash have one of
two sizes."""

_EVENT = re.compile(
    rb"[\x0e-\x12]\x00" + _NUMBER * 2 + b"\x2c" + _NUMBER * 3 + _TEXT + _SEALS + rb"[\x80-\xff]{0,3}[\x00-\x7f]"
)
_NAMES = re.compile(rb"[\x03-\x06]\x00" + _TEXT + rb"{1,2}")
_ENTRY = re.compile(rb"[\x04-\x06]" + _TEXT * 2 + _NUMBER)
_IDENTITY = re.compile(b"\x04" + _TEXT + b"\x4c" + _NUMBER)
_HEADERS_BEFORE_SEALS = (9, 10)
"""Bytes of an event's header before `_SEALS`: the type of a longer trace context has two."""


class Carved(NamedTuple):
    """An event as its bytes say, and nothing has proven.

    `places` has the positions that it may have, the likeliest first, each with whether a directory names a cell that
    begins so; `payloads` one for each way in which its pages may follow one another.
    """

    places: tuple[tuple[int, bool], ...]
    stream: int
    version: int
    event_id: bytes
    type: int
    schema_version: int
    time_us: int
    trace_context: str
    content_hash: bytes
    commitment: bytes
    chain: bytes
    salt: bytes
    payloads: Iterator[bytes]


def carved_events(page: bytes, image: Image) -> Iterator[Carved]:
    """Yield the events on a page of `image`, and bytes that look like one."""
    directory = None
    for seals in re.finditer(_SEALS, page):
        for before in _HEADERS_BEFORE_SEALS:
            begin = seals.start() - before
            if begin < 1 or _EVENT.match(page, begin) is None:
                continue
            if directory is None:
                directory = frozenset(_directory(page))
            found = _event(page, begin, directory, image)
            if found is not None:
                yield found


def carved_names(page: bytes) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield numbers with names: of a type its name, of a stream its namespace and name."""
    for header in _NAMES.finditer(page):
        values = _values(page, header.start())
        if values and 2 <= len(values) <= 3 and all(isinstance(name, str) for name in values[1:]):
            for number, _ in _varints_before(page, header.start()):
                yield number, values[1:]
    for header in _ENTRY.finditer(page):
        values = _values(page, header.start())
        if values and len(values) == 3 and isinstance(values[0], str) and isinstance(values[1], str):
            yield values[2], values[:2]


def carved_identities(page: bytes) -> Iterator[tuple[str, bytes, int]]:
    """Yield values that may be the row of the log's table: id, key and time."""
    for header in _IDENTITY.finditer(page):
        values = _values(page, header.start())
        if values and len(values) == 3 and isinstance(values[0], str) and isinstance(values[2], int):
            yield values


def cells(page: bytes, image: Image, columns: Collection[int], seen: set[bytes]) -> Iterator[tuple[Any, ...]]:
    """Yield the values of the records with one of these numbers of columns that a page's directory names, of a table
    without their numbers. Records in `seen`, which gets a bounded number, are left out: a page may be there many times.
    """
    kind = page[0]
    for begin in _directory(page):
        at = begin + (4 if kind == _INDEX_INTERIOR else 0)
        size, at = _varint(page, at)
        if kind == _TABLE_LEAF:
            _, at = _varint(page, at)
        here = _local(size, _LOCAL_MAX[kind])
        record = page[at : at + here]
        if record in seen:
            continue
        if len(seen) == _SEEN_MAX:
            seen.clear()
        seen.add(record)
        header = _header(record, 0)
        if at + here > PAGE_BYTES or header is None or len(header) not in columns:
            continue
        if here < size:
            number = int.from_bytes(page[at + here : at + here + 4], "big")
            record += next(image.continued(number, size - here), b"")
        values = _values(record, 0)
        if values:
            yield values


def _event(page: bytes, begin: int, directory: frozenset[int], image: Image) -> Carved | None:
    """The event whose record's header is at `begin`; None for other bytes."""
    header = _header(page, begin)
    if header is None or len(header) != _COLUMNS:
        return None
    size = page[begin] + sum(map(_width, header))
    here = _local(size, _LOCAL_MAX[_TABLE_LEAF])
    values = _values(page, begin, last=_COLUMNS - 1)
    if values is None or begin + here > PAGE_BYTES or not isinstance(values[_TRACE_CONTEXT], str):
        return None
    payload = page[begin + size - _width(header[-1]) : begin + here]
    payloads = iter((payload,))
    if here < size:
        number = int.from_bytes(page[begin + here : begin + here + 4], "big")
        payloads = (payload + rest for rest in image.continued(number, size - here))
    places = tuple(
        (position, any(at in directory for _, at in _varints_before(page, start)))
        for position, start in _varints_before(page, begin)
    )
    return Carved(places, *values[1:], payloads)  # type: ignore[call-arg]  # one of each column


_COLUMNS: Final = 13
_TRACE_CONTEXT: Final = 7


def _directory(page: bytes) -> tuple[int, ...]:
    """The places of the cells that a page names, as far as they lie on it."""
    begin = _DIRECTORY.get(page[0])
    if begin is None:
        return ()
    count = min(int.from_bytes(page[3:5], "big"), (PAGE_BYTES - begin) // 2)
    places = struct.unpack_from(f">{count}H", page, begin)
    return tuple(place for place in places if begin <= place < PAGE_BYTES - _VARINT_BYTES_MAX)


def _local(size: int, most: int) -> int:
    """Bytes of a record of this size that are on the page of its cell."""
    if size <= most:
        return size
    here = _LOCAL_MIN + (size - _LOCAL_MIN) % (PAGE_BYTES - 4)
    return here if here <= most else _LOCAL_MIN


def _values(data: bytes, begin: int, *, last: int | None = None) -> tuple[Any, ...] | None:
    """The values of the record whose header is at `begin`, up to the column `last`; None for other bytes."""
    header = _header(data, begin)
    if header is None:
        return None
    at = begin + data[begin]
    values = []
    for serial in header[:last]:
        width = _width(serial)
        if at + width > len(data):
            return None
        try:
            values.append(_value(serial, data[at : at + width]))
        except ValueError:
            return None
        at += width
    return tuple(values)


def _header(data: bytes, begin: int) -> list[int] | None:
    """The types of the values of a record, of at most 126 bytes together; None if they do not fill its header."""
    at, end = begin + 1, begin + (data[begin] if begin < len(data) else 0)
    serials = []
    while at < end <= len(data):
        serial, at = _varint(data, at)
        serials.append(serial)
    return serials if serials and at == end else None


def _width(serial: int) -> int:
    return _WIDTHS[serial] if serial < len(_WIDTHS) else (serial - len(_WIDTHS)) // 2


_WIDTHS = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0)


def _value(serial: int, data: bytes) -> Any:
    """The value of a type. Raises ValueError for a text that is not UTF-8."""
    match serial:
        case 0 | 10 | 11:
            return None
        case 7:
            return struct.unpack(">d", data)[0]
        case 8 | 9:
            return serial - 8
        case _ if serial < len(_WIDTHS):
            return int.from_bytes(data, "big", signed=True)
        case _:
            return data.decode() if serial % 2 else data


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and where the next begins. Bytes behind the end count as zero."""
    number = 0
    for place in range(at, min(at + _VARINT_BYTES_MAX - 1, len(data))):
        number = number << 7 | data[place] & 0x7F
        if data[place] < 0x80:
            return number, place + 1
    return number, at + _VARINT_BYTES_MAX


def _varints_before(data: bytes, end: int) -> Iterator[tuple[int, int]]:
    """Yield the numbers that may end before a place, the longest first, and where each begins: a bit of the number
    before them tells which one it is."""
    begin = end - 1
    while begin > max(0, end - _VARINT_BYTES_MAX) and data[begin - 1] >= 0x80:
        begin -= 1
    return ((_varint(data, at)[0], at) for at in range(max(0, begin), end))
