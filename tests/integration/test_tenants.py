"""Namespaces apart: what one of them holds, however it was got, leaves places, waits, bytes and passes to the others.

Refusals and answers are counted, not seconds. tests/hostile/test_tenants.py does all of it at once and measures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import grpc
import pytest

from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import server_info_service_pb2 as info
from tests.support.answers import gated, hanging
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.refusal import Refusal, refusal_of, refused
from tests.support.sidecar import Chat, Sidecar, duration, on_ollama, said, sidecar
from tests.support.unread import unread_answer, unread_append, unread_channel

TWO_NAMESPACES = {
    "server.tokens": [{"token": name, "namespace": name, "scopes": ["append", "read"]} for name in ("alpha", "beta")]
}

TOO_MANY = {("RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS", True)}
"""Code, reason, and whether it is said when to come back."""


def of(s: Sidecar, namespace: str) -> Sidecar:
    """The sidecar, as the holder of this namespace's token calls it."""
    return replace(s, metadata=[("authorization", f"Bearer {namespace}")])


def waiting(chat: Chat, count: int) -> list[asyncio.Task[Any]]:
    """Begin `count` calls that wait for the chat's pass."""
    return [asyncio.ensure_future(chat.context(wait_s=PATIENCE_S)) for _ in range(count)]


async def until(tasks: Iterable[asyncio.Task[Any]], *, done: int) -> list[asyncio.Task[Any]]:
    """Return the tasks that are done, as soon as `done` of them are."""
    left = set(tasks)
    ended: set[asyncio.Task[Any]] = set()
    async with asyncio.timeout(PATIENCE_S):
        while len(ended) < done:
            now, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            ended |= now
    return list(ended)


async def cancelled(tasks: Iterable[asyncio.Task[Any]]) -> None:
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def refusals(tasks: Iterable[asyncio.Task[Any]]) -> list[Refusal]:
    return [refusal_of(e) for t in tasks if t.done() and isinstance(e := t.exception(), grpc.aio.AioRpcError)]


def watches(s: Sidecar, count: int, *, read: bool = True) -> tuple[list[Any], list[asyncio.Task[Any]]]:
    """Open `count` streams of a conversation, and read the first item of each unless they are not read."""
    request = api.WatchConversationRequest(conversation_id="c1")
    streams = [s.conversations.WatchConversation(request, metadata=s.metadata) for _ in range(count)]
    return streams, [asyncio.ensure_future(stream.read()) for stream in streams if read]


# ---- waits


async def test_waiting_calls_take_no_place_of_the_calls_that_work(tmp_path):
    """Twenty callers wait for a model that hangs; a caller that appends is served all the same."""
    settings = {"server.concurrent_rpcs_max": 4}
    async with FakeOllama(responder=hanging()) as ollama, sidecar(tmp_path, on_ollama(ollama) | settings) as s:
        chat = s.chat()
        await chat.talk(14)
        calls = waiting(chat, 20)

        assert (await s.chat().append(said(15))).message_version == 15
        assert (await s.chat("c2").append(said(1))).message_version == 1
        assert not [call for call in calls if call.done()]
        await cancelled(calls)


async def test_a_full_waiting_room_answers_at_once_with_what_there_is(tmp_path):
    """The window as it is, with the pass that is still pending; an append with its pass; not idle, with the count."""
    async with (
        FakeOllama(responder=hanging()) as ollama,
        sidecar(tmp_path, on_ollama(ollama) | {"server.waits_max": 2}) as s,
    ):
        chat = s.chat()
        await chat.talk(14)
        calls = waiting(chat, 5)

        answers = [call.result() for call in await until(calls, done=3)]
        appended = await s.chat("c2").talk(14, wait_s=PATIENCE_S)
        idle = await s.info.WaitIdle(info.WaitIdleRequest(timeout=duration(PATIENCE_S)), timeout=PATIENCE_S)

        assert [(len(a.messages), bool(a.pending_summarization_id)) for a in answers] == [(14, True)] * 3
        assert appended.message_version == 14
        assert appended.summarization.id
        assert (idle.idle, idle.pending) == (False, 2)
        async with refused("RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS") as refusal:
            await chat.context(min_version=15)
        assert refusal.retry_s
        assert len([call for call in calls if not call.done()]) == 2
        await cancelled(calls)


async def test_a_namespace_that_waits_leaves_room_for_others_to_wait(tmp_path):
    """Half of the room to one that takes all it gets; the other's call waits for its own pass."""
    settings = TWO_NAMESPACES | {"server.waits_max": 8}
    async with FakeOllama(responder=hanging()) as ollama, sidecar(tmp_path, on_ollama(ollama) | settings) as s:
        alpha, beta = of(s, "alpha").chat(), of(s, "beta").chat()
        await alpha.talk(14)
        await beta.talk(14)

        greedy = waiting(alpha, 20)
        at_once = await until(greedy, done=16)
        modest = waiting(beta, 1)
        await of(s, "beta").chat("c2").append(said(1))

        assert len(at_once) == 16
        assert not modest[0].done()
        await cancelled([*greedy, *modest])


# ---- streams


@pytest.mark.parametrize(("settings", "allowed"), [(TWO_NAMESPACES, 4), ({}, 8)])
async def test_streams_of_one_namespace_leave_places_for_others(tmp_path, settings, allowed):
    """Half of them, where tokens know more than one; all of them where there is but one."""
    async with sidecar(tmp_path, settings | {"server.streams_max": 8}) as s:
        alpha, beta = of(s, "alpha"), of(s, "beta")
        await alpha.chat().append(said(1))
        await beta.chat().append(said(1))

        streams, reads = watches(alpha, 12)
        await asyncio.wait(reads)
        ended = refusals(reads)
        others, first = watches(beta, 1 if settings else 0)
        await asyncio.gather(*first)

        assert len(reads) - len(ended) == allowed
        assert {(r.code, r.reason, bool(r.retry_s)) for r in ended} == {
            ("RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS", True)
        }
        for stream in (*streams, *others):
            stream.cancel()


# ---- answers


async def test_answers_that_are_not_taken_are_bounded_for_their_namespace_alone(tmp_path):
    """The sidecar refuses 9 of 12 calls that read nothing; another namespace reads its own, and appends go on."""
    settings = TWO_NAMESPACES | {"server.answer_bytes_max": 16 << 20}
    async with sidecar(tmp_path, settings) as s, unread_channel(s) as channel:
        alpha, beta = of(s, "alpha").chat(context_length=4_000_000), of(s, "beta").chat(context_length=4_000_000)
        for chat in (alpha, beta):
            for first in range(1, 13, 4):
                await chat.append(*(said(n, "x" * 200_000, tokens=1) for n in range(first, first + 4)))

        calls = [unread_answer(channel, alpha) for _ in range(12)]
        ended = await first_refusals(calls, 9)

        assert {(r.code, r.reason, bool(r.retry_s)) for r in ended} == {
            ("RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS", True)
        }
        assert len((await beta.context()).messages) == 12
        assert (await alpha.append(said(13))).message_version == 13
        assert len([call for call in calls if not call.done()]) == 3

        for call in calls:
            call.cancel()
        await until_served(alpha.context)


async def test_unread_windows_of_appends_count_as_what_is_read(tmp_path):
    """They take the room of those who read, and nobody's to append."""
    settings = TWO_NAMESPACES | {"server.answer_bytes_max": 16 << 20}
    async with sidecar(tmp_path, settings) as s, unread_channel(s) as channel:
        alpha = of(s, "alpha").chat(context_length=4_000_000)
        for first in range(1, 13, 4):
            await alpha.append(*(said(n, "x" * 200_000, tokens=1) for n in range(first, first + 4)))

        calls = [unread_append(channel, alpha, said(n)) for n in range(13, 25)]

        await until_refused(alpha.state)
        assert (await alpha.append(said(25))).messages[0].already_appended is False
        for call in calls:
            call.cancel()
        await until_served(alpha.context)


async def test_unread_watches_count_as_answers_that_are_not_taken(tmp_path):
    """Items of such watches take their namespace's room: it gets no more to read, others do."""
    settings = TWO_NAMESPACES | {"server.answer_bytes_max": 8 << 20}
    async with AsyncExitStack() as stack:
        s = await stack.enter_async_context(sidecar(tmp_path, settings))
        alpha, beta = of(s, "alpha"), of(s, "beta")
        for tenant in (alpha, beta):
            for first in range(1, 13, 4):
                chat = tenant.chat(context_length=4_000_000)
                await chat.append(*(said(n, "x" * 200_000, tokens=1) for n in range(first, first + 4)))
        # A connection each: calls of one share the bytes that its client lets come.
        channels = [await stack.enter_async_context(unread_channel(s)) for _ in range(60)]
        calls = [
            stream for channel in channels for stream in watches(replace(alpha, channel=channel), 1, read=False)[0]
        ]

        await until_refused(alpha.chat().state)

        assert (await beta.chat().state()).message_version == 12
        assert (await alpha.chat().append(said(13))).message_version == 13
        for call in calls:
            call.cancel()
        await until_served(alpha.chat().state)


async def until_refused(ask: Callable[[], Any]) -> None:
    """Ask again until there are too many of something."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await ask()
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise
                return


async def first_refusals(calls: Sequence[Any], count: int) -> list[Refusal]:
    """The refusals of `count` of the calls, whose answers nobody reads."""
    codes = [asyncio.ensure_future(call.code()) for call in calls]
    await until(codes, done=count)
    found = [await status(call) for call, code in zip(calls, codes, strict=True) if code.done()]
    await cancelled(codes)
    return found


async def status(call: Any) -> Refusal:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    return refusal_of(caught.value)


async def until_served(ask: Callable[[], Any]) -> None:
    """Ask again while there are too many of something."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await ask()
                return
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise


async def test_originals_that_are_read_count_before_they_are_all_in_memory(tmp_path):
    """Reading ends where the room for answers ends, not at the end of the conversation."""
    async with sidecar(tmp_path, {"server.answer_bytes_max": 4 << 20}) as s:
        chat = s.chat(context_length=4_000_000)
        for first in range(1, 25, 4):
            await chat.append(*(said(n, "x" * 200_000, tokens=1) for n in range(first, first + 4)))

        async with refused("RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS") as refusal:
            await chat.context(view=api.CONTEXT_VIEW_ORIGINAL)

        assert refusal.retry_s
        assert (await chat.append(said(25))).message_version == 25


# ---- passes


async def test_a_namespaces_passes_leave_a_worker_to_others(tmp_path):
    """Twelve passes of one namespace hang; the one of another asks its model."""
    settings = TWO_NAMESPACES | {"summarizer.concurrent_passes": 2, "ollama.concurrency": 2}
    async with FakeOllama(responder=hanging()) as ollama, sidecar(tmp_path, on_ollama(ollama) | settings) as s:
        for number in range(12):
            await of(s, "alpha").chat(f"a{number}").talk(14)
        await ollama.until(lambda o: bool(o.asked()))

        await of(s, "beta").chat("b").append(*(said(n, f"Turn {n} of beta.", tokens=120) for n in range(1, 15)))
        await ollama.until(lambda o: any("of beta" in str(body) for body in o.asked()))

        assert len(ollama.asked()) == 2


async def test_forced_passes_are_refused_by_what_their_own_namespace_has_pending(tmp_path):
    """A full line of one namespace refuses nobody else's."""
    settings = TWO_NAMESPACES | {"summarizer.queue_max": 3}
    async with FakeOllama(responder=hanging()) as ollama, sidecar(tmp_path, on_ollama(ollama) | settings) as s:
        for number in range(3):
            await of(s, "alpha").chat(f"a{number}").talk(14)
        quiet, other = of(s, "alpha").chat("quiet"), of(s, "beta").chat("b")
        await quiet.talk(8)
        await other.talk(8)

        async with refused("RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS"):
            await quiet.summarize(wait_s=0)
        assert (await other.summarize(wait_s=0)).id


async def test_an_emergency_overtakes_the_passes_that_wait(tmp_path):
    """The window that is over its budget gets the next worker, in its own namespace too."""
    gate = asyncio.Event()
    async with (
        FakeOllama(responder=gated(gate)) as ollama,
        sidecar(tmp_path, on_ollama(ollama) | {"summarizer.concurrent_passes": 1}) as s,
    ):
        for number in range(6):
            await s.chat(f"a{number}").talk(14)
        await ollama.until(lambda o: bool(o.asked()))
        full = [said(n, f"Turn {n} of the full one.", tokens=200) for n in range(1, 15)]
        await s.chat("full").append(*full)

        gate.set()
        await s.idle()

        asked = ["of the full one" in str(body) for body in ollama.asked()]
        assert asked.index(True) == 1
