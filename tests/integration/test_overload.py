"""More calls than can be served, and calls at the end: a caller that is not served hears so from the sidecar, with a
reason.

A status without ErrorInfo would be the transport's own, which says neither why nor when to come back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable
from contextlib import AsyncExitStack
from typing import Any

import grpc

from abridged.client import AsyncConversations, Patience
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import server_info_service_pb2 as info
from abridged.v1.message_pb2 import ROLE_USER, Message
from tests.support.answers import hanging
from tests.support.edge_server import Working, only_place_taken
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.refusal import Refusal, refusal_of, refused
from tests.support.sidecar import Sidecar, on_ollama, said, sidecar

CALLS = 3_000
"""Three times the calls that the transport lets wait for a busy server by itself."""

TOO_MANY = ("RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS")
STOPPING = ("UNAVAILABLE", "SERVER_STOPPING")
STUBBORN = 64
COMES_BACK_S = 0.05
TAKES_ITS_TIME = {"server.shutdown_grace_s": PATIENCE_S}


def appends(s: Sidecar, count: int) -> list[asyncio.Task[Any]]:
    """Begin `count` appends at once, to fifty conversations."""
    return [
        asyncio.ensure_future(
            s.conversations.AppendMessages(
                api.AppendMessagesRequest(conversation_id=f"c{number % 50}", messages=[said(number + 1)]),
                timeout=PATIENCE_S,
            )
        )
        for number in range(count)
    ]


async def outcomes(calls: Iterable[Awaitable[Any]]) -> tuple[int, list[Refusal]]:
    """Return how many calls were served, and the refusals of the others."""
    ended = await asyncio.gather(*calls, return_exceptions=True)
    refusals = [refusal_of(error) for error in ended if isinstance(error, grpc.aio.AioRpcError)]
    return len(ended) - len(refusals), refusals


async def test_more_calls_at_once_than_the_transport_would_hold_are_served_or_refused_by_us(tmp_path):
    """Each refusal has a reason and a time to come back at."""
    async with sidecar(tmp_path, {"server.concurrent_rpcs_max": 100}) as s:
        served, refusals = await outcomes(appends(s, CALLS))

        assert Counter((r.code, r.reason) for r in refusals) == Counter({TOO_MANY: CALLS - served})
        assert all(r.retry_s for r in refusals)
        assert served
        assert (await s.chat("after").append(said(1))).message_version == 1


async def test_calls_that_wait_when_the_server_stops_are_served_or_refused_by_us(tmp_path):
    """The server cancels none of them without a word; what was answered is on disk."""
    async with sidecar(tmp_path, TAKES_ITS_TIME) as s:
        calls = appends(s, CALLS)
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)

        await s.stop()
        served, refusals = await outcomes(calls)

        assert {(r.code, r.reason) for r in refusals} <= {TOO_MANY, STOPPING}
        assert all(r.retry_s for r in refusals)
    async with sidecar(tmp_path) as s:
        found = await s.conversations.ListConversations(api.ListConversationsRequest(page_size=100))
        assert sum(state.message_version for state in found.conversations) == served


async def test_callers_who_come_back_at_once_are_refused_by_us_until_nobody_listens(tmp_path):
    """A call that reaches the sidecar gets a reason, and one that does not finds no connection."""
    async with sidecar(tmp_path, TAKES_ITS_TIME | {"server.listen": [f"unix:{tmp_path / 'socket'}"]}) as s:
        told: list[Refusal] = []
        is_over = asyncio.Event()

        async def stubborn(number: int) -> None:
            while not is_over.is_set():
                try:
                    await s.chat(f"c{number}").append(said(1))
                except grpc.aio.AioRpcError as error:
                    told.append(refusal_of(error))
                await asyncio.sleep(COMES_BACK_S)

        callers = [asyncio.create_task(stubborn(number)) for number in range(STUBBORN)]
        await asyncio.sleep(4 * COMES_BACK_S)
        await s.stop()
        is_over.set()
        await asyncio.gather(*callers)

    ours = [r for r in told if r.reason]
    assert {(r.code, r.reason) for r in ours} == {STOPPING}
    assert all(r.retry_s for r in ours)
    assert {r.code for r in told if not r.reason} <= {"UNAVAILABLE"}
    assert all("connect" in r.text for r in told if not r.reason)


async def test_a_call_that_outlasts_the_grace_is_asked_to_come_back(tmp_path):
    """The call is not cut off, which its client could not tell from a crash."""
    async with FakeOllama(responder=hanging()) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        await s.chat().talk(14)
        waiting = asyncio.ensure_future(s.info.WaitIdle(info.WaitIdleRequest(), timeout=PATIENCE_S))
        await s.info.GetServerInfo(info.GetServerInfoRequest())

        async with refused(*STOPPING) as refusal:
            await asyncio.gather(waiting, s.stop())

        assert (refusal.retry_s, refusal.pushback) == (5.0, "5000")


class _Busy(Working):
    """Takes appends beside its work, where there is room."""

    async def AppendMessages(self, request: Any, context: Any) -> Any:
        """See the contract."""
        return api.AppendMessagesResponse(message_version=1)


async def test_our_client_comes_back_when_there_is_room():
    """The client waits for the time that the refusal names."""
    busy = _Busy()
    async with only_place_taken(busy) as (address, _, only):
        pauses: list[float] = []

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            busy.gate.set()
            await only

        async with AsyncConversations(address, sleep=sleep, patience=Patience(uniform=lambda low, _: low)) as client:
            answer = await client.append("c2", [Message(id="m1", role=ROLE_USER, content="hello")])

    assert answer.message_version == 1
    assert pauses == [0.2]


async def test_our_client_comes_back_to_the_server_that_follows(tmp_path):
    """The next server has the same address and the same log: nothing is lost and nothing is there twice."""
    settings = {"server.listen": [f"unix:{tmp_path / 'socket'}"], "server.shutdown_grace_s": 1.0}
    async with (
        FakeOllama(responder=hanging()) as ollama,
        AsyncExitStack() as second,
        sidecar(tmp_path, settings | on_ollama(ollama)) as first,
    ):
        await first.chat().talk(14)
        running = asyncio.ensure_future(first.info.WaitIdle(info.WaitIdleRequest(), timeout=PATIENCE_S))
        stopped = asyncio.create_task(first.stop())
        restarted = False

        async def sleep(_: float) -> None:
            nonlocal restarted
            await stopped
            if not restarted:
                restarted = True
                await second.enter_async_context(sidecar(tmp_path, settings))

        async with AsyncConversations(first.running.grpc_addresses[0], sleep=sleep) as client:
            while not restarted:
                await client.append("c2", [Message(id="m1", role=ROLE_USER, content="hello")])
            state = await client.conversation("c2")
        await asyncio.gather(running, return_exceptions=True)

    assert state.message_version == 1
