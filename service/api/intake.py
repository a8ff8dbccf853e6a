"""Bounds the memory of requests that arrive, by the places of a lane, and of those being served, by a room."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from abridged.service.api.errors import TooManyRequests

READING_MAX = 8
"""Requests of a namespace that are read at a time; others wait unread, first come, first served. The transport holds at
most `UNREAD_BYTES_MAX` of a request that is not being read."""

MOMENT_S = 0.5
"""Seconds that a request keeps its place for certain: most arrive within milliseconds. A waiting request may take the
place then, and the slow one continues without a place."""

ASIDE_MAX = 8
"""Requests that lost their place and still arrive. The oldest of them is refused past this limit, so a slow connection
with 16 requests is served and silent ones block nobody."""

OPEN_READING_MAX = 32
"""Requests of calls that need no credential. They do not wait for each other: when all places are taken, a new request
takes the place of the oldest. A health check is small and arrives whole."""

REQUEST_S = 10.0
"""Seconds that a call may wait to be read and that its request may take to arrive."""

LARGE_BYTES = 65_536
REST_S_PER_BYTE = 4e-9
"""Seconds, for each byte of a large request without credential, in which no other begins to be read: 4 ms for a
megabyte, which takes the event loop 2 ms. Calls are handed over one by one, and between two of them the loop does all
that has come: without rests, a call waits until the requests of all who came before it have been read."""

OPEN_PACE_S = 1e-3
"""Seconds between two calls without credential that had to wait for such a rest."""

OPEN_WAITING_MAX = 1_000
"""Calls without credential that wait for it. More are refused at once."""

RETRY_S = 0.2

Received = tuple[Any, int]
"""A request, and how many bytes it came in."""


class _Request:
    """A request that its task waits for. `taken_s` is when it got its place, `has_to_go` whether it lost it."""

    __slots__ = ("came_s", "has_to_go", "taken_s", "task")

    def __init__(self, task: asyncio.Task[object], came_s: float) -> None:
        self.task = task
        self.came_s = came_s
        self.taken_s = came_s
        self.has_to_go = False

    def refuse(self) -> None:
        """End its task's wait with TooManyRequests; only once: a second cancellation would look like the caller's."""
        if not self.has_to_go:
            self.has_to_go = True
            self.task.cancel()


class Lane:
    """Requests that are read at a time; the others wait, first come, first served.

    One timer serves all of them, since all have the same time: a timer each would cost as much as the reading. A
    large request is followed by a rest; at most `waiting_max` wait, and get their places `pace_s` apart.
    """

    def __init__(
        self,
        places: int,
        *,
        aside_max: int,
        moment_s: float,
        request_s: float,
        waiting_max: int | None = None,
        rest_s_per_byte: float = 0.0,
        pace_s: float = 0.0,
    ) -> None:
        self._places = places
        self._aside_max = aside_max
        self._moment_s = moment_s
        self._request_s = request_s
        self._waiting_max = waiting_max
        self._rest_s_per_byte = rest_s_per_byte
        self._pace_s = pace_s
        # Each in order: of coming, of coming, of getting the place, of leaving it.
        self._all: dict[_Request, None] = {}
        self._waiting: dict[_Request, asyncio.Future[None]] = {}
        self._placed: dict[_Request, None] = {}
        self._aside: dict[_Request, None] = {}
        self._rests_until_s = 0.0
        self._is_timed = False
        self._passing_on: tuple[float, asyncio.TimerHandle] | None = None

    async def read(self, receive: Callable[[], Awaitable[Received]], room: Room | None = None) -> Received:
        """Return the result of `receive`, called when there is a place, which is kept until `room` holds its bytes.

        Raises TooManyRequests when it takes too long, or too many wait.
        """
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "a transport runs each call as a task"
        request = _Request(task, loop.time())
        self._all[request] = None
        if not self._is_timed:
            self._is_timed = True
            loop.call_later(self._request_s, self._refuse_late)
        try:
            if self._waiting or not self._has_place(request.came_s):
                await self._turn(request)
            else:
                self._placed[request] = None
            received = await receive()
            if room is not None and not room.take(received[1]):
                await room.hold(received[1])
            if received[1] > LARGE_BYTES:
                self._rests_until_s = max(self._rests_until_s, loop.time()) + received[1] * self._rest_s_per_byte
            return received
        except asyncio.CancelledError as error:
            if request.has_to_go and not task.uncancel():
                raise TooManyRequests(
                    "requests that are still being sent or wait for room", retry_after_s=RETRY_S
                ) from error
            raise
        finally:
            del self._all[request]
            self._placed.pop(request, None)
            self._aside.pop(request, None)
            if self._waiting:
                self._waiting.pop(request, None)
                self._pass_on()

    def _turn(self, request: _Request) -> asyncio.Future[None]:
        if self._waiting_max is not None and len(self._waiting) >= self._waiting_max:
            raise TooManyRequests("requests that wait to be read", retry_after_s=RETRY_S)
        turn = self._waiting[request] = asyncio.get_running_loop().create_future()
        self._pass_on_later()
        return turn

    def _has_place(self, now_s: float) -> bool:
        """Return whether there is a place, if need be that of a request which had it for its moment."""
        if now_s < self._rests_until_s:
            return False
        if len(self._placed) < self._places:
            return True
        longest = next(iter(self._placed))
        if now_s - longest.taken_s < self._moment_s:
            return False
        del self._placed[longest]
        self._aside[longest] = None
        if len(self._aside) > self._aside_max:
            slowest = next(iter(self._aside))
            del self._aside[slowest]
            slowest.refuse()
        return True

    def _give_places(self, now_s: float) -> None:
        while self._waiting and self._has_place(now_s):
            request = next(iter(self._waiting))
            turn = self._waiting.pop(request)
            if not turn.done():
                request.taken_s = now_s
                self._placed[request] = None
                self._rests_until_s = max(self._rests_until_s, now_s + self._pace_s)
                turn.set_result(None)

    def _pass_on(self) -> None:
        self._give_places(asyncio.get_running_loop().time())
        if self._waiting:
            self._pass_on_later()

    def _pass_on_later(self) -> None:
        """Have places given when there may be one."""
        at_s = self._rests_until_s
        if len(self._placed) >= self._places:
            at_s = max(at_s, next(iter(self._placed)).taken_s + self._moment_s)
        if self._passing_on is not None:
            if self._passing_on[0] <= at_s:
                return
            self._passing_on[1].cancel()
        self._passing_on = at_s, asyncio.get_running_loop().call_at(at_s, self._timed_pass_on)

    def _timed_pass_on(self) -> None:
        self._passing_on = None
        self._pass_on()

    def _refuse_late(self) -> None:
        loop = asyncio.get_running_loop()
        late_s = loop.time() - self._request_s
        self._is_timed = False
        for request in self._all:
            if request.came_s > late_s:
                self._is_timed = True
                loop.call_at(request.came_s + self._request_s, self._refuse_late)
                return
            request.refuse()


class Room:
    """Bytes of requests being served: at most `bytes_max`; others wait, first come, first served."""

    def __init__(self, bytes_max: int) -> None:
        self._free = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def take(self, size: int) -> bool:
        """Hold `size` bytes until `let_go` if there is room for them and nobody waits; returns whether they are."""
        if self._waiting or self._free < size:
            return False
        self._free -= size
        return True

    async def hold(self, size: int) -> None:
        """Wait until there is room for `size` bytes, and hold them until `let_go`."""
        if self.take(size):
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            self.let_go(0 if turn.cancelled() else size)
            raise

    def let_go(self, size: int) -> None:
        """Give `size` bytes to whoever waits."""
        self._free += size
        while self._waiting and (self._waiting[0][1].done() or self._waiting[0][0] <= self._free):
            wanted, turn = self._waiting.popleft()
            if not turn.done():
                self._free -= wanted
                turn.set_result(None)


def lane_of_callers() -> Lane:
    """The lane of one namespace."""
    return Lane(READING_MAX, aside_max=ASIDE_MAX, moment_s=MOMENT_S, request_s=REQUEST_S)


def lane_without_credential() -> Lane:
    """The lane of all calls that need no credential."""
    return Lane(
        OPEN_READING_MAX,
        aside_max=0,
        moment_s=0.0,
        request_s=REQUEST_S,
        waiting_max=OPEN_WAITING_MAX,
        rest_s_per_byte=REST_S_PER_BYTE,
        pace_s=OPEN_PACE_S,
    )
