"""EventLogService: pages of the log in both directions, subscriptions that resume, and who may read what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from abridged.service.api.pages import RESPONSE_BYTES_MAX
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import event_log_service_pb2 as log
from abridged.v1 import event_pb2
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refused
from tests.support.sidecar import Sidecar, said, sidecar

PAGE_BYTES_MAX = 3 << 20


async def read(s: Sidecar, **request: Any) -> Any:
    return await s.event_log.ReadEvents(log.ReadEventsRequest(**request), timeout=PATIENCE_S, metadata=s.metadata)


def subscribed(s: Sidecar, **request: Any) -> Any:
    return s.event_log.SubscribeEvents(log.SubscribeEventsRequest(**request), timeout=PATIENCE_S, metadata=s.metadata)


async def caught_up(stream: Any) -> list[Any]:
    """The pages up to the caught-up mark."""
    pages = []
    async for item in stream:
        if item.HasField("page"):
            pages.append(item.page)
        if item.HasField("caught_up"):
            return pages
    raise AssertionError("the stream ended before")


async def test_a_conversation_is_read_in_pages_to_its_end(tmp_path):
    """Each page says where the next begins, and the last one says so."""
    async with sidecar(tmp_path) as s:
        await s.chat().talk(5)

        first = await read(s, conversation_id="c1", limit=4)
        second = await read(s, conversation_id="c1", after=first.next_after, limit=4)

        assert [e.version for e in first.events] == [1, 2, 3, 4]
        assert (first.next_after, first.end) == (4, False)
        assert [e.version for e in second.events] == [5, 6]
        assert second.end


async def test_a_conversation_is_read_backward_from_its_end(tmp_path):
    """The newest first; the page with the first event is the last."""
    async with sidecar(tmp_path) as s:
        await s.chat().talk(5)

        first = await read(s, conversation_id="c1", limit=4, backward=True)
        second = await read(s, conversation_id="c1", after=first.next_after, limit=4, backward=True)

        assert [e.version for e in first.events] == [6, 5, 4, 3]
        assert not first.end
        assert [e.version for e in second.events] == [2, 1]
        assert second.end


@pytest.mark.parametrize("backward", [False, True])
async def test_pages_of_any_size_read_the_namespace_whole(tmp_path, backward):
    """Following next_after until `end` sees every position once."""
    async with sidecar(tmp_path) as s:
        for name in ("a", "b", "c"):
            await s.chat(name).talk(3)
        for limit in (1, 4, 12, 100):
            positions: list[int] = []
            after = 0
            for _ in range(20):
                page = await read(s, after=after, limit=limit, backward=backward)
                positions += [e.position for e in page.events]
                after = page.next_after
                if page.end:
                    break
            else:
                raise AssertionError("there was no end")
            assert sorted(positions) == list(range(1, 13))
            assert positions == sorted(positions, reverse=backward)


async def test_large_events_come_in_pages_that_a_client_can_take(tmp_path):
    """An answer has at most three megabytes, though a page's limit would allow much more; nothing is left out."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(context_length=100_000_000)
        for number in range(0, 24, 4):
            await chat.append(*(said(number + i, "x" * 250_000) for i in range(1, 5)))

        sizes, read_versions, after, end = [], [], 0, False
        while not end:
            page = await read(s, conversation_id="c1", after=after, limit=500)
            sizes.append(sum(len(e.payload) for e in page.events))
            read_versions += [e.version for e in page.events]
            after, end = page.next_after, page.end
        pages = await caught_up(subscribed(s))

        assert read_versions == list(range(1, 26))
        assert len(sizes) > 1
        assert max(sizes) <= PAGE_BYTES_MAX
        assert [e.version for page in pages for e in page.events] == read_versions
        assert max(sum(len(e.payload) for e in page.events) for page in pages) <= PAGE_BYTES_MAX
        assert pages[-1].cursor == 25


async def test_a_subscription_resumes_from_its_cursor(tmp_path):
    """A subscription also resumes across a restart."""
    async with sidecar(tmp_path) as s:
        await s.chat().talk(3)
        pages = await caught_up(subscribed(s))
        cursor = pages[-1].cursor

    async with sidecar(tmp_path) as s:
        await s.chat().append(said(9))
        pages = await caught_up(subscribed(s, after_position=cursor))

        assert [e.position for page in pages for e in page.events] == [5]


async def test_a_subscription_filters_by_type_and_conversation(tmp_path):
    """The cursor still moves over events that do not match."""
    async with sidecar(tmp_path) as s:
        await s.chat("a").talk(2)
        await s.chat("b").talk(2)

        opened = await caught_up(subscribed(s, types=["ConversationOpened"]))
        of_b = await caught_up(subscribed(s, conversation_id="b"))

        assert [e.conversation_id for page in opened for e in page.events] == ["a", "b"]
        assert [(e.conversation_id, e.version) for page in of_b for e in page.events] == [("b", 1), ("b", 2), ("b", 3)]


async def test_an_event_type_that_does_not_exist_is_refused(tmp_path):
    """A misspelt filter would be silent for ever."""
    async with sidecar(tmp_path) as s:
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
            await caught_up(subscribed(s, types=["MessageAppendet"]))

        assert list(refusal.fields) == ["types"]


async def test_events_carry_log_id_trace_and_stored_bytes(tmp_path):
    """A consumer needs these to find its place again and to join the trace."""
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with sidecar(tmp_path, metadata=[("traceparent", trace)]) as s:
        await s.chat().append(said(1))
        head = await s.event_log.GetHead(log.GetHeadRequest())

        events = (await read(s)).events

        assert {e.log_id for e in events} == {head.log_id} == {s.running.log_id}
        assert head.position == 2
        assert all(e.trace_context.startswith("00-0af7651916cd43dd8448eb211c80319c-") for e in events)
        assert len({e.event_id for e in events}) == 2
        assert all(e.time.seconds for e in events)


async def test_every_event_says_what_it_is_by_its_type_and_by_its_bytes(tmp_path):
    """Read, subscribed or watched: no client has to find a message by a name; the stored bytes are beside it."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.talk(12, wait_s=PATIENCE_S)
        await chat.talk(4, wait_s=PATIENCE_S)

        seen = {
            "ReadEvents": list((await read(s, conversation_id="c1", limit=500)).events),
            "SubscribeEvents": [e for page in await caught_up(subscribed(s)) for e in page.events],
            "WatchConversation": await watched(s),
        }

        record = (await chat.summaries())[0]
        for method, events in seen.items():
            bodies = [event.WhichOneof("body") for event in events]
            assert {"conversation_opened", "message_appended", "summarization_completed"} <= set(bodies), method
            for event, body in zip(events, bodies, strict=True):
                said_by_bytes = getattr(event_pb2, event.type).FromString(event.payload)
                assert getattr(event, body) == said_by_bytes, method
            completed = [e.summarization_completed for e in events if e.HasField("summarization_completed")]
            assert completed[-1].record.latency == record.latency
        assert record.latency.ToNanoseconds() > 0


async def test_large_events_are_bounded_with_both_of_their_forms(tmp_path):
    """An answer has an event's content twice; a client with gRPC's default limit of 4 MiB takes every page."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(context_length=100_000_000)
        for number in range(0, 12, 4):
            await chat.append(*(said(number + i, "x" * 250_000) for i in range(1, 5)))

        page = await read(s, conversation_id="c1", limit=500)
        pages = await caught_up(subscribed(s))

        assert not page.end
        assert max(answer.ByteSize() for answer in (page, *pages)) <= RESPONSE_BYTES_MAX + 10_000


async def watched(s: Any) -> list[Any]:
    events = []
    async for item in s.conversations.WatchConversation(api.WatchConversationRequest(conversation_id="c1")):
        if item.HasField("event"):
            events.append(item.event)
        elif item.HasField("caught_up"):
            break
    return events


async def test_a_namespace_takes_a_scope_of_its_own(tmp_path):
    """`read` reads conversations by name; `read-all` reads the namespace; others' events are in neither."""
    grants = [
        {"token": "one-reader", "namespace": "one", "scopes": ["append", "read"]},
        {"token": "one-all", "namespace": "one", "scopes": ["read", "read-all"]},
        {"token": "two-all", "namespace": "two", "scopes": ["append", "read", "read-all"]},
    ]
    async with sidecar(tmp_path, {"server.tokens": grants}) as s:
        s.metadata = [("authorization", "Bearer one-reader")]
        await s.chat().talk(2)
        assert len((await read(s, conversation_id="c1")).events) == 3
        for attempt in (read(s), caught_up(subscribed(s))):
            async with refused("PERMISSION_DENIED", "PERMISSION_DENIED") as refusal:
                await attempt
            assert refusal.metadata == {"scope": "read-all"}

        s.metadata = [("authorization", "Bearer two-all")]
        await s.chat("c2").talk(1)
        assert {e.conversation_id for e in (await read(s)).events} == {"c2"}
        assert {e.conversation_id for page in await caught_up(subscribed(s)) for e in page.events} == {"c2"}
        async with refused("NOT_FOUND", "CONVERSATION_NOT_FOUND"):
            await read(s, conversation_id="c1")

        s.metadata = [("authorization", "Bearer one-all")]
        assert {e.conversation_id for e in (await read(s)).events} == {"c1"}


async def test_no_position_tells_how_far_other_namespaces_have_come(tmp_path):
    """The head, and a subscription's marks, heartbeats and cursors, hide it while another namespace writes."""
    scopes = ["append", "read", "read-all"]
    grants = [{"token": name, "namespace": name, "scopes": scopes} for name in ("quiet", "busy")]
    async with sidecar(tmp_path, {"server.tokens": grants}) as s:
        quiet, busy = ([("authorization", f"Bearer {name}")] for name in ("quiet", "busy"))
        s.metadata = quiet
        await s.chat().talk(2)
        stream = subscribed(s, types=["MessageAppended"])
        told = [item async for item in until_marked(stream, "caught_up")]

        s.metadata = busy
        for number in range(12):
            await s.chat(f"b{number}").append(*(said(n) for n in range(1, 500)))
        busy_head = (await s.event_log.GetHead(log.GetHeadRequest(), metadata=busy)).position
        told += [item async for item in until_marked(stream, "heartbeat")]
        stream.cancel()
        s.metadata = quiet
        later = subscribed(s, types=["ConversationOpened"])
        told += [item async for item in until_marked(later, "caught_up")]
        later.cancel()
        quiet_head = (await s.event_log.GetHead(log.GetHeadRequest(), metadata=quiet)).position

        assert quiet_head == 3
        assert busy_head > 12 * 499
        assert {p for item in told for p in (item.page.cursor, item.caught_up.position, item.heartbeat.position)} <= {
            0,
            1,
            2,
            3,
        }
        resumed = [e async for e in until_marked(subscribed(s, after_position=quiet_head), "caught_up")]
        assert not any(item.page.events for item in resumed)


async def until_marked(stream: Any, mark: str) -> AsyncIterator[Any]:
    """Yield the items of the stream up to a mark, which is the last of them."""
    async for item in stream:
        yield item
        if item.HasField(mark):
            return


@pytest.mark.parametrize("conversation_id", ["", "c1"])
async def test_a_cursor_past_the_end_is_out_of_range(tmp_path, conversation_id):
    """The cursor is of another log, or older than a restore: silence would look like a conversation without news."""
    async with sidecar(tmp_path) as s:
        await s.chat().talk(2)
        past = {"log_id": s.running.log_id, "cursor": "4", "head": "3"}

        async with refused("OUT_OF_RANGE", "CURSOR_OUT_OF_RANGE") as refusal:
            await caught_up(subscribed(s, after_position=4, conversation_id=conversation_id))
        assert refusal.metadata == past
        async with refused("OUT_OF_RANGE", "CURSOR_OUT_OF_RANGE") as refusal:
            await read(s, after=4, conversation_id=conversation_id)
        assert refusal.metadata == past

        assert await caught_up(subscribed(s, after_position=3, conversation_id=conversation_id)) == []
        assert (await read(s, after=3, conversation_id=conversation_id)).end
        assert len((await read(s, after=1_000, conversation_id=conversation_id, backward=True)).events) == 3


async def test_a_log_without_events_has_no_cursor_but_its_beginning(tmp_path):
    """A sidecar that lost its volume has such a log."""
    async with sidecar(tmp_path) as s:
        assert await caught_up(subscribed(s)) == []

        async with refused("OUT_OF_RANGE", "CURSOR_OUT_OF_RANGE") as refusal:
            await caught_up(subscribed(s, after_position=1))
        assert refusal.metadata["head"] == "0"
