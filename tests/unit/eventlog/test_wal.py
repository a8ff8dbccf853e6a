"""The write-ahead log of a killed process: a power cut's torn transaction is dropped, flushed ones never are."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from abridged.eventlog.errors import LogCorrupt
from abridged.eventlog.sqlite.log import SqliteEventLog
from tests.support.event_logs import Clock, append, event

HEADER_BYTES = 32
FRAME_BYTES = 24 + 4_096
SECTOR_BYTES = 512
APPENDS = 6

Damage = Callable[[bytearray], None]


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A log with six appends in its write-ahead log, as a killed process leaves it."""
    folder: Path = tmp_path_factory.mktemp("killed")
    log = SqliteEventLog.open(folder / "log.db", clock_us=Clock())
    for number in range(1, APPENDS + 1):
        log.submit(append(event(number, bytes([number]) * 6_000))).result()
    for name in ("log.db", "log.db-wal"):
        shutil.copyfile(folder / name, folder / f"killed-{name}")
    log.close()
    return folder


@pytest.fixture
def opened(killed, tmp_path) -> Callable[[Damage], int]:
    """The head of the log after its write-ahead log was damaged."""

    def head(damage: Damage) -> int:
        for name in ("log.db", "log.db-wal"):
            shutil.copyfile(killed / f"killed-{name}", tmp_path / name)
        wal = bytearray((tmp_path / "log.db-wal").read_bytes())
        damage(wal)
        (tmp_path / "log.db-wal").write_bytes(wal)
        log = SqliteEventLog.open(tmp_path / "log.db", clock_us=Clock())
        found = log.head()
        log.close()
        return found

    return head


def test_what_was_flushed_is_recovered(opened):
    """The way in which most processes end."""
    assert opened(lambda wal: None) == APPENDS


@pytest.mark.parametrize("seed", range(40))
def test_a_flipped_bit_anywhere_is_found_before_anything_is_lost(opened, seed):
    """Header or frame, first transaction or last: an acknowledged append is never dropped without a word."""

    def flip(wal: bytearray) -> None:
        randomness = random.Random(seed)
        wal[randomness.randrange(len(wal))] ^= 1 << randomness.randrange(8)

    with pytest.raises(LogCorrupt, match="write-ahead log is damaged"):
        opened(flip)


def test_a_damaged_sector_before_the_last_transaction_is_found(opened):
    """Later transactions were flushed behind it, so it had been flushed too."""

    def overwrite(wal: bytearray) -> None:
        wal[HEADER_BYTES + 100 : HEADER_BYTES + 100 + SECTOR_BYTES] = bytes(range(256)) * 2

    with pytest.raises(LogCorrupt, match="write-ahead log is damaged"):
        opened(overwrite)


@pytest.mark.parametrize("sector", range(1, 24))
def test_a_torn_last_transaction_is_dropped(opened, sector):
    """Nobody got its answer: a sector holds its old bytes, wherever it lies."""

    def tear(wal: bytearray) -> None:
        end = len(wal) - (sector - 1) * SECTOR_BYTES
        wal[end - SECTOR_BYTES : end] = b"\xa5" * SECTOR_BYTES

    assert opened(tear) == APPENDS - 1


def test_an_older_number_that_a_torn_write_left_is_no_flipped_bit(opened):
    """A 5 in the place of a 6 is a power of two away and two bits: the last transaction is torn, and dropped."""

    def leave_older(wal: bytearray) -> None:
        place = wal.rindex(bytes([APPENDS]) * 64)
        wal[place] = APPENDS - 1

    assert opened(leave_older) == APPENDS - 1


@pytest.mark.parametrize("missing", [1, 24, SECTOR_BYTES, FRAME_BYTES, FRAME_BYTES + 1, 2 * FRAME_BYTES])
def test_a_last_transaction_that_was_cut_off_is_dropped(opened, missing):
    """The file ends within it."""

    def cut(wal: bytearray) -> None:
        del wal[len(wal) - missing :]

    assert opened(cut) == APPENDS - 1


@pytest.mark.parametrize("lost", [3, HEADER_BYTES, SECTOR_BYTES, FRAME_BYTES, -1])
@pytest.mark.parametrize("byte", [0x00, 0xA5])
def test_a_header_that_does_not_fit_is_damaged_if_a_frame_follows(opened, lost, byte):
    """SQLite flushed it before it wrote the first frame, and every frame here was acknowledged."""

    def lose(wal: bytearray) -> None:
        size = lost if lost > 0 else len(wal)
        wal[:size] = bytes([byte]) * size

    with pytest.raises(LogCorrupt, match="write-ahead log is damaged"):
        opened(lose)


@pytest.mark.parametrize("size", [1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 23])
def test_a_header_that_was_never_flushed_begins_nothing(opened, size):
    """A log without a whole frame behind its header has acknowledged nothing more; its file is all there is."""

    def lose(wal: bytearray) -> None:
        wal[:] = bytes(size)

    assert opened(lose) == 0


def test_a_header_that_is_torn_between_its_size_and_its_salts_ends_no_transaction(tmp_path):
    """The old sector says that a transaction ends there, the new one that the frame is of the last, unflushed one."""
    frame = 41
    begin = HEADER_BYTES + frame * FRAME_BYTES
    wal = tmp_path / "log.db-wal"
    log = SqliteEventLog.open(tmp_path / "log.db", clock_us=Clock())
    while wal.stat().st_size < begin - 12 * FRAME_BYTES:
        log.submit(append(event(log.head() + 1, bytes(6_000)))).result()
    flushed = log.head()
    log.submit(append(event(flushed + 1, bytes(120_000)))).result()
    torn = bytearray(wal.read_bytes())
    shutil.copyfile(tmp_path / "log.db", tmp_path / "torn.db")
    log.close()
    assert begin % SECTOR_BYTES + 8 == SECTOR_BYTES
    assert begin + FRAME_BYTES < len(torn)

    torn[begin : begin + 8] = (7).to_bytes(4, "big") * 2
    (tmp_path / "torn.db-wal").write_bytes(torn)

    opened = SqliteEventLog.open(tmp_path / "torn.db", clock_us=Clock())
    found = opened.head()
    opened.close()
    assert found == flushed
