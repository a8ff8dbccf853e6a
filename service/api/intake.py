"""Requests on their way in, so that what callers send at once takes no memory without bound.

Every namespace has an intake of its own, and so have the calls that need no credential: one that is full keeps nobody
else out.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import grpc
from google.protobuf.message import Message

from service.api.errors import InvalidRequest, TooManyRequests

__all__ = ["Intake"]

READING_MAX = 8
"""Requests of a namespace that are read at a time; others wait in the order of their coming, unread. A request that is
not being read takes no more of the transport than the first 16 KiB of it."""

STRANGERS_READING_MAX = 32
"""The same for calls that need no credential. Nobody waits for another there: who comes when it is full takes the place
of the one that has been sending for longest. A health check is small and comes whole."""

REQUEST_S = 10.0
"""How long a call may wait to be read and its request may take to come."""

SKIPPED_S = 1.0
"""How long one may take whose method is unknown, before it is refused all the same."""

RETRY_S = 0.2


class Intake:
    """Reads requests, and knows how many bytes of them are being served: at most `bytes_max` of each namespace.

    `request_bytes_max` is for each request alone.
    """

    def __init__(self, *, bytes_max: int, request_bytes_max: int, request_s: float = REQUEST_S) -> None:
        self.request_bytes_max = request_bytes_max
        self._bytes_max = bytes_max
        self._request_s = request_s
        self._reading: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(READING_MAX))
        self._strangers: dict[asyncio.Timeout, None] = {}
        self._held: Counter[str] = Counter()

    async def read(self, _requests: Any, context: Any, namespace: str) -> Any:
        """The one request of a call. Raises InvalidRequest when there is none, TooManyRequests when it is late."""
        try:
            if namespace:
                async with asyncio.timeout(self._request_s), self._reading[namespace]:
                    request = await context.read()
            else:
                request = await self._read_of_stranger(context)
        except TimeoutError as error:
            raise TooManyRequests("requests that are still being sent", retry_after_s=RETRY_S) from error
        if request is grpc.aio.EOF:
            raise InvalidRequest((("", "no request came"),))
        return request

    async def _read_of_stranger(self, context: Any) -> Any:
        async with asyncio.timeout(self._request_s) as limit:
            if len(self._strangers) >= STRANGERS_READING_MAX:
                longest = next(iter(self._strangers))
                del self._strangers[longest]
                if not longest.expired():
                    longest.reschedule(0)
            self._strangers[limit] = None
            try:
                return await context.read()
            finally:
                self._strangers.pop(limit, None)

    async def skip(self, _requests: Any, context: Any, namespace: str) -> None:
        """Let a request come that nobody needs: a client that is still sending when the call ends sees its own failure
        to send instead of our answer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SKIPPED_S), self._reading[namespace]:
                await context.read()

    @contextmanager
    def held(self, namespace: str, request: Any) -> Iterator[None]:
        """While a request is served. Raises TooManyRequests."""
        size = request.ByteSize() if isinstance(request, Message) else 0
        if self._held[namespace] + size > self._bytes_max:
            raise TooManyRequests("bytes of requests at a time", retry_after_s=RETRY_S)
        self._held[namespace] += size
        try:
            yield
        finally:
            self._held[namespace] -= size
