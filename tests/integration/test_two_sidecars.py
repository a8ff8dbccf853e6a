"""Two sidecars, each a process, on one log in PostgreSQL: a caller sees one log, whichever of them it asks."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from abridged.service.bootstrap import Running
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import event_log_service_pb2 as log
from tests.support.command import served
from tests.support.patience import PATIENCE_S
from tests.support.postgres_server import schema_url
from tests.support.sidecar import Chat, Sidecar, said


@asynccontextmanager
async def clients_of(addresses: list[str], folder: Path) -> AsyncIterator[list[Sidecar]]:
    """A client of each sidecar."""

    async def never() -> None:
        raise AssertionError("its process is stopped instead")

    async def idle() -> None:
        return

    channels = [grpc.aio.insecure_channel(address) for address in addresses]
    try:
        yield [
            Sidecar(Running((address,), "", "", idle), channel, folder, io.StringIO(), never)
            for address, channel in zip(addresses, channels, strict=True)
        ]
    finally:
        for channel in channels:
            await channel.close()


@pytest.fixture(scope="module")
def addresses(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    url = schema_url(folder)
    with ExitStack() as processes:
        yield [processes.enter_context(served(folder, f"log.url={url}")).address for _ in range(2)]


@pytest.fixture
async def two(addresses, tmp_path):
    async with clients_of(addresses, tmp_path) as sidecars:
        yield sidecars


def chats_of(two: list[Sidecar], name: str) -> list[Chat]:
    return [each.chat(name) for each in two]


async def test_what_one_has_acknowledged_is_in_the_window_of_the_other(two):
    """The sidecars take turns, with the conversation in the memory of both, and see appends at once."""
    chats = chats_of(two, "turns")
    for number in range(1, 21):
        writer, reader = chats[number % 2], chats[1 - number % 2]
        appended = await writer.append(said(number))
        window = await reader.context()
        assert (appended.message_version, window.messages[-1].message.id) == (number, f"m{number}")


async def test_a_repeated_append_is_known_by_the_other(two):
    """A caller may retry at whichever sidecar answers."""
    one, other = chats_of(two, "repeated")
    await one.append(said(1), request_id="r1")

    answer = await other.append(said(1), request_id="r1")

    assert (answer.messages[0].already_appended, answer.message_version) == (True, 1)


async def test_appends_of_both_at_once_make_one_conversation(two):
    """Each is written once, with a number of its own, and both sidecars have the same window."""
    chats = chats_of(two, "both")
    numbers = range(1, 41)
    await asyncio.gather(*(chats[number % 2].append(said(number)) for number in numbers))

    windows = [[(m.number, m.message.id) for m in (await chat.context()).messages] for chat in chats]

    assert windows[0] == windows[1]
    assert [number for number, _ in windows[0]] == list(numbers)
    assert {name for _, name in windows[0]} == {f"m{number}" for number in numbers}


async def test_each_trigger_of_both_has_one_record(two):
    """The second of two that make it finds it made, which is no error of either."""
    chats = [[each.chat(f"passes-{name}") for each in two] for name in range(3)]
    for number in range(1, 61):
        for one, other in chats:
            writer, reader = (one, other) if number % 2 else (other, one)
            await writer.append(said(number, tokens=120))
            await reader.context()
    for each in two:
        await each.idle()

    for one, other in chats:
        requested = {event.plan.summarization_id for event in await one.events("SummarizationRequested")}
        completed = [event.summarization_id for event in await one.events("SummarizationCompleted")]
        assert await one.events("SummarizationFailed") == []
        assert (sorted(completed), len(completed) > 3) == (sorted(requested), True)
        assert (await one.context()).messages == (await other.context()).messages


async def test_a_watcher_and_a_subscriber_of_one_get_the_events_of_the_other(two):
    """Every event once, in its order."""
    one, other = chats_of(two, "watched")
    await one.append(said(1))
    watched = two[1].conversations.WatchConversation(
        api.WatchConversationRequest(conversation_id="watched"), timeout=PATIENCE_S
    )
    subscribed = two[1].event_log.SubscribeEvents(
        log.SubscribeEventsRequest(conversation_id="watched"), timeout=PATIENCE_S
    )
    first = [await _events(stream, 2) for stream in (watched, subscribed)]
    for number in range(2, 6):
        await one.append(said(number))

    then = [await _events(stream, 4) for stream in (watched, subscribed)]

    assert first == [[1, 2], [1, 2]]
    assert then == [[3, 4, 5, 6], [3, 4, 5, 6]]
    assert (await other.state()).message_version == 5


async def test_a_wait_on_one_ends_with_the_append_of_the_other(two):
    """An append by either sidecar wakes a caller that waits for a version."""
    one, other = chats_of(two, "awaited")
    await one.append(said(1))
    waiting = [asyncio.ensure_future(other.context(min_version=version)) for version in (2, 3)]
    await other.state()

    await one.append(said(2))
    assert (await waiting[0]).messages[-1].message.id == "m2"
    await one.append(said(3))
    assert (await waiting[1]).messages[-1].message.id == "m3"


async def test_a_position_that_one_has_given_is_a_cursor_for_the_other(two):
    """The other may not have heard of the event yet."""
    one, _ = chats_of(two, "cursor")
    for number in range(1, 11):
        await one.append(said(number))
        page = await two[0].event_log.ReadEvents(
            log.ReadEventsRequest(conversation_id="cursor", backward=True, limit=1)
        )
        position = page.events[0].position
        answer = await two[1].event_log.ReadEvents(log.ReadEventsRequest(after=position))
        assert answer.next_after >= position


async def _events(stream: Any, count: int) -> list[int]:
    """The versions of the next events of a stream."""
    versions: list[int] = []
    async for item in stream:
        if item.WhichOneof("item") == "event":
            versions.append(item.event.version)
        if item.WhichOneof("item") == "page":
            versions += [event.version for event in item.page.events]
        if len(versions) == count:
            return versions
    raise AssertionError("the stream ended before")
