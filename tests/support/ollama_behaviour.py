"""Faults of an Ollama server, as values: tests pick one by name or build their own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tests.support.ollama_manner import CRASH_TEXT


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reply with a status of its own. A `chunked` one has no length, as errors of a streamed request have none."""

    status: int
    body: bytes = b""
    content_type: str = "application/json; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)
    chunked: bool = False


def json_error(status: int, text: str, headers: Mapping[str, str] | None = None) -> Refusal:
    """A refusal in Ollama's own form."""
    return Refusal(status, json.dumps({"error": text}).encode(), headers=headers or {})


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Deviations of /api/chat and /api/generate; counts are of streamed chunks.

    `ping` goes out after `ping_after` pieces, `pings` times, `ping_s` apart.

    `requests` is the number of first requests for inference that they concern; `everywhere` extends `refusal` and
    `hang` to every path. `loop_token` follows the answer's first words without end. `wire` goes out as it is in place
    of an answer; `wire_again` follows it until the client leaves, or so often, and then the connection is dropped.
    """

    requests: int | None = None
    everywhere: bool = False
    refusal: Refusal | None = None
    hang: bool = False
    headers_delay_s: float = 0.0
    chunk_delay_s: float = 0.0
    piece_bytes: int | None = None
    lines_per_packet: int = 1
    stall_after: int | None = None
    drip_after: int | None = None
    error_after: int | None = None
    error_text: str = "an error was encountered while running the model: unexpected EOF"
    eof_after: int | None = None
    abort_after: int | None = None
    garbage_after: int | None = None
    never_done: bool = False
    thinking_only: bool = False
    leaked_marker: str = ""
    sorted_keys: bool = False
    silent_cut: bool = False
    tells_prompt_count: bool = True
    ping: bytes = b"\n"
    ping_after: int | None = None
    ping_s: float = 0.01
    pings: int = 1_000_000
    endless: bool = False
    loop_token: str = ""
    lingers: bool = False
    wire: bytes = b""
    wire_again: bytes = b""
    wire_again_max: int = 100_000


NORMAL = Behaviour()

_NESTED = json.dumps({"error": {"code": 400, "message": "failed to parse grammar", "type": "invalid_request_error"}})

BEHAVIOURS: dict[str, Behaviour] = {
    "normal": NORMAL,
    "hang": Behaviour(hang=True),
    "dead": Behaviour(hang=True, everywhere=True),
    "slow-headers": Behaviour(headers_delay_s=0.2),
    "trickle": Behaviour(chunk_delay_s=0.01),
    "stall": Behaviour(stall_after=2),
    "drip": Behaviour(drip_after=2),
    "split": Behaviour(piece_bytes=1),
    "packed": Behaviour(lines_per_packet=7),
    "error-midway": Behaviour(error_after=2),
    "eof": Behaviour(eof_after=2),
    "abort": Behaviour(abort_after=2),
    "abort-at-once": Behaviour(abort_after=0),
    "garbage": Behaviour(garbage_after=2),
    "never-done": Behaviour(never_done=True),
    "thinking-only": Behaviour(thinking_only=True),
    "marker": Behaviour(leaked_marker="<|im_end|>"),
    "sorted-keys": Behaviour(sorted_keys=True),
    "silent-cut": Behaviour(silent_cut=True),
    "no-count": Behaviour(tells_prompt_count=False),
    "endless": Behaviour(endless=True),
    "token-loop": Behaviour(loop_token=" again"),
    "lingering": Behaviour(lingers=True),
    "busy": Behaviour(refusal=json_error(503, "server busy, please try again.  maximum pending requests exceeded")),
    "busy-once": Behaviour(
        requests=1, refusal=json_error(503, "server busy, please try again.  maximum pending requests exceeded")
    ),
    "rate-limit": Behaviour(refusal=json_error(429, "too many requests", {"retry-after": "7"})),
    "bad-gateway": Behaviour(refusal=Refusal(502, b"<html>bad gateway</html>", "text/html")),
    "bad-schema": Behaviour(refusal=json_error(400, _NESTED)),
    "bad-option": Behaviour(refusal=json_error(500, 'option "num_ctx" must be of type integer')),
    "crash": Behaviour(refusal=json_error(500, CRASH_TEXT)),
    "crash-chunked": Behaviour(refusal=replace(json_error(500, CRASH_TEXT), chunked=True)),
    "unauthorized": Behaviour(refusal=json_error(401, "unauthorized"), everywhere=True),
    "forbidden": Behaviour(refusal=Refusal(403, b"", ""), everywhere=True),
    "not-ollama": Behaviour(refusal=Refusal(404, b"404 page not found", "text/plain"), everywhere=True),
    "redirect": Behaviour(refusal=Refusal(302, b"", "", {"location": "/elsewhere"}), everywhere=True),
}
