"""The size of a page: it ends before it would exceed what its reader takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def up_to_bytes(items: Iterable[T], size: Callable[[T], int], *, bytes_max: int) -> tuple[list[T], bool]:
    """The first items up to `bytes_max`, at least one if there is one, and whether those were all.

    The call takes one item more from the iterable, and no other.
    """
    taken: list[T] = []
    total = 0
    for item in items:
        total += size(item)
        if taken and total > bytes_max:
            return taken, False
        taken.append(item)
    return taken, True
