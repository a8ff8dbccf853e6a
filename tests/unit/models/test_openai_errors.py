"""Meanings of the errors of servers in use: their statuses and bodies, and the class of each."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from abridged.service.models.http.errors import HostRefused
from abridged.service.models.model import ModelMissing, ModelRefused, ModelUnavailable, PromptTruncated
from abridged.service.models.openai.errors import FieldRefused, KeyRefused, classify_event, classify_status

LLAMA_TOO_LONG = (
    b'{"error":{"code":400,"message":"request (5000 tokens) exceeds the available context size (2048 tokens)",'
    b'"type":"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":2048}}'
)

BODIES = [
    (404, b'{"error":{"message":"The model `x` does not exist","code":"model_not_found"}}', ModelMissing),
    (
        404,
        b'{"object":"error","message":"The model `x` does not exist.","code":404}',
        ModelMissing,
    ),
    (404, b'{"error":{"message":"model \\"x\\" not found, try pulling it first"}}', ModelMissing),
    (404, b'{"detail":"Model x not found"}', ModelMissing),
    (400, b'{"error":{"message":"Invalid model name passed in model=x"}}', ModelMissing),
    (404, b'{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}', HostRefused),
    (404, b'{"detail":"Not Found"}', HostRefused),
    (404, b"<html>no model here</html>", HostRefused),
    (405, b"", HostRefused),
    (401, b'{"error":"unauthorized"}', KeyRefused),
    (400, b'{"error":{"code":"invalid_api_key"}}', KeyRefused),
    (400, LLAMA_TOO_LONG, PromptTruncated),
    (400, b'{"message":"This model\'s maximum context length is 4096 tokens."}', PromptTruncated),
    (400, b'{"error":{"message":"failed to parse grammar"}}', FieldRefused),
    (422, b'{"detail":[{"loc":["body","response_format"],"msg":"extra fields not permitted"}]}', FieldRefused),
    (400, b'{"error":{"message":"max_tokens is too large"}}', ModelRefused),
    (413, b"", ModelRefused),
    (503, b'{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}', ModelUnavailable),
    (529, b'{"error":{"type":"overloaded_error"}}', ModelUnavailable),
    (500, b"\xff\xfe", ModelUnavailable),
]


@pytest.mark.parametrize(("status", "body", "error"), BODIES)
def test_every_servers_error_is_of_one_type(status, body, error):
    """The text decides where one is known, else the status."""
    found = classify_status("host:1", "x", status, body, None)

    assert type(found) is error
    assert str(found).startswith("host:1: ")


def test_a_prompt_that_is_too_long_comes_with_the_servers_figures():
    """The figures are llama.cpp's: the next prompt can be planned by them."""
    found = classify_status("host:1", "x", 400, LLAMA_TOO_LONG, None)

    assert isinstance(found, PromptTruncated)
    assert (found.prompt_tokens, found.context) == (5_000, 2_048)


ECHO = {
    "messages": [{"role": "user", "content": "The seeds are overloaded; invalid_api_key, prompt is too long."}],
    "stream_options": {"include_usage": True},
    "response_format": {"type": "json_schema"},
    "temperature": 0.2,
    "seed": 7,
}
REFUSES_SEED = {"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}
REFUSES_ROLE = {"type": "literal_error", "loc": ["body", "messages", 0, "role"], "msg": "Input should be 'user'"}


def forms(refusal: Mapping[str, object]) -> list[bytes]:
    """FastAPI's, Mistral's, vLLM's, which is a text, and one that was cut off."""
    errors = [{**refusal, "input": ECHO}]
    return [
        json.dumps({"detail": errors}).encode(),
        json.dumps({"object": "error", "message": {"detail": errors}}).encode(),
        json.dumps({"error": {"message": str(errors), "type": "Bad Request", "param": None, "code": 422}}).encode(),
        json.dumps({"error": "1 error", "body": ECHO, "detail": errors}).encode(),
        json.dumps({"detail": errors}).encode()[:-9],
    ]


@pytest.mark.parametrize("form", range(len(forms(REFUSES_SEED))))
def test_a_quoted_request_is_no_part_of_the_error(form):
    """The error refuses only the fields of the request that it names; a prompt's words mean nothing."""
    seed = classify_status("host:1", "x", 422, forms(REFUSES_SEED)[form], None)
    role = classify_status("host:1", "x", 422, forms(REFUSES_ROLE)[form], None)

    assert isinstance(seed, FieldRefused)
    assert seed.fields == {"seed"}
    assert type(role) is ModelRefused


def test_a_quoted_request_inside_an_answer_is_no_part_of_the_error():
    """The same holds for an error that comes after a 200."""
    assert type(classify_event("host:1", {"message": "no", "code": 400, "input": ECHO})) is ModelRefused


def test_a_text_that_is_no_object_is_read_whole():
    """The text does not say which part of it is the server's."""
    found = classify_status("host:1", "x", 400, b"bad 'input': temperature", None)

    assert isinstance(found, FieldRefused)
    assert found.fields == {"temperature"}


def test_a_limit_that_is_too_high_is_no_field_to_leave_out():
    """Only a text that names the other spelling means the field itself."""
    other = b'{"error":{"message":"Unsupported parameter: max_tokens. Use max_completion_tokens instead."}}'

    found = classify_status("host:1", "x", 400, other, None)

    assert isinstance(found, FieldRefused)
    assert found.fields == {"max_tokens"}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 429, "message": "slow down"}, ModelUnavailable),
        ({"code": 400, "message": "no"}, ModelRefused),
        ({"code": 200, "message": "odd"}, ModelUnavailable),
        ({"code": "context_length_exceeded"}, PromptTruncated),
        ({"message": "boom"}, ModelUnavailable),
        ("boom", ModelUnavailable),
        (7, ModelUnavailable),
    ],
)
def test_an_error_inside_an_answer_is_judged_by_text_and_code(error, kind):
    """The form of the error does not matter."""
    assert type(classify_event("host:1", error)) is kind
