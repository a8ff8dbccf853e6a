"""Signed tool envelopes: `{"payload": ..., "sig": ...}` around a tool's result.

The signature and the payload's bookkeeping mean nothing to a model, so counting, prompts and rendering see what
`unwrap_envelope` returns. The log keeps the envelope.
"""

from __future__ import annotations

import json
from typing import Any, Final

from abridged.service.text import nested_json

_KEYS: Final = frozenset({"payload", "sig"})


def unwrap_envelope(content: str) -> str:
    """The tool result inside a signed envelope; any other content is returned unchanged."""
    if not _may_be_envelope(content):
        return content
    envelope = _parsed(content)
    if not isinstance(envelope, dict) or envelope.keys() != _KEYS:
        return content
    payload = envelope["payload"]
    if isinstance(payload, str):
        inner = _parsed(payload)
        payload = inner if isinstance(inner, dict) and "result" in inner else payload
    if isinstance(payload, dict) and "result" in payload:
        payload = payload["result"]
    text = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
    # JSON can spell halves of surrogate pairs, which no encoding of text can carry on.
    return text.encode("utf-8", "replace").decode("utf-8")


def _may_be_envelope(content: str) -> bool:
    """A cheap test that spares ordinary messages the JSON parser."""
    return '"sig"' in content and '"payload"' in content and content.lstrip()[:1] == "{"


def _parsed(text: str) -> Any:
    try:
        return nested_json.parsed(text)
    except (ValueError, RecursionError):
        return None
