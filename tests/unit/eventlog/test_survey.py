"""Reading around lost rows: each is met once, with bounded work."""

from __future__ import annotations

import pytest

from abridged.eventlog.errors import LogCorrupt
from abridged.eventlog.sqlite.survey import PAGE_ROWS, Survey
from abridged.eventlog.verification import Ranges

ROWS = 10_000


class Pages:
    """Rows 1 to ROWS, of which a read of any in `lost` fails, whatever else it asks for; counts its reads."""

    def __init__(self, *lost: range) -> None:
        self.lost = lost
        self.reads = 0

    def __call__(self, first: int, limit: int) -> list[tuple[int]]:
        self.reads += 1
        asked = range(first, min(first + limit, ROWS + 1))
        if any(asked.start < lost.stop and lost.start < asked.stop for lost in self.lost):
            raise LogCorrupt("lost")
        return [(number,) for number in asked]


@pytest.mark.parametrize(
    "lost",
    [
        (),
        (range(1, 2),),
        (range(500, 530),),
        (range(9_990, ROWS + 1),),
        (range(1, 40), range(41, 60), range(7_000, 7_030)),
    ],
)
def test_every_row_around_what_is_lost_is_read(lost: tuple[range, ...]):
    """Each intact row is read once, in order; each lost one is reported, and costs only the reads on the way to it."""
    pages, told = Pages(*lost), Ranges()

    rows = [number for (number,) in Survey().rows(pages, last=ROWS, lost=told.add)]

    assert rows == [number for number in range(1, ROWS + 1) if not any(number in hole for hole in lost)]
    assert told.kept == [(hole.start, hole.stop - 1) for hole in lost]
    steps = 4 * PAGE_ROWS.bit_length()
    assert pages.reads <= ROWS // PAGE_ROWS + 1 + sum(len(hole) + steps for hole in lost)


def test_a_survey_gives_up_after_so_many_failed_reads():
    """The bound counts failures of all walks; the survey says that it gave up, and still reads what is not lost."""
    pages, survey = Pages(range(2_000, 9_000)), Survey(failures_max=100)

    rows = list(survey.rows(pages, last=ROWS))

    assert survey.is_cut
    assert rows[-1] == (1_999,)
    reads = pages.reads
    assert list(survey.rows(pages, first=2_000, last=ROWS)) == []
    assert pages.reads == reads + 1
    assert len(list(survey.rows(pages, first=9_000, last=ROWS))) == ROWS - 8_999


def test_rows_out_of_order_end_a_walk_all_the_same():
    """A damaged key leads nowhere twice."""
    told = Ranges()

    rows = list(Survey().rows(lambda first, limit: [(3,), (1,)][: min(limit, 2)], last=5, lost=told.add))

    assert rows == [(3,)]
    assert told.kept == [(4, 5)]


def test_ranges_hold_the_first_and_count_the_others():
    """The kept ranges have a bound, whatever is added."""
    ranges = Ranges(kept_max=2)
    for number in (1, 2, 5, 7, 8, 9, 20):
        ranges.add(number)

    assert (ranges.kept, ranges.dropped, ranges.count, ranges.last) == ([(1, 2), (5, 5)], 2, 7, 20)
    assert [number in ranges for number in (0, 1, 2, 3, 5, 7)] == [False, True, True, False, True, False]
