"""Requests on their way in, so that what callers send at once takes no memory without bound.

Every namespace has an intake of its own, and so have the calls that need no credential: one that is full keeps nobody
else out.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from service.api.errors import InvalidRequest, TooManyRequests

__all__ = ["Intake"]

READING_MAX = 16
"""Requests of a namespace that are read at a time; others wait in the order of their coming, unread. A request that is
not being read takes no more of the transport than the first 64 KiB of it."""

REQUEST_S = 10.0
"""How long a call may wait to be read and its request may take to come."""

RETRY_S = 0.2


class Intake:
    """Reads requests, and knows how many bytes of them are being served."""

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._reading: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(READING_MAX))
        self._held: Counter[str] = Counter()

    async def read(self, context: Any, namespace: str) -> Any:
        """The one request of a call. Raises InvalidRequest when there is none, TooManyRequests when it is late."""
        try:
            async with asyncio.timeout(REQUEST_S), self._reading[namespace]:
                request = await context.read()
        except TimeoutError as error:
            raise TooManyRequests("requests that are still being sent", retry_after_s=RETRY_S) from error
        if request is grpc.aio.EOF:
            raise InvalidRequest((("", "no request was sent"),))
        return request

    @contextmanager
    def held(self, namespace: str, size: int) -> Iterator[None]:
        """While a request of `size` bytes is served. Raises TooManyRequests."""
        if self._held[namespace] + size > self._bytes_max:
            raise TooManyRequests("bytes of requests at a time", retry_after_s=RETRY_S)
        self._held[namespace] += size
        try:
            yield
        finally:
            self._held[namespace] -= size
