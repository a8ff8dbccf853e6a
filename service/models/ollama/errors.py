"""The meaning of Ollama's failures: one table from (status, text) to the errors of `model.py`.

The status alone says little: a caller's mistake can be a 500, a failure a 200. The texts decide first, of both engine
generations (<= 0.24: in-process runner; >= 0.30: a llama-server child, whose own JSON may be inside the error string),
and the status only if no text matches. Messages are this module's own: a server's text may quote a prompt, so none of
it is passed on.
"""

from __future__ import annotations

import json

from abridged.service.models.http.errors import PROMPT_TOO_LONG, SERVER_BUSY, ErrorTable, HostRefused, KnownText
from abridged.service.models.http.fields import NotAnObject, read_object
from abridged.service.models.model import (
    AnswerLooped,
    ModelError,
    ModelMissing,
    ModelRefused,
    ModelUnavailable,
    PromptTruncated,
)

_SCHEMA = "the server cannot turn the schema into a grammar"
_OPTION = "the server does not accept an option of the request"
_ABILITY = "the model cannot do what was asked"
_INCOMPATIBLE = "the server cannot load the model; it may need a newer version"
_LOAD = "the server failed to load the model, perhaps for lack of memory"
_CRASH = "the model's process crashed"

# First match wins. Texts without a mark occur in both generations.
_TEXTS: tuple[KnownText, ...] = (
    KnownText("exceed_context_size_error", PromptTruncated, PROMPT_TOO_LONG),  # >= 0.30
    KnownText("exceeds the available context", PromptTruncated, PROMPT_TOO_LONG),  # >= 0.30
    KnownText("longer than the context length", PromptTruncated, PROMPT_TOO_LONG),  # >= 0.30
    KnownText("input length exceeds the context length", PromptTruncated, PROMPT_TOO_LONG),  # 0.12.4 to 0.24
    KnownText("exceeds maximum context length", PromptTruncated, PROMPT_TOO_LONG),
    KnownText("try pulling it first", ModelMissing, "the host does not have the model"),
    KnownText("failed to parse grammar", ModelRefused, _SCHEMA),  # >= 0.30
    KnownText("failed to initialize samplers", ModelRefused, _SCHEMA),  # >= 0.30
    KnownText("json schema conversion failed", ModelRefused, _SCHEMA),  # >= 0.30
    KnownText("failed to load model vocabulary required for format", ModelRefused, _SCHEMA),  # <= 0.24
    KnownText("invalid json schema in format", ModelRefused, _SCHEMA),
    KnownText("invalid format", ModelRefused, _OPTION),
    KnownText("must be of type", ModelRefused, _OPTION),
    KnownText("does not support", ModelRefused, _ABILITY),
    KnownText("template:", ModelRefused, "the model's chat template does not accept the messages"),
    KnownText("may be incompatible with your version", HostRefused, _INCOMPATIBLE),
    KnownText("unknown model architecture", HostRefused, _INCOMPATIBLE),
    KnownText("out-of-memory", ModelUnavailable, _LOAD),  # >= 0.30
    KnownText("process has terminated", ModelUnavailable, _LOAD),
    KnownText("process no longer running", ModelUnavailable, _LOAD),
    KnownText("timed out waiting for llama", ModelUnavailable, _LOAD),
    KnownText("requires more system memory", ModelUnavailable, _LOAD),  # <= 0.24
    KnownText("memory layout cannot be allocated", ModelUnavailable, _LOAD),  # <= 0.24
    KnownText("memory for model", ModelUnavailable, _LOAD),  # <= 0.24
    KnownText("model failed to load", ModelUnavailable, _LOAD),  # <= 0.24
    KnownText("failed to load model", ModelUnavailable, _LOAD),
    KnownText("runner has unexpectedly stopped", ModelUnavailable, _CRASH),
    KnownText("error was encountered while running", ModelUnavailable, _CRASH),
    KnownText("error reading ll", ModelUnavailable, _CRASH),
    KnownText("unexpected server status", ModelUnavailable, _CRASH),
    KnownText("repeat limit", AnswerLooped, "the answer repeated itself until the server stopped it"),
    KnownText("maximum pending requests", ModelUnavailable, SERVER_BUSY),
    KnownText("no slots available", ModelUnavailable, SERVER_BUSY),
    KnownText("loading model", ModelUnavailable, SERVER_BUSY),
)

_TABLE = ErrorTable(
    _TEXTS,
    {
        401: (HostRefused, "the host requires a valid bearer token"),
        404: (HostRefused, "the path is unknown there: not an Ollama server, or a wrong base path"),
        405: (HostRefused, "the method is unknown there: not an Ollama server, or a wrong base path"),
    },
)


def classify_status(host: str, model: str, status: int, body: bytes, retry_after: float | None) -> ModelError:
    """The error for a status other than 200. `body` may be cut off where the caller stopped reading."""
    text, is_json = _error_text(body)
    if status == 404 and is_json and "model" in text and "not found" in text:
        return ModelMissing(f"{host}: no model {model!r} on this host")
    if (known := _TABLE.of_text(host, f"HTTP {status}", text, retry_after=retry_after)) is not None:
        return known
    rebinding = status == 403 and not body.strip()
    also = "; an empty 403 is Ollama's check for foreign Host headers" if rebinding else ""
    return _TABLE.of_status(host, status, retry_after=retry_after, also=also)


def classify_stream_error(host: str, error_text: str) -> ModelError:
    """The error for an `{"error": ...}` line inside a 200."""
    return _TABLE.of_stream(host, error_text.lower())


def _error_text(body: bytes) -> tuple[str, bool]:
    """The error string in lower case, and whether the body was in Ollama's JSON form."""
    text = body.decode("utf-8", "replace")
    try:
        error = read_object(body)["error"]
    except (NotAnObject, KeyError):
        return text.lower(), False
    return (error if isinstance(error, str) else json.dumps(error)).lower(), True
