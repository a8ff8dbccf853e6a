"""All that an OpenAI-compatible server does wrong, over real HTTP, and the error that the provider makes of it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from abridged.service.models.breaker import BreakerState
from abridged.service.models.http.errors import (
    AnswerEncoded,
    CircuitOpen,
    FirstByteLate,
    HostRefused,
    HostUnreachable,
    QueueFull,
)
from abridged.service.models.http.fields import OBJECT_BYTES_MAX
from abridged.service.models.model import (
    Completion,
    ModelMissing,
    ModelRefused,
    ModelUnavailable,
    PromptTruncated,
    SummaryModel,
)
from abridged.service.models.openai.errors import FieldRefused, KeyRefused
from tests.support.ollama_behaviour import Refusal
from tests.support.ollama_model import record_request
from tests.support.openai_model import LATE_SOON, PATIENT, STALLED_SOON, openai_over
from tests.support.openai_quirks import QUIRKS, Quirks, openai_error
from tests.support.openai_server import FakeOpenAI
from tests.support.patience import PATIENCE_S

PLAIN = {"object": "error", "message": "boom", "code": 500}
COMPRESSED = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nxx"
HTML = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 14\r\n\r\n<html>\n</html>"

ENDLESS_LINE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: " + b"x" * 2 * OBJECT_BYTES_MAX
FAULTS = [
    ("unauthorized", Quirks(key="secret"), KeyRefused, "valid API key|accept the API key"),
    ("forbidden", Quirks(refusal=openai_error(403, "no")), KeyRefused, "forbids the request to this key"),
    ("missing", Quirks(refusal=openai_error(404, "no model x")), ModelMissing, "no model 'gpt-fake'"),
    (
        "missing as a 403",
        Quirks(refusal=openai_error(403, "", code="model_not_found")),
        ModelMissing,
        "may not use it",
    ),
    ("wrong path", Quirks(refusal=Refusal(404, b"404 page not found", "text/plain")), HostRefused, "ends in /v1"),
    (
        "too long",
        Quirks(refusal=openai_error(400, "", code="context_length_exceeded")),
        PromptTruncated,
        "longer than",
    ),
    ("quota", Quirks(refusal=openai_error(429, "x", code="insufficient_quota")), HostRefused, "quota is used up"),
    ("refused", Quirks(refusal=openai_error(400, "bad request")), ModelRefused, "refuses the request"),
    ("filtered prompt", Quirks(refusal=openai_error(400, "x", code="content_filter")), ModelRefused, "content filter"),
    ("failed", Quirks(refusal=openai_error(500, "x")), ModelUnavailable, "the host failed"),
    ("bad gateway", Quirks(refusal=Refusal(502, b"<html>", "text/html")), ModelUnavailable, "HTTP 502"),
    ("loading", Quirks(refusal=openai_error(503, "Loading model")), ModelUnavailable, "busy"),
    ("redirect", Quirks(refusal=Refusal(302, b"", "", {"location": "/x"})), HostRefused, "redirect"),
    ("error midway", Quirks(error_after=2), ModelUnavailable, "unknown error"),
    ("rate limit midway", Quirks(error_after=2, error={"code": 429, "message": "x"}), ModelUnavailable, "request rate"),
    ("plain error midway", Quirks(error_after=2, error="context_length_exceeded"), PromptTruncated, "longer than"),
    ("end without finish_reason", Quirks(eof_after=2), ModelUnavailable, "without a finish_reason"),
    ("connection lost", Quirks(abort_after=2), ModelUnavailable, "closed early|connection broke"),
    ("garbage midway", Quirks(garbage_after=2), ModelUnavailable, "is not JSON"),
    ("no event stream", Quirks(wire=HTML), ModelUnavailable, "is not JSON"),
    ("compressed", Quirks(wire=COMPRESSED), AnswerEncoded, "compressed"),
    ("another model", Quirks(says_model="llama-3"), ModelMissing, "another model answers"),
    ("filtered answer", Quirks(finish="content_filter"), ModelRefused, "content filter stopped"),
    ("tool call", Quirks(finish="tool_calls"), ModelRefused, "called a tool"),
    ("broken off", Quirks(finish="error"), ModelUnavailable, "broke off"),
    ("refusal", Quirks(model_refuses=True), ModelRefused, "refused to answer"),
    ("only thinking", Quirks(thinking_only=True), ModelRefused, "only thinking"),
    ("cut prompt", Quirks(prompt_tokens=5), PromptTruncated, "part was dropped"),
    ("a line without end", Quirks(wire=ENDLESS_LINE), ModelUnavailable, "a line of more than"),
]


async def ask(model: SummaryModel, deadline_s: float = PATIENCE_S, **fields: Any) -> Completion:
    return await model.complete(record_request(**fields), deadline_s=deadline_s, on_progress=lambda _chars: None)


@asynccontextmanager
async def over(quirks, **options):
    async with FakeOpenAI(quirks=quirks) as server, openai_over(server, **options) as model:
        yield server, model


@pytest.mark.parametrize(("quirks", "error", "says"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS])
async def test_every_fault_ends_in_its_documented_class(quirks, error, says):
    """Class and message of each; the call is made once."""
    async with over(quirks) as (server, model):
        with pytest.raises(error, match=says) as failure:
            await ask(model)

    assert type(failure.value).error_class == error.error_class
    assert len(server.asked()) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"), [({"retry-after": "7"}, 7.0), ({}, 60.0)], ids=["with Retry-After", "without"]
)
async def test_a_rate_limit_says_when_to_come_back(headers, seconds):
    """The time is the server's, or a minute: such limits never last milliseconds."""
    async with over(Quirks(refusal=openai_error(429, "slow down", headers=headers))) as (_, model):
        with pytest.raises(ModelUnavailable, match="request rate") as failure:
            await ask(model)

    assert failure.value.retry_after_s == seconds


async def test_no_text_of_the_server_reaches_a_message():
    """The server's text may quote the prompt: a message has our words alone."""
    async with over(Quirks(refusal=openai_error(400, "Ana said E4031 in response_format"), formats=frozenset())) as (
        _,
        m,
    ):
        with pytest.raises(FieldRefused) as failure:
            await ask(m)

    assert "Ana" not in str(failure.value)
    assert failure.value.fields == {"response_format"}


async def test_a_server_that_is_not_there_is_unreachable():
    """Nobody listens on the port."""
    async with FakeOpenAI() as server:
        url = server.url
    async with openai_over(url) as model:
        with pytest.raises(HostUnreachable) as failure:
            await ask(model)

    assert not failure.value.asked


@pytest.mark.parametrize(
    ("quirks", "settings", "error", "says"),
    [
        (Quirks(hang=True), LATE_SOON, FirstByteLate, "no first byte"),
        (Quirks(stall_after=2), STALLED_SOON, ModelUnavailable, "stalled"),
    ],
    ids=["first byte", "stall"],
)
async def test_each_clock_ends_a_server_that_is_too_slow(quirks, settings, error, says):
    """The first byte and each further line have a clock of their own."""
    async with over(quirks, settings=settings) as (_, model):
        with pytest.raises(error, match=says):
            await ask(model)


async def test_a_deadline_ends_before_the_first_byte():
    """The caller's time is up, which says nothing about the server."""
    async with over(Quirks(hang=True)) as (_, model):
        with pytest.raises(ModelUnavailable, match=r"0\.1 s, the time of this request"):
            await ask(model, deadline_s=0.1)


async def test_failures_in_a_row_open_the_circuit_and_nothing_is_sent():
    """The server is left alone after five failures, as any host is."""
    states = []
    quirks = Quirks(refusal=openai_error(500, "x"))
    async with over(quirks, on_breaker=lambda host, state: states.append(state)) as (server, model):
        for _ in range(PATIENT.breaker.failures_max):
            with pytest.raises(ModelUnavailable, match="HTTP 500"):
                await ask(model)
        with pytest.raises(CircuitOpen):
            await ask(model)
        with pytest.raises(CircuitOpen):
            await model.describe()

        assert states == [BreakerState.OPEN]
        assert len(server.asked()) == PATIENT.breaker.failures_max
        assert not await model.idle()


async def test_calls_past_the_limit_wait_and_past_the_queue_are_refused():
    """Our own queue has a bound, as the server's may not have."""
    settings = replace(PATIENT, calls_max=1, queue_max=1)
    async with over(Quirks(hang=True), settings=settings) as (server, model):
        calls = [asyncio.create_task(ask(model)) for _ in range(2)]
        await server.until(lambda fake: len(fake.asked()) == 1)
        with pytest.raises(QueueFull):
            await ask(model)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

        assert len(server.asked()) == 1


async def test_a_cancelled_call_closes_its_connection():
    """A closed connection tells a server to stop."""
    async with over(Quirks(stall_after=2)) as (server, model):
        call = asyncio.create_task(ask(model))
        await server.until(lambda fake: fake.working == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await server.until(lambda fake: fake.left == 1)


@pytest.mark.parametrize("name", ["no-done", "comments", "split", "no-usage"])
async def test_what_servers_leave_out_or_add_is_no_fault(name):
    """An answer is whole with its finish_reason, whatever surrounds its events."""
    async with over(QUIRKS["normal"]) as (_, model):
        expected = await ask(model)
    async with over(QUIRKS[name]) as (_, model):
        answer = await ask(model)

    assert answer.text == expected.text
    assert answer.finish_reason == "stop"
    assert answer.input_tokens == (0 if name == "no-usage" else expected.input_tokens)


async def test_a_length_cut_is_a_finish_and_no_failure():
    """The pass decides the use of a cut answer."""
    async with over(Quirks()) as (_, model):
        answer = await ask(model, output_tokens_max=4)

    assert answer.finish_reason == "length"


async def test_another_models_answer_counts_where_the_operator_says_so():
    """Routers and named deployments give such answers."""
    settings = replace(PATIENT, other_models=True)
    async with over(Quirks(says_model="llama-3"), settings=settings) as (_, model):
        assert (await ask(model)).response_model == "llama-3"


async def test_a_server_that_ignores_the_schema_answers_text_that_is_no_record():
    """The provider passes it on; the draft's reader refuses it as INVALID."""
    async with over(Quirks(ignores_schema=True)) as (_, model):
        answer = await ask(model)

    assert not answer.text.startswith("{")
    assert answer.finish_reason == "stop"
