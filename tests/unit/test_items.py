"""The items of a stream: how many are under way, in which order they are served, and the room that they give back."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from abridged.service.api.admission import Admission, Tenant
from abridged.service.api.drain import Drain
from abridged.service.api.errors import InvalidRequest, ServerStopping
from abridged.service.api.items import Items, in_order
from abridged.service.api.methods import Method
from abridged.service.api.slow_calls import SlowCalls
from tests.support.edge_server import ROOMY
from tests.support.patience import PATIENCE_S

SIZE = 10
TURNS = 200
"""Turns of the loop after which all that may happen has happened: none of it waits for anything outside."""
METHOD = Method.named("abridged.v1.ConversationService/IngestMessages", takes_stream=True)


class Requests:
    """The call of a stream that has requests `first` to `last` and counts those that are read."""

    metadata = MappingProxyType[str, str]({})
    requests = None

    def __init__(self, count: int, *, turns_each: int = 0, unreadable: int = 0, broken: int = 0) -> None:
        self._count = count
        self._turns_each = turns_each
        self._unreadable = unreadable
        self._broken = broken
        self.read_so_far = 0

    async def read_next(self) -> tuple[Any, int] | Exception | None:
        """See StreamingCall."""
        if self.read_so_far == self._count:
            return None
        if self.read_so_far:
            for _ in range(self._turns_each):
                await asyncio.sleep(0)
        self.read_so_far += 1
        if self.read_so_far == self._broken:
            raise InvalidRequest((("", "broken"),))
        if self.read_so_far == self._unreadable:
            return InvalidRequest((("", "unreadable"),))
        return self.read_so_far, SIZE

    def time_remaining(self) -> float | None:
        """See Call."""
        return None

    async def read(self) -> tuple[Any, int]:
        """See Call."""
        raise AssertionError("a stream is read by read_next")

    def encoded(self, answer: Any) -> bytes:
        """See Call."""
        return b""

    def own_code(self, error: BaseException) -> str | None:
        """See Call."""
        return None

    def handled(self, request: Any) -> Any:
        """See StreamingCall."""
        raise AssertionError("items are served one by one")


def items_of(call: Requests, *, bytes_max: int = 1_000, calls_max: int = 100) -> tuple[Items, Tenant]:
    """Return the items of a call, and the tenant whose room they take."""
    limits = replace(ROOMY, concurrent_rpcs_max=calls_max)
    tenant = Admission(limits, request_bytes_max=bytes_max, multi_tenant=False).of("n")
    ended: list[str] = []
    return Items(
        METHOD,
        call,
        tenant,
        drain=Drain(),
        item_s=60.0,
        ended=ended.append,
        slow=SlowCalls(60.0),
    ), tenant


async def turns() -> None:
    """Let everything happen that can."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def echoed(request: int) -> int:
    return request


def alone(request: int) -> str:
    return str(request)


async def test_no_more_is_read_while_results_are_not_taken():
    """The window is full of results then; the transport holds the sender."""
    call = Requests(100)
    items, _ = items_of(call)
    async with aclosing(in_order(items, echoed, alone, window=4, stopping=asyncio.Event())) as outcomes:
        assert await anext(outcomes) == 1
        await turns()

        assert call.read_so_far <= 1 + 4
        assert [outcome async for outcome in outcomes] == list(range(2, 101))


async def test_no_more_is_read_while_the_window_is_under_way():
    """Served side by side, and never more of them."""
    call, gate = Requests(100), asyncio.Event()
    items, _ = items_of(call)
    under_way: list[int] = []

    async def gated(request: int) -> int:
        under_way.append(request)
        await gate.wait()
        return request

    async def all_of_them() -> list[int]:
        return [outcome async for outcome in in_order(items, gated, alone, window=4, stopping=asyncio.Event())]

    taking = asyncio.create_task(all_of_them())
    await turns()
    assert under_way == [1, 2, 3, 4]
    assert call.read_so_far == 4
    gate.set()
    assert await taking == list(range(1, 101))


async def test_requests_with_one_key_are_served_one_after_another():
    """A later one does not overtake; results are in order whatever ends first."""
    call = Requests(6)
    items, _ = items_of(call)
    ended: list[int] = []

    async def slower_first(request: int) -> int:
        for _ in range(60 // request):
            await asyncio.sleep(0)
        ended.append(request)
        return request

    outcomes = in_order(items, slower_first, lambda r: str(r % 2), window=6, stopping=asyncio.Event())
    found = [outcome async for outcome in outcomes]

    assert found == [1, 2, 3, 4, 5, 6]
    assert [r for r in ended if r % 2] == [1, 3, 5]
    assert [r for r in ended if not r % 2] == [2, 4, 6]
    assert ended != found


async def test_requests_wait_for_room_for_their_bytes():
    """The room of the namespace bounds them: an item that it has none for is not begun."""
    call, gate = Requests(10), asyncio.Event()
    items, _ = items_of(call, bytes_max=2 * SIZE)
    begun: list[int] = []

    async def gated(request: int) -> int:
        begun.append(request)
        await gate.wait()
        return request

    async def all_of_them() -> list[int]:
        return [outcome async for outcome in in_order(items, gated, alone, window=8, stopping=asyncio.Event())]

    taking = asyncio.create_task(all_of_them())
    await turns()
    assert begun == [1, 2]
    gate.set()
    assert await taking == list(range(1, 11))


async def test_a_stream_that_is_left_gives_back_all_room():
    """The room is that of items under way, of those not begun, and of the one just read."""
    call = Requests(100)
    items, tenant = items_of(call, bytes_max=5 * SIZE)

    async def for_ever(request: int) -> int:
        if request > 1:
            await asyncio.Event().wait()
        return request

    async with aclosing(in_order(items, for_ever, lambda _: "one", window=4, stopping=asyncio.Event())) as outcomes:
        assert await anext(outcomes) == 1
    await turns()

    async with asyncio.timeout(PATIENCE_S):
        await tenant.room.hold(5 * SIZE)


async def test_a_stream_that_is_left_gives_back_the_room_of_what_it_had_only_read():
    """A request came while a result was being taken, and nobody served it."""
    call = Requests(2, turns_each=20)
    items, tenant = items_of(call, bytes_max=2 * SIZE)
    async with aclosing(in_order(items, echoed, alone, window=4, stopping=asyncio.Event())) as outcomes:
        assert await anext(outcomes) == 1
        await turns()
        assert call.read_so_far == 2

    async with asyncio.timeout(PATIENCE_S):
        await tenant.room.hold(2 * SIZE)


async def test_a_place_that_is_not_there_refuses_the_item_and_not_the_stream():
    """The refusal is that of the unary call; the next item is served."""
    call, gate = Requests(3), asyncio.Event()
    items, _ = items_of(call, calls_max=1)

    async def gated(request: int) -> int:
        await gate.wait()
        return request

    async def all_of_them() -> list[Any]:
        return [outcome async for outcome in in_order(items, gated, alone, window=2, stopping=asyncio.Event())]

    taking = asyncio.create_task(all_of_them())
    await turns()
    gate.set()
    first, second, third = await taking
    assert (first, third) == (1, 3)
    assert "too many calls" in second.message


async def test_what_cannot_be_read_is_refused_and_what_cannot_be_told_apart_ends_the_stream():
    """Behind a broken request nobody knows where the next begins: nothing more is read, and all before it is served."""
    call = Requests(10, unreadable=2, broken=4)
    items, _ = items_of(call)
    found: list[Any] = []

    async def all_of_them() -> None:
        async for outcome in in_order(items, echoed, alone, window=8, stopping=asyncio.Event()):
            found.append(outcome)  # noqa: PERF401 - it ends in an error

    with pytest.raises(InvalidRequest, match="broken"):
        await all_of_them()

    first, second, third = found
    assert (first, third) == (1, 3)
    assert "unreadable" in second.message
    assert call.read_so_far == 4


async def test_a_stop_ends_the_stream_behind_the_last_result():
    """The stream reads nothing more, and drops nothing that was read."""
    call, stopping, gate = Requests(100), asyncio.Event(), asyncio.Event()
    items, _ = items_of(call)
    found: list[int] = []

    async def gated(request: int) -> int:
        await gate.wait()
        return request

    async def taken_one_by_one() -> None:
        async for outcome in in_order(items, gated, alone, window=4, stopping=stopping):
            found.append(outcome)  # noqa: PERF401 - it ends in an error

    taking = asyncio.create_task(taken_one_by_one())
    await turns()
    stopping.set()
    gate.set()
    with pytest.raises(ServerStopping):
        await taking

    assert found == list(range(1, call.read_so_far + 1))
    assert 4 <= len(found) < 100
