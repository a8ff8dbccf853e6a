"""Serves the contract's calls over plain HTTP, in Connect and gRPC-Web, through the same pipeline as those over gRPC.

A page in a browser may call only when its origin is in `server.http_origins`: without that any page that a person opens
could read the conversations of a sidecar on the same machine.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc.status_pb2 import Status

from abridged.service.api.call import Refused
from abridged.service.api.errors import (
    CompressedRequest,
    DeadlinePassed,
    EdgeError,
    InvalidRequest,
    RequestTooLarge,
    ServerStopping,
    status_of,
)
from abridged.service.api.http_exchange import HttpExchange, HttpResponse, plain
from abridged.service.api.methods import UNKNOWN, Method
from abridged.service.api.pipeline import Pipeline
from abridged.service.api.request_reader import RequestReader
from abridged.service.api.validation import Validation
from abridged.service.api.web_protocols import ENVELOPE_BYTES, PROTOCOLS, WebProtocol, opened

BODY_S = 30.0
"""Seconds that one request may take to arrive once it has begun."""

_HEADERS_TAKEN = (
    "authorization, content-type, connect-protocol-version, connect-timeout-ms, grpc-timeout, traceparent, x-grpc-web, "
    "x-user-agent"
)
_ALLOWED = (
    "Access-Control-Allow-Methods: POST",
    f"Access-Control-Allow-Headers: {_HEADERS_TAKEN}",
    "Access-Control-Max-Age: 7200",
)


@dataclass(frozen=True, slots=True)
class _Served:
    """A method, with the types of its messages."""

    method: Method
    handle: Callable[[Any, Any], Any]
    reader: RequestReader
    request: type[Message]
    response: type[Message]
    streams: bool


@dataclass(frozen=True, slots=True)
class WebAccess:
    """Whose calls are taken: of pages, those of the `origins`; `closed` is why none is, empty otherwise."""

    origins: frozenset[str] = frozenset()
    closed: str = ""


EVERYBODY_HERE = WebAccess()
"""Every program that reaches the port, and no page."""


class WebServer:
    """Serves calls that come over HTTP. The server refuses them before `open` as a server that stops does."""

    def __init__(
        self,
        services: Iterable[tuple[Any, object]],
        pipeline: Pipeline,
        validation: Validation,
        *,
        request_bytes_max: int,
        receive_bytes_max: int,
        access: WebAccess,
    ) -> None:
        self._pipeline = pipeline
        self._receive_bytes_max = receive_bytes_max
        self._access = access
        self._is_open = False
        self._served = {
            f"/{descriptor.full_name}/{rpc.name}": _Served(
                Method.named(f"{descriptor.full_name}/{rpc.name}", takes_stream=rpc.client_streaming),
                getattr(servicer, rpc.name),
                RequestReader(GetMessageClass(rpc.input_type).FromString, validation, request_bytes_max),
                GetMessageClass(rpc.input_type),
                GetMessageClass(rpc.output_type),
                rpc.server_streaming,
            )
            for descriptor, servicer in services
            for rpc in descriptor.methods
        }

    def open(self) -> None:
        """Take calls from now on."""
        self._is_open = True

    async def __call__(self, exchange: HttpExchange) -> None:
        """Serve one call; returns when its response is written, or its caller has gone."""
        request = exchange.request
        served = self._served.get(request.path)
        found = PROTOCOLS.get(request.headers.get("content-type", "").partition(";")[0].strip().lower())
        origin = request.headers.get("origin")
        if origin is not None and origin not in self._access.origins:
            await exchange.respond(plain(HTTPStatus.FORBIDDEN, "server.http_origins does not have this page's origin"))
        elif self._access.closed:
            await exchange.respond(plain(HTTPStatus.FORBIDDEN, self._access.closed))
        elif request.method == "OPTIONS":
            await exchange.respond(HttpResponse(HTTPStatus.NO_CONTENT, headers=(*_shared_with(origin), *_ALLOWED)))
        elif request.method != "POST":
            await exchange.respond(plain(HTTPStatus.METHOD_NOT_ALLOWED, "calls are made by POST", "Allow: POST"))
        elif found is None or (served and not found.takes(streams=served.streams)):
            streams = served is not None and served.streams
            takes = ", ".join(name for name, protocol in PROTOCOLS.items() if protocol.takes(streams=streams))
            await exchange.respond(
                plain(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send one of {takes}", f"Accept-Post: {takes}")
            )
        else:
            await self._call(exchange, found, served, _shared_with(origin))

    async def _call(
        self, exchange: HttpExchange, protocol: WebProtocol, served: _Served | None, headers: tuple[str, ...]
    ) -> None:
        call = _WebCall(exchange, protocol, served, self._receive_bytes_max, headers)
        try:
            if not self._is_open:
                raise ServerStopping
            call.begin()
        except EdgeError as error:
            await call.refuse(_status(error))
            return
        serving = asyncio.create_task(self._answered(call, served))
        gone = asyncio.create_task(exchange.until_gone())
        try:
            await asyncio.wait((serving, gone), timeout=call.time_remaining(), return_when=asyncio.FIRST_COMPLETED)
            is_late = not serving.done() and not gone.done()
            if not serving.done():
                serving.cancel()
                await asyncio.wait((serving,))
            if is_late:
                await call.refuse(_status(DeadlinePassed("the call's deadline has passed")))
            elif not serving.cancelled():
                serving.result()
        finally:
            serving.cancel()
            gone.cancel()
            await asyncio.gather(serving, gone, return_exceptions=True)
            call.over()

    async def _answered(self, call: _WebCall, served: _Served | None) -> None:
        try:
            if served is not None and served.streams:
                async with aclosing(self._pipeline.stream(served.method, call)) as items:
                    async for item in items:
                        await call.send(item)
                await call.end(None)
            else:
                await call.answer(await self._pipeline.unary(served.method if served else UNKNOWN, call))
        except Refused as refused:
            await call.refuse(refused.status)


class _WebCall:
    """One call over HTTP; also the context that a handler gets."""

    def __init__(
        self,
        exchange: HttpExchange,
        protocol: WebProtocol,
        served: _Served | None,
        receive_bytes_max: int,
        headers: tuple[str, ...],
    ) -> None:
        self.metadata: Mapping[str, str] = exchange.request.headers
        self._exchange = exchange
        self._protocol = protocol
        self._served = served
        self._bytes_max = receive_bytes_max
        self._headers = headers
        self._deadline_s: float | None = None
        self._callbacks: list[Callable[[object], None]] = []
        self._unread = bytearray()
        self._ended = False
        self._is_answered = False

    def begin(self) -> None:
        """Take the call's deadline. Raises an EdgeError for a head that no call has."""
        left_s = self._protocol.timeout_s(self.metadata)
        self._deadline_s = None if left_s is None else time.monotonic() + left_s
        if self._protocol.is_compressed(self.metadata):
            raise CompressedRequest

    @property
    def requests(self) -> Any:
        raise AssertionError("only services of gRPC's own read their requests by themselves")

    def time_remaining(self) -> float | None:
        return None if self._deadline_s is None else max(0.0, self._deadline_s - time.monotonic())

    def add_done_callback(self, callback: Callable[[object], None]) -> None:
        """Have `callback` called when the response has been written, or the call has ended otherwise."""
        self._callbacks.append(callback)

    when_over = add_done_callback

    def over(self) -> None:
        """Call what waits for the end of the call."""
        for callback in self._callbacks:
            callback(self)

    async def read(self) -> tuple[Any, int]:
        data = await self._next()
        if data is None:
            raise InvalidRequest((("", "no request came"),))
        received = self._request(data)
        # The exchange hears that the caller has gone only after the body's end.
        await _soon(self._more(1))
        if self._unread:
            raise InvalidRequest((("", "the call takes one request"),))
        return received

    async def read_next(self) -> tuple[Any, int] | Exception | None:
        data = await self._next()
        try:
            return None if data is None else self._request(data)
        except (EdgeError, MemoryError) as error:  # its envelope is whole, so the next one can be read
            return error

    def _next(self) -> Awaitable[bytes | None]:
        return self._enveloped() if self._protocol.is_enveloped else self._whole()

    def _request(self, data: bytes) -> tuple[Any, int]:
        if self._served is None:
            return None, len(data)
        return self._served.reader.sized(self._protocol.codec.read(data, self._served.request))

    def handled(self, request: Any) -> Any:
        assert self._served is not None, "the pipeline handles methods that there are"
        return self._served.handle(request, self)

    def encoded(self, answer: Any) -> bytes:
        assert self._served is not None, "the pipeline answers for methods that there are"
        return self._protocol.codec.write(answer, self._served.response)

    def own_code(self, error: BaseException) -> str | None:
        return None

    async def answer(self, message: bytes) -> None:
        """Write the response of a unary call."""
        ended = self._protocol.end(None) if self._protocol.is_enveloped else b""
        body = self._protocol.framed(message) + ended
        self._is_answered = True
        await self._exchange.respond(self._response(body))

    async def send(self, message: bytes) -> None:
        """Write one response of a stream."""
        await self._begun()
        await self._exchange.write(self._protocol.framed(message))

    async def end(self, status: Status | None) -> None:
        """End a stream."""
        await self._begun()
        await self._exchange.write(self._protocol.end(status))
        await self._exchange.end()

    async def refuse(self, status: Status) -> None:
        """End the call in an error, wherever its response stands: one that is written with its length is cut off."""
        if self._is_answered:
            self._exchange.abort()
        elif self._exchange.began:
            await self.end(status)
        else:
            refused = self._protocol.refused(status)
            await self._exchange.respond(replace(refused, headers=(*refused.headers, *self._headers)))

    async def _begun(self) -> None:
        if not self._exchange.began:
            await self._exchange.begin(self._response(b""))

    def _response(self, body: bytes) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, body, self._protocol.content_type, self._headers)

    async def _whole(self) -> bytes:
        """The body as it is. Raises RequestTooLarge."""
        await _soon(self._more(self._bytes_max + 1))
        if not self._ended:
            raise RequestTooLarge(size=len(self._unread), limit=self._bytes_max, field="")
        whole = bytes(self._unread)
        self._unread.clear()
        return whole

    async def _enveloped(self) -> bytes | None:
        """The message of the next envelope; None when no more come. Raises an EdgeError."""
        await self._more(1)
        if not self._unread:
            return None
        await _soon(self._more(ENVELOPE_BYTES))
        if len(self._unread) < ENVELOPE_BYTES:
            raise InvalidRequest((("", "the request ends in the middle"),))
        size = opened(bytes(self._unread[:ENVELOPE_BYTES]))
        if size > self._bytes_max:
            raise RequestTooLarge(size=size, limit=self._bytes_max, field="")
        await _soon(self._more(ENVELOPE_BYTES + size))
        message = bytes(self._unread[ENVELOPE_BYTES : ENVELOPE_BYTES + size])
        if len(message) < size:
            raise InvalidRequest((("", "the request ends in the middle"),))
        del self._unread[: ENVELOPE_BYTES + size]
        return message

    async def _more(self, wanted: int) -> None:
        """Have `wanted` bytes that are not read yet, or the body's end."""
        if self._protocol.is_text:
            # Base64 has four letters for three bytes; it is decoded when it is whole.
            wanted = 4 * (ENVELOPE_BYTES + self._bytes_max) // 3 + 4
        while not self._ended and len(self._unread) < wanted:
            part = await self._exchange.read()
            self._unread += part
            if not part:
                self._ended = True
                if self._protocol.is_text:
                    self._unread = _decoded(self._unread)
        if self._protocol.is_text and not self._ended:
            raise RequestTooLarge(size=len(self._unread), limit=self._bytes_max, field="")


async def _soon(reading: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(BODY_S):
            await reading
    except TimeoutError as error:
        raise DeadlinePassed(f"the request took more than {BODY_S:g} s to come") from error


def _decoded(body: bytearray) -> bytearray:
    try:
        return bytearray(base64.b64decode(body, validate=True))
    except binascii.Error as error:
        raise InvalidRequest((("", "the request is no base64"),)) from error


def _shared_with(origin: str | None) -> tuple[str, ...]:
    return () if origin is None else (f"Access-Control-Allow-Origin: {origin}", "Vary: Origin")


def _status(error: EdgeError) -> Status:
    status = status_of(error)
    assert status is not None, "the table has a row for it"
    return status
