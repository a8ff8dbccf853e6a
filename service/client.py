"""A thin client for our own commands: one method a call, one error type, one retry policy.

Invariant: whatever goes wrong on the wire leaves this module as a SidecarError. A call is repeated only where the
contract makes that safe: every method here is idempotent, appends by the ids of their messages.

    SidecarError   the sidecar refused, could not be reached, or did not answer in time
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from abridged.v1 import (
    conversation_service_pb2,
    conversation_service_pb2_grpc,
    server_info_service_pb2,
    server_info_service_pb2_grpc,
    text_service_pb2,
    text_service_pb2_grpc,
)
from abridged.v1.conversation_pb2 import Conversation, ConversationSettings, Summarization, TokenUsage
from abridged.v1.conversation_service_pb2 import (
    AppendMessagesResponse,
    AppendRefusal,
    ContextMessage,
    Episode,
    GetContextResponse,
    PassProgress,
    PinMessagesResponse,
    Rendering,
    ReopenConversationResponse,
    RevokeSummaryResponse,
    RewindConversationResponse,
    SearchHistoryResponse,
    SearchHit,
    SearchMode,
    TooLargeMessage,
    UnpinMessagesResponse,
    WatchConversationResponse,
)
from abridged.v1.event_pb2 import Event
from abridged.v1.message_pb2 import Role
from abridged.v1.server_info_service_pb2 import GetServerInfoResponse
from abridged.v1.summary_pb2 import ActionItem, EpisodeFigures, MessageRange, Rating, SummaryRecord
from abridged.v1.text_service_pb2 import SummarizeTextResponse
from service.client_errors import DEFAULT_PATIENCE, Patience, SidecarError
from service.codec.events import UnknownEvent, fact
from service.codec.values import message_to_proto
from service.domain.events import Event as DomainEvent
from service.domain.message import Message

__all__ = [
    "RENDERINGS",
    "SEARCH_MODES",
    "ActionItem",
    "AppendMessagesResponse",
    "ContextMessage",
    "Conversation",
    "ConversationSettings",
    "Episode",
    "EpisodeFigures",
    "Event",
    "GetContextResponse",
    "GetServerInfoResponse",
    "PassProgress",
    "Patience",
    "RewindConversationResponse",
    "SearchHistoryResponse",
    "SearchHit",
    "SearchMode",
    "SidecarClient",
    "SidecarError",
    "Summarization",
    "SummarizeTextResponse",
    "SummaryRecord",
    "TokenUsage",
    "TooLargeMessage",
    "WatchConversationResponse",
    "fact_of",
    "role_name",
]

RECEIVE_BYTES_MAX = 256 << 20
PAGE_SIZE = 100
PAGES_MAX = 1_000

RENDERINGS = ("anthropic", "ollama", "openai")
"""Names of the JSON forms of a context."""

SEARCH_MODES = ("both", "meaning", "words")
"""The ways to compare texts that a search may name."""

_OPTIONS = (
    ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
    # A sidecar is never behind the proxy that the environment names for the web.
    ("grpc.enable_http_proxy", 0),
    # Each command has one channel; sharing the process's connection pool would share another one's backoff.
    ("grpc.use_local_subchannel_pool", 1),
)
_CUT = frozenset({grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN})
"""How a transport ends a call whose connection breaks, or whose server ends before it takes the call. A call that we
cancel never ends with a status."""

_pb = conversation_service_pb2
Response = TypeVar("Response")
Response_co = TypeVar("Response_co", covariant=True)


class _Call(Protocol[Response_co]):
    def __call__(self, request: Any, /, *, timeout: float, metadata: Any) -> Awaitable[Response_co]: ...


class _PagedRequest(Protocol):
    page_token: str


class _PagedResponse(Protocol):
    next_page_token: str


Page = TypeVar("Page", bound=_PagedResponse)


class SidecarClient:
    """Calls a sidecar at `host:port` or `unix:/path`. Use it as a context manager; it connects when first used.

    `deadline_s` bounds each attempt of a call; a `wait_s` comes on top of it.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str = "",
        deadline_s: float = 30.0,
        patience: Patience = DEFAULT_PATIENCE,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.address = address
        self._deadline_s = deadline_s
        self._patience = patience
        self._sleep = sleep
        self._uniform = uniform
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        self._conversations = conversation_service_pb2_grpc.ConversationServiceStub(self._channel)
        self._server = server_info_service_pb2_grpc.ServerInfoServiceStub(self._channel)
        self._texts = text_service_pb2_grpc.TextServiceStub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close()

    async def append(
        self,
        conversation_id: str,
        messages: Sequence[Message],
        *,
        settings: ConversationSettings | None = None,
        rendering: str = "",
        wait_s: float = 0.0,
    ) -> AppendMessagesResponse:
        """Append messages that have ids; `settings` count if the conversation is new. Waits for a pending pass.

        With a `rendering` of RENDERINGS the response has the window, or says why not.
        """
        request = _pb.AppendMessagesRequest(
            conversation_id=conversation_id,
            messages=[message_to_proto(message) for message in messages],
            settings=settings,
            context=_pb.ContextOptions(rendering=_rendering(rendering)) if rendering else None,
            wait=_duration(wait_s),
        )
        return await self._unary(self._conversations.AppendMessages, request, wait_s=wait_s)

    async def ingest(
        self,
        appends: AsyncIterable[tuple[str, Sequence[Message]]],
        *,
        settings: ConversationSettings | None = None,
    ) -> AsyncIterator[AppendMessagesResponse | SidecarError]:
        """Append batches of messages that have ids to conversations, by one stream; yields for each, in order, its
        response or why it was refused. `settings` count for new conversations.

        Raises SidecarError when the stream ends early: send what has no result again, with the same ids.
        """

        async def requests() -> AsyncIterator[Any]:
            async for conversation_id, messages in appends:
                yield _pb.IngestMessagesRequest(
                    append=_pb.AppendMessagesRequest(
                        conversation_id=conversation_id,
                        messages=[message_to_proto(message) for message in messages],
                        settings=settings,
                    )
                )

        async for item in self._items(self._conversations.IngestMessages(requests(), metadata=self._metadata)):
            if item.HasField("appended"):
                yield item.appended
            else:
                yield _refused(item.refusal)

    async def context(
        self,
        conversation_id: str,
        *,
        max_tokens: int = 0,
        clip: bool = False,
        original: bool = False,
        rendering: str = "",
        cache_marks: bool = False,
        min_version: int = 0,
        wait_s: float = 0.0,
    ) -> GetContextResponse:
        """The window. `rendering` is one of RENDERINGS, empty for none."""
        view = _pb.CONTEXT_VIEW_ORIGINAL if original else _pb.CONTEXT_VIEW_COMPACTED
        request = _pb.GetContextRequest(
            conversation_id=conversation_id,
            max_tokens=max_tokens,
            clip=clip,
            view=view,
            rendering=_rendering(rendering),
            cache_marks=cache_marks,
            min_version=min_version,
            wait=_duration(wait_s),
        )
        return await self._unary(self._conversations.GetContext, request, wait_s=wait_s)

    async def conversation(self, conversation_id: str) -> Conversation:
        """State and settings."""
        request = _pb.GetConversationRequest(conversation_id=conversation_id)
        return (await self._unary(self._conversations.GetConversation, request)).conversation

    async def conversations(
        self, *, limit: int, labels: Mapping[str, str] | None = None, min_ratio: float = 0.0, closed: bool | None = None
    ) -> list[Conversation]:
        """The first `limit` conversations, last changed first: those that have all `labels`, at least `min_ratio`, and
        are closed or not; None for both.
        """
        request = _pb.ListConversationsRequest(
            page_size=min(limit, PAGE_SIZE), labels=labels, min_ratio=min_ratio, closed=closed
        )
        found: list[Conversation] = []
        async for page in self._pages(self._conversations.ListConversations, request):
            found += page.conversations
            if len(found) >= limit:
                break
        return found[:limit]

    async def summaries(self, conversation_id: str) -> list[SummaryRecord]:
        """All records, newest first."""
        request = _pb.ListSummariesRequest(conversation_id=conversation_id, page_size=PAGE_SIZE)
        pages = self._pages(self._conversations.ListSummaries, request)
        return [record async for page in pages for record in page.summaries]

    async def revoked_summary_ids(self, conversation_id: str) -> frozenset[str]:
        """The ids of the records that are out of use: revoked, made from a revoked one, or rewound."""
        request = _pb.ListSummariesRequest(conversation_id=conversation_id, page_size=PAGE_SIZE)
        pages = self._pages(self._conversations.ListSummaries, request)
        return frozenset([name async for page in pages for name in page.revoked_summary_ids])

    async def episodes(self, conversation_id: str) -> list[Episode]:
        """All episodes, newest first."""
        request = _pb.ListEpisodesRequest(conversation_id=conversation_id, page_size=PAGE_SIZE)
        pages = self._pages(self._conversations.ListEpisodes, request)
        return [episode async for page in pages for episode in page.episodes]

    async def summarizations(self, conversation_id: str) -> list[Summarization]:
        """All passes, newest first."""
        request = _pb.ListSummarizationsRequest(conversation_id=conversation_id, page_size=PAGE_SIZE)
        pages = self._pages(self._conversations.ListSummarizations, request)
        return [summarization async for page in pages for summarization in page.summarizations]

    async def search(
        self, conversation_id: str, query: str, *, mode: str = "", limit: int = 10
    ) -> SearchHistoryResponse:
        """Return the best entries for the query, best first; an empty id searches all conversations. `mode` is one of
        SEARCH_MODES."""
        request = _pb.SearchHistoryRequest(
            conversation_id=conversation_id,
            query=query,
            mode=SearchMode.Value(f"SEARCH_MODE_{(mode or 'unspecified').upper()}"),
            page_size=limit,
        )
        return await self._unary(self._conversations.SearchHistory, request)

    async def summarize(self, conversation_id: str, *, wait_s: float = 0.0) -> Summarization:
        """Force a pass, or join the one under way."""
        request = _pb.SummarizeConversationRequest(conversation_id=conversation_id, wait=_duration(wait_s))
        return (await self._unary(self._conversations.SummarizeConversation, request, wait_s=wait_s)).summarization

    async def report_usage(
        self, conversation_id: str, sent: GetContextResponse, *, prompt_tokens: int, cached_tokens: int | None = None
    ) -> TokenUsage:
        """Report what the chat model's API counted for the context `sent`, and how much of it came from its cache."""
        request = _pb.ReportUsageRequest(
            conversation_id=conversation_id,
            message_version=sent.message_version,
            summary_id=sent.summary_id,
            epoch=sent.epoch,
            prompt_tokens=prompt_tokens,
            cached_tokens=cached_tokens,
        )
        return (await self._unary(self._conversations.ReportUsage, request)).usage

    async def originals(
        self,
        conversation_id: str,
        *,
        summary_id: str = "",
        numbers: Sequence[int] = (),
        first: int = 0,
        last: int = 0,
        max_tokens: int = 0,
    ) -> AsyncIterator[ContextMessage | TooLargeMessage]:
        """The messages that a record covers, with these numbers, or from `first` to `last`, in order;
        `max_tokens` bounds each page of them. One that does not fit even excerpted is only named.
        """
        request = _pb.ExpandSummaryRequest(conversation_id=conversation_id, page_size=PAGE_SIZE, max_tokens=max_tokens)
        if summary_id:
            request.summary_id = summary_id
        elif numbers:
            request.numbers.numbers.extend(numbers)
        else:
            request.messages.CopyFrom(MessageRange(first=first, last=last))
        async for page in self._pages(self._conversations.ExpandSummary, request):
            for named in page.too_large:
                yield named
            for message in page.messages:
                yield message

    async def revoke(self, conversation_id: str, summary_id: str) -> RevokeSummaryResponse:
        """Take a record out of use."""
        request = _pb.RevokeSummaryRequest(conversation_id=conversation_id, summary_id=summary_id)
        return await self._unary(self._conversations.RevokeSummary, request)

    async def rate(self, conversation_id: str, summary_id: str, rating: str, *, comment: str = "") -> None:
        """Rate a record `good` or `bad`."""
        request = _pb.RateSummaryRequest(
            conversation_id=conversation_id,
            summary_id=summary_id,
            rating=Rating.Value(f"RATING_{rating.upper()}"),
            comment=comment,
        )
        await self._unary(self._conversations.RateSummary, request)

    async def pin(
        self, conversation_id: str, numbers: Sequence[int], *, remove: bool = False
    ) -> PinMessagesResponse | UnpinMessagesResponse:
        """Keep messages in the window for good, or `remove` their pins."""
        if remove:
            unpin = _pb.UnpinMessagesRequest(conversation_id=conversation_id, numbers=numbers)
            return await self._unary(self._conversations.UnpinMessages, unpin)
        request = _pb.PinMessagesRequest(conversation_id=conversation_id, numbers=numbers)
        return await self._unary(self._conversations.PinMessages, request)

    async def rewind(self, conversation_id: str, to_version: int) -> RewindConversationResponse:
        """Remove the messages after a number."""
        request = _pb.RewindConversationRequest(conversation_id=conversation_id, to_version=to_version)
        return await self._unary(self._conversations.RewindConversation, request)

    async def close_conversation(self, conversation_id: str) -> Conversation:
        """End a conversation: it takes no messages and no passes, and stays readable."""
        request = _pb.CloseConversationRequest(conversation_id=conversation_id)
        return (await self._unary(self._conversations.CloseConversation, request)).conversation

    async def reopen_conversation(self, conversation_id: str) -> ReopenConversationResponse:
        """Let a closed conversation take messages and passes again."""
        request = _pb.ReopenConversationRequest(conversation_id=conversation_id)
        return await self._unary(self._conversations.ReopenConversation, request)

    async def wait_idle(self, conversation_id: str = "", *, wait_s: float) -> bool:
        """Wait until no pass is pending, in a conversation or in all; whether that came within `wait_s`."""
        request = server_info_service_pb2.WaitIdleRequest(
            conversation_id=conversation_id or None, timeout=_duration(wait_s)
        )
        return bool((await self._unary(self._server.WaitIdle, request, wait_s=wait_s)).idle)

    async def watch(self, conversation_id: str, *, after_version: int = 0) -> AsyncIterator[WatchConversationResponse]:
        """Events and progress from a version on, until the sidecar stops."""
        request = _pb.WatchConversationRequest(conversation_id=conversation_id, after_version=after_version)
        call = self._conversations.WatchConversation(request, metadata=self._metadata)
        async for item in self._items(call):
            yield item

    async def summarize_text(self, text: str, *, max_tokens: int = 0) -> AsyncIterator[SummarizeTextResponse]:
        """Progress, then the summary of a text; `max_tokens` is 0 for the sidecar's own maximum."""
        request = text_service_pb2.SummarizeTextRequest(text=text, max_tokens=max_tokens)
        async for item in self._items(self._texts.SummarizeText(request, metadata=self._metadata)):
            yield item

    async def _items(self, call: Any) -> AsyncIterator[Any]:
        try:
            async for item in call:
                yield item
        except grpc.aio.AioRpcError as error:
            raise _decoded(error, self.address) from error
        finally:
            call.cancel()

    async def server_info(self) -> GetServerInfoResponse:
        """Return version, limits and state of the server."""
        return await self._unary(self._server.GetServerInfo, server_info_service_pb2.GetServerInfoRequest())

    async def is_serving(self) -> bool:
        """Whether the sidecar says that it serves."""
        answer = await self._unary(self._health.Check, health_pb2.HealthCheckRequest())
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    async def _pages(self, call: _Call[Page], request: _PagedRequest) -> AsyncIterator[Page]:
        for _ in range(PAGES_MAX):
            page = await self._unary(call, request)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def _unary(self, call: _Call[Response], request: object, *, wait_s: float = 0.0) -> Response:
        attempt = 0
        while True:
            attempt += 1
            try:
                return await call(request, timeout=self._deadline_s + wait_s, metadata=self._metadata)
            except grpc.aio.AioRpcError as error:
                decoded = _decoded(error, self.address)
                pause_s = self._patience.pause_s(attempt, decoded, uniform=self._uniform)
                if pause_s is None:
                    raise decoded from error
            await self._sleep(pause_s)


def fact_of(event: Event) -> DomainEvent | None:
    """Return the fact of an event; None when it is newer than this program."""
    body = event.WhichOneof("body")
    try:
        return None if body is None else fact(getattr(event, body))
    except UnknownEvent:
        return None


def role_name(hit: SearchHit) -> str:
    """Who said what was found."""
    return Role.Name(hit.role).removeprefix("ROLE_").lower()


def _rendering(name: str) -> Rendering.ValueType:
    return Rendering.Value(f"RENDERING_{(name or 'unspecified').upper()}")


def _duration(seconds: float) -> Duration | None:
    if not seconds:
        return None
    duration = Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration


def _decoded(error: grpc.aio.AioRpcError, address: str) -> SidecarError:
    """The status with its details; a status without ours comes from the transport, and its text stays in the cause."""
    status = rpc_status.from_call(error)
    text = f"{address}: {_TRANSPORT.get(error.code(), error.details())}"
    return _error_of(error.code(), error.details() or "", status.details if status is not None else (), without=text)


def _refused(refusal: AppendRefusal) -> SidecarError:
    code = next(code for code in grpc.StatusCode if code.value[0] == refusal.code)
    return _error_of(code, refusal.message, refusal.details, without=refusal.message)


def _error_of(code: grpc.StatusCode, message: str, details: Iterable[Any], *, without: str) -> SidecarError:
    """The error of a status; `without` is its message when it has no reason of ours."""
    info, retry, bad = ErrorInfo(), RetryInfo(), BadRequest()
    for detail in details:
        for known in (info, retry, bad):
            detail.Unpack(known)
    from_sidecar = bool(info.reason)
    return SidecarError(
        code.name,
        info.reason,
        (message or code.name) if from_sidecar else without,
        metadata=dict(info.metadata),
        violations=tuple((v.field, v.description) for v in bad.field_violations),
        retry_after_s=retry.retry_delay.ToNanoseconds() / 1e9 if retry.HasField("retry_delay") else None,
        retryable=(
            code is grpc.StatusCode.UNAVAILABLE or retry.HasField("retry_delay") or (code in _CUT and not from_sidecar)
        ),
    )


_TRANSPORT = {
    grpc.StatusCode.UNAVAILABLE: "nobody answers",
    grpc.StatusCode.DEADLINE_EXCEEDED: "no answer in time",
    grpc.StatusCode.UNIMPLEMENTED: "what answers there is no sidecar, or one of another version",
    grpc.StatusCode.CANCELLED: "the connection was closed",
    grpc.StatusCode.UNKNOWN: "the connection was closed",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "more than the transport takes",
}
