"""How much one answer carries: what is listed ends where it would grow past what its reader takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from eventlog.paging import up_to_bytes

T = TypeVar("T")

RESPONSE_BYTES_MAX = 3 << 20
"""Bytes of the items of one response. gRPC clients accept four megabytes by default; the rest is for framing."""


def fitting(items: Iterable[T], size: Callable[[T], int], *, bytes_max: int = RESPONSE_BYTES_MAX) -> list[T]:
    """The first items up to `bytes_max`, at least one if there is one. Only one item after those is made."""
    return up_to_bytes(items, size, bytes_max=bytes_max)[0]
