"""Sets of messages as ascending ranges of their numbers."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter

from abridged.service.domain.events import MessageAppended
from abridged.service.domain.record import MessageRange


def merged(ranges: Iterable[MessageRange]) -> tuple[MessageRange, ...]:
    """The same messages in ascending ranges that neither touch nor overlap."""
    result: list[MessageRange] = []
    for r in sorted(ranges, key=lambda r: r.first):
        if result and r.first <= result[-1].last + 1:
            result[-1] = MessageRange(result[-1].first, max(result[-1].last, r.last))
        else:
            result.append(r)
    return tuple(result)


def ranges_of(numbers: Iterable[int]) -> tuple[MessageRange, ...]:
    """The ranges of these messages, each once, ascending."""
    return merged(MessageRange(number, number) for number in numbers)


def without(ranges: Iterable[MessageRange], taken: Iterable[MessageRange]) -> tuple[MessageRange, ...]:
    """The messages of ascending `ranges` that are not in ascending `taken`; linear in both."""
    result: list[MessageRange] = []
    holes = iter((*taken, MessageRange(sys.maxsize, sys.maxsize)))
    hole = next(holes)
    for r in ranges:
        first = r.first
        while hole.first <= r.last:
            if first < hole.first:
                result.append(MessageRange(first, hole.first - 1))
            first = max(first, hole.last + 1)
            if hole.last > r.last:
                break
            hole = next(holes)
        if first <= r.last:
            result.append(MessageRange(first, r.last))
    return tuple(result)


def partitioned(
    window: Iterable[MessageAppended], ranges: tuple[MessageRange, ...]
) -> tuple[list[MessageAppended], list[MessageAppended]]:
    """The messages of a window inside ascending ranges, and the others. Stops looking after the last range."""
    messages = list(window)
    end = bisect_right(messages, ranges[-1].last, key=attrgetter("number")) if ranges else 0
    inside: list[MessageAppended] = []
    left: list[MessageAppended] = []
    for m in messages[:end]:
        (inside if covers(ranges, m.number) else left).append(m)
    return inside, left + messages[end:]


def covers(ranges: tuple[MessageRange, ...], number: int) -> bool:
    """Return whether ascending ranges contain a message; logarithmic, because system messages may cut a range into
    thousands."""
    place = bisect_right(ranges, number, key=_first)
    return place > 0 and number <= ranges[place - 1].last


def _first(r: MessageRange) -> int:
    return r.first


def common(some: Iterable[MessageRange], others: Iterable[MessageRange]) -> tuple[MessageRange, ...]:
    """The intersection of two lists of ascending ranges."""
    ranges = tuple(others)
    return tuple(
        MessageRange(max(one.first, other.first), min(one.last, other.last))
        for one in some
        for other in ranges
        if one.first <= other.last and other.first <= one.last
    )
