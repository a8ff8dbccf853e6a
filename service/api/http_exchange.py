"""One HTTP request whose body is read as it comes, and its response, written at once or in parts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import h11

PART_BYTES = 64 * 1024
PART_S = 10.0
"""Seconds that a peer may take to send more of a body that is waited for."""

RESPONSE_S = 60.0
"""Seconds that a peer may take for a response with a length: 16 MiB at two megabits a second."""

_HEADERS = (
    "Cache-Control: no-store",
    "Connection: close",
    "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy: same-origin",
    "Referrer-Policy: no-referrer",
    "X-Content-Type-Options: nosniff",
)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """The head of a request. Names of `headers` are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer; `headers` are whole lines beside those that every answer has."""

    status: HTTPStatus
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[str, ...] = ()

    def encoded(self, *, head_only: bool = False) -> bytes:
        """The bytes of the answer, with its length."""
        head = _head(self, f"Content-Length: {len(self.body)}")
        return head if head_only else head + self.body


def plain(status: HTTPStatus, text: str, *headers: str) -> HttpResponse:
    """One line of text."""
    return HttpResponse(status, f"{text}\n".encode(), headers=headers)


class HttpExchange:
    """A request and its response. The server of an exchange ends its task when `until_gone` returns."""

    def __init__(
        self,
        request: HttpRequest,
        connection: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.request = request
        self.began = False
        self._connection = connection
        self._reader = reader
        self._writer = writer
        self._body_ended = asyncio.Event()
        self._gone = asyncio.Event()

    async def read(self) -> bytes:
        """The next part of the body; empty at its end. Does not return when the peer has gone, is too slow, or breaks
        the protocol: `until_gone` does then."""
        if self._connection.they_are_waiting_for_100_continue:
            self._writer.write(
                self._connection.send(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")) or b""
            )
        try:
            while True:
                match self._connection.next_event():
                    case h11.Data(data=data):
                        return bytes(data)
                    case h11.EndOfMessage() | h11.PAUSED:
                        self._body_ended.set()
                        return b""
                    case h11.ConnectionClosed():
                        break
                    case _:
                        async with asyncio.timeout(PART_S):
                            self._connection.receive_data(await self._reader.read(PART_BYTES))
        except (h11.RemoteProtocolError, TimeoutError, OSError):
            pass
        self._gone.set()
        return await _never()

    async def until_gone(self) -> None:
        """Return when the peer has gone: its connection has ended, or the body that was to come does not."""
        ended = asyncio.create_task(self._body_ended.wait())
        gone = asyncio.create_task(self._gone.wait())
        try:
            await asyncio.wait((ended, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            gone.cancel()
        try:
            while not self._gone.is_set() and await self._reader.read(PART_BYTES):
                continue  # Bytes after a body are no request that is served: each connection takes one.
        except OSError:
            return

    async def respond(self, response: HttpResponse) -> None:
        """Write the whole response. A peer that takes longer than RESPONSE_S for it is cut off."""
        self.began = True
        self._writer.write(response.encoded())
        try:
            async with asyncio.timeout(RESPONSE_S):
                await self._writer.drain()
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        """End the connection in the middle of a response."""
        self._writer.transport.abort()

    async def begin(self, response: HttpResponse) -> None:
        """Write the head of a response, whose body `write` and `end` make."""
        self.began = True
        self._writer.write(_head(response, "Transfer-Encoding: chunked"))
        await self._writer.drain()

    async def write(self, part: bytes) -> None:
        """Write a part of the body; returns when the peer has room for more."""
        self._writer.write(b"%x\r\n%b\r\n" % (len(part), part))
        await self._writer.drain()

    async def end(self) -> None:
        """End the body that `begin` began."""
        self._writer.write(_LAST)
        await self._writer.drain()


_LAST: Final = b"0\r\n\r\n"


def _head(response: HttpResponse, framing: str) -> bytes:
    lines = (
        f"HTTP/1.1 {response.status.value} {response.status.phrase}",
        f"Content-Type: {response.content_type}",
        framing,
        *_HEADERS,
        *response.headers,
        "\r\n",
    )
    return "\r\n".join(lines).encode("latin-1")


async def _never() -> bytes:
    await asyncio.Event().wait()
    raise AssertionError("nobody sets the event")
