"""Reads at a time, and bytes held, of each namespace by itself."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from abridged.service.api.admission import Admission
from abridged.service.api.errors import TooManyRequests
from abridged.service.api.intake import ASIDE_MAX, LARGE_BYTES, OPEN_READING_MAX, READING_MAX, Lane
from tests.support.edge_server import ROOMY

REQUEST = ("a request", 9)


class _Call:
    """A call whose request comes when `come` is set."""

    def __init__(self) -> None:
        self.come = asyncio.Event()
        self.is_read = False

    async def read(self) -> tuple[str, int]:
        self.is_read = True
        await self.come.wait()
        return REQUEST


class _Large(_Call):
    """A call whose large request has come."""

    async def read(self) -> tuple[str, int]:
        self.is_read = True
        return "a large request", 100 * LARGE_BYTES


def admission(request_bytes_max: int) -> Admission:
    """Return an admission with room for everything but the bytes of requests."""
    return Admission(ROOMY, request_bytes_max=request_bytes_max, multi_tenant=True)


def sent() -> _Call:
    """A call whose request has come."""
    call = _Call()
    call.come.set()
    return call


async def turns() -> None:
    """Let every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def refusals(tasks: list[asyncio.Task[Any]]) -> list[bool]:
    """Return which of the tasks were refused, and end the others."""
    await turns()
    found = [task.done() and isinstance(task.exception(), TooManyRequests) for task in tasks]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return found


async def test_so_many_requests_of_a_namespace_are_read_at_a_time_and_the_others_wait_unread():
    """The others are read in the order of their coming; another namespace waits for none of them."""
    intake = admission(1_000)
    calls = [_Call() for _ in range(READING_MAX + 2)]
    reading = [asyncio.create_task(intake.of("a").read(call.read)) for call in calls]
    await turns()

    assert [call.is_read for call in calls] == [True] * READING_MAX + [False] * 2
    assert await intake.of("b").read(sent().read) is REQUEST
    calls[3].come.set()
    await turns()
    assert [call.is_read for call in calls] == [True] * (READING_MAX + 1) + [False]
    for call in calls:
        call.come.set()
    assert await asyncio.gather(*reading) == [REQUEST] * len(calls)


async def test_a_request_that_does_not_come_is_waited_for_no_longer_than_may_be():
    """The request may be read or still wait; its place is another one's then."""
    lane = Lane(2, aside_max=0, moment_s=60.0, request_s=0.01)
    silent = [asyncio.create_task(lane.read(_Call().read)) for _ in range(3)]
    for refused in silent:
        with pytest.raises(TooManyRequests):
            await refused

    assert await lane.read(sent().read) is REQUEST


async def test_a_request_that_is_late_in_two_ways_at_once_is_refused_with_a_reason():
    """The request times out in the turn in which another takes its place: cancelled twice, it would end silently."""
    lane = Lane(1, aside_max=0, moment_s=0.0, request_s=0.0)
    silent = [asyncio.create_task(lane.read(_Call().read)) for _ in range(2)]

    assert await refusals(silent) == [True, True]


async def test_a_call_that_is_cancelled_while_it_waits_takes_no_place_with_it():
    """Nor one that is cancelled at the moment at which it gets one."""
    lane = Lane(1, aside_max=0, moment_s=60.0, request_s=60.0)
    first = _Call()
    reading = asyncio.create_task(lane.read(first.read))
    gone = [asyncio.create_task(lane.read(_Call().read)) for _ in range(2)]
    await turns()

    gone[0].cancel()
    first.come.set()
    await reading
    gone[1].cancel()
    await turns()

    assert all(task.cancelled() for task in gone)
    assert await lane.read(sent().read) is REQUEST


async def test_whoever_waits_is_read_beside_a_request_that_had_its_moment():
    """The slow one goes on coming, and is answered when it is there."""
    lane = Lane(2, aside_max=2, moment_s=0.01, request_s=60.0)
    slow = [_Call() for _ in range(2)]
    reading = [asyncio.create_task(lane.read(call.read)) for call in slow]
    await turns()

    assert await lane.read(sent().read) is REQUEST

    for call in slow:
        call.come.set()
    assert await asyncio.gather(*reading) == [REQUEST] * 2


async def test_of_more_slow_requests_than_may_be_beside_the_slowest_is_refused():
    """One for each that has waited its moment, and no more than are in the way."""
    lane = Lane(1, aside_max=1, moment_s=0.01, request_s=60.0)
    silent = [asyncio.create_task(lane.read(_Call().read)) for _ in range(3)]
    await turns()

    assert await lane.read(sent().read) is REQUEST

    assert await refusals(silent) == [True, True, False]


async def test_a_slow_request_is_left_in_its_place_where_nobody_waits():
    """However long it takes, within its time."""
    lane = Lane(1, aside_max=0, moment_s=0.0, request_s=60.0)
    slow = _Call()
    reading = asyncio.create_task(lane.read(slow.read))
    await turns()

    slow.come.set()

    assert await reading is REQUEST


async def test_a_namespace_reads_no_more_than_its_places_and_those_beside():
    """The memory of requests is bounded."""
    intake = admission(1_000)
    calls = [_Call() for _ in range(4 * READING_MAX)]
    silent = [asyncio.create_task(intake.of("a").read(call.read)) for call in calls]
    await turns()

    assert sum(call.is_read for call in calls) == READING_MAX
    assert ASIDE_MAX <= READING_MAX
    assert not any(await refusals(silent))


async def test_a_health_check_waits_for_nobody_who_holds_a_request_back():
    """The one that has been sending for longest gives up its place."""
    intake = admission(1_000)
    silent = [asyncio.create_task(intake.of("").read(_Call().read)) for _ in range(2 * OPEN_READING_MAX)]
    await turns()

    assert await intake.of("").read(sent().read) is REQUEST

    assert await refusals(silent) == [n <= OPEN_READING_MAX for n in range(len(silent))]


async def test_after_a_large_request_without_credential_no_other_is_read_for_a_while():
    """The others wait unread, and a namespace is read meanwhile."""
    intake = admission(1_000)
    await intake.of("").read(_Large().read)
    later = sent()
    reading = asyncio.create_task(intake.of("").read(later.read))
    await turns()

    assert not later.is_read
    assert await intake.of("a").read(sent().read) is REQUEST
    assert await reading is REQUEST


async def test_those_who_waited_for_a_rest_are_read_one_by_one():
    """The lane would otherwise read all of them at once when it is over."""
    lane = Lane(32, aside_max=0, moment_s=0.0, request_s=60.0, waiting_max=10, rest_s_per_byte=1e-9, pace_s=60.0)
    await lane.read(_Large().read)
    calls = [sent() for _ in range(3)]
    reading = [asyncio.create_task(lane.read(call.read)) for call in calls]

    assert await reading[0] is REQUEST

    await refusals(reading)
    assert [call.is_read for call in calls] == [True, False, False]


async def test_so_many_wait_for_a_rest_and_more_are_refused():
    """The refusal is immediate: requests that wait take memory."""
    lane = Lane(32, aside_max=0, moment_s=0.0, request_s=60.0, waiting_max=2, rest_s_per_byte=1e-6)
    await lane.read(_Large().read)
    reading = [asyncio.create_task(lane.read(sent().read)) for _ in range(3)]

    assert await refusals(reading) == [False, False, True]


async def of(size: int) -> tuple[object, int]:
    """A request of `size` bytes that is here already."""
    return None, size


async def test_so_many_bytes_of_a_namespace_are_served_at_a_time():
    """A request over the bound waits with its sender, in the order of coming; each namespace has room of its own."""
    intake = admission(250)
    await intake.of("a").take(lambda: of(100))
    await intake.of("b").take(lambda: of(100))
    await intake.of("a").take(lambda: of(100))
    large, small = (asyncio.create_task(intake.of("a").take(partial(of, size))) for size in (200, 50))
    await asyncio.wait({large, small}, timeout=0.05)
    assert (large.done(), small.done()) == (False, False)

    intake.of("a").room.let_go(100)
    await asyncio.wait({large, small}, timeout=0.05)
    assert (large.done(), small.done()) == (False, False), "nobody overtakes"
    intake.of("a").room.let_go(100)

    await asyncio.wait({large, small})
    assert (await large, await small) == ((None, 200), (None, 50))


async def test_whoever_stops_waiting_for_room_takes_none():
    """A caller that goes away leaves the room to the next."""
    intake = admission(100)
    for _ in range(2):
        await intake.of("a").take(lambda: of(50))
    gone, next_one = (asyncio.create_task(intake.of("a").take(partial(of, size))) for size in (100, 50))
    await asyncio.wait({next_one}, timeout=0.05)
    gone.cancel()
    await asyncio.wait({gone})

    intake.of("a").room.let_go(50)

    await asyncio.wait({next_one}, timeout=5)
    assert next_one.result() == (None, 50)
