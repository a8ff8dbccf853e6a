"""gRPC around the pipeline: handlers are added to a server here, and each of their calls goes through `pipeline`.

Every handler is registered as one that takes a stream: gRPC hands over such a call when its headers have arrived, so
the request of a caller without a credential is never read. Handlers are wrapped once, when they are first looked up:
gRPC's own interceptors run a chain of tasks for every call.

A call that takes one request has only its first one read: looking for a second would cost every call a turn of the
transport. The requests of our streams are read one by one by the code that serves them.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from traceback import clear_frames
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from abridged.service.api.call import Refused
from abridged.service.api.errors import EdgeError, InvalidRequest
from abridged.service.api.methods import UNKNOWN, Method
from abridged.service.api.pipeline import Pipeline
from abridged.service.api.request_reader import RequestReader
from abridged.service.api.rich_status import retry_ms
from abridged.service.api.validation import Validation

_Handler = Any
"""grpc.RpcMethodHandler, which is generic over messages that differ from method to method."""


class GuardedServer:
    """Stands in for a server where handlers are added to it, and adds them guarded.

    `request_bytes_max` is for each request of a call that takes one.
    """

    def __init__(
        self, server: grpc.aio.Server, pipeline: Pipeline, validation: Validation, *, request_bytes_max: int
    ) -> None:
        self._server = server
        self._pipeline = pipeline
        self._validation = validation
        self._request_bytes_max = request_bytes_max

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """See grpc.Server."""
        self._server.add_generic_rpc_handlers(tuple(_Guarded(h, self._guarded) for h in generic_rpc_handlers))

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, _Handler]) -> None:
        """See grpc.Server. Generated code adds the same handlers by the other way too, which serves them."""

    def refuse_the_rest(self) -> None:
        """Refuse calls that no handler takes. Call this once all handlers have been added."""
        self._server.add_generic_rpc_handlers((_Unknown(self._pipeline),))

    def _guarded(self, name: str, handler: _Handler) -> _Handler:
        method = Method.named(name, takes_stream=handler.request_streaming)
        reader = RequestReader(handler.request_deserializer, self._validation, self._request_bytes_max)
        read: Callable[[bytes], Any] = reader.sized
        if method.takes_stream:
            read = _sized_or_error(reader) if method.is_ours else reader
        if handler.response_streaming:
            # gRPC's own health service writes messages by itself.
            serialize = None if method.is_ours else handler.response_serializer
            return grpc.stream_stream_rpc_method_handler(
                _stream(self._pipeline, method, handler),
                request_deserializer=read,
                response_serializer=serialize,
            )
        # Serialized by the pipeline: gRPC would keep the message beside its bytes until they are written.
        return grpc.stream_unary_rpc_method_handler(_unary(self._pipeline, method, handler), request_deserializer=read)


class _Guarded(grpc.GenericRpcHandler):
    def __init__(self, inner: grpc.GenericRpcHandler, guarded: Callable[[str, _Handler], _Handler]) -> None:
        self._inner = inner
        self._guarded = guarded
        self._handlers: dict[str, _Handler] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> _Handler:
        name = handler_call_details.method
        handler = self._handlers.get(name)
        if handler is None and (inner := self._inner.service(handler_call_details)) is not None:
            handler = self._handlers[name] = self._guarded(name.lstrip("/"), inner)
        return handler


class _Unknown(grpc.GenericRpcHandler):
    def __init__(self, pipeline: Pipeline) -> None:
        self._handler: _Handler = grpc.stream_unary_rpc_method_handler(
            _unary(pipeline, UNKNOWN, None), request_deserializer=_unread
        )

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> _Handler:
        return self._handler


class _GrpcCall:
    """One call over gRPC."""

    __slots__ = ("_context", "_handle", "_serialize", "metadata", "requests")

    def __init__(
        self,
        requests: Any,
        context: Any,
        handle: Callable[[Any, Any], Any],
        serialize: Callable[[Any], bytes] = Message.SerializeToString,
    ) -> None:
        self.requests = requests
        self.metadata = {name: value for name, value in context.invocation_metadata() or () if isinstance(value, str)}
        self._context = context
        self._handle = handle
        self._serialize = serialize

    def time_remaining(self) -> float | None:
        left_s: float | None = self._context.time_remaining()
        return left_s

    async def read(self) -> tuple[Any, int]:
        received: Any = await self._context.read()
        if received is grpc.aio.EOF:
            raise InvalidRequest((("", "no request came"),))
        return received  # type: ignore[no-any-return]  # what `RequestReader.sized` returned

    async def read_next(self) -> tuple[Any, int] | Exception | None:
        received = await self._context.read()
        return None if received is grpc.aio.EOF else received

    def handled(self, request: Any) -> Any:
        return self._handle(request, self._context)

    def encoded(self, answer: Any) -> bytes:
        return answer if isinstance(answer, bytes) else self._serialize(answer)

    def when_over(self, callback: Callable[[object], None]) -> None:
        self._context.add_done_callback(callback)

    def own_code(self, error: BaseException) -> str | None:
        if not isinstance(error, grpc.aio.AbortError):
            return None
        clear_frames(error.__traceback__)  # gRPC keeps the error, see `_abort`
        code = self._context.code()
        return code.name if isinstance(code, grpc.StatusCode) else "UNKNOWN"


def _unary(pipeline: Pipeline, method: Method, handler: _Handler) -> Callable[[Any, Any], Awaitable[Any]]:
    handle = handler and (handler.stream_unary or handler.unary_unary)
    serialize = handler and handler.response_serializer

    async def serve(requests: Any, context: Any) -> Any:
        try:
            return await pipeline.unary(method, _GrpcCall(requests, context, handle, serialize))
        except Refused as refused:
            status = refused.status
        return await _abort(context, status)

    return serve


def _stream(pipeline: Pipeline, method: Method, handler: _Handler) -> Callable[[Any, Any], AsyncIterator[Any]]:
    handle = handler.stream_stream or handler.unary_stream

    def responses(request: Any, context: Any) -> AsyncGenerator[Any, None]:
        answered = handle(request, context)
        return _written(answered) if inspect.isawaitable(answered) else answered

    async def serve(requests: Any, context: Any) -> AsyncIterator[Any]:
        call = _GrpcCall(requests, context, responses, handler.response_serializer)
        try:
            async with aclosing(pipeline.stream(method, call)) as items:
                async for item in items:
                    yield item
            return
        except Refused as refused:
            status = refused.status
        await _abort(context, status)

    return serve


def _sized_or_error(reader: RequestReader) -> Callable[[bytes], tuple[Any, int] | Exception]:
    def read(data: bytes) -> tuple[Any, int] | Exception:
        try:
            return reader.sized(data)
        except (EdgeError, MemoryError) as error:  # gRPC has the message whole, so the next one can be read
            return error

    return read


def _unread(data: bytes) -> tuple[None, int]:
    return None, len(data)


async def _written(writing: Awaitable[None]) -> AsyncGenerator[Any, None]:
    """Yield nothing: the handler writes its responses by itself, as gRPC's own health service does."""
    await writing
    return
    yield


async def _abort(context: Any, status: Status) -> None:
    """End the call. Call this when the error is handled, and where no local variable holds the request.

    gRPC does so by an error that it keeps with the call: with its traceback, and with what it came from, it would
    hold whatever their frames do until the garbage collector comes by.
    """
    rich = rpc_status.to_status(status)
    trailing = list(rich.trailing_metadata)
    if rich.code is grpc.StatusCode.UNAVAILABLE and (wait_ms := retry_ms(status)) is not None:
        trailing.append(("grpc-retry-pushback-ms", str(wait_ms)))  # what gRPC's own retries obey
    await context.abort(rich.code, rich.details, trailing_metadata=tuple(trailing))
