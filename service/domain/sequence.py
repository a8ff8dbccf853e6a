"""An immutable sequence that grows at its end in constant time.

Versions of a sequence share their storage. Appending to the newest version extends the shared list; appending to an
older one copies it first, so no version ever changes. A fold over n events thus costs n, not n squared.

It is safe in any thread without a lock, because the list only grows: each place is written once. If the place after the
last item holds the very item that was appended, the list may be shared; if another version or thread was faster and it
holds another item, it is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")


class Sequence(Generic[T]):
    """Items in order. Equal when the items are equal."""

    __slots__ = ("_length", "_load", "_shared")
    _length: int
    _load: Callable[[], list[T]]
    _shared: list[T]

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._shared = list(items)
        self._length = len(self._shared)

    @classmethod
    def deferred(cls, length: int, load: Callable[[], list[T]]) -> Sequence[T]:
        """The `length` items that `load` returns, which is called when one of them is first asked for.

        Two threads that ask at once both call it.
        """
        made: Sequence[T] = cls.__new__(cls)
        made._length = length
        made._load = load
        return made

    def __getattr__(self, name: str) -> list[T]:
        # Only for a slot without a value, so that items that are there cost no look-up.
        if name != "_shared":
            raise AttributeError(name)
        self._shared = self._load()
        return self._shared

    @property
    def is_deferred(self) -> bool:
        """Whether its items have not been loaded."""
        try:
            object.__getattribute__(self, "_shared")
        except AttributeError:
            return True
        return False

    def continues(self, other: Sequence[T]) -> bool:
        """Whether it begins with the items of `other`, because it grew from it."""
        return self._shared is other._shared and self._length >= other._length

    def append(self, item: T) -> Sequence[T]:
        """A sequence with one more item; this one does not change."""
        return self.extended((item,))

    def extended(self, items: Iterable[T]) -> Sequence[T]:
        """A sequence with these items after its own; this one does not change."""
        shared, place = self._shared, self._length
        for item in items:
            if len(shared) == place:
                shared.append(item)
            if shared[place] is not item:
                shared = [*shared[:place], item]
            place += 1
        grown: Sequence[T] = Sequence.__new__(Sequence)
        grown._shared = shared
        grown._length = place
        return grown

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return islice(self._shared, self._length)

    def __reversed__(self) -> Iterator[T]:
        return (self._shared[i] for i in range(self._length - 1, -1, -1))

    def __getitem__(self, index: int) -> T:
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._shared[index % self._length]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return self._length == other._length and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Sequence({list(self)!r})"
