"""The OpenAI provider over llama.cpp's own server with a real small model, and the fake held to that server's
behaviour.

Run by `make test-llm`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import httpx
import pytest

from abridged.service.domain.record import FormName
from abridged.service.models.model import Completion, PromptTruncated, SummaryModel
from abridged.service.summarizer.draft import parsed_as
from abridged.service.summarizer.forms import FORMS
from abridged.service.summarizer.raw import raw_schema, with_raw
from tests.llm.test_real_inference import schema_with_short_lists
from tests.support.llm.engine import ENGINE_CONTEXT, Engine
from tests.support.ollama_model import RECORD_SCHEMA, record_request
from tests.support.openai_model import PATIENT, openai_over
from tests.support.openai_server import FAKE_MODEL, FakeOpenAI

pytestmark = [pytest.mark.llm, pytest.mark.timeout(600)]

SETTINGS = replace(PATIENT, first_byte_s=300.0, stall_s=120.0, window=ENGINE_CONTEXT)
ANSWER_S = 500.0
QUESTION = {"messages": [{"role": "user", "content": "Say hello."}], "stream": True, "max_tokens": 8, "seed": 1}
OWN = {
    "type": "object",
    "properties": {
        "kind": {"type": "string", "enum": ["bug", "wish"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "open": {"type": "boolean"},
        "names": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/name"}},
    },
    "$defs": {"name": {"type": "object", "properties": {"short": {"type": "string", "maxLength": 12}}}},
}
TOO_LONG = {"messages": [{"role": "user", "content": "zxqv " * 9_000}]}
WITH_USAGE = {**QUESTION, "stream_options": {"include_usage": True}}


@pytest.fixture(scope="module")
def engine():
    return Engine()


@pytest.fixture
async def real(engine):
    """The real server's base address and its model's name."""
    url = f"{engine.address}/v1"
    async with httpx.AsyncClient(trust_env=False, timeout=ANSWER_S) as client:
        (listed,) = (await client.get(f"{url}/models")).json()["data"]
    return url, listed["id"]


async def ask(model: SummaryModel, *, on_progress=lambda _chars: None, **fields) -> Completion:
    return await model.complete(record_request(**fields), deadline_s=ANSWER_S, on_progress=on_progress)


async def test_a_record_comes_back_under_the_schema(real):
    """Real tokens, constrained by the schema, with usage; nothing had to be left out."""
    url, name = real
    seen: list[int] = []
    left_out = []
    options = {"settings": SETTINGS, "model": name, "on_dialect": lambda _, dialect: left_out.append(dialect)}
    async with openai_over(url, **options) as model:
        completion = await ask(model, schema=schema_with_short_lists(), on_progress=seen.append)
        description = await model.describe()

    assert set(json.loads(completion.text)) == set(RECORD_SCHEMA["required"])
    assert completion.finish_reason == "stop"
    assert completion.input_tokens > 60
    assert completion.output_tokens > 20
    assert seen[-1] == len(completion.text)
    assert left_out == []
    assert description.window == ENGINE_CONTEXT
    assert description.token_factor != 1.0


async def test_an_operators_own_part_comes_back_by_its_schema(real):
    """Every type that such a schema may have is one that a real grammar can be made of."""
    url, name = real
    form = with_raw(FORMS[FormName.FACETS], raw_schema(json.dumps(OWN)))
    schema = json.loads(json.dumps(form.schema(64)))
    for field in schema["properties"].values():
        field |= {"maxItems": 0} if field["type"] == "array" else {}
    schema["properties"]["summary"]["maxLength"] = 60
    async with openai_over(url, settings=SETTINGS, model=name) as model:
        completion = await ask(model, schema=schema)

    own = json.loads(parsed_as(raw_schema(json.dumps(OWN)).draft, completion.text).raw_json)
    assert completion.finish_reason == "stop"
    assert own["kind"] in ("bug", "wish")
    assert 1 <= own["count"] <= 9
    assert isinstance(own["open"], bool)
    assert len(own["names"]) <= 2


async def test_the_same_seed_gives_the_same_words(real):
    """Seed and temperature reach the sampler."""
    url, name = real
    async with openai_over(url, settings=SETTINGS, model=name) as model:
        first, again = [await ask(model, seed=5, output_tokens_max=24) for _ in range(2)]

    assert first.text == again.text


async def test_a_prompt_beyond_the_window_is_refused_with_its_true_size(real):
    """The server's own figures reach the error."""
    url, name = real
    async with openai_over(url, settings=SETTINGS, model=name) as model:
        with pytest.raises(PromptTruncated, match=rf"\d+ prompt tokens, context {ENGINE_CONTEXT}"):
            await ask(model, user="zxqv " * 1_500, prompt_tokens=1_500)


async def test_an_output_limit_cuts_the_answer(real):
    """The limit arrives, and the finish reason is a cut."""
    url, name = real
    async with openai_over(url, settings=SETTINGS, model=name) as model:
        completion = await ask(model, output_tokens_max=16)

    assert (completion.finish_reason, completion.output_tokens) == ("length", 16)


async def test_the_fake_streams_as_the_real_server_does(real):
    """Kind of answer, order of events and their fields, with and without usage."""
    url, name = real
    async with FakeOpenAI() as fake:
        for body in (QUESTION, WITH_USAGE):
            theirs, ours = (
                await streamed(url, body | {"model": name}),
                await streamed(fake.url, body | {"model": FAKE_MODEL}),
            )

            assert ours["type"] == theirs["type"]
            assert ours["last"] == theirs["last"]
            assert set(ours["fields"]) <= set(theirs["fields"])
            assert ours["choice"] == theirs["choice"]
            assert ours["finish"] == theirs["finish"]
            assert ours["usage"] == theirs["usage"]


@pytest.mark.parametrize(
    ("method", "path", "body", "fields"),
    [
        ("GET", "/v1/nothing", None, {"code", "message", "type"}),
        ("POST", "/v1/chat/completions", TOO_LONG, {"message", "type"}),
    ],
    ids=["unknown path", "too long a prompt"],
)
async def test_the_fake_refuses_as_the_real_server_does(real, method, path, body, fields):
    """The status, and the fields of the error that the provider reads."""
    url, name = real
    async with FakeOpenAI() as fake, httpx.AsyncClient(trust_env=False, timeout=ANSWER_S) as client:
        answers = [
            await client.request(method, base.removesuffix("/v1") + path, json=body and {**body, "model": model})
            for base, model in ((url, name), (fake.url, FAKE_MODEL))
        ]

    theirs, ours = answers
    assert ours.status_code == theirs.status_code
    assert fields <= set(ours.json()["error"]) & set(theirs.json()["error"])


async def streamed(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the form of a stream, without its words."""
    async with (
        httpx.AsyncClient(trust_env=False, timeout=ANSWER_S) as client,
        client.stream("POST", f"{url}/chat/completions", json=body) as response,
    ):
        lines = [line async for line in response.aiter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    choices = [event["choices"][0] for event in events if event["choices"]]
    return {
        "type": response.headers["content-type"].partition(";")[0],
        "last": lines[-1],
        "fields": sorted(events[0]),
        "choice": sorted(set(choices[0]) - {"logprobs"}),
        "finish": [choice["finish_reason"] is not None for choice in choices][-1],
        "usage": sorted(set(events[-1].get("usage") or {}) & {"prompt_tokens", "completion_tokens", "total_tokens"}),
    }
