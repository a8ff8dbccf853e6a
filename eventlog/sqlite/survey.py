"""Reads the rows of a damaged table or index around those that cannot be read, with bounded work and memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Final

from eventlog.errors import LogCorrupt

FAILURES_MAX: Final = 50_000
"""Failed reads of one survey: about 10 s, and as many rows as a thousand lost pages had."""

PAGE_ROWS = 1_024
"""Rows of one read where nothing is damaged."""


class Ranges:
    """Ascending whole numbers as ranges; only the first `kept_max` ranges are held, and `dropped` counts the others."""

    def __init__(self, kept_max: int = FAILURES_MAX) -> None:
        self.kept: list[tuple[int, int]] = []
        self.dropped = 0
        self.count = 0
        self.last = 0
        self._kept_max = kept_max

    def add(self, number: int) -> None:
        """Add a number after all others; one that is not after them counts as a range of its own."""
        self.count += 1
        follows, self.last = number == self.last + 1 and self.count > 1, max(self.last, number)
        if follows and not self.dropped:
            self.kept[-1] = self.kept[-1][0], number
        elif len(self.kept) < self._kept_max and not self.dropped:
            self.kept.append((number, number))
        elif not follows:
            self.dropped += 1

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self.kept, number, key=lambda kept: kept[0])
        return place > 0 and number <= self.kept[place - 1][1]


class Survey:
    """Reads by ascending whole numbers; all its walks together make `failures_max` failed reads, and later walks end at
    their first. `is_cut` says whether one has ended so."""

    def __init__(self, failures_max: int = FAILURES_MAX) -> None:
        self.is_cut = False
        self._failures_left = failures_max

    def rows(
        self,
        read: Callable[[int, int], list[Any]],
        *,
        first: int = 1,
        last: int,
        lost: Callable[[int], None] = lambda _: None,
    ) -> Iterator[Any]:
        """The rows from the number `first` to `last`, which begin with it; `lost` gets each that cannot be read.

        `read(first, limit)` returns the next rows from a number on, or raises LogCorrupt. Then half as many are asked
        for, down to one, and a single row that cannot be read is stepped over.
        """
        limit = PAGE_ROWS
        while first <= last:
            limit = min(limit, last - first + 1)
            try:
                page = _ascending(read(first, limit), first)
            except LogCorrupt:
                if self._failures_left <= 0:
                    self.is_cut = True
                    return
                self._failures_left -= 1
                if limit == 1:
                    lost(first)
                    first += 1
                limit = max(1, limit // 2)
                continue
            if not page:
                return
            yield from page
            first, limit = page[-1][0] + 1, min(2 * limit, PAGE_ROWS)


def _ascending(page: list[Any], first: int) -> list[Any]:
    for row in page:
        if not isinstance(row[0], int) or row[0] < first:
            raise LogCorrupt("rows are not in their order")
        first = row[0] + 1
    return page
