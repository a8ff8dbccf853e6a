"""The meaning of an OpenAI-compatible server's failures: one table from (status, text) to the errors of `model.py`.

Servers agree on statuses and hardly on texts, so the texts of those in use (OpenAI, llama.cpp, vLLM, Ollama, LiteLLM)
decide first. Some quote the request beside the error, FastAPI as `input`: its words are no part of the error.

    ModelError
    └── ModelRefused
        ├── FieldRefused    a field of the request is not accepted; a request without it may be
        └── HostRefused
            └── KeyRefused  the API key is missing, wrong, or not allowed to do this
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from abridged.service.models.http.errors import PROMPT_TOO_LONG, SERVER_BUSY, ErrorTable, HostRefused, KnownText
from abridged.service.models.http.fields import NotAnObject, count_of, read_object
from abridged.service.models.model import ModelError, ModelMissing, ModelRefused, ModelUnavailable, PromptTruncated

ERROR_STATUSES = range(400, 600)


class KeyRefused(HostRefused):
    """The server does not accept the API key."""


class FieldRefused(ModelRefused):
    """The server does not accept a field of the request. `fields` has those that its text names."""

    asked = False

    def __init__(self, message: str, *, fields: frozenset[str]) -> None:
        super().__init__(message)
        self.fields = fields


_MISSING = "the server does not have the model, or this key may not use it"
_FILTER = "the server's content filter refuses the prompt"
_QUOTA = "the account's quota is used up"

# First match wins.
_TEXTS: tuple[KnownText, ...] = (
    KnownText("exceed_context_size_error", PromptTruncated, PROMPT_TOO_LONG),  # llama.cpp
    KnownText("exceeds the available context", PromptTruncated, PROMPT_TOO_LONG),  # llama.cpp
    KnownText("context_length_exceeded", PromptTruncated, PROMPT_TOO_LONG),  # OpenAI
    KnownText("maximum context length", PromptTruncated, PROMPT_TOO_LONG),  # OpenAI, vLLM
    KnownText("prompt is too long", PromptTruncated, PROMPT_TOO_LONG),
    KnownText("insufficient_quota", HostRefused, _QUOTA),  # OpenAI, as a 429
    KnownText("model_not_found", ModelMissing, _MISSING),  # OpenAI, also as a 403
    KnownText("invalid model name", ModelMissing, _MISSING),  # LiteLLM, as a 400
    KnownText("try pulling it first", ModelMissing, _MISSING),  # Ollama
    KnownText("content_filter", ModelRefused, _FILTER),
    KnownText("content_policy_violation", ModelRefused, _FILTER),
    KnownText("invalid_api_key", KeyRefused, "the server does not accept the API key"),
    KnownText("loading model", ModelUnavailable, SERVER_BUSY),  # llama.cpp
    KnownText("overloaded", ModelUnavailable, SERVER_BUSY),
)

_TABLE = ErrorTable(
    _TEXTS,
    {
        401: (KeyRefused, "the server requires a valid API key"),
        403: (KeyRefused, "the server forbids the request to this key"),
        404: (HostRefused, "the path is unknown there: openai.url usually ends in /v1"),
        405: (HostRefused, "the method is unknown there: openai.url usually ends in /v1"),
    },
)

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "response_format": ("response_format", "json_schema", "json schema", "grammar", "structured output"),
    "max_tokens": ("max_completion_tokens",),
    "stream_options": ("stream_options",),
    "temperature": ("temperature",),
    "seed": ("seed",),
    "repeat_penalty": ("repeat_penalty",),
}
"""Texts of refusals, by the field that a request can do without. The text for `max_tokens` has to name the other
spelling: one that only says that the limit is too high means something else."""

_OWN_FIELDS = frozenset(
    {"error", "errors", "message", "param", "code", "type", "detail", "loc", "msg"}  # OpenAI, FastAPI
    | {"n_prompt_tokens", "n_ctx"}  # llama.cpp
    | {"metadata", "raw"}  # OpenRouter, of the server that it asked
)
_QUOTED = re.compile(r"""(?:["']input["']\s*:|\binput_value=).*""", re.DOTALL)
"""A request, quoted in a text: by vLLM, which writes a whole list of FastAPI's errors as a message, and by Pydantic."""


def classify_status(host: str, model: str, status: int, body: bytes, retry_after: float | None) -> ModelError:
    """The error for a status other than 200. `body` may be cut off where the caller stopped reading."""
    text, is_object = _read(body)
    if (known := _TABLE.of_text(host, f"HTTP {status}", text, retry_after=retry_after)) is not None:
        return known
    if status == 404 and is_object and "model" in text:
        return ModelMissing(f"{host}: no model {model!r} on this server")
    if status in (400, 422):
        fields = frozenset(name for name, pieces in _FIELDS.items() if any(piece in text for piece in pieces))
        if fields:
            return FieldRefused(f"{host}: the server does not accept {', '.join(sorted(fields))}", fields=fields)
    return _TABLE.of_status(host, status, retry_after=retry_after)


def classify_event(host: str, error: object) -> ModelError:
    """The error that a server reports inside a 200: by its text, else by the status in its `code`."""
    text = _text_of(error)
    code = count_of(error.get("code")) if isinstance(error, dict) else None
    known = _TABLE.of_text(host, "mid-stream", text, retry_after=None)
    if known is None and code is not None and code in ERROR_STATUSES:
        return _TABLE.of_status(host, code, retry_after=None, also=", after its answer began")
    return known or _TABLE.of_stream(host, text)


def _read(body: bytes) -> tuple[str, bool]:
    """A body's message in lower case, and whether the body is an object: 404s of unknown paths often are not."""
    try:
        return _text_of(read_object(body)), True
    except NotAnObject:
        text = body.decode("utf-8", "replace").lower()
    is_cut_off = text.lstrip().startswith("{")
    return (_QUOTED.sub("", text) if is_cut_off else text), False


def _text_of(error: object) -> str:
    said = _own_words(error)
    return (said if isinstance(said, str) else json.dumps(said)).lower()


def _own_words(value: Any) -> Any:
    """The parts of an error that the server says itself, in their form."""
    match value:
        case dict():
            return {name: _own_words(part) for name, part in value.items() if name in _OWN_FIELDS}
        case list():
            return [_own_words(part) for part in value]
        case str():
            return _QUOTED.sub("", value)
        case _:
            return value
