"""The table of Ollama's failures: status and text of both engine generations, and the error each one is."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from abridged.service.models.http.errors import HostRefused, classify_transport, retry_after_s
from abridged.service.models.model import AnswerLooped, ModelMissing, ModelRefused, ModelUnavailable, PromptTruncated
from abridged.service.models.ollama.errors import classify_status, classify_stream_error

NESTED_OVERFLOW = json.dumps(
    {
        "error": {
            "code": 400,
            "message": "request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 9000,
            "n_ctx": 4096,
        }
    }
)

TEXTS = [
    (400, NESTED_OVERFLOW, PromptTruncated),
    (400, "the prompt is longer than the context length currently available to the model; shorten", PromptTruncated),
    (400, "the input length exceeds the context length", PromptTruncated),
    (500, "input after truncation exceeds maximum context length", PromptTruncated),
    (404, "model 'x' not found", ModelMissing),
    (404, 'model "x" not found, try pulling it first', ModelMissing),
    (400, '{"error":{"message":"failed to parse grammar"}}', ModelRefused),
    (400, "Failed to initialize samplers: invalid schema", ModelRefused),
    (500, 'invalid format: "xml"; expected "json" or a valid JSON Schema object', ModelRefused),
    (500, 'option "num_ctx" must be of type integer', ModelRefused),
    (500, 'template: :3:5: executing "" at <.Foo>', ModelRefused),
    (400, '"x" does not support thinking', ModelRefused),
    (400, "model is required", ModelRefused),
    (500, "unable to load: this model may be incompatible with your version of Ollama", HostRefused),
    (500, "llama-server process has terminated: signal: killed", ModelUnavailable),
    (500, "llama runner process has terminated: exit status 2", ModelUnavailable),
    (500, "llama-server reported out-of-memory during startup: cudaMalloc failed", ModelUnavailable),
    (500, "model requires more system memory (5.6 GiB) than is available (3.1 GiB)", ModelUnavailable),
    (500, "timed out waiting for llama-server to start - loading", ModelUnavailable),
    (500, "timed out waiting for llama runner to start - progress 0.20", ModelUnavailable),
    (500, "model runner has unexpectedly stopped, this may be due to resource limitations", ModelUnavailable),
    (500, "an error was encountered while running the model: CUDA error", ModelUnavailable),
    (500, "error reading llama-server response: unexpected EOF", ModelUnavailable),
    (500, "error reading llm response: unexpected EOF", ModelUnavailable),
    (500, "no slots available after 10 retries", ModelUnavailable),
    (500, "prediction aborted, token repeat limit reached", AnswerLooped),
    (503, "server busy, please try again.  maximum pending requests exceeded", ModelUnavailable),
    (503, '{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}', ModelUnavailable),
    (500, "something nobody has seen", ModelUnavailable),
    (418, "something nobody has seen", ModelRefused),
    (401, "unauthorized", HostRefused),
    (429, "too many requests", ModelUnavailable),
    (499, "request canceled", ModelUnavailable),
    (502, "upstream error", ModelUnavailable),
    (404, "no such thing", HostRefused),
]


@pytest.mark.parametrize(("status", "text", "error"), TEXTS, ids=[f"{status} {text[:50]}" for status, text, _ in TEXTS])
def test_a_status_with_a_text_has_its_error(status, text, error):
    """Known texts decide over statuses; unknown ones leave it to the status."""
    failure = classify_status("host:1", "x", status, json.dumps({"error": text}).encode(), retry_after=None)

    assert type(failure) is error
    assert "host:1" in str(failure)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (404, b"404 page not found", HostRefused),
        (405, b"405 method not allowed", HostRefused),
        (403, b"", HostRefused),
        (302, b"", HostRefused),
        (204, b"", HostRefused),
        (413, b"<html>too large</html>", ModelRefused),
        (502, b"<html>bad gateway</html>", ModelUnavailable),
        (500, b'{"message": "not ollama\'s form"}', ModelUnavailable),
        (500, b"\xff\xfe", ModelUnavailable),
    ],
)
def test_bodies_that_are_not_ollamas_are_judged_by_status(status, body, error):
    """Proxies and other servers answer in their own forms."""
    assert type(classify_status("host:1", "x", status, body, retry_after=None)) is error


def test_an_overflow_tells_the_true_figures():
    """The nested JSON of llama-server holds the exact prompt size."""
    body = json.dumps({"error": NESTED_OVERFLOW}).encode()

    failure = classify_status("host:1", "x", 400, body, retry_after=None)

    assert isinstance(failure, PromptTruncated)
    assert (failure.prompt_tokens, failure.context) == (9_000, 4_096)
    assert "9000 prompt tokens, context 4096" in str(failure)


def test_an_overflow_without_figures_has_none():
    """The older engine says only that it does not fit."""
    body = json.dumps({"error": "the input length exceeds the context length"}).encode()

    failure = classify_status("host:1", "x", 400, body, retry_after=None)

    assert isinstance(failure, PromptTruncated)
    assert (failure.prompt_tokens, failure.context) == (None, None)


@pytest.mark.parametrize(
    ("text", "error"),
    [(text, error) for status, text, error in TEXTS if status == 500 and "nobody" not in text]
    + [("something nobody has seen", ModelUnavailable)],
)
def test_an_error_inside_a_200_is_judged_by_its_text(text, error):
    """Mid-stream there is no status."""
    assert type(classify_stream_error("host:1", text)) is error


def test_no_text_of_a_server_is_repeated():
    """A server may quote the prompt in its error; our message holds our own words only."""
    for status in (200, 400, 500, 503):
        for text in ("failed on: the secret word", "does not support the secret word", "template: the secret word"):
            body = json.dumps({"error": text}).encode()
            assert "secret" not in str(classify_status("host:1", "x", status, body, retry_after=None))
            assert "secret" not in str(classify_stream_error("host:1", text))


def test_a_rate_limit_without_a_time_asks_for_a_long_one():
    """Nobody asks a rate-limited host again within the same pass."""
    failure = classify_status("host:1", "x", 429, b"{}", retry_after=None)

    assert isinstance(failure, ModelUnavailable)
    assert failure.retry_after_s == 60.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 0 "}, 0.0),
        ({"retry-after": "99999999"}, 86_400.0),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Fri, 02 Jan 2026 10:00:09 GMT", "date": "Fri, 02 Jan 2026 10:00:00 GMT"}, 9.0),
        ({"retry-after": "Fri, 02 Jan 2026 09:00:00 GMT", "date": "Fri, 02 Jan 2026 10:00:00 GMT"}, 0.0),
        ({"retry-after": "Fri, 02 Jan 2026 10:00:09 GMT"}, None),
    ],
)
def test_retry_after_is_read_in_both_forms(headers, seconds):
    """Seconds, or a date against the answer's own Date."""
    assert retry_after_s(headers) == seconds


def concrete(kind: type[httpx.HTTPError]) -> Iterator[type[httpx.HTTPError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from concrete(child)


@pytest.mark.parametrize("kind", sorted(concrete(httpx.HTTPError), key=repr))
def test_every_failure_of_the_http_library_has_words(kind):
    """A new exception of the library still becomes an unavailable model, without its text."""
    error = kind.__new__(kind)
    Exception.__init__(error, "the secret word")

    failure = classify_transport("host:1", error)

    assert isinstance(failure, ModelUnavailable)
    assert "secret" not in str(failure)
