"""A minimal HTTP/1.1 server whose replies can go wrong at any byte; it notices a client that leaves.

Parts that the fake Ollama needs: bodies with Content-Length or chunked, keep-alive, no pipelining.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

_REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed"}


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON; an empty object for an empty body."""
        return json.loads(self.body) if self.body else {}


class HttpReply:
    """The reply to one request: `full`, or `start`, `write`..., `finish`."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.piece_bytes: int | None = None

    async def full(self, status: int, body: bytes, content_type: str, headers: Mapping[str, str] | None = None) -> None:
        """A whole reply at once."""
        extra = {"content-length": str(len(body)), **(headers or {})}
        await self._send(self._head(status, content_type, extra) + body)

    async def json(self, status: int, value: object, headers: Mapping[str, str] | None = None) -> None:
        """A whole JSON reply."""
        await self.full(status, json.dumps(value).encode(), "application/json; charset=utf-8", headers)

    async def start(self, status: int, content_type: str, headers: Mapping[str, str] | None = None) -> None:
        """The head of a chunked reply."""
        await self._send(self._head(status, content_type, {"transfer-encoding": "chunked", **(headers or {})}))

    async def write(self, data: bytes) -> None:
        """One chunk of the body."""
        await self._send(b"%x\r\n%s\r\n" % (len(data), data))

    async def ping(self, data: bytes, *, times: int, every_s: float) -> None:
        """The same chunk again and again, as servers and proxies send it while there is nothing to say."""
        for _ in range(times):
            await self.write(data)
            await asyncio.sleep(every_s)

    async def finish(self) -> None:
        """The orderly end of a chunked reply."""
        await self._send(b"0\r\n\r\n")

    async def raw(self, wire: bytes) -> None:
        """Bytes as they are, HTTP or not."""
        await self._send(wire)

    def abort(self) -> None:
        """Drop the connection at once."""
        self._writer.transport.abort()

    async def _send(self, wire: bytes) -> None:
        step = self.piece_bytes or len(wire)
        for start in range(0, len(wire), step):
            self._writer.write(wire[start : start + step])
            await self._writer.drain()
            if self.piece_bytes:
                # One turn of the loop, so that the pieces leave as packets of their own.
                await asyncio.sleep(0)

    def _head(self, status: int, content_type: str, headers: Mapping[str, str]) -> bytes:
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}"]
        if content_type:
            lines.append(f"content-type: {content_type}")
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


Handler = Callable[[HttpRequest, HttpReply], Awaitable[None]]


class HttpServer:
    """Serves `handler` on loopback; cancels it when its client leaves."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self, port: int = 0) -> None:
        """Listen; port 0 takes a free one."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and drop every connection."""
        if self._server is not None:
            self._server.close()
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._converse(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ahead = b""
        while True:
            request = await _read_request(reader, ahead)
            handling = asyncio.ensure_future(self._handler(request, HttpReply(writer)))
            listening = asyncio.ensure_future(reader.read(1))
            try:
                await asyncio.wait({handling, listening}, return_when=asyncio.FIRST_COMPLETED)
                if not handling.done() and listening.result() == b"":
                    return
                await handling
            finally:
                for task in (handling, listening):
                    task.cancel()
                ended = await asyncio.gather(handling, listening, return_exceptions=True)
            if isinstance(ended[1], bytes):
                if not ended[1]:
                    return
                ahead = ended[1]
            else:
                ahead = b""


async def _read_request(reader: asyncio.StreamReader, ahead: bytes) -> HttpRequest:
    head = ahead + await reader.readuntil(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").rstrip().split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    if "chunked" in headers.get("transfer-encoding", ""):
        body = await _read_chunks(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return HttpRequest(method, target.partition("?")[0], headers, body)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readline()).strip(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body
