"""Ranges of message numbers: the same messages as sets would have, in ascending ranges that do not touch."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from abridged.service.domain.ranges import covers, merged, without
from abridged.service.domain.record import MessageRange

NUMBERS = st.frozensets(st.integers(1, 40))


def ranges(numbers: Iterable[int]) -> tuple[MessageRange, ...]:
    return merged(MessageRange(number, number) for number in numbers)


def numbers_of(found: Iterable[MessageRange]) -> set[int]:
    return {number for r in found for number in range(r.first, r.last + 1)}


@given(NUMBERS, NUMBERS)
def test_what_is_taken_out_is_out_and_nothing_else(numbers, taken):
    """The ranges may overlap, touch or lie apart."""
    left = without(ranges(numbers), ranges(taken))

    assert numbers_of(left) == numbers - taken
    assert left == merged(left)


@given(NUMBERS, st.integers(0, 41))
def test_a_message_is_covered_when_a_range_has_it(numbers, number):
    """A range covers its ends; no range covers nothing."""
    assert covers(ranges(numbers), number) == (number in numbers)
