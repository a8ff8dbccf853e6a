"""The immutable sequence under the fold: every version stays as it was, and growing is cheap."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abridged.service.domain.sequence import Deferred, Sequence

OBJECTS = [object() for _ in range(10)]


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


@given(st.lists(st.tuples(st.integers(0, 30), st.lists(st.sampled_from(OBJECTS), max_size=4)), max_size=40))
def test_many_items_extend_a_version_as_one_after_another(extensions):
    """Any version, also by items that another version has in these places already, all or some of them."""
    versions: list[tuple[Sequence[object], list[object]]] = [(Sequence(), [])]
    for place, more in extensions:
        sequence, items = versions[place % len(versions)]
        versions.append((sequence.extended(more), [*items, *more]))

    for sequence, items in versions:
        assert list(sequence) == items


def test_equal_items_make_equal_sequences():
    """However they were made; a longer one and another type are not equal."""
    one, other = Sequence([1, 2]), Sequence([1]).append(2)

    assert one == other
    assert hash(one) == hash(other)
    assert one != Sequence([1, 2, 3])
    assert one != [1, 2]
    assert repr(one) == "Sequence([1, 2])"


def test_an_index_outside_is_an_error_though_the_storage_has_more():
    """An older version does not show items that a newer one appended."""
    older = Sequence([1])
    older.append(2)

    for index in (1, -2):
        with pytest.raises(IndexError):
            older[index]


def test_a_grown_sequence_shares_its_storage():
    """A fold over many events copies nothing: the type exists for that."""
    sequence: Sequence[int] = Sequence()
    grown = sequence
    for item in range(100):
        grown = grown.append(item)

    assert grown._shared is sequence._shared
    assert sequence.append(1)._shared is not sequence._shared


def test_the_same_item_appended_to_the_same_version_again_shares_its_storage():
    """A trial of a command and the commit of its events are one extension, and the window is copied for neither."""
    item = object()
    older: Sequence[object] = Sequence([1])

    trial, committed = older.append(item), older.append(item)

    assert trial._shared is committed._shared
    assert list(trial) == list(committed) == [1, item]


class _Interrupted(list[object]):
    """Storage at whose first append another thread comes first: after the look at its length, before the write."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__([0])
        self.meanwhile: Callable[[], object] | None = meanwhile

    def append(self, item: object) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        super().append(item)


def test_two_threads_that_extend_one_version_at_once_each_have_their_own():
    """The second thread sees the first one's item in its place and copies."""
    version: Sequence[object] = Sequence([0])
    grown: list[Sequence[object]] = []
    version._shared = _Interrupted(lambda: grown.append(version.append("first")))

    second = version.append("second")

    assert list(grown[0]) == [0, "first"]
    assert list(second) == [0, "second"]
    assert list(second.append("more")) == [0, "second", "more"]
    assert list(grown[0].append("other")) == [0, "first", "other"]


def test_threads_that_extend_the_same_versions_never_see_each_other():
    """Each thread's chain holds its own items alone, however the threads take turns."""
    threads, rounds = 4, 300
    versions = [Sequence([(-1, place)]) for place in range(rounds)]
    start = Barrier(threads)

    def extended(thread: int) -> list[Sequence[tuple[int, int]]]:
        start.wait()
        return [version.append((thread, 0)).append((thread, 1)) for version in versions]

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(threads) as pool:
            results = list(pool.map(extended, range(threads)))
    finally:
        sys.setswitchinterval(before)

    for thread, made in enumerate(results):
        assert [list(each) for each in made] == [[(-1, p), (thread, 0), (thread, 1)] for p in range(rounds)]


class _Loads:
    """Counts how often deferred items are made."""

    def __init__(self, *items: int) -> None:
        self.items = items
        self.count = 0
        self.sequence = Sequence.deferred(Deferred(len(items), self._made))

    def _made(self) -> list[int]:
        self.count += 1
        return list(self.items)


def test_deferred_items_are_loaded_when_one_is_asked_for():
    """The length is known before; and then it is a sequence like any other."""
    loads = _Loads(1, 2)
    assert (len(loads.sequence), loads.count) == (2, 0)

    grown = loads.sequence.append(3)

    assert (list(loads.sequence), list(grown), loads.count) == ([1, 2], [1, 2, 3], 1)


def test_neither_growing_nor_a_look_at_what_it_has_grown_by_loads_deferred_items():
    """A window to which messages are appended is not read for them, one after another or many at once."""
    loads = _Loads(1, 2)
    grown = loads.sequence.append(3).extended([4, 5])

    newest = [grown[2], grown[-1], next(reversed(grown))]
    assert (newest, len(grown), grown.is_deferred, loads.count) == ([3, 5, 5], 5, True, 0)

    assert list(reversed(grown)) == [5, 4, 3, 2, 1]
    assert (grown.is_deferred, loads.count) == (False, 1)


def test_versions_of_deferred_items_share_them_and_their_storage():
    """However many versions were made before the first look, the items are made once and copied for none."""
    loads = _Loads(1, 2)
    first = loads.sequence
    second = first.append(3)
    third = second.append(4)

    assert [list(each) for each in (third, first, second)] == [[1, 2, 3, 4], [1, 2], [1, 2, 3]]
    assert (loads.count, third.continues(second), third.continues(first)) == (1, True, True)
    assert {id(each.origin) for each in (first, second, third, third.append(5))} == {id(first.origin)}


class _Named(Deferred[int]):
    """Deferred items with something beside them."""

    def beside(self) -> Deferred[int]:
        return _Named(0, list)


def test_what_is_known_beside_deferred_items_outlives_them():
    """The origin is let go with the sequence, not with its items."""
    named = Sequence.deferred(_Named(2, lambda: [1, 2]))
    other = named.append(3).replaced([2, 3]).append(4).replaced([4])

    assert isinstance(other.origin, _Named)
    assert (list(other), other[0], other.is_deferred, len(other.origin)) == ([4], 4, False, 0)
    assert _Loads(1, 2).sequence.replaced([3]).origin is None
    assert Sequence([1]).replaced([2]).origin is None


@given(
    st.lists(st.sampled_from(OBJECTS), max_size=4),
    st.lists(st.tuples(st.integers(0, 30), st.lists(st.sampled_from(OBJECTS), max_size=4), st.booleans()), max_size=40),
)
def test_no_version_of_deferred_items_ever_changes(items, extensions):
    """Whichever version is extended, and whichever was looked at before."""
    versions: list[tuple[Sequence[object], list[object]]] = [
        (Sequence.deferred(Deferred(len(items), lambda: list(items))), items)
    ]
    for place, more, look in extensions:
        sequence, expected = versions[place % len(versions)]
        if look:
            assert list(sequence) == expected
        versions.append((sequence.extended(more), [*expected, *more]))

    for sequence, expected in versions:
        assert [sequence[place] for place in range(-len(expected), len(expected))] == expected + expected
        assert list(reversed(sequence)) == expected[::-1]
        assert (list(sequence), len(sequence)) == (expected, len(expected))


def test_threads_that_look_at_once_each_see_the_items():
    """Both make them; whose are kept does not matter."""
    start = Barrier(2)

    def load() -> list[int]:
        start.wait()
        return [1, 2]

    version = Sequence.deferred(Deferred(2, load))
    with ThreadPoolExecutor(2) as pool:
        seen = list(pool.map(lambda more: list(version.append(more)), (3, 4)))

    assert seen == [[1, 2, 3], [1, 2, 4]]
    assert list(version) == [1, 2]


def test_a_look_whether_items_are_deferred_loads_none():
    """A caller that weighs a sequence does not pay for its items."""
    deferred = _Loads(1, 2).sequence
    before = deferred.is_deferred, deferred.is_deferred
    list(deferred)

    assert (before, deferred.is_deferred, Sequence().is_deferred) == ((True, True), False, False)


def test_a_sequence_continues_what_it_grew_from():
    """Several items may lie between; it did not grow from a sequence that only looks alike."""
    first = Sequence([1, 2])
    grown = first.append(3).append(4)
    other = first.append(5)

    assert [grown.continues(first), first.continues(first), first.continues(grown)] == [True, True, False]
    assert [other.continues(grown), Sequence([1, 2]).continues(first)] == [False, False]
