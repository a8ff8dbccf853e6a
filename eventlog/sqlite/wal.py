"""Reads the write-ahead log of a killed process, and tells whether SQLite's recovery would drop some of it.

Recovery takes frames up to the first whose checksum does not fit, and silently drops the rest. SQLite is right to drop
the last transaction before a power cut, which was never acknowledged. SQLite is wrong to drop one that was flushed and
damaged later. Damage shows if later transactions follow, if a single bit differs, which a torn write never looks like,
or if frames follow a header that does not fit. The format is SQLite's:
https://sqlite.org/fileformat2.html#the_write_ahead_log
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO, NamedTuple

from abridged.eventlog.errors import LogCorrupt

HEADER_BYTES = 32
FRAME_BYTES = 24
_HEADER_WORDS = 2
"""Words of a frame's header in its checksum: page number and database size."""
_SECTOR_BYTES = 512
"""The unit that a disk writes whole or not at all."""
_MAGIC = 0x377F0682
_MASK = 0xFFFFFFFF

_Sum = tuple[int, int]


class _Wal(NamedTuple):
    file: BinaryIO
    byte_order: str
    page_bytes: int
    salts: bytes
    frames: int

    def frame(self, number: int) -> tuple[bytes, bytes]:
        """Header and page of the frame with this number, from 0."""
        self.file.seek(self._begin(number))
        return self.file.read(FRAME_BYTES), self.file.read(self.page_bytes)

    def page_number(self, number: int) -> int:
        """The number of a frame's page in the database."""
        self.file.seek(self._begin(number))
        return int.from_bytes(self.file.read(4), "big")

    def _begin(self, number: int) -> int:
        return HEADER_BYTES + number * (FRAME_BYTES + self.page_bytes)

    def is_ours(self, header: bytes) -> bool:
        """Return whether a frame was written since the file was restarted, even if one bit of its salts is damaged."""
        return is_near(header[8:16], self.salts)

    def is_written(self, number: int, word: int) -> bool:
        """Return whether the sector with this word of a frame's checksum has anything in it: a write that a power cut
        kept from a new sector leaves zeros, and a page number such as 1 is a bit away from them."""
        place = self._begin(number) + 4 * word + (FRAME_BYTES - 8 if word >= _HEADER_WORDS else 0)
        self.file.seek(place - place % _SECTOR_BYTES)
        return any(self.file.read(_SECTOR_BYTES))

    def ends_transaction(self, number: int, header: bytes) -> bool:
        """Return whether a frame of ours is the last of its transaction; False also if its write may be torn between
        the database size that marks it and the salts that make it ours."""
        begin = self._begin(number)
        is_one_write = (begin + 4) // _SECTOR_BYTES == (begin + 15) // _SECTOR_BYTES
        return is_one_write and header[4:8] != bytes(4)

    def summed(self, seed: _Sum, header: bytes, page: bytes) -> _Sum:
        """The checksum of a frame after one with the checksum `seed`."""
        return _summed(seed, self.words(header[:8] + page))

    def words(self, data: bytes) -> tuple[int, ...]:
        """The numbers of 32 bits that a checksum is made of."""
        return _words(data, self.byte_order)


def require_whole(path: Path) -> None:
    """Raise LogCorrupt if the write-ahead log in `path` has frames that were flushed once and are damaged now.

    The file is only read, and must be before SQLite writes to it: the last connection that closes copies the frames
    that fit into the database and removes the file. A file of 48 MiB, the largest, takes about a second.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        try:
            wal = _begun(file, path.stat().st_size)
            if wal is not None:
                recovered = _fitting_frames(wal)
                _require_no_later_transaction(wal, recovered)
                _require_no_single_bit(wal, recovered)
        except _Damaged:
            raise LogCorrupt(
                f"the write-ahead log is damaged: {path} has acknowledged events that SQLite would drop. No file was "
                "changed. Restore a backup, make a log of what both have (`abridged log salvage`), or move that file "
                "aside to go on without the events that only it has."
            ) from None


def is_begun(path: Path) -> bool:
    """Return whether there is a write-ahead log in `path` with more than a header, which fits: SQLite reads no
    other."""
    try:
        with path.open("rb") as file:
            return _is_header(file.read(HEADER_BYTES)) and bool(file.read(1))
    except FileNotFoundError:
        return False


def is_near(one: bytes, other: bytes) -> bool:
    """Return whether both are the same but for one bit, which damage may have flipped."""
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).bit_count() <= 1


def pages_in(path: Path) -> set[int]:
    """The numbers of the pages in the write-ahead log in `path`, of every transaction since it was last cut to nothing,
    also of one that was taken back. No process may write to it meanwhile."""
    with path.open("rb") as file:
        wal = _begun(file, path.stat().st_size)
        return set() if wal is None else {wal.page_number(frame) for frame in range(wal.frames)}


class _Damaged(Exception):
    """A frame was flushed once and does not fit now."""


def _fitting_frames(wal: _Wal) -> int:
    """Count the frames that SQLite would recover: those up to the last whole transaction."""
    fitting, seed = 0, _first_sum(wal)
    for number in range(wal.frames):
        header, page = wal.frame(number)
        seed = wal.summed(seed, header, page)
        if seed != _stored(header[16:24]) or header[8:16] != wal.salts:
            break
        if header[4:8] != bytes(4):
            fitting = number + 1
    return fitting


def _begun(file: BinaryIO, size: int) -> _Wal | None:
    """The file by its header; None if nothing was ever flushed after one."""
    header = file.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES or size < HEADER_BYTES + FRAME_BYTES:
        return None
    if not _is_header(header):
        # SQLite flushes a header, which lies in one sector, before it writes the first frame after it.
        raise _Damaged
    magic, _, page_bytes = struct.unpack(">III", header[:12])
    frames = (size - HEADER_BYTES) // (FRAME_BYTES + page_bytes)
    return _Wal(file, ">" if magic & 1 else "<", page_bytes, header[16:24], frames)


def _require_no_later_transaction(wal: _Wal, recovered: int) -> None:
    """Raise _Damaged if more than one transaction follows what was recovered: the next is written only after a
    flush."""
    ended = False
    for number in range(recovered, wal.frames):
        header, _ = wal.frame(number)
        if wal.is_ours(header):
            if ended:
                raise _Damaged
            ended = wal.ends_transaction(number, header)


def _require_no_single_bit(wal: _Wal, recovered: int) -> None:
    """The first frame that does not fit is torn or missing; one that is a bit away from fitting was once whole."""
    seed = _stored(wal.frame(recovered - 1)[0][16:24]) if recovered else _first_sum(wal)
    for number in range(recovered, wal.frames):
        header, page = wal.frame(number)
        summed, stored = wal.summed(seed, header, page), _stored(header[16:24])
        if summed == stored and header[8:16] == wal.salts:
            seed = summed
            continue
        difference = ((stored[0] - summed[0]) & _MASK, (stored[1] - summed[1]) & _MASK)
        in_sum = is_near(header[16:24], struct.pack(">II", *summed))
        flipped = _flipped_word(difference, wal.words(header[:8] + page))
        if wal.is_ours(header) and (in_sum or (flipped is not None and wal.is_written(number, flipped))):
            raise _Damaged
        return


def _first_sum(wal: _Wal) -> _Sum:
    """The checksum that the first frame's continues: the header's."""
    wal.file.seek(24)
    return _stored(wal.file.read(8))


def _is_header(header: bytes) -> bool:
    magic = int.from_bytes(header[:4], "big")
    if len(header) < HEADER_BYTES or magic & ~1 != _MAGIC:
        return False
    return _summed((0, 0), _words(header[:24], ">" if magic & 1 else "<")) == _stored(header[24:32])


def _words(data: bytes, byte_order: str) -> tuple[int, ...]:
    return struct.unpack(f"{byte_order}{len(data) // 4}I", data)


def _summed(seed: _Sum, words: tuple[int, ...]) -> _Sum:
    first, second = seed
    for place in range(0, len(words), 2):
        first = (first + words[place] + second) & _MASK
        second = (second + words[place + 1] + first) & _MASK
    return first, second


def _flipped_word(difference: _Sum, words: tuple[int, ...]) -> int | None:
    """The place of the word in which one flipped bit explains this difference of the checksums; None without one.

    A checksum is linear in its words: a word's contribution depends on how many pairs of words follow. A torn write
    may leave the old 7 in the place of an 8, which is also a power of two away, and not a bit.
    """
    first, second = (1, 1), (0, 1)
    for place in range(len(words) - 2, -1, -2):
        for weights, at in ((first, place), (second, place + 1)):
            for bit in range(32):
                added = (words[at] ^ 1 << bit) - words[at]
                if difference == (weights[0] * added & _MASK, weights[1] * added & _MASK):
                    return at
        first, second = _behind(first), _behind(second)
    return None


def _behind(weights: _Sum) -> _Sum:
    moved = (weights[0] + weights[1]) & _MASK
    return moved, (weights[1] + moved) & _MASK


def _stored(data: bytes) -> _Sum:
    first, second = struct.unpack(">II", data)
    return first, second
