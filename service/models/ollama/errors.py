"""What an Ollama failure means: one table from (status, text) to the errors of `model.py`.

The status alone says little: a caller's mistake can be a 500, a failure a 200. So the texts of both engine generations
(<= 0.24: in-process runner; >= 0.30: a llama-server child, whose own JSON may be inside the error string) decide first,
and the status only if no text matches. Messages are this module's own: a server's text may quote a prompt, so none of
it is passed on.

    ModelError
    ├── ModelUnavailable
    │   ├── AnswerEncoded    the answer is compressed, although no encoding was requested
    │   ├── FirstByteLate    the host did not start its answer in time
    │   ├── HostUnreachable  no connection: refused, unknown name, TLS, or timeout; not asked
    │   ├── CircuitOpen      the host failed too often recently; not asked
    │   └── QueueFull        too many calls wait for the host; not asked
    └── ModelRefused
        └── HostRefused      the host refuses any such request; another host may not
"""

from __future__ import annotations

import email.utils
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from service.models.model import (
    AnswerLooped,
    ModelError,
    ModelMissing,
    ModelRefused,
    ModelUnavailable,
    PromptTruncated,
)
from service.models.ollama.fields import NotAnObject, count_of, read_object

__all__ = [
    "AnswerEncoded",
    "CircuitOpen",
    "FirstByteLate",
    "HostRefused",
    "HostUnreachable",
    "QueueFull",
    "classify_status",
    "classify_stream_error",
    "classify_transport",
    "retry_after_s",
]

RATE_LIMIT_RETRY_S = 60.0
"""When to retry after a 429 without Retry-After: cloud limits last minutes to days, never milliseconds."""

RETRY_AFTER_MAX_S = 86_400.0


class AnswerEncoded(ModelUnavailable):
    """The host compressed its answer, although no encoding was requested."""


class FirstByteLate(ModelUnavailable):
    """The host did not start its answer in time, and may still be reading the prompt."""


class HostUnreachable(ModelUnavailable):
    """No connection to the host."""

    asked = False


class CircuitOpen(ModelUnavailable):
    """The host failed too often recently."""

    asked = False
    call_made = False


class QueueFull(ModelUnavailable):
    """Too many calls already wait for the host."""

    asked = False
    call_made = False


class HostRefused(ModelRefused):
    """The host refuses any such request; another host may accept it."""

    asked = False


@dataclass(frozen=True, slots=True)
class _Text:
    """A known error text and its meaning.

    Attributes:
        piece: A substring of the text, in lower case.
        error: The error to raise.
        says: The message, in our own words.
    """

    piece: str
    error: type[ModelError]
    says: str


_OVERFLOW = "the prompt is longer than the model's context"
_SCHEMA = "the server cannot turn the schema into a grammar"
_OPTION = "the server does not accept an option of the request"
_ABILITY = "the model cannot do what was asked"
_INCOMPATIBLE = "the server cannot load the model; it may need a newer version"
_LOAD = "the server failed to load the model, perhaps for lack of memory"
_CRASH = "the model's process crashed"
_BUSY = "the server is busy"

# First match wins. Texts without a mark occur in both generations.
_TEXTS: tuple[_Text, ...] = (
    _Text("exceed_context_size_error", PromptTruncated, _OVERFLOW),  # >= 0.30
    _Text("exceeds the available context", PromptTruncated, _OVERFLOW),  # >= 0.30
    _Text("longer than the context length", PromptTruncated, _OVERFLOW),  # >= 0.30
    _Text("input length exceeds the context length", PromptTruncated, _OVERFLOW),  # 0.12.4 to 0.24
    _Text("exceeds maximum context length", PromptTruncated, _OVERFLOW),
    _Text("try pulling it first", ModelMissing, "the host does not have the model"),
    _Text("failed to parse grammar", ModelRefused, _SCHEMA),  # >= 0.30
    _Text("failed to initialize samplers", ModelRefused, _SCHEMA),  # >= 0.30
    _Text("json schema conversion failed", ModelRefused, _SCHEMA),  # >= 0.30
    _Text("failed to load model vocabulary required for format", ModelRefused, _SCHEMA),  # <= 0.24
    _Text("invalid json schema in format", ModelRefused, _SCHEMA),
    _Text("invalid format", ModelRefused, _OPTION),
    _Text("must be of type", ModelRefused, _OPTION),
    _Text("does not support", ModelRefused, _ABILITY),
    _Text("template:", ModelRefused, "the model's chat template does not accept the messages"),
    _Text("may be incompatible with your version", HostRefused, _INCOMPATIBLE),
    _Text("unknown model architecture", HostRefused, _INCOMPATIBLE),
    _Text("out-of-memory", ModelUnavailable, _LOAD),  # >= 0.30
    _Text("process has terminated", ModelUnavailable, _LOAD),
    _Text("process no longer running", ModelUnavailable, _LOAD),
    _Text("timed out waiting for llama", ModelUnavailable, _LOAD),
    _Text("requires more system memory", ModelUnavailable, _LOAD),  # <= 0.24
    _Text("memory layout cannot be allocated", ModelUnavailable, _LOAD),  # <= 0.24
    _Text("memory for model", ModelUnavailable, _LOAD),  # <= 0.24
    _Text("model failed to load", ModelUnavailable, _LOAD),  # <= 0.24
    _Text("failed to load model", ModelUnavailable, _LOAD),
    _Text("runner has unexpectedly stopped", ModelUnavailable, _CRASH),
    _Text("error was encountered while running", ModelUnavailable, _CRASH),
    _Text("error reading ll", ModelUnavailable, _CRASH),
    _Text("unexpected server status", ModelUnavailable, _CRASH),
    _Text("repeat limit", AnswerLooped, "the answer repeated itself until the server stopped it"),
    _Text("maximum pending requests", ModelUnavailable, _BUSY),
    _Text("no slots available", ModelUnavailable, _BUSY),
    _Text("loading model", ModelUnavailable, _BUSY),
)

_STATUSES: Mapping[int, tuple[type[ModelError], str]] = {
    401: (HostRefused, "the host requires a valid bearer token"),
    403: (HostRefused, "the host forbids the request"),
    404: (HostRefused, "the path is unknown there: not an Ollama server, or a wrong base path"),
    405: (HostRefused, "the method is unknown there: not an Ollama server, or a wrong base path"),
    408: (ModelUnavailable, "the host waited too long for the request"),
    413: (ModelRefused, "the request is too large for the host"),
    425: (ModelUnavailable, _BUSY),
    429: (ModelUnavailable, "the host limits the request rate"),
    499: (ModelUnavailable, "the host gave up on the request"),
    501: (HostRefused, "the host does not support the operation"),
}


def classify_status(host: str, model: str, status: int, body: bytes, *, retry_after: float | None) -> ModelError:
    """The error for a status other than 200. `body` may be cut off where the caller stopped reading."""
    text, is_json = _error_text(body)
    if status == 404 and is_json and "model" in text and "not found" in text:
        return ModelMissing(f"{host}: no model {model!r} on this host")
    if (known := _known(text)) is not None:
        return _build(known, host, f"HTTP {status}", text, retry_after)
    error, says = _STATUSES.get(status, _by_hundred(status))
    if status == 403 and not body.strip():
        says += "; an empty 403 is Ollama's check for foreign Host headers"
    if status == 429 and retry_after is None:
        retry_after = RATE_LIMIT_RETRY_S
    message = f"{host}: {says} (HTTP {status})"
    return error(message, retry_after_s=retry_after) if issubclass(error, ModelUnavailable) else error(message)


def classify_stream_error(host: str, error_text: str) -> ModelError:
    """The error for an `{"error": ...}` line inside a 200."""
    text = error_text.lower()
    known = _known(text)
    if known is None:
        return ModelUnavailable(f"{host}: the answer broke off with an unknown error")
    return _build(known, host, "mid-stream", text, None)


# Most specific types first: the first match decides the error and its message.
_TRANSPORT: tuple[tuple[type[Exception], type[ModelUnavailable], str], ...] = (
    (httpx.ConnectTimeout, HostUnreachable, "timed out while connecting"),
    (httpx.PoolTimeout, HostUnreachable, "timed out waiting for a free connection"),
    (httpx.WriteTimeout, ModelUnavailable, "timed out while sending the request"),
    (httpx.ReadTimeout, ModelUnavailable, "timed out waiting for the answer"),
    (httpx.ConnectError, HostUnreachable, "connection refused, unresolvable name or failed TLS"),
    (httpx.RemoteProtocolError, ModelUnavailable, "the connection closed early or does not speak HTTP"),
    (httpx.NetworkError, ModelUnavailable, "the connection broke"),
    (httpx.HTTPError, ModelUnavailable, "the request failed in transit"),
)


def classify_transport(host: str, error: httpx.HTTPError) -> ModelUnavailable:
    """The error for a failure below HTTP. Omits its text, which may contain addresses and nothing useful."""
    failure, says = next((failure, says) for kind, failure, says in _TRANSPORT if isinstance(error, kind))
    return failure(f"{host}: {says}")


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that Retry-After asks for; None without one. A date counts from the response's own Date header."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value), RETRY_AFTER_MAX_S)
    try:
        until = email.utils.parsedate_to_datetime(value)
        sent = email.utils.parsedate_to_datetime(headers.get("date", ""))
        wait_s = (until - sent).total_seconds()
    except (ValueError, TypeError):
        return None
    return min(max(wait_s, 0.0), RETRY_AFTER_MAX_S)


def _build(known: _Text, host: str, where: str, text: str, retry_after: float | None) -> ModelError:
    if issubclass(known.error, ModelUnavailable):
        return known.error(f"{host}: {known.says} ({where})", retry_after_s=retry_after)
    if not issubclass(known.error, PromptTruncated):
        return known.error(f"{host}: {known.says} ({where})")
    prompt, context = _token_figures(text)
    figures = f", {prompt} prompt tokens, context {context}" if prompt and context else ""
    return known.error(f"{host}: {known.says} ({where}{figures})", prompt_tokens=prompt, context=context)


def _known(text: str) -> _Text | None:
    return next((row for row in _TEXTS if row.piece in text), None)


def _by_hundred(status: int) -> tuple[type[ModelError], str]:
    if status >= 500:
        return ModelUnavailable, "the host failed"
    if status >= 400:
        return ModelRefused, "the host refuses the request"
    return HostRefused, "the host returned a redirect or no content; redirects are not followed"


def _error_text(body: bytes) -> tuple[str, bool]:
    """The error string in lower case, and whether the body was in Ollama's JSON form."""
    text = body.decode("utf-8", "replace")
    try:
        error = read_object(body)["error"]
    except (NotAnObject, KeyError):
        return text.lower(), False
    return (error if isinstance(error, str) else json.dumps(error)).lower(), True


def _token_figures(text: str) -> tuple[int | None, int | None]:
    """Prompt and context size from llama-server's own error JSON, which Ollama passes on inside its error string."""
    start = text.find("{")
    if start < 0:
        return None, None
    try:
        parsed = read_object(text[start:].encode())
    except NotAnObject:
        return None, None
    inner = parsed.get("error", parsed)
    figures: dict[str, Any] = inner if isinstance(inner, dict) else {}
    return count_of(figures.get("n_prompt_tokens")), count_of(figures.get("n_ctx"))
