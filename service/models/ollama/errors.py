"""What an Ollama failure means: one table from (status, text) to the error family of `model.py`.

Status alone says little: a caller's mistake can be a 500, a failure a 200. So the texts decide first, those of both
engine generations (<= 0.24: in-process runner; >= 0.30: a llama-server child, whose own JSON may sit inside the
error string), and the status only when no text is known. Messages are this module's words: a server's text may
quote a prompt, so none of it goes on.

    ModelError
    ├── ModelUnavailable
    │   ├── AnswerEncoded    the answer is compressed, though no encoding was asked for
    │   ├── FirstByteLate    the host did not begin its answer in time
    │   ├── HostUnreachable  no connection: refused, no such name, TLS, or not in time; not asked
    │   ├── CircuitOpen      the host failed too often lately; not asked
    │   └── QueueFull        too many callers wait for the host; not asked
    └── ModelRefused
        └── HostRefused      the host refuses, whatever the request; another host may not
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
from service.models.ollama.json import NotAnObject, count_of, read_object

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
"""When to ask again after a 429 without Retry-After: cloud limits last minutes to days, never milliseconds."""

RETRY_AFTER_MAX_S = 86_400.0


class AnswerEncoded(ModelUnavailable):
    """The host compresses its answers, though no encoding was asked for."""


class FirstByteLate(ModelUnavailable):
    """The host did not begin its answer in time, and perhaps still reads the prompt."""


class HostUnreachable(ModelUnavailable):
    """There is no connection to the host."""

    asked = False


class CircuitOpen(ModelUnavailable):
    """The host failed too often lately."""

    asked = False
    call_made = False


class QueueFull(ModelUnavailable):
    """Too many callers already wait for the host."""

    asked = False
    call_made = False


class HostRefused(ModelRefused):
    """The host refuses whoever asks this way; another host may answer."""

    asked = False


@dataclass(frozen=True, slots=True)
class _Text:
    """A piece of a known error text, in lower case, and what it means."""

    piece: str
    error: type[ModelError]
    says: str


_OVERFLOW = "the prompt is longer than the model's context"
_SCHEMA = "the server cannot turn the schema into a grammar"
_OPTION = "the server does not accept an option of the request"
_ABILITY = "the model cannot do what was asked"
_INCOMPATIBLE = "the server cannot load the model; it may need a newer version"
_LOAD = "the server failed to load the model, perhaps for want of memory"
_CRASH = "the model's process broke off"
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
    _Text("template:", ModelRefused, "the model's chat template does not take the messages"),
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
    401: (HostRefused, "the host wants a valid bearer token"),
    403: (HostRefused, "the host forbids the request"),
    404: (HostRefused, "the path is unknown there: not an Ollama server, or a wrong base path"),
    405: (HostRefused, "the method is unknown there: not an Ollama server, or a wrong base path"),
    408: (ModelUnavailable, "the host waited too long for the request"),
    413: (ModelRefused, "the request is too large for the host"),
    425: (ModelUnavailable, _BUSY),
    429: (ModelUnavailable, "the host limits the rate of requests"),
    499: (ModelUnavailable, "the host gave the request up"),
    501: (HostRefused, "the host does not offer the operation"),
}


def classify_status(host: str, model: str, status: int, body: bytes, *, retry_after: float | None) -> ModelError:
    """The error for an answer that is not a 200. `body` is what came, cut wherever the caller stopped reading."""
    text, is_json = _error_text(body)
    if status == 404 and is_json and "model" in text and "not found" in text:
        return ModelMissing(f"{host}: no model {model!r} there")
    if (known := _known(text)) is not None:
        return _build(known, host, f"HTTP {status}", text, retry_after)
    error, says = _STATUSES.get(status, _by_hundred(status))
    if status == 403 and not body.strip():
        says += "; an empty 403 is Ollama's guard against foreign Host headers"
    if status == 429 and retry_after is None:
        retry_after = RATE_LIMIT_RETRY_S
    message = f"{host}: {says} (HTTP {status})"
    return error(message, retry_after_s=retry_after) if issubclass(error, ModelUnavailable) else error(message)


def classify_stream_error(host: str, error_text: str) -> ModelError:
    """The error for an `{"error": ...}` line inside a 200."""
    text = error_text.lower()
    known = _known(text)
    if known is None:
        return ModelUnavailable(f"{host}: the answer broke off with an error of unknown kind")
    return _build(known, host, "mid-stream", text, None)


# Most specific types first: the first that fits gives the error and its words.
_TRANSPORT: tuple[tuple[type[Exception], type[ModelUnavailable], str], ...] = (
    (httpx.ConnectTimeout, HostUnreachable, "no connection in time"),
    (httpx.PoolTimeout, HostUnreachable, "no free connection in time"),
    (httpx.WriteTimeout, ModelUnavailable, "the request could not be sent in time"),
    (httpx.ReadTimeout, ModelUnavailable, "no answer in time"),
    (httpx.ConnectError, HostUnreachable, "connection refused, unresolvable name or failed TLS"),
    (httpx.RemoteProtocolError, ModelUnavailable, "the connection ended early or does not speak HTTP"),
    (httpx.NetworkError, ModelUnavailable, "the connection broke"),
    (httpx.HTTPError, ModelUnavailable, "the request failed on its way"),
)


def classify_transport(host: str, error: httpx.HTTPError) -> ModelUnavailable:
    """The error for a failure below HTTP. Its text stays out: it may hold addresses, never anything needed."""
    failure, says = next((failure, says) for kind, failure, says in _TRANSPORT if isinstance(error, kind))
    return failure(f"{host}: {says}")


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that Retry-After asks for; a date counts from the answer's own Date, so no clock of ours is needed."""
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
    return HostRefused, "the host answers with a redirect or without content; redirects are not followed"


def _error_text(body: bytes) -> tuple[str, bool]:
    """The error string in lower case, and whether the body was Ollama's JSON form."""
    text = body.decode("utf-8", "replace")
    try:
        error = read_object(body)["error"]
    except (NotAnObject, KeyError):
        return text.lower(), False
    return (error if isinstance(error, str) else json.dumps(error)).lower(), True


def _token_figures(text: str) -> tuple[int | None, int | None]:
    """Prompt and context size out of llama-server's own error JSON, which Ollama passes on inside its string."""
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
