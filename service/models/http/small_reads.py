"""HTTP connections that read a little at a time, so that no server can block the event loop.

Invariant: one turn of the loop parses at most READ_BYTES of a response. httpcore reads 64 KiB at once and parses
interim responses and chunks without pausing: thousands of the smallest ones take half a second.
"""

from __future__ import annotations

from typing import Any

import httpcore
import httpx

__all__ = ["READ_BYTES", "SmallReads"]

READ_BYTES = 2_048


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


class _Network(httpcore.AnyIOBackend):
    async def connect_tcp(self, *args: Any, **kwargs: Any) -> httpcore.AsyncNetworkStream:
        return _Stream(await super().connect_tcp(*args, **kwargs))


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, *args: Any, **kwargs: Any) -> bytes:
        # Waits a turn of the loop, even if bytes are available.
        return await self._stream.read(min(max_bytes, READ_BYTES), *args, **kwargs)

    async def write(self, *args: Any, **kwargs: Any) -> None:
        await self._stream.write(*args, **kwargs)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(self, *args: Any, **kwargs: Any) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._stream.start_tls(*args, **kwargs))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
