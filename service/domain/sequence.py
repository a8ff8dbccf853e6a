"""An immutable sequence that grows at its end in constant time.

Versions of a sequence share their storage. Appending to the newest version extends the shared list; appending to an
older one copies it first, so no version ever changes. A fold over n events thus costs n, not n squared.

Every thread may use a sequence without a lock, because the list only grows: each place is written once. The list may be
shared if the place after the last item holds the very item that was appended; if another version or thread was faster
and it holds another item, it is copied.

The first items may be deferred: they are made when one of them is first looked at. Callers that only grow the sequence,
or look at what it has grown by, make none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")


class Deferred(Generic[T]):
    """The `length` items that `load` returns, which is called when one of them is first looked at.

    Two threads that look at once may both call it.
    """

    __slots__ = ("_length", "_load", "_loaded")

    def __init__(self, length: int, load: Callable[[], list[T]]) -> None:
        self._length = length
        self._load: Callable[[], list[T]] | None = load
        self._loaded: Sequence[T] = Sequence()

    def __len__(self) -> int:
        return self._length

    def loaded(self) -> Sequence[T]:
        """The items, made at the first call; what they were made of is then let go."""
        load = self._load
        if load is not None:
            self._loaded = Sequence(load())
            self._load = None
        return self._loaded

    def beside(self) -> Deferred[T] | None:
        """The knowledge beside the items, without them; None for nothing."""
        return None


class Sequence(Generic[T]):
    """Items in order. Equal when the items are equal.

    `origin` is what its first items are or were deferred as, or what is known beside those; None for others.
    """

    __slots__ = ("_grown", "_length", "_shared", "origin")
    origin: Deferred[T] | None
    _grown: Sequence[T]
    _length: int
    _shared: list[T]

    def __init__(self, items: Iterable[T] = ()) -> None:
        self.origin = None
        self._shared = list(items)
        self._length = len(self._shared)

    @classmethod
    def deferred(cls, origin: Deferred[T], grown: Sequence[T] | None = None) -> Sequence[T]:
        """The items of `origin`, and those that it has grown by."""
        made: Sequence[T] = cls.__new__(cls)
        made.origin = origin
        made._grown = Sequence() if grown is None else grown
        made._length = len(origin) + len(made._grown)
        return made

    def __getattr__(self, name: str) -> list[T]:
        # Only for a slot without a value, so that items that are there cost no look-up.
        if name != "_shared" or self.origin is None:
            raise AttributeError(name)
        self._shared = self.origin.loaded().extended(self._grown)._shared
        return self._shared

    @property
    def is_deferred(self) -> bool:
        """True if the sequence's first items have not been made."""
        if self.origin is None:
            return False
        try:
            object.__getattribute__(self, "_shared")
        except AttributeError:
            return True
        return False

    def continues(self, other: Sequence[T]) -> bool:
        """Return whether the sequence begins with the items of `other`, because it grew from it."""
        return self._shared is other._shared and self._length >= other._length

    def append(self, item: T) -> Sequence[T]:
        """A sequence with one more item; this one does not change."""
        return self.extended((item,))

    def extended(self, items: Iterable[T]) -> Sequence[T]:
        """A sequence with these items after its own; this one does not change."""
        if self.origin is not None and self.is_deferred:
            return self.deferred(self.origin, self._grown.extended(items))
        shared, place = self._shared, self._length
        for item in items:
            if len(shared) == place:
                shared.append(item)
            if shared[place] is not item:
                shared = [*shared[:place], item]
            place += 1
        extended: Sequence[T] = Sequence.__new__(Sequence)
        extended.origin = self.origin
        extended._shared = shared
        extended._length = place
        return extended

    def replaced(self, items: Iterable[T]) -> Sequence[T]:
        """Other items in the place of these; what was known beside these is known beside them."""
        made: Sequence[T] = Sequence(items)
        made.origin = None if self.origin is None else self.origin.beside()
        return made

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return islice(self._shared, self._length)

    def __reversed__(self) -> Iterator[T]:
        return (self[place] for place in range(self._length - 1, -1, -1))

    def __getitem__(self, index: int) -> T:
        if not -self._length <= index < self._length:
            raise IndexError(index)
        place = index % self._length
        if self.origin is not None and place >= len(self.origin) and self.is_deferred:
            return self._grown[place - len(self.origin)]
        return self._shared[place]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return self._length == other._length and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Sequence({list(self)!r})"
