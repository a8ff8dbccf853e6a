"""Model servers that mean harm: answers without end, answers that inflate, answers that break their readers."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

from tests.support.ollama_behaviour import Behaviour

ATTACK_PATH = "/attack"
"""The path where a fake in another process counts requests for an answer and bytes it pumped; no Ollama has it."""

PACKET_BYTES = 60_000
CHUNK_BYTES = 6
"""A chunk of one byte with all that is around it."""
BOMB_BYTES = 1 << 30
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"
_GZIP_TAIL = b"\x03\x00" + bytes(8)


def _head(*headers: str) -> bytes:
    lines = ("HTTP/1.1 200 OK", "content-type: application/x-ndjson", *headers)
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


def _endless(*lines: object) -> Behaviour:
    """Return these lines again and again, a packet full of them in a chunk."""
    text = b"".join((b"" if line is None else json.dumps(line).encode()) + b"\n" for line in lines)
    packet = text * (PACKET_BYTES // len(text))
    chunk = b"%x\r\n%s\r\n" % (len(packet), packet)
    return Behaviour(wire=_head("transfer-encoding: chunked"), wire_again=chunk)


def _bomb() -> bytes:
    """BOMB_BYTES of zeros as gzip, at once: a piece that was flushed by itself can be repeated."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    piece = deflate.compress(bytes(1 << 20)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return _GZIP_HEAD + piece * (BOMB_BYTES >> 20) + _GZIP_TAIL


def whole(body: bytes, *, encoding: str = "") -> Behaviour:
    """An answer of these bytes and status 200."""
    named = [f"content-encoding: {encoding}"] if encoding else []
    return Behaviour(wire=_head(f"content-length: {len(body)}", *named) + body)


def _thought(text: str) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": "", "thinking": text}, "done": False}


HOSTILE: dict[str, Behaviour] = {
    "endless-lines": _endless({}),
    "endless-blanks": _endless(None),
    "endless-thoughts": _endless(*(_thought(f"hm {number}") for number in range(10))),
    "endless-chunks": Behaviour(
        wire=_head("transfer-encoding: chunked"), wire_again=b"1\r\n \r\n" * (PACKET_BYTES // CHUNK_BYTES)
    ),
    "endless-continue": Behaviour(wire_again=b"HTTP/1.1 100 Continue\r\n\r\n" * (PACKET_BYTES // 25)),
    "gzip": whole(_bomb(), encoding="gzip"),
    "gzip-twice": whole(gzip.compress(_bomb()), encoding="gzip, gzip"),
}
