"""The disk of the power cuts: writes that it may forget, and those that it may not."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.support.power_cut import SECTOR_BYTES, Disk, left_alone_at_start, now
from tests.support.recorded_disk import DIRECTORY, Kind, Step

MADE = (Step(Kind.CREATE, "log"), Step(Kind.FLUSH, DIRECTORY))
FIRST = Step(Kind.WRITE, "log", 0, b"a" * SECTOR_BYTES)
SECOND = Step(Kind.WRITE, "log", SECTOR_BYTES, b"b" * SECTOR_BYTES)
FLUSHED = Step(Kind.FLUSH, "log")
NOT_FLUSHED = Step(Kind.FLUSH_FAILED, "log")


def images(steps: Sequence[Step], *, ignores_flushes: bool = False) -> set[bytes | None]:
    """Everything that the file may hold after the steps, and None where it may be gone."""
    found: set[bytes | None] = set()
    for seed in range(200):
        chance = random.Random(seed)
        disk = Disk(ignores_flushes=ignores_flushes)
        for step in steps:
            disk.take(step, chance)
        found.add(disk.image(chance).get("log"))
    return found


def test_what_was_flushed_is_there():
    """Bytes written since the flush may be there or not."""
    assert images([*MADE, FIRST, FLUSHED]) == {FIRST.data}
    assert images([*MADE, FIRST, FLUSHED, SECOND]) == {FIRST.data, FIRST.data + SECOND.data}


def test_what_was_not_flushed_may_be_there_in_any_part():
    """A later step without an earlier one, with nothing in its place."""
    assert images([*MADE, FIRST, SECOND]) == {
        b"",
        FIRST.data,
        bytes(SECTOR_BYTES) + SECOND.data,
        FIRST.data + SECOND.data,
    }


def test_a_write_is_torn_between_sectors():
    """Half of it is there, whichever half; no sector is half written."""
    whole = Step(Kind.WRITE, "log", 0, FIRST.data + SECOND.data)

    assert images([*MADE, whole]) == images([*MADE, FIRST, SECOND])


def test_a_flush_that_failed_leaves_open_what_was_written():
    """A flush after it does not mend it; writing once more does."""
    once = [*MADE, FIRST, NOT_FLUSHED, FLUSHED]

    assert images(once) == {b"", FIRST.data}
    assert images([*once, FIRST, FLUSHED]) == {FIRST.data}


def test_a_name_is_there_when_its_folder_was_flushed():
    """A new file may be gone with all that was flushed into it, and a removed one be back."""
    assert images([MADE[0], FIRST, FLUSHED]) == {None, FIRST.data}
    assert images([*MADE, FIRST, FLUSHED, Step(Kind.DELETE, "log")]) == {None, FIRST.data}


def test_a_disk_that_ignores_flushes_may_forget_everything():
    """The disk is the control of every other one."""
    assert images([*MADE, FIRST, FLUSHED], ignores_flushes=True) == {None, b"", FIRST.data}


def test_a_file_that_was_cut_has_its_old_end_or_its_new_one():
    """The two ends are possible as long as the cut is not flushed."""
    cut = Step(Kind.CUT, "log", 1)

    assert images([*MADE, FIRST, FLUSHED, cut]) == {FIRST.data, FIRST.data[:1]}
    assert now([*MADE, FIRST, cut]) == {"log": FIRST.data[:1]}


def test_what_a_log_makes_durable_at_its_start_can_be_left_out():
    """The first process makes its files all the same; steps after an acknowledgement are the writer's own."""
    start, acked = Step(Kind.START, ""), Step(Kind.ACK, "c/m", 1)
    by_log = [step._replace(by_log=True) for step in (*MADE, FIRST, FLUSHED)]

    first = [start, *by_log, SECOND, FLUSHED, acked]
    later = [start, *by_log[1:], FLUSHED, SECOND, acked, FLUSHED]

    assert list(left_alone_at_start(first)) == [start, by_log[0], SECOND, FLUSHED, acked]
    assert list(left_alone_at_start([*first, *later]))[5:] == [start, SECOND, acked, FLUSHED]
