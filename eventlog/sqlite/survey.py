"""Reads the rows of a damaged table or index around those that cannot be read, with bounded work and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from abridged.eventlog.errors import LogCorrupt
from abridged.eventlog.verification import FAILURES_MAX

PAGE_ROWS = 1_024
"""Rows of one read where nothing is damaged."""


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

        `read(first, limit)` returns the next rows from a number on, or raises LogCorrupt. The survey asks for half as
        many then, down to one, and steps over a single row that cannot be read.
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
