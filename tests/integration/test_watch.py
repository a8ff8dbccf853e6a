"""WatchConversation: a conversation's events and the progress of its passes, from any version on, live."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import event_log_service_pb2 as log
from tests.support.answers import gated
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refused
from tests.support.sidecar import Sidecar, decoded, on_ollama, said, sidecar


def watching(s: Sidecar, conversation_id: str = "c1", *, after: int = 0) -> Any:
    request = api.WatchConversationRequest(conversation_id=conversation_id, after_version=after)
    return s.conversations.WatchConversation(request, timeout=PATIENCE_S, metadata=s.metadata)


async def until(stream: Any, found: Callable[[Any], bool]) -> list[Any]:
    """The items up to the one that is looked for."""
    items = []
    async for item in stream:
        items.append(item)
        if found(item):
            return items
    raise AssertionError("the stream ended before")


def is_caught_up(item: Any) -> bool:
    return bool(item.WhichOneof("item") == "caught_up")


def versions(items: list[Any]) -> list[int]:
    return [item.event.version for item in items if item.HasField("event")]


async def test_a_watcher_gets_the_past_then_the_present_without_gap(tmp_path):
    """Every version once, in order, with the caught-up mark between."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.talk(3)
        stream = watching(s)
        past = await until(stream, is_caught_up)

        await chat.append(said(4))
        present = await until(stream, lambda item: item.event.version == 5)

        assert versions(past) == [1, 2, 3, 4]
        assert (past[-1].caught_up.version, past[-1].caught_up.position) == (4, 0)
        assert versions(present) == [5]
        assert decoded(present[-1].event).message.id == "m4"
        stream.cancel()


async def test_a_watcher_resumes_after_the_version_that_it_saw(tmp_path):
    """The watcher misses nothing, and sees nothing twice."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.talk(6)

        resumed = await until(watching(s, after=4), is_caught_up)

        assert versions(resumed) == [5, 6, 7]


async def test_a_watcher_sees_a_pass_from_request_to_record(tmp_path):
    """A UI's indicator follows facts: requested, started, attempt, progress, completed."""
    gate = asyncio.Event()
    async with FakeOllama(responder=gated(gate)) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        chat = s.chat()
        await chat.append(said(1))
        stream = watching(s)
        await until(stream, is_caught_up)

        chat.count = 1
        await chat.talk(14)
        first = await until(stream, lambda item: item.progress.stage == api.PASS_STAGE_ATTEMPT)
        gate.set()
        rest = await until(stream, lambda item: item.progress.stage == api.PASS_STAGE_COMPLETED)

        stages = [item.progress.stage for item in first + rest if item.HasField("progress")]
        assert list(dict.fromkeys(stages)) == [
            api.PASS_STAGE_REQUESTED,
            api.PASS_STAGE_STARTED,
            api.PASS_STAGE_PROGRESS,
            api.PASS_STAGE_ATTEMPT,
            api.PASS_STAGE_COMPLETED,
        ]
        assert {item.progress.summarization_id for item in first + rest if item.HasField("progress")} == {
            (await chat.passes())[0].id
        }
        assert max(item.progress.output_chars for item in rest) > 0
        stream.cancel()


async def test_a_watcher_hears_of_a_failed_pass(tmp_path):
    """Failure is a fact like any other."""
    gate = asyncio.Event()
    async with FakeOllama(responder=gated(gate, "not JSON")) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        chat = s.chat()
        await chat.talk(14)
        stream = watching(s)
        await until(stream, is_caught_up)
        gate.set()

        # Two sources, each in its order: the log's events, and the facts between them.
        expected: set[Any] = {"SummarizationFailed", api.PASS_STAGE_FAILED}
        heard: set[Any] = set()
        while not heard >= expected:
            (item,) = await until(stream, lambda _: True)
            heard |= {item.event.type, item.progress.stage}
        stream.cancel()


async def test_other_conversations_are_not_seen(tmp_path):
    """The watcher sees neither their events nor their passes."""
    async with sidecar(tmp_path) as s:
        mine, other = s.chat("mine"), s.chat("other")
        await mine.append(said(1))
        stream = watching(s, "mine")
        await until(stream, is_caught_up)

        await other.talk(14, wait_s=PATIENCE_S)
        await mine.append(said(2))
        items = await until(stream, lambda item: item.event.version == 3)

        assert [item.event.conversation_id for item in items] == ["mine"]
        stream.cancel()


async def test_an_unknown_conversation_cannot_be_watched(tmp_path):
    """NOT_FOUND, before anything is sent."""
    async with sidecar(tmp_path) as s, refused("NOT_FOUND", "CONVERSATION_NOT_FOUND"):
        await until(watching(s, "nobody"), is_caught_up)


async def test_a_slow_watcher_holds_nobody_up(tmp_path):
    """Appends go on at full speed while a client does not read, and the client misses nothing when it does."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(context_length=10_000_000)
        await chat.append(said(1))
        stream = watching(s)
        await until(stream, is_caught_up)

        text = "x" * 20_000
        for start in range(2, 202, 20):
            await chat.append(*(said(n, text) for n in range(start, start + 20)))
        items = await until(stream, lambda item: item.event.version == 202)

        assert versions(items) == list(range(3, 203))
        stream.cancel()


async def test_streams_beat_when_nothing_happens(tmp_path):
    """Silence and a dead connection look different."""
    async with sidecar(tmp_path) as s:
        await s.chat().append(said(1))
        subscription = s.event_log.SubscribeEvents(log.SubscribeEventsRequest(), timeout=PATIENCE_S)

        def beats(item: Any) -> bool:
            return bool(item.WhichOneof("item") == "heartbeat")

        watched, subscribed = await asyncio.gather(until(watching(s), beats), until(subscription, beats))

        assert watched[-1].heartbeat.version == 2
        assert subscribed[-1].heartbeat.time.seconds > 0
        subscription.cancel()


async def test_streams_end_in_order_when_the_sidecar_stops(tmp_path):
    """A stop does not hang on open streams, and their clients can tell it from a failure: cut off, they are no OK."""
    async with sidecar(tmp_path, {"server.shutdown_grace_s": PATIENCE_S}) as s:
        await s.chat().append(said(1))
        streams = [watching(s), s.event_log.SubscribeEvents(log.SubscribeEventsRequest(), timeout=PATIENCE_S)]
        for stream in streams:
            await until(stream, is_caught_up)

        await s.stop()

        for stream in streams:
            async for _ in stream:
                pass
            assert await stream.code() is grpc.StatusCode.OK


@pytest.mark.parametrize("after", [4, 1_000_000])
async def test_a_version_past_the_end_cannot_be_watched_from(tmp_path, after):
    """The version is of another log, or older than a restore, and events would be missed up to there."""
    async with sidecar(tmp_path) as s:
        await s.chat().talk(2)

        async with refused("OUT_OF_RANGE", "CURSOR_OUT_OF_RANGE") as refusal:
            await until(watching(s, after=after), is_caught_up)

        assert refusal.metadata == {"log_id": s.running.log_id, "cursor": str(after), "head": "3"}
        assert versions(await until(watching(s, after=3), is_caught_up)) == []
