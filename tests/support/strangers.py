"""Many callers without a credential who begin to send and never end, frame by frame: no gRPC client is as fast."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from contextlib import suppress

STRANGERS = "50,000 calls that hold 15.5 kB each, no credential"

CONNECTIONS = 50
CALLS = 1_000
"""Calls of each connection."""

REQUEST = b"\0" + struct.pack(">I", 100_000) + bytes(15_495)
"""The beginning of a message of 100 kB."""

_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
_ACK = _END_STREAM = 1
_END_HEADERS = 4
_CALLS_AT_ONCE, _WINDOW = 3, 4
_WINDOW_DEFAULT = 65_535


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _header(name: str, value: str) -> bytes:
    """A header that no table knows, as HPACK writes it."""
    return b"\0" + b"".join(bytes((len(part),)) + part.encode() for part in (name, value))


_HEAD = b"".join(
    _header(name, value)
    for name, value in (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/abridged.v1.ConversationService/AppendMessages"),
        (":authority", "sidecar"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    )
)


async def strangers(address: str, *, seconds: float) -> Counter[str]:
    """Begin all these calls, as fast as the server's windows allow; how often each kind of end came in `seconds`."""
    ends: Counter[str] = Counter()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(*(_connection(address, ends) for _ in range(CONNECTIONS)))
    return ends


async def _connection(address: str, ends: Counter[str]) -> None:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0))
    window, settings = _WINDOW_DEFAULT, {_WINDOW: 0, _CALLS_AT_ONCE: CALLS}
    begun, ended = 0, set[int]()
    while len(ended) < CALLS:
        head = await reader.readexactly(9)
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:])
        payload = await reader.readexactly(int.from_bytes(head[:3]))
        if kind == _SETTINGS and not flags & _ACK:
            settings |= dict(struct.iter_unpack(">HI", payload))
            writer.write(_frame(_SETTINGS, _ACK, 0))
        elif kind == _PING and not flags & _ACK:
            writer.write(_frame(_PING, _ACK, 0, payload))
        elif kind == _WINDOW_UPDATE and not stream:
            window += int.from_bytes(payload)
        elif kind == _RESET or (kind == _HEADERS and flags & _END_STREAM):
            ends["reset" if kind == _RESET else "answered"] += stream not in ended
            ended.add(stream)
        sent = REQUEST[: settings[_WINDOW]]
        while sent and window >= len(sent) and begun < min(CALLS, len(ended) + settings[_CALLS_AT_ONCE]):
            number = 2 * begun + 1
            writer.write(_frame(_HEADERS, _END_HEADERS, number, _HEAD) + _frame(_DATA, 0, number, sent))
            begun, window = begun + 1, window - len(sent)
        await writer.drain()
