"""Bounds the calls of one namespace: places, waits, streams, bytes of unwritten responses.

gRPC holds a response until the transport has written it, however slowly its client reads. So a response is counted
before it is made: a client that does not read is refused the next one, without effect on others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from service.api.errors import TooManyRequests
from service.api.fitting import RESPONSE_BYTES_MAX
from service.shares import Shares

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


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that all namespaces hold together."""

    concurrent_rpcs_max: int
    streams_max: int
    waits_max: int
    answer_bytes_max: int


class Quotas:
    """The calls' shares of the server. `shared` says whether credentials know more than one namespace.

    Streams of gRPC's own services have separate places, as many as ours; so do responses to calls that write, so
    that unread responses block no append.
    """

    def __init__(self, limits: Limits, *, shared: bool) -> None:
        self.limits = limits
        self._calls = Shares(limits.concurrent_rpcs_max, shared=shared)
        self._waits = Shares(limits.waits_max, shared=shared)
        self._answer_bytes = Shares(limits.answer_bytes_max, shared=shared)
        self._written_bytes = Shares(limits.answer_bytes_max // WRITTEN_PART, shared=shared)
        self._streams = {ours: Shares(limits.streams_max, shared=shared) for ours in (True, False)}

    def take_call(self, namespace: str, *, reads: bool) -> None:
        """Take a place for a working call, if there is also room for its response. Raises TooManyRequests."""
        self.require_room(namespace, reads=reads)
        _require(self._calls.take_if_room(namespace), CALLS)

    def require_room(self, namespace: str, *, reads: bool) -> None:
        """Raise TooManyRequests if there is no room for a response."""
        room = self._room(reads=reads)
        _require(room.has_room(namespace, RESPONSE_BYTES_MAX if reads else ANSWER_BYTES_MIN), UNTAKEN)

    def give_back_call(self, namespace: str) -> None:
        """End what `take_call` began."""
        self._calls.give_back(namespace)

    @contextmanager
    def waiting(self, namespace: str) -> Iterator[None]:
        """Let a call wait, as `waiting_if_room`. Raises TooManyRequests without room."""
        with self.waiting_if_room(namespace) as has_room:
            _require(has_room, WAITS)
            yield

    @contextmanager
    def waiting_if_room(self, namespace: str) -> Iterator[bool]:
        """Let a call wait and lend its place to another call meanwhile.

        Yields whether there was room to wait; if not, the call keeps its place and should not wait long.
        """
        if not self._waits.take_if_room(namespace):
            yield False
            return
        self._calls.give_back(namespace)
        try:
            yield True
        finally:
            self._calls.take(namespace)  # above the limit, if it must: this call has been admitted
            self._waits.give_back(namespace)

    @contextmanager
    def stream(self, namespace: str, *, ours: bool) -> Iterator[None]:
        """A place for a stream. Raises TooManyRequests."""
        _require(self._answer_bytes.has_room(namespace, ANSWER_BYTES_MIN), UNTAKEN)
        _require(self._streams[ours].take_if_room(namespace), STREAMS)
        try:
            yield
        finally:
            self._streams[ours].give_back(namespace)

    @contextmanager
    def item(self, namespace: str, size: int) -> Iterator[None]:
        """Count an item of a stream while the transport takes it, up to the namespace's share.

        Items past the share are sent all the same: open streams are not refused, and their number bounds what they
        hold.
        """
        counted = self._answer_bytes.take_if_room(namespace, size)
        try:
            yield
        finally:
            if counted:
                self._answer_bytes.give_back(namespace, size)

    @contextmanager
    def making(self, namespace: str) -> Iterator[Callable[[int], None]]:
        """Yields a function that counts bytes of a response being made, from any thread; it raises TooManyRequests.

        It raises also once the block is left, which a thread may outlive whose caller is gone.
        """
        total, is_left = 0, False
        counting = threading.Lock()

        def grow(size: int) -> None:
            nonlocal total
            with counting:
                _require(not is_left and self._answer_bytes.take_if_room(namespace, size), UNTAKEN)
                total += size

        try:
            yield grow
        finally:
            with counting:
                is_left = True
                self._answer_bytes.give_back(namespace, total)

    def sending(self, namespace: str, size: int, *, reads: bool) -> Callable[[object], None]:
        """Count a response of `size` bytes; call what this returns once it is written or the call has ended.

        Raises TooManyRequests for the response to a call that `reads`. Responses to calls that wrote are short and
        never refused: a window in one is counted separately, by the code that made it.
        """
        size = max(size, ANSWER_BYTES_MIN) if reads else min(max(size, ANSWER_BYTES_MIN), WRITTEN_BYTES_MAX)
        room = self._room(reads=reads)
        if reads:
            _require(room.take_if_room(namespace, size), UNTAKEN)
        else:
            room.take(namespace, size)
        return lambda _: room.give_back(namespace, size)

    def _room(self, *, reads: bool) -> Shares:
        return self._answer_bytes if reads else self._written_bytes


def _require(has_room: bool, limit: _Limit) -> None:
    if not has_room:
        raise TooManyRequests(limit.what, retry_after_s=limit.retry_s)
