"""The client of programs on an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
)
from contextlib import AbstractAsyncContextManager, aclosing
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import grpc

from abridged.client import calls
from abridged.client.calls import Call, Listing, method_signature
from abridged.client.connection import ADDRESS, HEALTH, OPTIONS, SERVING, Connection, stubs
from abridged.client.errors import DEFAULT_PATIENCE, Patience, SidecarError, error_of_refusal
from abridged.v1.conversation_pb2 import ConversationSettings
from abridged.v1.conversation_service_pb2 import (
    AppendMessagesResponse,
    IngestMessagesRequest,
    WatchConversationRequest,
    WatchConversationResponse,
)
from abridged.v1.message_pb2 import Message
from abridged.v1.text_service_pb2 import SummarizeTextRequest, SummarizeTextResponse

P = ParamSpec("P")
R = TypeVar("R")


def _called(make: Callable[P, Call[R]]) -> Callable[Concatenate[AsyncConversations, P], Coroutine[Any, Any, R]]:
    @wraps(make)
    async def method(self: AsyncConversations, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._run(make(*args, **kwargs))

    method.__signature__ = method_signature(make)  # type: ignore[attr-defined]  # inspect reads it
    return method


def _listed(make: Callable[P, Listing[R]]) -> Callable[Concatenate[AsyncConversations, P], AsyncIterator[R]]:
    @wraps(make)
    def method(self: AsyncConversations, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
        return self._items(make(*args, **kwargs))

    method.__signature__ = method_signature(make)  # type: ignore[attr-defined]  # inspect reads it
    return method


class AsyncConversations(AbstractAsyncContextManager["AsyncConversations"]):
    """Calls a sidecar as Conversations does, on one event loop."""

    def __init__(
        self,
        address: str = ADDRESS,
        *,
        token: str = "",
        deadline_s: float = 30.0,
        patience: Patience = DEFAULT_PATIENCE,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._connection = Connection(address, token, deadline_s, patience)
        self._sleep = sleep
        self._channel = grpc.aio.insecure_channel(address, options=OPTIONS)
        self._stubs = stubs(self._channel)
        self._health: Any = self._channel.unary_unary(HEALTH)

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection and the calls under way."""
        await self._channel.close()

    append = _called(calls.append)
    context = _called(calls.context)
    update = _called(calls.update)
    conversation = _called(calls.conversation)
    conversations = _listed(calls.conversations)
    summary = _called(calls.summary)
    summaries = _listed(calls.summaries)
    revoked_summary_ids = _listed(calls.revoked_summary_ids)
    episodes = _listed(calls.episodes)
    rules = _listed(calls.rules)
    summarization = _called(calls.summarization)
    summarizations = _listed(calls.summarizations)
    originals = _listed(calls.originals)
    search = _called(calls.search)
    summarize = _called(calls.summarize)
    report_usage = _called(calls.report_usage)
    revoke = _called(calls.revoke)
    rate = _called(calls.rate)
    pin = _called(calls.pin)
    unpin = _called(calls.unpin)
    drop_rules = _called(calls.drop_rules)
    rewind = _called(calls.rewind)
    fork = _called(calls.fork)
    close_conversation = _called(calls.close_conversation)
    reopen_conversation = _called(calls.reopen_conversation)
    erase = _called(calls.erase)
    erase_matching = _called(calls.erase_matching)
    redact = _called(calls.redact)
    archive = _called(calls.archive)
    archive_closed = _called(calls.archive_closed)
    unarchive = _called(calls.unarchive)
    count_tokens = _called(calls.count_tokens)
    wait_idle = _called(calls.wait_idle)
    server_info = _called(calls.server_info)

    @property
    def address(self) -> str:
        """The address of the sidecar."""
        return self._connection.address

    async def ingest(
        self,
        appends: AsyncIterable[tuple[str, Iterable[Message | Mapping[str, Any]]]],
        *,
        settings: ConversationSettings | Mapping[str, Any] | None = None,
    ) -> AsyncIterator[AppendMessagesResponse | SidecarError]:
        """Append batches to conversations by one stream; yields for each, in order, its response or its refusal.

        The stream takes no more of `appends` than the sidecar has room for. `settings` count for new conversations.
        Raises SidecarError when the stream ends early: send what has no result again; messages with ids of their own
        are appended once.
        """

        async def requests() -> AsyncIterator[IngestMessagesRequest]:
            async for conversation, messages in appends:
                yield IngestMessagesRequest(append=calls.append_request(conversation, messages, settings))

        stub = self._stubs["ConversationService"]
        call = stub.IngestMessages(requests(), metadata=self._connection.metadata)
        async with aclosing(self._streamed(call)) as items:
            async for item in items:
                refusal = item.refusal
                yield (
                    item.appended
                    if item.HasField("appended")
                    else error_of_refusal(refusal.code, refusal.message, refusal.details)
                )

    async def watch(self, conversation_id: str, *, after_version: int = 0) -> AsyncIterator[WatchConversationResponse]:
        """Events of a conversation after a version and the progress of its passes, then live, without end.

        A conversation begins with its first append: one without is refused, as CONVERSATION_NOT_FOUND. A stream that
        breaks is resumed after the newest event that was yielded.
        """
        attempt = 0
        while True:
            request = WatchConversationRequest(conversation_id=conversation_id, after_version=after_version)
            call = self._stubs["ConversationService"].WatchConversation(request, metadata=self._connection.metadata)
            try:
                async for item in call:
                    attempt = 0
                    after_version = item.event.version or after_version
                    yield item
                error = self._connection.ended()
            except grpc.RpcError as failed:
                error = self._connection.error(failed)
            finally:
                call.cancel()
            attempt += 1
            await self._sleep(self._connection.pause_s(attempt, error))

    async def summarize_text(self, text: str, *, max_tokens: int = 0) -> AsyncIterator[SummarizeTextResponse]:
        """Progress, then the summary of a text; `max_tokens` is 0 for the sidecar's own maximum."""
        request = SummarizeTextRequest(text=text, max_tokens=max_tokens)
        stub = self._stubs["TextService"]
        call = stub.SummarizeText(request, metadata=self._connection.metadata)
        async with aclosing(self._streamed(call)) as items:
            async for item in items:
                yield item

    async def is_serving(self) -> bool:
        """Return whether the sidecar says that it serves."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return bool(await self._health(b"", timeout=self._connection.deadline_s) == SERVING)
            except grpc.RpcError as error:
                pause_s = self._connection.pause_s(attempt, self._connection.error(error))
            await self._sleep(pause_s)

    async def wait_ready(self, *, within_s: float) -> None:
        """Wait until a sidecar answers and serves. Raises SidecarError after `within_s` seconds without one."""
        until_s = time.monotonic() + within_s
        while True:
            left_s = until_s - time.monotonic()
            try:
                if await self._health(b"", timeout=max(left_s, 0.01), wait_for_ready=True) == SERVING:
                    return
            except grpc.RpcError as error:
                raise self._connection.error(error) from error
            if left_s <= 0:
                raise self._connection.not_serving()
            await self._sleep(min(0.05, left_s))

    async def _run(self, call: Call[R]) -> R:
        service, _, rpc = call.method.partition("/")
        attempt = 0
        while True:
            attempt += 1
            try:
                answer = await getattr(self._stubs[service], rpc)(
                    call.request,
                    timeout=self._connection.deadline_s + call.wait_s,
                    metadata=self._connection.metadata,
                )
            except grpc.RpcError as error:
                pause_s = self._connection.pause_s(attempt, self._connection.error(error))
            else:
                return call.answer(answer)
            await self._sleep(pause_s)

    async def _items(self, listing: Listing[R]) -> AsyncIterator[R]:
        left = listing.limit
        while True:
            page = await self._run(Call(listing.method, listing.request, lambda answer: answer))
            for item in listing.items(page):
                yield item
                left -= 1
                if not left:
                    return
            if not page.next_page_token:
                return
            listing.request.page_token = page.next_page_token

    async def _streamed(self, call: Any) -> AsyncGenerator[Any, None]:
        try:
            async for item in call:
                yield item
        except grpc.RpcError as error:
            raise self._connection.error(error) from error
        finally:
            call.cancel()
