"""What is read at a time and what is held, each namespace by itself."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from abridged.v1 import conversation_service_pb2 as api
from service.api.errors import InvalidRequest, TooManyRequests
from service.api.intake import READING_MAX, STRANGERS_READING_MAX, Intake

REQUEST = api.GetConversationRequest(conversation_id="c" * 98)
"""Of a hundred bytes."""


class _Call:
    """The context of a call whose request comes when `come` is set."""

    def __init__(self, request: Any = REQUEST) -> None:
        self.come = asyncio.Event()
        self.is_read = False
        self._request = request

    async def read(self) -> Any:
        self.is_read = True
        await self.come.wait()
        return self._request


async def turns() -> None:
    """Let every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_so_many_requests_of_a_namespace_are_read_at_a_time_and_the_others_wait_unread():
    """In the order of their coming; another namespace waits for none of them."""
    intake = Intake(bytes_max=1_000, request_bytes_max=1_000)
    calls = [_Call() for _ in range(READING_MAX + 2)]
    reading = [asyncio.create_task(intake.read(None, call, "a")) for call in calls]
    other = _Call()
    other.come.set()
    await turns()

    assert [call.is_read for call in calls] == [True] * READING_MAX + [False] * 2
    assert await intake.read(None, other, "b") is REQUEST
    calls[3].come.set()
    await turns()
    assert [call.is_read for call in calls] == [True] * (READING_MAX + 1) + [False]
    for call in calls:
        call.come.set()
    assert await asyncio.gather(*reading) == [REQUEST] * len(calls)


async def test_a_request_that_does_not_come_is_waited_for_no_longer_than_may_be():
    """Its place is another one's then."""
    intake = Intake(bytes_max=1_000, request_bytes_max=1_000, request_s=0.01)
    silent = [asyncio.create_task(intake.read(None, _Call(), "a")) for _ in range(READING_MAX)]
    for refused in silent:
        with pytest.raises(TooManyRequests):
            await refused

    late = _Call()
    late.come.set()
    assert await intake.read(None, late, "a") is REQUEST


async def test_a_health_check_waits_for_nobody_who_holds_a_request_back():
    """The one that has been sending for longest gives up its place."""
    intake = Intake(bytes_max=1_000, request_bytes_max=1_000)
    silent = [asyncio.create_task(intake.read(None, _Call(), "")) for _ in range(2 * STRANGERS_READING_MAX)]
    await turns()
    check = _Call()
    check.come.set()

    assert await intake.read(None, check, "") is REQUEST

    await turns()
    assert [task.done() for task in silent] == [n <= STRANGERS_READING_MAX for n in range(len(silent))]
    with pytest.raises(TooManyRequests):
        await silent[0]
    for task in silent:
        task.cancel()


async def test_a_call_that_sends_nothing_is_refused():
    """As one whose sending ended without a request."""
    empty = _Call(grpc.aio.EOF)
    empty.come.set()

    with pytest.raises(InvalidRequest):
        await Intake(bytes_max=1_000, request_bytes_max=1_000).read(None, empty, "a")


def test_so_many_bytes_of_a_namespace_are_served_at_a_time():
    """A request that ends makes room."""
    intake = Intake(bytes_max=250, request_bytes_max=250)

    with intake.held("a", REQUEST), intake.held("b", REQUEST):
        with intake.held("a", REQUEST), pytest.raises(TooManyRequests), intake.held("a", REQUEST):
            pass
        with intake.held("a", REQUEST):
            pass
