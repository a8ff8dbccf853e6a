"""Admits calls: each namespace has one tenant, which bounds its requests, places, waits, streams and responses.

A full tenant does not block the others. Calls that need no credential are one tenant more, of the empty namespace.

gRPC holds a response until the transport has written it, however slowly its client reads. Admission therefore counts a
response before it is made: a client that does not read is refused the next one, without effect on others.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from abridged.service.api.errors import EdgeError, TooManyRequests
from abridged.service.api.intake import Lane, Received, Room, lane_of_callers, lane_without_credential
from abridged.service.api.pages import RESPONSE_BYTES_MAX
from abridged.service.shares import Share, Shares

SKIPPED_S = 1.0
"""Seconds that a request for an unknown method may take to arrive; it is refused in any case."""

ANSWER_BYTES_MIN = 4_096
"""The least that a call takes until its response is written."""

WRITTEN_PART = 8
"""Responses to calls that write are short; their own room is this fraction of the room for the others."""


WRITTEN_BYTES_MAX = 1 << 18
"""The largest response to a call that writes: the places of 512 messages with the longest ids."""


class _Limit(NamedTuple):
    """A bounded resource, and when to retry once it is used up."""

    what: str
    retry_s: float


CALLS = _Limit("calls", 0.2)
WAITS = _Limit("waits", 1.0)
STREAMS = _Limit("streams", 1.0)
UNTAKEN = _Limit("responses that were not read", 1.0)
TEXTS = _Limit("texts", 5.0)


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that all namespaces hold together."""

    concurrent_rpcs_max: int
    streams_max: int
    waits_max: int
    answer_bytes_max: int
    texts_max: int


class Admission:
    """The tenants of a server. `multi_tenant` says whether credentials know more than one namespace; those requests of
    each that are being served have at most `request_bytes_max`.

    Streams of gRPC's own services have separate places, as many as ours; so do responses to calls that write, so
    that unread responses block no append.
    """

    def __init__(self, limits: Limits, *, request_bytes_max: int, multi_tenant: bool) -> None:
        self.limits = limits
        self._request_bytes_max = request_bytes_max
        self._tenants: dict[str, Tenant] = {}
        self._calls = Shares(limits.concurrent_rpcs_max, multi_tenant=multi_tenant)
        self._waits = Shares(limits.waits_max, multi_tenant=multi_tenant)
        self._answer_bytes = Shares(limits.answer_bytes_max, multi_tenant=multi_tenant)
        self._written_bytes = Shares(limits.answer_bytes_max // WRITTEN_PART, multi_tenant=multi_tenant)
        self._streams = {ours: Shares(limits.streams_max, multi_tenant=multi_tenant) for ours in (True, False)}
        self._texts = Shares(limits.texts_max, multi_tenant=multi_tenant)

    def of(self, namespace: str) -> Tenant:
        """The tenant of a namespace, which credentials bound in number; "" for calls that need none."""
        tenant = self._tenants.get(namespace)
        if tenant is None:
            tenant = self._tenants[namespace] = Tenant(
                lane=lane_of_callers() if namespace else lane_without_credential(),
                room=Room(self._request_bytes_max),
                calls=self._calls.share(),
                waits=self._waits.share(),
                streams={ours: shares.share() for ours, shares in self._streams.items()},
                answer_bytes=self._answer_bytes.share(),
                written_bytes=self._written_bytes.share(),
                texts=self._texts.share(),
            )
        return tenant


@dataclass(frozen=True, slots=True)
class Tenant:
    """Counts the requests, places and bytes that the calls of one namespace hold."""

    lane: Lane
    room: Room
    calls: Share
    waits: Share
    streams: Mapping[bool, Share]
    answer_bytes: Share
    written_bytes: Share
    texts: Share

    def read(self, receive: Callable[[], Awaitable[Received]]) -> Coroutine[Any, Any, Received]:
        """Return the result of `receive`: the one request of a call. Raises TooManyRequests when it is late."""
        return self.lane.read(receive)

    def take(self, receive: Callable[[], Awaitable[Received]]) -> Coroutine[Any, Any, Received]:
        """Do as `read` does, and hold the bytes of the request until `room.let_go`. The read keeps its place until
        there is room for them: a request that cannot be served stays with its sender."""
        return self.lane.read(receive, self.room)

    async def skip(self, receive: Callable[[], Awaitable[Received]]) -> None:
        """Read a request and discard it: a client that is still sending when the call ends sees its own failure to send
        instead of the response."""
        with suppress(TimeoutError, EdgeError):
            async with asyncio.timeout(SKIPPED_S):
                await self.lane.read(receive)

    def take_call(self, *, reads: bool) -> None:
        """Take a place for a working call, if there is also room for its response. Raises TooManyRequests."""
        self.require_room(reads=reads)
        _require(self.calls.take_if_room(), CALLS)

    def require_room(self, *, reads: bool) -> None:
        """Raise TooManyRequests if there is no room for a response."""
        room = self._room(reads=reads)
        _require(room.has_room(RESPONSE_BYTES_MAX if reads else ANSWER_BYTES_MIN), UNTAKEN)

    def give_back_call(self) -> None:
        """End what `take_call` began."""
        self.calls.give_back()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let a call wait, as `waiting_if_room`. Raises TooManyRequests without room."""
        with self.waiting_if_room() as has_room:
            _require(has_room, WAITS)
            yield

    @contextmanager
    def waiting_if_room(self) -> Iterator[bool]:
        """Let a call wait and lend its place to another call meanwhile.

        Yields whether there was room to wait; if not, the call keeps its place and should not wait long.
        """
        if not self.waits.take_if_room():
            yield False
            return
        self.calls.give_back()
        try:
            yield True
        finally:
            self.calls.take()  # above the limit, if it must: this call has been admitted
            self.waits.give_back()

    @contextmanager
    def stream(self, *, ours: bool) -> Iterator[None]:
        """A place for a stream. Raises TooManyRequests."""
        _require(self.answer_bytes.has_room(ANSWER_BYTES_MIN), UNTAKEN)
        _require(self.streams[ours].take_if_room(), STREAMS)
        try:
            yield
        finally:
            self.streams[ours].give_back()

    @contextmanager
    def text(self) -> Iterator[None]:
        """A place for a text that is summarized. Raises TooManyRequests."""
        _require(self.texts.take_if_room(), TEXTS)
        try:
            yield
        finally:
            self.texts.give_back()

    @contextmanager
    def item(self, size: int) -> Iterator[None]:
        """Count an item of a stream while the transport takes it, up to the namespace's share.

        Items past the share are sent all the same: open streams are not refused, and their number bounds what they
        hold.
        """
        counted = self.answer_bytes.take_if_room(size)
        try:
            yield
        finally:
            if counted:
                self.answer_bytes.give_back(size)

    @contextmanager
    def making(self) -> Iterator[Callable[[int], None]]:
        """Yields a function that counts bytes of a response being made, from any thread; it raises TooManyRequests.

        The function raises also once the block is left, which a thread may outlive whose caller is gone.
        """
        total, is_left = 0, False
        counting = threading.Lock()

        def grow(size: int) -> None:
            nonlocal total
            with counting:
                _require(not is_left and self.answer_bytes.take_if_room(size), UNTAKEN)
                total += size

        try:
            yield grow
        finally:
            with counting:
                is_left = True
                self.answer_bytes.give_back(total)

    def sending(self, size: int, *, reads: bool) -> Callable[[object], None]:
        """Count a response of `size` bytes; call what this returns once it is written or the call has ended.

        Raises TooManyRequests for the response to a call that `reads`. Responses to calls that wrote are short and
        never refused: a window in one is counted separately, by the code that made it.
        """
        size = max(size, ANSWER_BYTES_MIN) if reads else min(max(size, ANSWER_BYTES_MIN), WRITTEN_BYTES_MAX)
        room = self._room(reads=reads)
        if reads:
            _require(room.take_if_room(size), UNTAKEN)
        else:
            room.take(size)
        return lambda _: room.give_back(size)

    def _room(self, *, reads: bool) -> Share:
        return self.answer_bytes if reads else self.written_bytes


def _require(has_room: bool, limit: _Limit) -> None:
    if not has_room:
        raise TooManyRequests(limit.what, retry_after_s=limit.retry_s)
