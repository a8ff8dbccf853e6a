"""A real small model answers through the real provider: mechanics only, for its wording means nothing.

Run by `make test-llm`; each test takes seconds to a minute on two cores.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from abridged.service.models.model import Completion, PromptTruncated, SummaryModel
from tests.support.llm.engine import ENGINE_CONTEXT, ENGINE_MODEL, Engine
from tests.support.ollama_model import PATIENT, RECORD_SCHEMA, model_over, record_request
from tests.support.ollama_server import FakeOllama

pytestmark = [pytest.mark.llm, pytest.mark.timeout(600)]

SETTINGS = replace(PATIENT, first_byte_s=300.0, stall_s=120.0, num_ctx=ENGINE_CONTEXT)
ANSWER_S = 500.0


@pytest.fixture(scope="module")
def engine():
    return Engine()


@pytest.fixture
async def server(engine):
    async with FakeOllama(models=[ENGINE_MODEL], responder=engine.respond, loaded=False) as running:
        yield running


async def ask(model: SummaryModel, *, on_progress=lambda _chars: None, **fields) -> Completion:
    return await model.complete(record_request(**fields), deadline_s=ANSWER_S, on_progress=on_progress)


def schema_with_short_lists() -> dict[str, Any]:
    """The record's schema, small enough for a model that fills every list to its end."""
    schema: dict[str, Any] = json.loads(json.dumps(RECORD_SCHEMA))
    schema["properties"]["summary"]["maxLength"] = 200
    for field in schema["properties"].values():
        if field["type"] == "array":
            field["maxItems"] = 1
            field["items"] |= {"maxLength": 40} if field["items"]["type"] == "string" else {}
    for part in schema["properties"]["action_items"]["items"]["properties"].values():
        part["maxLength"] = 40
    return schema


async def test_a_record_comes_back_under_the_schema(server):
    """Real tokens, constrained by the schema, through load, stream and counts."""
    seen: list[int] = []
    schema = schema_with_short_lists()
    async with model_over(server, settings=SETTINGS, model=ENGINE_MODEL.name) as model:
        completion = await ask(model, schema=schema, seed=3, on_progress=seen.append)
        description = await model.describe()

    record = json.loads(completion.text)
    assert set(record) == set(RECORD_SCHEMA["required"])
    assert isinstance(record["summary"], str)
    assert completion.finish_reason == "stop"
    assert completion.input_tokens > 60
    assert completion.output_tokens > 20
    assert len(seen) > 20
    assert seen[-1] == len(completion.text)
    assert (server.loads_begun, server.reloads) == (1, 0)
    assert (description.context_length, description.window) == (8_192, ENGINE_CONTEXT)


async def test_the_same_seed_gives_the_same_words(server):
    """Seed and temperature reach the sampler."""
    async with model_over(server, settings=SETTINGS, model=ENGINE_MODEL.name) as model:
        first, again = [await ask(model, seed=5, output_tokens_max=24) for _ in range(2)]

    assert first.text == again.text


async def test_an_output_limit_cuts_the_answer(server):
    """The limit arrives as num_predict, and the finish reason is a cut."""
    async with model_over(server, settings=SETTINGS, model=ENGINE_MODEL.name) as model:
        completion = await ask(model, output_tokens_max=16)

    assert (completion.finish_reason, completion.output_tokens) == ("length", 16)
    with pytest.raises(ValueError):
        json.loads(completion.text)


async def test_a_prompt_beyond_the_real_window_is_refused_with_its_true_size(server):
    """The engine's own nested error, where the fake's count thought that the prompt would fit."""
    async with model_over(server, settings=SETTINGS, model=ENGINE_MODEL.name) as model:
        with pytest.raises(PromptTruncated, match=rf"\d+ prompt tokens, context {ENGINE_CONTEXT}"):
            await ask(model, user="zxqv " * 1_500, prompt_tokens=1_500)


async def test_cancelling_stops_the_engine(server):
    """A cancelled call frees the single slot: the next answer comes at once, not after the long one."""
    async with model_over(server, settings=SETTINGS, model=ENGINE_MODEL.name) as model:
        started = asyncio.Event()
        long = asyncio.create_task(ask(model, output_tokens_max=1_500, on_progress=lambda _chars: started.set()))
        await started.wait()
        long.cancel()
        await asyncio.gather(long, return_exceptions=True)
        await server.until(lambda fake: fake.left == 1)

        assert (await ask(model, output_tokens_max=8)).output_tokens == 8
