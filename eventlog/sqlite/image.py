"""The bytes of a damaged log: the pages of its file, and those in its write-ahead log, which are only read.

SQLite opens neither, so that nothing is recovered, copied or made beside them. Both are read by SQLite's format alone:
https://sqlite.org/fileformat2.html. A page may be there several times; the newest is the last in the write-ahead log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO, Final, Self

from abridged.eventlog.sqlite.file import wal_of
from abridged.eventlog.sqlite.wal import FRAME_BYTES, HEADER_BYTES, is_near

PAGE_BYTES: Final = 4_096
"""Bytes of a page of every log: SQLite's own choice, which no setting changes."""

OVERFLOW_BYTES: Final = PAGE_BYTES - 4
"""Bytes of a record on each page that it goes on; the number of the next one is before them."""

_NUMBER_BYTES = 4


class Image:
    """The pages of the log in `path`, of which file or write-ahead log may be missing; a context closes them."""

    def __init__(self, path: Path) -> None:
        with ExitStack() as opened:
            self._file = _opened(path, opened)
            self._wal = _opened(wal_of(path), opened)
            self.size_bytes = _size(self._file) + _size(self._wal)
            self._own, self._others = self._frames()
            self._places: dict[int, list[int]] = defaultdict(list)
            for number, place in (*self._others, *self._own):
                self._places[number].append(place)
            self._resources = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    @property
    def page_count(self) -> int:
        """The number of pages, counted as often as each is there."""
        return _pages(self._file) + len(self._own) + len(self._others)

    def pages(self) -> Iterator[bytes]:
        """Yield all pages: those of the file, those of the write-ahead log, and those that an earlier one has left in
        its file."""
        for number in range(1, _pages(self._file) + 1):
            yield self._of_file(number)
        for _, place in (*self._own, *self._others):
            yield _read(self._wal, place)

    def continued(self, number: int, size: int) -> Iterator[bytes]:
        """Yield the `size` bytes of a record that goes on at the page `number`, by each version of its pages: the
        newest, the file's, the oldest, and by page after page, whatever page each names as the next."""
        if size > self.size_bytes:
            return
        known = set()
        for version, in_order in ((-1, False), (None, False), (0, False), (-1, True)):
            found = self._chained(number, size, version, in_order=in_order)
            if found is not None and found not in known:
                known.add(found)
                yield found

    def _chained(self, number: int, size: int, version: int | None, *, in_order: bool) -> bytes | None:
        parts = []
        while size > 0:
            page = self._page(number, version)
            if page is None:
                return None
            parts.append(page[_NUMBER_BYTES : _NUMBER_BYTES + min(size, OVERFLOW_BYTES)])
            size -= OVERFLOW_BYTES
            number = number + 1 if in_order else int.from_bytes(page[:_NUMBER_BYTES], "big")
        return b"".join(parts)

    def _page(self, number: int, version: int | None) -> bytes | None:
        """The page as one of its frames has it, by that frame's index, or else as the file has it; None if neither
        does."""
        places = self._places.get(number, ())
        in_file = 1 <= number <= _pages(self._file)
        if places and (version is not None or not in_file):
            return _read(self._wal, places[version or 0])
        return self._of_file(number) if in_file else None

    def _of_file(self, number: int) -> bytes:
        return _read(self._file, (number - 1) * PAGE_BYTES)

    def _frames(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Page number and place of each frame, those of this write-ahead log and others that lie behind them.

        The write-ahead log's salts are those of its header or, where that is damaged, of its first frame. The reader
        does not ask whether a checksum fits: records that are read of a page prove themselves.
        """
        own: list[tuple[int, int]] = []
        others: list[tuple[int, int]] = []
        header = _read(self._wal, 0, HEADER_BYTES)
        salts = [header[16:24]]
        for begin in range(HEADER_BYTES, _size(self._wal) - FRAME_BYTES, FRAME_BYTES + PAGE_BYTES):
            frame = _read(self._wal, begin, FRAME_BYTES)
            if begin == HEADER_BYTES:
                salts.append(frame[8:16])
            found = int.from_bytes(frame[:_NUMBER_BYTES], "big"), begin + FRAME_BYTES
            (own if any(is_near(frame[8:16], each) for each in salts) else others).append(found)
        return own, others


def _opened(path: Path, resources: ExitStack) -> BinaryIO | None:
    with suppress(FileNotFoundError):
        return resources.enter_context(path.open("rb"))
    return None


def _size(file: BinaryIO | None) -> int:
    return file.seek(0, 2) if file is not None else 0


def _pages(file: BinaryIO | None) -> int:
    """The number of pages of a file, also of one that ends within a page."""
    return -(-_size(file) // PAGE_BYTES)


def _read(file: BinaryIO | None, place: int, size: int = PAGE_BYTES) -> bytes:
    """Bytes of a file, with zeros for those behind its end."""
    if file is None:
        return bytes(size)
    file.seek(place)
    return file.read(size).ljust(size, b"\0")
