"""The failures that every model server over HTTP shares.

    ModelError
    ├── ModelUnavailable
    │   ├── AnswerEncoded    the answer is compressed, although no encoding was requested
    │   ├── AnswerInvalid    the answer is not an object, or a larger one than any that is read
    │   ├── FirstByteLate    the host did not start its answer in time
    │   ├── HostUnreachable  no connection: refused, unknown name, TLS, or timeout; not asked
    │   ├── CircuitOpen      the host failed too often recently; not asked
    │   └── QueueFull        too many calls wait for the host; not asked
    └── ModelRefused
        └── HostRefused      the host refuses any such request; another host may not

What a status or a text means is each provider's own `ErrorTable`. Messages are our own: a server's text may quote a
prompt, so none of it is passed on.
"""

from __future__ import annotations

import email.utils
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from abridged.service.models.http.fields import NotAnObject, count_of, read_object
from abridged.service.models.model import ModelError, ModelRefused, ModelUnavailable, PromptTruncated

if TYPE_CHECKING:
    import httpx

RATE_LIMIT_RETRY_S = 60.0
"""Delay before a retry after a 429 without Retry-After: cloud limits last minutes to days, never milliseconds."""

RETRY_AFTER_MAX_S = 86_400.0


class AnswerEncoded(ModelUnavailable):
    """The host compressed its answer, although no encoding was requested."""


class AnswerInvalid(ModelUnavailable):
    """The answer to a question about the host is not JSON, or larger than any that is read."""


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
class KnownText:
    """A known error text and its meaning.

    Attributes:
        piece: A substring of the text, in lower case.
        error: The error to raise.
        says: The message, in our own words.
    """

    piece: str
    error: type[ModelError]
    says: str


PROMPT_TOO_LONG = "the prompt is longer than the model's context"
"""The message of PromptTruncated."""

SERVER_BUSY = "the server is busy"
"""The message of a ModelUnavailable that passes by itself."""

_STATUSES: Mapping[int, tuple[type[ModelError], str]] = {
    403: (HostRefused, "the host forbids the request"),
    408: (ModelUnavailable, "the host waited too long for the request"),
    413: (ModelRefused, "the request is too large for the host"),
    425: (ModelUnavailable, SERVER_BUSY),
    429: (ModelUnavailable, "the host limits the request rate"),
    499: (ModelUnavailable, "the host gave up on the request"),
    501: (HostRefused, "the host does not support the operation"),
}


class ErrorTable:
    """The meaning of a server's errors: the first known text decides, then the status, then its hundred.

    `statuses` are the server's own, before those that mean the same everywhere.
    """

    def __init__(self, texts: Sequence[KnownText], statuses: Mapping[int, tuple[type[ModelError], str]]) -> None:
        self._texts = tuple(texts)
        self._statuses = {**_STATUSES, **statuses}

    def of_text(self, host: str, where: str, text: str, *, retry_after: float | None) -> ModelError | None:
        """The error for a known `text`, which is in lower case; None for an unknown one. `where` ends the message."""
        known = next((row for row in self._texts if row.piece in text), None)
        if known is None:
            return None
        if issubclass(known.error, ModelUnavailable):
            return known.error(f"{host}: {known.says} ({where})", retry_after_s=retry_after)
        if not issubclass(known.error, PromptTruncated):
            return known.error(f"{host}: {known.says} ({where})")
        prompt, context = _token_figures(text)
        figures = f", {prompt} prompt tokens, context {context}" if prompt and context else ""
        return known.error(f"{host}: {known.says} ({where}{figures})", prompt_tokens=prompt, context=context)

    def of_stream(self, host: str, text: str) -> ModelError:
        """The error that a server reports inside a 200; `text` is in lower case."""
        unknown = ModelUnavailable(f"{host}: the answer broke off with an unknown error")
        return self.of_text(host, "mid-stream", text, retry_after=None) or unknown

    def of_status(self, host: str, status: int, *, retry_after: float | None, also: str = "") -> ModelError:
        """The error for a status other than 200 whose text is not known; `also` ends the message."""
        error, says = self._statuses.get(status, _by_hundred(status))
        if status == HTTPStatus.TOO_MANY_REQUESTS and retry_after is None:
            retry_after = RATE_LIMIT_RETRY_S
        message = f"{host}: {says}{also} (HTTP {status})"
        return error(message, retry_after_s=retry_after) if issubclass(error, ModelUnavailable) else error(message)


def _by_hundred(status: int) -> tuple[type[ModelError], str]:
    if status >= 500:
        return ModelUnavailable, "the host failed"
    if status >= 400:
        return ModelRefused, "the host refuses the request"
    return HostRefused, "the host returned a redirect or no content; redirects are not followed"


def _token_figures(text: str) -> tuple[int | None, int | None]:
    """Prompt and context size from llama-server's error JSON, which Ollama passes on inside its own error string."""
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


@cache
def _transport() -> tuple[tuple[type[Exception], type[ModelUnavailable], str], ...]:
    """The most specific types first: the first match decides the error and its message."""
    import httpx

    return (
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
    failure, says = next((failure, says) for kind, failure, says in _transport() if isinstance(error, kind))
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
