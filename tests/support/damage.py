"""Damage to the files of a log, as disks, people and power cuts do it; by SQLite's format and a seed alone.

An image is the two files of a log after one kind of damage. The damage is done without knowledge of how the product
meets it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from random import Random
from typing import NamedTuple

PAGE_BYTES = 4_096
SECTOR_BYTES = 512
_WAL_HEADER_BYTES = 32
_FRAME_BYTES = 24 + PAGE_BYTES
_REPEATED_MAX = 4
"""Places that are damaged at once, at most, where each is a page or a sector."""


class Image(NamedTuple):
    """The bytes of a log's file and of its write-ahead log, None for one that is not there; `kind` is its damage."""

    kind: str
    file: bytes | None
    wal: bytes | None

    def put(self, folder: Path, name: str) -> Path:
        """Write the files into a new folder; returns the log's place."""
        folder.mkdir(parents=True)
        for content, suffix in ((self.file, ""), (self.wal, "-wal")):
            if content is not None:
                (folder / f"{name}{suffix}").write_bytes(content)
        return folder / name


class Whole(NamedTuple):
    """A log without damage, and the pages where its tables and indexes begin."""

    file: bytes
    wal: bytes
    roots: tuple[int, ...]

    @classmethod
    def read(cls, path: Path) -> Whole:
        """Read the files of a log that no process owns; they stay as they are."""
        wal = path.with_name(f"{path.name}-wal")
        file, log = path.read_bytes(), wal.read_bytes() if wal.exists() else b""
        with closing(sqlite3.connect(":memory:")) as database:
            database.deserialize(_without_wal(file))
            roots = database.execute("SELECT rootpage FROM sqlite_schema WHERE rootpage > 0").fetchall()
        return cls(file, log, (1, *(root for (root,) in roots)))


def images(whole: Whole, seed: int, count: int) -> Iterator[Image]:
    """Yield `count` images of a log, one kind of damage after another."""
    random = Random(seed)
    kinds = [name for name in KINDS if whole.wal or not name.startswith("wal")]
    for number in range(count):
        kind = kinds[number % len(kinds)]
        file, wal = KINDS[kind](whole, random)
        yield Image(kind, file, wal if whole.wal else None)


def _without_wal(file: bytes) -> bytes:
    """The file as one that SQLite reads in memory, where there is no write-ahead log: by the format's version."""
    return file[:18] + b"\x01\x01" + file[20:]


_Files = tuple[bytes | None, bytes | None]


def _flipped(content: bytes, random: Random, bits: int) -> bytes:
    changed = bytearray(content)
    for _ in range(bits):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _overwritten(content: bytes, places: list[int], size: int, by: Callable[[int], bytes]) -> bytes:
    changed = bytearray(content)
    for place in places:
        end = min(place + size, len(changed))
        changed[place:end] = by(end - place)
    return bytes(changed)


def _places(content: bytes, random: Random, size: int) -> list[int]:
    return [random.randrange(-(-len(content) // size)) * size for _ in range(random.randint(1, _REPEATED_MAX))]


def _one_bit(whole: Whole, random: Random) -> _Files:
    return _flipped(whole.file, random, 1), whole.wal


def _bits(whole: Whole, random: Random) -> _Files:
    return _flipped(whole.file, random, random.randint(2, 64)), whole.wal


def _pages_zeroed(whole: Whole, random: Random) -> _Files:
    return _overwritten(whole.file, _places(whole.file, random, PAGE_BYTES), PAGE_BYTES, bytes), whole.wal


def _pages_garbled(whole: Whole, random: Random) -> _Files:
    return _overwritten(whole.file, _places(whole.file, random, PAGE_BYTES), PAGE_BYTES, random.randbytes), whole.wal


def _sectors_garbled(whole: Whole, random: Random) -> _Files:
    places = _places(whole.file, random, SECTOR_BYTES)
    return _overwritten(whole.file, places, SECTOR_BYTES, random.randbytes), whole.wal


def _stretch_zeroed(whole: Whole, random: Random) -> _Files:
    """Bytes from anywhere to anywhere, up to eight pages."""
    begin = random.randrange(len(whole.file))
    return _overwritten(whole.file, [begin], random.randint(1, 8 * PAGE_BYTES), bytes), whole.wal


def _roots_lost(whole: Whole, random: Random) -> _Files:
    roots = random.sample(whole.roots, random.randint(1, len(whole.roots)))
    by = random.choice((bytes, random.randbytes))
    return _overwritten(whole.file, [(root - 1) * PAGE_BYTES for root in roots], PAGE_BYTES, by), whole.wal


def _page_of_another_place(whole: Whole, random: Random) -> _Files:
    """A write that went to the wrong page."""
    pages = len(whole.file) // PAGE_BYTES
    source, target = (random.randrange(pages) * PAGE_BYTES for _ in range(2))
    page = whole.file[source : source + PAGE_BYTES]
    return _overwritten(whole.file, [target], PAGE_BYTES, lambda _: page), whole.wal


def _file_cut(whole: Whole, random: Random) -> _Files:
    return whole.file[: random.randrange(len(whole.file))], whole.wal


def _wal_bits(whole: Whole, random: Random) -> _Files:
    return whole.file, _flipped(whole.wal, random, random.choice((1, 1, random.randint(2, 32))))


def _wal_torn(whole: Whole, random: Random) -> _Files:
    """The last frames as a power cut leaves them: some of their sectors are as they were before."""
    frames = (len(whole.wal) - _WAL_HEADER_BYTES) // _FRAME_BYTES
    begin = _WAL_HEADER_BYTES + _FRAME_BYTES * random.randrange(max(0, frames - 6), frames)
    places = range(begin - begin % SECTOR_BYTES, len(whole.wal), SECTOR_BYTES)
    torn = random.sample(places, random.randint(1, len(places)))
    return whole.file, _overwritten(whole.wal, torn, SECTOR_BYTES, random.choice((bytes, random.randbytes)))


def _wal_cut(whole: Whole, random: Random) -> _Files:
    return whole.file, whole.wal[: random.randrange(len(whole.wal))]


def _wal_header_lost(whole: Whole, random: Random) -> _Files:
    return whole.file, random.randbytes(_WAL_HEADER_BYTES) + whole.wal[_WAL_HEADER_BYTES:]


def _wal_and_file(whole: Whole, random: Random) -> _Files:
    file, _ = _pages_garbled(whole, random)
    return file, _wal_bits(whole, random)[1]


def _wal_alone(whole: Whole, random: Random) -> _Files:
    return random.choice((None, b"")), whole.wal


KINDS: Mapping[str, Callable[[Whole, Random], _Files]] = {
    "one bit": _one_bit,
    "bits": _bits,
    "pages zeroed": _pages_zeroed,
    "pages garbled": _pages_garbled,
    "sectors garbled": _sectors_garbled,
    "a stretch zeroed": _stretch_zeroed,
    "roots lost": _roots_lost,
    "a page in another's place": _page_of_another_place,
    "file cut": _file_cut,
    "wal: bits": _wal_bits,
    "wal: torn": _wal_torn,
    "wal: cut": _wal_cut,
    "wal: header lost": _wal_header_lost,
    "wal: and pages of the file": _wal_and_file,
    "wal: alone": _wal_alone,
}
"""Kinds of damage by their names; those of the write-ahead log are for logs that have one."""
