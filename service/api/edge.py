"""What every RPC goes through, in one wrapper: span, credential, request (read by `intake`, checked by
`request_reader`), quota, deadline, errors, metrics. A stream takes its quota before its request is read.

Every handler is registered as one that takes a stream: gRPC hands over such a call when its head has come, so that the
request of a caller without a credential is never read. It is wrapped when it is first asked for: gRPC's own
interceptors go through a chain of tasks at every call.

Streams of ours and those of gRPC's own services, which may need no credential, have places apart, so that the latter
cannot take the former's, and the latter make no spans: a probe that asks every second would be most of what a collector
gets. What nobody serves is counted and traced under one name: a client's text is no label.

Nothing of an exception but its table row reaches a client; what is in no row is a bug, answered with an opaque id that
the log line carries.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager, nullcontext
from traceback import clear_frames
from typing import Any
from uuid import uuid4

import grpc
import structlog
from google.rpc.code_pb2 import Code
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from observability.facts import RpcEnded, RpcStarted
from observability.labels import OTHER
from observability.metrics import Metrics
from observability.tracing import SilentTracing, Span, Tracing, sampled_trace_id
from service.api.auth import Authenticator, set_caller
from service.api.deadlines import default_deadline_s
from service.api.drain import Drain
from service.api.errors import (
    DeadlinePassed,
    UnknownMethod,
    internal_status,
    reason_of,
    retry_ms,
    status_of,
)
from service.api.event_wire import encoded
from service.api.intake import Intake
from service.api.quotas import Quotas
from service.api.request_reader import RequestReader
from service.api.validation import Validation

__all__ = ["METHOD_SCOPES", "Edge", "GuardedServer"]

OPEN_METHODS = frozenset({"grpc.health.v1.Health"})
"""Services that need no credential, since a health check has none, and that are answered under any load."""

METHOD_SCOPES: Mapping[str, str] = {
    "abridged.v1.ConversationService/AppendMessages": "append",
    "abridged.v1.ConversationService/GetContext": "read",
    "abridged.v1.ConversationService/GetConversation": "read",
    "abridged.v1.ConversationService/ListConversations": "read",
    "abridged.v1.ConversationService/UpdateConversation": "append",
    "abridged.v1.ConversationService/ReportUsage": "append",
    "abridged.v1.ConversationService/SummarizeConversation": "append",
    "abridged.v1.ConversationService/GetSummarization": "read",
    "abridged.v1.ConversationService/ListSummarizations": "read",
    "abridged.v1.ConversationService/ListSummaries": "read",
    "abridged.v1.ConversationService/GetSummary": "read",
    "abridged.v1.ConversationService/WatchConversation": "read",
    "abridged.v1.EventLogService/ReadEvents": "read",
    "abridged.v1.EventLogService/SubscribeEvents": "read",
    "abridged.v1.EventLogService/GetHead": "read",
    "abridged.v1.ServerInfoService/GetServerInfo": "read",
    "abridged.v1.ServerInfoService/WaitIdle": "read",
}
"""What a credential needs for each method."""

_log = structlog.get_logger()

_Handler = Any
"""grpc.RpcMethodHandler, which is generic over messages that differ from method to method."""


_Receive = Callable[[AsyncIterator[Any], Any, str], Awaitable[Any]]
"""From requests, context and namespace of a call to what its handler takes."""


class Edge:
    """Wraps handlers; `drain` ends the unary calls that are being served."""

    def __init__(
        self,
        *,
        authenticator: Authenticator,
        quotas: Quotas,
        intake: Intake,
        validation: Validation,
        tracing: Tracing,
        metrics: Metrics,
        deadline_s: Callable[[str], float] = default_deadline_s,
    ) -> None:
        self._authenticator = authenticator
        self._quotas = quotas
        self._intake = intake
        self._validation = validation
        self._tracing = tracing
        self._metrics = metrics
        self._deadline_s = deadline_s
        self.drain = Drain()

    def unknown(self) -> _Handler:
        """What answers every method that nobody serves."""
        return grpc.stream_unary_rpc_method_handler(self._unary(OTHER, _unknown_method, receive=self._intake.skip))

    def guarded(self, method: str, handler: _Handler) -> _Handler:
        """The handler of `method`, with everything that a call goes through around it."""
        receive = _stream_itself if handler.request_streaming else self._intake.read
        reader = RequestReader(handler.request_deserializer, self._validation, self._intake.request_bytes_max)
        if handler.response_streaming:
            # gRPC's own health service writes messages by itself.
            ours = method in METHOD_SCOPES
            handle = handler.stream_stream or handler.unary_stream
            return grpc.stream_stream_rpc_method_handler(
                self._stream(method, handle, encoded if ours else None, receive=receive),
                request_deserializer=reader,
                response_serializer=None if ours else handler.response_serializer,
            )
        return grpc.stream_unary_rpc_method_handler(
            # Serialized here: gRPC would keep the message beside its bytes until they are written.
            self._unary(method, handler.stream_unary or handler.unary_unary, encoded, receive=receive),
            request_deserializer=reader,
        )

    def _unary(
        self,
        method: str,
        handle: Callable[[Any, Any], Awaitable[Any]],
        serialize: Callable[[Any], bytes] = encoded,
        *,
        receive: _Receive,
    ) -> Callable[[Any, Any], Awaitable[Any]]:
        reads, is_open = METHOD_SCOPES.get(method) != "append", _is_open(method)

        async def answer(call: _Call, requests: Any, context: Any) -> bytes:
            namespace = self._admit(method, call.metadata)
            request = await receive(requests, context, namespace)
            place = nullcontext() if is_open else self._quotas.call(namespace, reads=reads)
            with place, self._intake.held(namespace, request):
                call.admitted(request)
                answered = serialize(await self._in_time(method, handle(request, context), context))
            if not is_open:
                context.add_done_callback(self._quotas.sending(namespace, len(answered), reads=reads))
            return answered

        async def serve(requests: Any, context: Any) -> Any:
            call = _Call(self, method, context)
            with call.span, self.drain.running():
                try:
                    if not is_open:
                        self.drain.take_up()
                    response = await answer(call, requests, context)
                except BaseException as error:
                    status = call.failed(self.drain.meaning_of(error))
                    if status is None:
                        raise
                else:
                    call.ended("OK")
                    return response
                return await call.abort(status)

        return serve

    async def _in_time(self, method: str, handling: Awaitable[Any], context: Any) -> Any:
        """What the handler returns, within the deadline of the method where the client has set none."""
        if context.time_remaining() is not None:
            return await handling
        try:
            async with asyncio.timeout(self._deadline_s(method)) as limit:
                return await handling
        except TimeoutError as error:
            raise DeadlinePassed("the deadline of the method has passed") if limit.expired() else error from error

    def _stream(
        self,
        method: str,
        handle: Callable[[Any, Any], AsyncGenerator[Any, None]],
        serialize: Callable[[Any], bytes] | None,
        *,
        receive: _Receive,
    ) -> Callable[[Any, Any], AsyncIterator[Any]]:
        ours = method in METHOD_SCOPES

        async def serve(requests: Any, context: Any) -> AsyncIterator[Any]:
            call = _Call(self, method, context)
            with call.span:
                try:
                    if not _is_open(method):
                        self.drain.take_up()
                    namespace = self._admit(method, call.metadata)
                    with self._quotas.stream(namespace, ours=ours), self._subscriber(ours=ours):
                        request = await receive(requests, context, namespace)
                        call.admitted(request)
                        responses = handle(request, context)
                        if inspect.isawaitable(responses):  # gRPC's own health service writes instead of yielding
                            await responses
                        else:
                            async with aclosing(responses):
                                async for response in responses:
                                    if serialize is None:
                                        yield response
                                        continue
                                    # gRPC asks for the next one when the transport has taken this one.
                                    item = serialize(response)
                                    with self._quotas.item(namespace, len(item)):
                                        yield item
                except BaseException as error:
                    request = responses = None
                    status = call.failed(error)
                    if status is None:
                        raise
                else:
                    call.ended("OK")
                    return
                await call.abort(status)

        return serve

    @contextmanager
    def _subscriber(self, *, ours: bool) -> Iterator[None]:
        if not ours:
            yield
            return
        self._metrics.subscriber_opened()
        try:
            yield
        finally:
            self._metrics.subscriber_closed()

    def _admit(self, method: str, metadata: Mapping[str, str]) -> str:
        """The namespace of who may call; none for a method that needs no credential."""
        if _is_open(method):
            return ""
        caller = self._authenticator.caller(metadata)
        scope = METHOD_SCOPES.get(method)
        if scope is not None:
            caller.require(scope)
        set_caller(caller)
        return caller.namespace

    def open_span(self, method: str, traceparent: str) -> Any:
        """The span of a call; one that nobody will see for the methods of gRPC's own services."""
        ours = method in METHOD_SCOPES or method == OTHER
        return (self._tracing if ours else _UNSEEN).span(RpcStarted(method=method, traceparent=traceparent))

    def count(self, method: str, code: str, seconds: float, trace_id: str) -> None:
        """Count a call that is over."""
        self._metrics.rpc_ended(method, code, seconds=seconds, trace_id=trace_id)


class GuardedServer:
    """Takes the place of a server where handlers are added to it, and adds them guarded."""

    def __init__(self, server: grpc.aio.Server, edge: Edge) -> None:
        self._server = server
        self._edge = edge

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """See grpc.Server."""
        self._server.add_generic_rpc_handlers(tuple(_Guarded(self._edge, h) for h in generic_rpc_handlers))

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, _Handler]) -> None:
        """See grpc.Server. Generated code adds the same handlers by the other way too, which serves them."""

    def refuse_the_rest(self) -> None:
        """Answer what no handler takes. To be called when all handlers have been added."""
        self._server.add_generic_rpc_handlers((_Unknown(self._edge),))


class _Guarded(grpc.GenericRpcHandler):
    def __init__(self, edge: Edge, inner: grpc.GenericRpcHandler) -> None:
        self._edge = edge
        self._inner = inner
        self._handlers: dict[str, _Handler] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> _Handler:
        name = handler_call_details.method
        handler = self._handlers.get(name)
        if handler is None and (inner := self._inner.service(handler_call_details)) is not None:
            handler = self._handlers[name] = self._edge.guarded(name.lstrip("/"), inner)
        return handler


class _Unknown(grpc.GenericRpcHandler):
    def __init__(self, edge: Edge) -> None:
        self._handler = edge.unknown()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> _Handler:
        return self._handler


class _Call:
    """One call: its span, and how it ends."""

    __slots__ = (
        "_context",
        "_conversation_id",
        "_edge",
        "_entered",
        "_method",
        "_opened",
        "_started_s",
        "metadata",
        "span",
    )

    def __init__(self, edge: Edge, method: str, context: Any) -> None:
        self._edge = edge
        self._method = method
        self._context = context
        self._conversation_id = ""
        self._started_s = time.perf_counter()
        self.metadata = _metadata(context)
        self._opened = edge.open_span(method, self.metadata.get("traceparent", ""))
        self.span = self
        self._entered: Span | None = None

    def __enter__(self) -> None:
        self._entered = self._opened.__enter__()

    def __exit__(self, *error: Any) -> None:
        # The RPC's status says how it ended; that gRPC aborts by raising is no error of the span.
        self._opened.__exit__(None, None, None)

    def admitted(self, request: Any) -> None:
        """The request has passed: what it names is an id now, and no longer anybody's text."""
        self._conversation_id = getattr(request, "conversation_id", "")

    def ended(self, code: str, *, reason: str = "") -> None:
        assert self._entered is not None, "the span is open"
        self._entered.note(RpcEnded(code, reason, self._conversation_id))
        seconds = time.perf_counter() - self._started_s
        self._edge.count(self._method, code, seconds, sampled_trace_id(self._entered.traceparent))

    def failed(self, error: BaseException) -> Status | None:
        """The status to abort the call with; None when the caller has gone or the handler aborted itself."""
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            self.ended("CANCELLED")
            return None
        if isinstance(error, grpc.aio.AbortError):
            clear_frames(error.__traceback__)  # gRPC keeps the error, see `abort`
            self.ended(_own_code(self._context))
            return None
        status = status_of(error) if isinstance(error, Exception) else None
        if status is None or status.code == Code.DATA_LOSS or isinstance(error, MemoryError):
            error_id = uuid4().hex
            status = status or internal_status(error_id)
            _log.error(
                "rpc.failed", method=self._method, error_id=error_id, error_type=type(error).__name__, exc_info=error
            )
        self.ended(Code.Name(status.code), reason=reason_of(status))
        return status

    async def abort(self, status: Status) -> None:
        """End the call. To be called when the error is handled, and where no local names the request.

        gRPC does so by an error that it keeps with the call: with its traceback, and with what it came from, it would
        hold whatever their frames do until the garbage collector comes by.
        """
        rich = rpc_status.to_status(status)
        trailing = list(rich.trailing_metadata)
        if rich.code is grpc.StatusCode.UNAVAILABLE and (wait_ms := retry_ms(status)) is not None:
            trailing.append(("grpc-retry-pushback-ms", str(wait_ms)))  # what gRPC's own retries obey
        await self._context.abort(rich.code, rich.details, trailing_metadata=tuple(trailing))


async def _unknown_method(_request: Any, _context: Any) -> Any:
    raise UnknownMethod("there is no such method")


async def _stream_itself(requests: AsyncIterator[Any], _context: Any, _namespace: str) -> AsyncIterator[Any]:
    return requests


_UNSEEN = SilentTracing()


def _is_open(method: str) -> bool:
    return method.partition("/")[0] in OPEN_METHODS


def _own_code(context: Any) -> str:
    code = context.code()
    return code.name if isinstance(code, grpc.StatusCode) else "UNKNOWN"


def _metadata(context: Any) -> dict[str, str]:
    return {name: value for name, value in context.invocation_metadata() or () if isinstance(value, str)}
