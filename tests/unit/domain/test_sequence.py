"""The immutable sequence under the fold: every version stays what it was, and growing is cheap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.sequence import Sequence


@given(st.lists(st.tuples(st.integers(0, 30), st.integers()), max_size=60))
def test_no_version_ever_changes(appends):
    """Appending to any version, old or new, leaves all others as they were."""
    versions: list[tuple[Sequence[int], list[int]]] = [(Sequence(), [])]
    for place, item in appends:
        sequence, items = versions[place % len(versions)]
        versions.append((sequence.append(item), [*items, item]))

    for sequence, items in versions:
        assert list(sequence) == items
        assert list(reversed(sequence)) == items[::-1]
        assert len(sequence) == len(items)
        assert [sequence[i] for i in range(-len(items), len(items))] == items + items


def test_equal_items_make_equal_sequences():
    """However they were made; a longer one and another type are not equal."""
    one, other = Sequence([1, 2]), Sequence([1]).append(2)

    assert one == other
    assert hash(one) == hash(other)
    assert one != Sequence([1, 2, 3])
    assert one != [1, 2]
    assert repr(one) == "Sequence([1, 2])"


def test_an_index_outside_is_an_error_though_the_storage_has_more():
    """An older version does not show what a newer one appended."""
    older = Sequence([1])
    older.append(2)

    for index in (1, -2):
        with pytest.raises(IndexError):
            older[index]


def test_a_grown_sequence_shares_its_storage():
    """A fold over many events copies nothing: that is what the type is for."""
    sequence: Sequence[int] = Sequence()
    grown = sequence
    for item in range(100):
        grown = grown.append(item)

    assert grown._shared is sequence._shared
    assert sequence.append(1)._shared is not sequence._shared
