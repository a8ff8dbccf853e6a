"""HTTP connections that read a little at a time, so that no server can block the event loop.

Invariant: one turn of the loop parses at most READ_BYTES of a response, and everything before a body is at most
HEAD_BYTES_MAX. httpcore reads 64 KiB at once, parses interim responses and chunks without pausing, and takes any number
of interim responses: thousands take half a second, and a server that never stops sending them keeps the interpreter
from every thread that commits or reads.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import httpcore
import httpx

READ_BYTES = 2_048

HEAD_BYTES_MAX = 65_536
"""Status, headers, and interim responses before them."""


@dataclass(slots=True)
class _Head:
    """The bytes of a response whose head is not complete."""

    size: int = 0

    def grow(self, size: int) -> None:
        self.size += size
        if self.size > HEAD_BYTES_MAX:
            raise httpcore.RemoteProtocolError("the head of the response is too long")


_head: ContextVar[_Head | None] = ContextVar("head", default=None)
"""Set while the running task waits for a response; bodies are bounded by whoever reads them."""


class SmallReads(httpx.AsyncHTTPTransport):
    """httpx's transport, without proxies. Loads certificates, which is slow, only if `encrypted`."""

    def __init__(self, *, encrypted: bool, connections_max: int) -> None:
        super().__init__(verify=False, trust_env=False)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=httpx.create_ssl_context(trust_env=False) if encrypted else None,
            max_connections=connections_max,
            keepalive_expiry=httpx.Limits().keepalive_expiry,
            network_backend=_Network(),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        waiting = _head.set(_Head())
        try:
            return await super().handle_async_request(request)
        finally:
            _head.reset(waiting)


class _Network(httpcore.AnyIOBackend):
    async def connect_tcp(self, *args: Any, **kwargs: Any) -> httpcore.AsyncNetworkStream:
        return _Stream(await super().connect_tcp(*args, **kwargs))


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, *args: Any, **kwargs: Any) -> bytes:
        # Waits a turn of the loop, even if bytes are available.
        data = await self._stream.read(min(max_bytes, READ_BYTES), *args, **kwargs)
        if (head := _head.get()) is not None:
            head.grow(len(data))
        return data

    async def write(self, *args: Any, **kwargs: Any) -> None:
        await self._stream.write(*args, **kwargs)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(self, *args: Any, **kwargs: Any) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._stream.start_tls(*args, **kwargs))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
