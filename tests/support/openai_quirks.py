"""Differences and faults of servers with an OpenAI-compatible API, as values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.ollama_behaviour import Refusal


def openai_error(
    status: int,
    message: str,
    *,
    code: str | int | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Refusal:
    """A refusal in OpenAI's form."""
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code, **more}
    return Refusal(status, json.dumps({"error": error}).encode(), headers=headers or {})


@dataclass(frozen=True, slots=True)
class Quirks:
    """A server's ways; counts are of streamed pieces.

    `formats` are the kinds of `response_format` that it accepts, `lengths` whether a schema may have them, `limit` the
    only field for the longest answer that it knows (empty for any), `refused_fields` what it does not accept besides.
    `requests` is the number of first requests for inference that `refusal` and `hang` concern. `wire` goes out in place
    of an answer. `ping` goes out after `ping_after` pieces, `pings` times, `ping_s` apart.
    """

    formats: frozenset[str] = frozenset({"json_schema", "json_object", "text"})
    lengths: bool = True
    limit: str = ""
    refused_fields: frozenset[str] = frozenset()
    ignores_schema: bool = False
    key: str = ""
    lists_models: bool = True
    listed: Mapping[str, Any] = field(default_factory=dict)
    requests: int | None = None
    refusal: Refusal | None = None
    hang: bool = False
    says_model: str = ""
    finish: str = ""
    done: bool = True
    usage: bool = True
    prompt_tokens: int | None = None
    thinking_only: bool = False
    model_refuses: bool = False
    comments: bool = False
    piece_bytes: int | None = None
    error_after: int | None = None
    error: Any = field(default_factory=lambda: {"message": "The server had an error", "type": "server_error"})
    eof_after: int | None = None
    abort_after: int | None = None
    stall_after: int | None = None
    garbage_after: int | None = None
    ping: bytes = b": ping\n\n"
    ping_after: int | None = None
    ping_s: float = 0.01
    pings: int = 1_000_000
    endless: bool = False
    wire: bytes = b""


STRICT_OPENAI = Quirks(
    lengths=False,
    limit="max_completion_tokens",
    refused_fields=frozenset({"temperature", "repeat_penalty"}),
    says_model="gpt-fake-2026-01-31",
)
"""Quirks of OpenAI's reasoning models."""

QUIRKS: dict[str, Quirks] = {
    "normal": Quirks(),
    "strict-openai": STRICT_OPENAI,
    "objects-only": Quirks(formats=frozenset({"json_object"})),
    "no-format": Quirks(formats=frozenset()),
    "no-usage": Quirks(usage=False),
    "no-stream-options": Quirks(refused_fields=frozenset({"stream_options"})),
    "no-done": Quirks(done=False),
    "comments": Quirks(comments=True),
    "split": Quirks(piece_bytes=1),
}
