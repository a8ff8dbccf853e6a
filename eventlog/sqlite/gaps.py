"""Writes zeros into the gaps of a database's pages, where SQLite leaves bytes of what it has moved or deleted.

A b-tree page has the pointers to its cells at the front and the cells at the end, and nothing between them means
anything (section 1.6 of https://sqlite.org/fileformat2.html). SQLite writes the cells of pages anew when it balances
them, and the gap keeps what was there, `secure_delete` or not. Gaps alone are written here, so that a write which is
cut off changes nothing that SQLite reads. A page that does not add up to the last byte is damaged, and left as it is.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from abridged.eventlog.errors import LogClosed, LogUnavailable
from abridged.eventlog.sqlite.file import FILE_MAGIC

CHUNK_BYTES = 1 << 20
"""Read at a time: a multiple of every page size."""

PAGES_MAX = (1 << 25) - 1
"""Every other kind of page begins with a page number of four bytes. The first byte of such a page may be that of a
b-tree page in a larger file."""

_FILE_HEADER_BYTES = 100
_INTERIOR_INDEX, _INTERIOR_TABLE, _LEAF_INDEX, _LEAF_TABLE = 2, 5, 10, 13
_HEADER_BYTES = {_INTERIOR_INDEX: 12, _INTERIOR_TABLE: 12, _LEAF_INDEX: 8, _LEAF_TABLE: 8}
_HEADER = struct.Struct(">BHHHB")
_FREE_BLOCK = struct.Struct(">HH")
_PAGE_NUMBER_BYTES = 4
_CELL_BYTES_MIN = 4
_ZEROS = bytes(1 << 16)


class Gaps:
    """The gaps of the file in `path`. Only one thread at a time may use it, but for `stop`.

    Closing any descriptor of the file would drop SQLite's locks on it: close this one after SQLite's connections.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._unflushed: set[int] = set()
        self._stopped = False

    def zero(self, pages: Collection[int] | None = None) -> None:
        """Write zeros over the gaps of these pages, or of all, and flush them. Nobody else may write to the file
        meanwhile, but readers may read it.

        Raises LogUnavailable for a file with more than PAGES_MAX pages, LogClosed after `stop`, and OSError.
        """
        form = _form_of(self._file)
        for page in self._all(form) if pages is None else self._each(self._unflushed.union(pages), form):
            if (page.has_empty_gap and page.number not in self._unflushed) or not page.adds_up:
                continue
            # The kernel takes a page whose flush failed for clean, so the next attempt writes it again.
            self._unflushed.add(page.number)
            os.pwrite(self._file, _ZEROS[: len(page.gap)], (page.number - 1) * form.page_bytes + page.gap.start)
        if self._unflushed:
            os.fsync(self._file)
            self._unflushed.clear()

    def stop(self) -> None:
        """Have `zero` raise LogClosed, in whichever thread it runs."""
        self._stopped = True

    def close(self) -> None:
        os.close(self._file)

    def _all(self, form: _Form) -> Iterator[_Page]:
        size, number = form.page_bytes, 1
        while chunk := os.pread(self._file, CHUNK_BYTES, (number - 1) * size):
            if self._stopped:
                raise LogClosed("the log is closed")
            for begin in range(0, len(chunk), size):
                if (chunk[begin] in _HEADER_BYTES or number == 1) and (
                    page := _page_of(number, chunk[begin : begin + size], form)
                ):
                    yield page
                number += 1

    def _each(self, numbers: Collection[int], form: _Form) -> Iterator[_Page]:
        size = form.page_bytes
        for number in numbers:
            if page := _page_of(number, os.pread(self._file, size, (number - 1) * size), form):
                yield page


class _Form(NamedTuple):
    """The form of a file's pages: their size, and the part of it that is used."""

    page_bytes: int
    usable: int


class _Page(NamedTuple):
    """A b-tree page: the pointers to its cells begin at `pointers`, and the cells at `content`."""

    number: int
    data: bytes
    usable: int
    kind: int
    pointers: int
    cells: int
    content: int
    free_block: int
    fragmented: int

    @property
    def gap(self) -> range:
        return range(self.pointers + 2 * self.cells, self.content)

    @property
    def has_empty_gap(self) -> bool:
        return self.data[self.gap.start : self.gap.stop] == _ZEROS[: len(self.gap)]

    @property
    def adds_up(self) -> bool:
        """True if cells, free blocks and the stated fragments fill the page behind its gap, as SQLite's own check of
        integrity has it."""
        try:
            used = sorted([*self._cells(), *self._free_blocks()])
        except (IndexError, struct.error):
            return False
        end, left = self.content, self.usable - self.content
        for begin, size in used:
            if begin < end:
                return False
            end = begin + size
            left -= size
        return self.gap.start <= self.content and end <= self.usable and left == self.fragmented

    def _cells(self) -> Iterator[tuple[int, int]]:
        """Begin and size of each cell."""
        for cell in struct.unpack_from(f">{self.cells}H", self.data, self.pointers):
            yield cell, max(self._cell_end(cell) - cell, _CELL_BYTES_MIN)

    def _cell_end(self, cell: int) -> int:
        """The end of a cell, which may have the rest of its payload in overflow pages."""
        at = cell if self.kind in (_LEAF_INDEX, _LEAF_TABLE) else cell + _PAGE_NUMBER_BYTES
        payload, at = _varint(self.data, at)
        if self.kind == _INTERIOR_TABLE:
            return at
        if self.kind == _LEAF_TABLE:
            _, at = _varint(self.data, at)
        most = self.usable - 35 if self.kind == _LEAF_TABLE else (self.usable - 12) * 64 // 255 - 23
        if payload <= most:
            return at + payload
        least = (self.usable - 12) * 32 // 255 - 23
        local = least + (payload - least) % (self.usable - _PAGE_NUMBER_BYTES)
        return at + (local if local <= most else least) + _PAGE_NUMBER_BYTES

    def _free_blocks(self) -> Iterator[tuple[int, int]]:
        """Begin and size of each free block; they follow each other."""
        block = self.free_block
        while block:
            following, size = _FREE_BLOCK.unpack_from(self.data, block)
            yield block, size
            if following and following <= block:
                raise IndexError
            block = following


def _form_of(file: int) -> _Form:
    header = os.pread(file, _FILE_HEADER_BYTES, 0)
    stored = int.from_bytes(header[16:18], "big")
    size = 1 << 16 if stored == 1 else stored
    if not header.startswith(FILE_MAGIC) or size < 512 or size & (size - 1):
        raise LogUnavailable("the file cannot be purged: it does not begin like a database")
    if os.fstat(file).st_size // size > PAGES_MAX:
        raise LogUnavailable(f"the file cannot be purged: it has more than {PAGES_MAX} pages")
    return _Form(size, size - header[20])


def _page_of(number: int, data: bytes, form: _Form) -> _Page | None:
    """The b-tree page with this number; None for another page, and for one that is cut off."""
    at = _FILE_HEADER_BYTES if number == 1 else 0
    if len(data) < form.page_bytes:
        return None
    kind, free_block, cells, content, fragmented = _HEADER.unpack_from(data, at)
    if kind not in _HEADER_BYTES:
        return None
    pointers = at + _HEADER_BYTES[kind]
    return _Page(number, data, form.usable, kind, pointers, cells, content or 1 << 16, free_block, fragmented)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at this place, and the place after it."""
    value = 0
    for place in range(at, at + 8):
        byte = data[place]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + 1
    return value << 8 | data[at + 8], at + 9
