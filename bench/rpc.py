"""The calls that are measured, over real channels: the echo's, and a sidecar's appends and contexts.

Both get the same message from the same number of clients over the same number of channels, so that what differs is
what the sidecar does.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc

from abridged.v1 import conversation_pb2, conversation_service_pb2, event_log_service_pb2, message_pb2
from abridged.v1.conversation_service_pb2_grpc import ConversationServiceStub
from abridged.v1.event_log_service_pb2_grpc import EventLogServiceStub
from bench.echo import echo_call

CHANNELS = 4
START_MAX_S = 20.0
CALL_MAX_S = 30.0
INDEX_LOOK_S = 0.5
UNLIMITED_TOKENS = 100_000_000
BATCH_MESSAGES = 100
WINDOW_TOKENS = 8_192

CONTENT = (
    "We moved billing-api 2.14.1 to db-07.example.com because src/app/migrate.py failed twice with error E1043 in the "
    "night; the owner of OPS-2212 agreed to wait for the next window on Thursday, and asked that nobody restarts the "
    "import before the backup has been checked. Everything else stays as it is."
)
"""270 characters: a message as people and models write them."""

SHORT_CONTENT = "We moved billing-api."

_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 10),
    ("grpc.min_reconnect_backoff_ms", 10),
    ("grpc.max_reconnect_backoff_ms", 20),
    ("grpc.max_receive_message_length", -1),
)

_runs = itertools.count()


class Echo:
    """Clients of the echo."""

    def __init__(self, channels: list[grpc.aio.Channel]) -> None:
        self._calls = [echo_call(channel) for channel in channels]

    @classmethod
    @asynccontextmanager
    async def connected(cls, address: str) -> AsyncIterator[Echo]:
        """Open the channels and wait for the first answer."""
        async with _channels(address) as channels:
            echo = cls(channels)
            await echo._calls[0](_request("echo", 0, 0, 1), timeout=START_MAX_S, wait_for_ready=True)
            yield echo

    def one(self) -> Callable[[int, int], Awaitable[Any]]:
        """A call of client and number."""
        return lambda client, number: self._calls[client % CHANNELS](
            _request("echo", client, number, 1), timeout=CALL_MAX_S
        )


class SidecarCalls:
    """Clients of a sidecar."""

    def __init__(self, channels: list[grpc.aio.Channel]) -> None:
        self._stubs = [ConversationServiceStub(channel) for channel in channels]
        self._log = EventLogServiceStub(channels[0])

    @classmethod
    @asynccontextmanager
    async def connected(cls, address: str) -> AsyncIterator[SidecarCalls]:
        """Open the channels and wait until the sidecar serves."""
        async with _channels(address) as channels:
            await _serving(channels[0])
            yield cls(channels)

    def appends(self, *, messages: int = 1, to_one: bool = False, to: str = "") -> Callable[[int, int], Awaitable[Any]]:
        """An append of client and number: each client's to a new conversation of its own, or all to one, which is new
        too unless it is named; none fills."""
        run = f"run{next(_runs)}"

        def call(client: int, number: int) -> Awaitable[Any]:
            request = _request(run, client, number, messages)
            if to_one or to:
                request.conversation_id = to or run
            if number == 0 and not to:
                request.settings.context_length = UNLIMITED_TOKENS
            return self._stubs[client % CHANNELS].AppendMessages(request, timeout=CALL_MAX_S)

        return call

    async def ingested(self, *, seconds: float, conversations: int) -> float:
        """Messages a second that a stream on each channel has results for, each message an append of its own, to so
        many new conversations a stream."""
        run = f"run{next(_runs)}"
        began = time.perf_counter()

        async def stream(place: int) -> int:
            async def requests() -> AsyncIterator[conversation_service_pb2.IngestMessagesRequest]:
                for number in itertools.count():
                    if time.perf_counter() - began >= seconds:
                        return
                    append = _request(f"{run}.{place}", number % conversations, number, 1)
                    append.settings.context_length = UNLIMITED_TOKENS
                    yield conversation_service_pb2.IngestMessagesRequest(append=append)

            count = 0
            call = self._stubs[place].IngestMessages(requests(), timeout=seconds + CALL_MAX_S)
            async for result in call:
                assert result.HasField("appended"), "nothing of it is refused"
                count += 1
            return count

        counts = await asyncio.gather(*(stream(place) for place in range(CHANNELS)))
        return sum(counts) / (time.perf_counter() - began)

    def turns(
        self, conversation: str, *, calls: int, window_of: SidecarCalls | None = None
    ) -> Callable[[int, int], Awaitable[Any]]:
        """A message and the window after it, in one call or in two, of which another sidecar may answer the second."""
        reader = window_of or self

        async def call(client: int, number: int) -> Any:
            request = _request(conversation, None, number, 1)
            request.settings.context_length = WINDOW_TOKENS
            stub = self._stubs[client % CHANNELS]
            if calls == 1:
                request.context.SetInParent()
                return await stub.AppendMessages(request, timeout=CALL_MAX_S)
            await stub.AppendMessages(request, timeout=CALL_MAX_S)
            asked = conversation_service_pb2.GetContextRequest(conversation_id=conversation)
            return await reader._stubs[client % CHANNELS].GetContext(asked, timeout=CALL_MAX_S)

        return call

    async def deliveries_s(self, writer: SidecarCalls, conversation: str, *, seconds: float) -> list[float]:
        """Seconds from each acknowledgement of another sidecar to the event's arrival at a watcher of this one."""
        latencies: list[float] = []
        opened = _request(conversation, None, 0, 1)
        opened.settings.context_length = UNLIMITED_TOKENS
        await writer._stubs[0].AppendMessages(opened, timeout=CALL_MAX_S)
        asked = conversation_service_pb2.WatchConversationRequest(conversation_id=conversation, after_version=2)
        watched = self._stubs[0].WatchConversation(asked, timeout=seconds + CALL_MAX_S)
        began = time.perf_counter()
        for number in itertools.count(1):
            append = writer._stubs[0].AppendMessages(_request(conversation, None, number, 1), timeout=CALL_MAX_S)
            arrived = asyncio.ensure_future(_arrival_s(watched, version=number + 2))
            await append
            acknowledged_s = time.perf_counter()
            latencies.append(max(0.0, await arrived - acknowledged_s))
            if time.perf_counter() - began >= seconds:
                watched.cancel()
                return latencies
        raise AssertionError("a load ends with its time")

    def contexts(self, conversation: str) -> Callable[[int, int], Awaitable[Any]]:
        """A GetContext of a conversation."""
        request = conversation_service_pb2.GetContextRequest(conversation_id=conversation)
        return lambda client, _: self._stubs[client % CHANNELS].GetContext(request, timeout=CALL_MAX_S)

    async def filled(self, conversation: str, *, batches: int, content: str) -> None:
        """Append `batches` batches of BATCH_MESSAGES messages with this content."""
        for number in range(batches):
            request = _request(conversation, None, number, BATCH_MESSAGES, content)
            request.settings.context_length = UNLIMITED_TOKENS
            await self._stubs[0].AppendMessages(request, timeout=CALL_MAX_S)

    async def said(self, conversation: str, number: int, contents: Sequence[str]) -> None:
        """Append one batch of messages with these contents."""
        request = _request(conversation, None, number, len(contents))
        for message, content in zip(request.messages, contents, strict=True):
            message.content = content
        request.settings.context_length = UNLIMITED_TOKENS
        await self._stubs[0].AppendMessages(request, timeout=CALL_MAX_S)

    async def told(
        self,
        conversation: str,
        number: int,
        messages: Sequence[tuple[str, str]],
        *,
        context_length: int = UNLIMITED_TOKENS,
    ) -> None:
        """Append one batch of messages, as role and text, and wait for the pass that it may trigger."""
        request = _request(conversation, None, number, len(messages))
        for message, (role, text) in zip(request.messages, messages, strict=True):
            message.role = message_pb2.Role.Value(f"ROLE_{role.upper()}")
            message.content = text
        request.settings.context_length = context_length
        request.wait.FromSeconds(int(CALL_MAX_S))
        await self._stubs[0].AppendMessages(request, timeout=2 * CALL_MAX_S)

    async def window_text(self, conversation: str) -> str:
        """The texts of the window's messages."""
        asked = conversation_service_pb2.GetContextRequest(conversation_id=conversation)
        window = await self._stubs[0].GetContext(asked, timeout=CALL_MAX_S)
        return "\n".join(one.message.content for one in window.messages)

    async def exchanges_found(self, conversation: str, query: str, mode: str, *, limit: int) -> list[range]:
        """The messages of the first hits' exchanges. A record, which stands for many messages, has none."""
        found = await self._searched(conversation, query, mode, page_size=limit)
        return [range(hit.exchange.first, hit.exchange.last + 1) for hit in found.hits]

    async def passages_found(self, conversation: str, query: str, mode: str, *, max_tokens: int) -> list[str]:
        """The texts of the passages that fit in `max_tokens`."""
        found = await self._searched(conversation, query, mode, max_tokens=max_tokens)
        return [passage.text for hit in found.hits for passage in hit.passages]

    async def search_s(self, query: str, mode: str) -> float:
        """Seconds of one search of all conversations."""
        began = time.perf_counter()
        await self._searched("", query, mode)
        return time.perf_counter() - began

    async def _searched(
        self, conversation: str, query: str, mode: str, *, page_size: int = 0, max_tokens: int = 0
    ) -> conversation_service_pb2.SearchHistoryResponse:
        request = conversation_service_pb2.SearchHistoryRequest(
            conversation_id=conversation,
            query=query,
            mode=conversation_service_pb2.SearchMode.Value(f"SEARCH_MODE_{mode.upper()}"),
            page_size=page_size,
            max_tokens=max_tokens,
        )
        return await self._stubs[0].SearchHistory(request, timeout=CALL_MAX_S)

    async def indexed(self) -> None:
        """Wait until everything that was appended can be found, by words and by meaning."""
        head = await self._log.GetHead(event_log_service_pb2.GetHeadRequest(), timeout=CALL_MAX_S)
        request = conversation_service_pb2.SearchHistoryRequest(query="anything")
        while True:
            found = await self._stubs[0].SearchHistory(request, timeout=CALL_MAX_S)
            if found.indexed_position >= head.position:
                return
            await asyncio.sleep(INDEX_LOOK_S)

    async def grown(self, conversation: str, *, events: int, compacted: bool) -> None:
        """Make a conversation of `events` events; compacted, the passes keep up with it as they would in its life.

        Messages that the passes read before the last batch are short: long ones would take minutes and leave the same
        window.
        """
        settings = conversation_pb2.ConversationSettings(
            context_length=WINDOW_TOKENS if compacted else UNLIMITED_TOKENS
        )
        wait = Duration(seconds=int(CALL_MAX_S)) if compacted else None
        version = 0
        for number in itertools.count():
            is_short = compacted and version < events - BATCH_MESSAGES
            request = _request(conversation, None, number, BATCH_MESSAGES, SHORT_CONTENT if is_short else CONTENT)
            request.settings.CopyFrom(settings)
            if wait is not None:
                request.wait.CopyFrom(wait)
            await self._stubs[0].AppendMessages(request, timeout=2 * CALL_MAX_S)
            asked = conversation_service_pb2.GetConversationRequest(conversation_id=conversation)
            found = await self._stubs[0].GetConversation(asked, timeout=CALL_MAX_S)
            version = found.conversation.event_version
            if version >= events:
                return

    async def caught_up(self) -> int:
        """Read the whole log by a subscription; returns how many events came before its caught-up mark."""
        count = 0
        stream = self._log.SubscribeEvents(event_log_service_pb2.SubscribeEventsRequest(), timeout=CALL_MAX_S)
        async for item in stream:
            if item.HasField("caught_up"):
                break
            count += len(item.page.events)
        stream.cancel()
        return count

    async def pass_begun(self, conversation: str) -> None:
        """Force a pass and leave it pending."""
        request = _request(conversation, None, 0, BATCH_MESSAGES)
        request.settings.context_length = UNLIMITED_TOKENS
        await self._stubs[0].AppendMessages(request, timeout=CALL_MAX_S)
        forced = conversation_service_pb2.SummarizeConversationRequest(conversation_id=conversation)
        await self._stubs[0].SummarizeConversation(forced, timeout=CALL_MAX_S)

    async def turned(self, conversation: str, number: int, *, tokens: Sequence[int], context_length: int) -> None:
        """Append messages of `tokens` tokens each, as the caller counts them."""
        request = _request(conversation, None, number, len(tokens))
        request.settings.context_length = context_length
        for message, count in zip(request.messages, tokens, strict=True):
            message.token_count = count
        await self._stubs[0].AppendMessages(request, timeout=CALL_MAX_S)

    async def talked(
        self, conversation: str, number: int, contents: Sequence[str], *, context_length: int, with_context: bool
    ) -> None:
        """Append messages with these contents, and have the window returned if `with_context`."""
        request = _request(conversation, None, number, len(contents))
        request.settings.context_length = context_length
        for message, content in zip(request.messages, contents, strict=True):
            message.content = content
        if with_context:
            request.context.SetInParent()
        await self._stubs[number % CHANNELS].AppendMessages(request, timeout=CALL_MAX_S)

    async def waited_s(self, conversation: str) -> tuple[float, bool]:
        """Seconds of one GetContext that waits for the pending pass, and whether the window shows a record."""
        request = conversation_service_pb2.GetContextRequest(conversation_id=conversation)
        request.wait.FromSeconds(int(CALL_MAX_S))
        began = time.perf_counter()
        window = await self._stubs[0].GetContext(request, timeout=2 * CALL_MAX_S)
        return time.perf_counter() - began, bool(window.summary_id)

    async def has_pending_pass(self, conversation: str) -> bool:
        """Return whether the conversation's pass is still pending."""
        asked = conversation_service_pb2.GetConversationRequest(conversation_id=conversation)
        found = await self._stubs[0].GetConversation(asked, timeout=CALL_MAX_S)
        return bool(found.conversation.pending_summarization_id)


async def _arrival_s(watched: Any, *, version: int) -> float:
    """The time at which the event with this version comes by the stream."""
    async for item in watched:
        if item.event.version == version:
            return time.perf_counter()
    raise AssertionError("the stream ended before")


async def until_serving(address: str, call: Callable[[grpc.aio.Channel], Awaitable[Any]] | None = None) -> float:
    """Seconds until the process at `address` serves."""
    began = time.perf_counter()
    async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:
        await (call or _serving)(channel)
    return time.perf_counter() - began


async def echo_answers(channel: grpc.aio.Channel) -> None:
    """Wait for the echo's first answer."""
    await echo_call(channel)(_request("echo", 0, 0, 1), timeout=START_MAX_S, wait_for_ready=True)


async def _serving(channel: grpc.aio.Channel) -> None:
    check = health_pb2_grpc.HealthStub(channel).Check
    async with asyncio.timeout(START_MAX_S):
        answer = await check(health_pb2.HealthCheckRequest(), wait_for_ready=True)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING, "health is set before anything can ask"


@asynccontextmanager
async def _channels(address: str) -> AsyncIterator[list[grpc.aio.Channel]]:
    channels = [grpc.aio.insecure_channel(address, options=_OPTIONS) for _ in range(CHANNELS)]
    try:
        yield channels
    finally:
        for channel in channels:
            await channel.close()


def _request(
    run: str, client: int | None, number: int, messages: int, content: str = CONTENT
) -> conversation_service_pb2.AppendMessagesRequest:
    return conversation_service_pb2.AppendMessagesRequest(
        conversation_id=run if client is None else f"{run}-{client}",
        messages=[
            message_pb2.Message(
                id=f"{run}.{client}.{number}.{place}",
                role=message_pb2.ROLE_USER if place % 2 else message_pb2.ROLE_ASSISTANT,
                content=content,
            )
            for place in range(messages)
        ],
    )
