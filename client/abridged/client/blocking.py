"""The client of programs with threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
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


def _called(make: Callable[P, Call[R]]) -> Callable[Concatenate[Conversations, P], R]:
    @wraps(make)
    def method(self: Conversations, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(make(*args, **kwargs))

    method.__signature__ = method_signature(make)  # type: ignore[attr-defined]  # inspect reads it
    return method


def _listed(make: Callable[P, Listing[R]]) -> Callable[Concatenate[Conversations, P], Iterator[R]]:
    @wraps(make)
    def method(self: Conversations, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        return self._items(make(*args, **kwargs))

    method.__signature__ = method_signature(make)  # type: ignore[attr-defined]  # inspect reads it
    return method


class Conversations(AbstractContextManager["Conversations"]):
    """Calls a sidecar at `host:port` or `unix:/path`, from any thread; connects when first used.

    A call is repeated where the sidecar says so or nobody answers: every call here may be made again, appends by the
    ids of their messages. Failures on the wire are raised as SidecarError. `deadline_s` bounds each attempt; a `wait_s`
    comes on top of it.
    """

    def __init__(
        self,
        address: str = ADDRESS,
        *,
        token: str = "",
        deadline_s: float = 30.0,
        patience: Patience = DEFAULT_PATIENCE,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connection = Connection(address, token, deadline_s, patience)
        self._sleep = sleep
        self._channel = grpc.insecure_channel(address, options=OPTIONS)
        self._stubs = stubs(self._channel)
        self._health: Any = self._channel.unary_unary(HEALTH)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection and the calls under way."""
        self._channel.close()

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

    def ingest(
        self,
        appends: Iterable[tuple[str, Iterable[Message | Mapping[str, Any]]]],
        *,
        settings: ConversationSettings | Mapping[str, Any] | None = None,
    ) -> Iterator[AppendMessagesResponse | SidecarError]:
        """Append batches to conversations by one stream; yields for each, in order, its response or its refusal.

        The stream takes no more of `appends` than the sidecar has room for. `settings` count for new conversations.
        Raises SidecarError when the stream ends early: send what has no result again; messages with ids of their own
        are appended once.
        """
        requests = (
            IngestMessagesRequest(append=calls.append_request(conversation, messages, settings))
            for conversation, messages in appends
        )
        stub = self._stubs["ConversationService"]
        for item in self._streamed(stub.IngestMessages(requests, metadata=self._connection.metadata)):
            refusal = item.refusal
            yield (
                item.appended
                if item.HasField("appended")
                else error_of_refusal(refusal.code, refusal.message, refusal.details)
            )

    def watch(self, conversation_id: str, *, after_version: int = 0) -> Iterator[WatchConversationResponse]:
        """Events of a conversation after a version and the progress of its passes, then live, without end.

        A conversation begins with its first append: one without is refused, as CONVERSATION_NOT_FOUND. A stream that
        breaks is resumed after the newest event that was yielded.
        """
        attempt = 0
        while True:
            request = WatchConversationRequest(conversation_id=conversation_id, after_version=after_version)
            call = self._stubs["ConversationService"].WatchConversation(request, metadata=self._connection.metadata)
            try:
                for item in call:
                    attempt = 0
                    after_version = item.event.version or after_version
                    yield item
                error = self._connection.ended()
            except grpc.RpcError as failed:
                error = self._connection.error(failed)
            finally:
                call.cancel()
            attempt += 1
            self._sleep(self._connection.pause_s(attempt, error))

    def summarize_text(self, text: str, *, max_tokens: int = 0) -> Iterator[SummarizeTextResponse]:
        """Progress, then the summary of a text; `max_tokens` is 0 for the sidecar's own maximum."""
        request = SummarizeTextRequest(text=text, max_tokens=max_tokens)
        call = self._stubs["TextService"].SummarizeText(request, metadata=self._connection.metadata)
        yield from self._streamed(call)

    def wait_ready(self, *, within_s: float) -> None:
        """Wait until a sidecar answers and serves. Raises SidecarError after `within_s` seconds without one."""
        until_s = time.monotonic() + within_s
        while True:
            left_s = until_s - time.monotonic()
            try:
                if self._health(b"", timeout=max(left_s, 0.01), wait_for_ready=True) == SERVING:
                    return
            except grpc.RpcError as error:
                raise self._connection.error(error) from error
            if left_s <= 0:
                raise self._connection.not_serving()
            self._sleep(min(0.05, left_s))

    def _run(self, call: Call[R]) -> R:
        service, _, rpc = call.method.partition("/")
        attempt = 0
        while True:
            attempt += 1
            try:
                answer = getattr(self._stubs[service], rpc)(
                    call.request,
                    timeout=self._connection.deadline_s + call.wait_s,
                    metadata=self._connection.metadata,
                )
            except grpc.RpcError as error:
                pause_s = self._connection.pause_s(attempt, self._connection.error(error))
            else:
                return call.answer(answer)
            self._sleep(pause_s)

    def _items(self, listing: Listing[R]) -> Iterator[R]:
        left = listing.limit
        while True:
            page = self._run(Call(listing.method, listing.request, lambda answer: answer))
            for item in listing.items(page):
                yield item
                left -= 1
                if not left:
                    return
            if not page.next_page_token:
                return
            listing.request.page_token = page.next_page_token

    def _streamed(self, call: Any) -> Iterator[Any]:
        try:
            yield from call
        except grpc.RpcError as error:
            raise self._connection.error(error) from error
        finally:
            call.cancel()
