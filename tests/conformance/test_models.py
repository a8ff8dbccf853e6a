"""Every provider's model keeps the promises of `SummaryModel`."""

from __future__ import annotations

import asyncio
import functools
import json
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import pytest

from abridged.service.models.model import ModelError, SummaryModel
from abridged.service.models.scripted.model import ScriptedModel, default_answer
from tests.support.ollama_behaviour import BEHAVIOURS
from tests.support.ollama_manner import MANNERS
from tests.support.ollama_model import RECORD_SCHEMA, model_over, record_request
from tests.support.ollama_server import FakeOllama
from tests.support.openai_model import openai_over
from tests.support.openai_quirks import QUIRKS, Quirks
from tests.support.openai_server import FakeOpenAI
from tests.support.patience import PATIENCE_S


@asynccontextmanager
async def ollama(manner, **fake):
    async with FakeOllama(manner=manner, **fake) as server, model_over(server) as model:
        yield model


@asynccontextmanager
async def openai(quirks):
    async with FakeOpenAI(quirks=quirks) as server, openai_over(server) as model:
        yield model


@asynccontextmanager
async def scripted():
    yield ScriptedModel([default_answer], clock=time.monotonic)


PROVIDERS: dict[str, Callable[[], AbstractAsyncContextManager[SummaryModel]]] = {
    **{f"ollama-{manner.version}": functools.partial(ollama, manner) for manner in MANNERS},
    **{f"openai-{name}": functools.partial(openai, QUIRKS[name]) for name in ("normal", "strict-openai", "no-usage")},
    "scripted": scripted,
}


@pytest.fixture(params=PROVIDERS)
async def model(request):
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(PROVIDERS[request.param]())


def fits(value, schema) -> bool:
    """Return whether a value has the schema's types and required fields; enough of JSON Schema for a record."""
    match schema["type"]:
        case "object":
            return (
                isinstance(value, dict)
                and set(value) == set(schema["required"])
                and all(fits(value[name], inner) for name, inner in schema["properties"].items())
            )
        case "array":
            return isinstance(value, list) and all(fits(item, schema["items"]) for item in value)
        case _:
            return isinstance(value, str)


async def test_an_answer_is_json_for_the_schema(model):
    """The text parses and has every field of the record."""
    completion = await model.complete(record_request(), deadline_s=PATIENCE_S, on_progress=lambda _chars: None)

    assert fits(json.loads(completion.text), RECORD_SCHEMA)
    assert completion.finish_reason == "stop"
    assert completion.model
    assert completion.duration_s >= 0


async def test_the_same_request_gets_the_same_answer(model):
    """A given seed and temperature make an answer repeatable."""
    first = await model.complete(record_request(), deadline_s=PATIENCE_S, on_progress=lambda _chars: None)
    second = await model.complete(record_request(), deadline_s=PATIENCE_S, on_progress=lambda _chars: None)

    assert first.text == second.text


async def test_progress_counts_up_to_the_whole_answer(model):
    """Progress is a growing number of characters and ends at the answer's length."""
    seen: list[int] = []

    completion = await model.complete(record_request(), deadline_s=PATIENCE_S, on_progress=seen.append)

    assert seen == sorted(seen)
    assert seen[-1] == len(completion.text)


async def test_a_cancelled_call_ends_as_cancelled(model):
    """Cancellation is not turned into a model error, and the model works afterwards."""
    call = asyncio.create_task(model.complete(record_request(), deadline_s=PATIENCE_S, on_progress=lambda _chars: None))
    await asyncio.sleep(0)
    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call

    assert (await model.complete(record_request(), deadline_s=PATIENCE_S, on_progress=lambda _chars: None)).text


async def test_a_description_has_no_empty_figures(model):
    """Figures of a description are positive or not there, and the window is no larger than the context."""
    description = await model.describe()

    assert description.context_length is None or description.context_length > 0
    assert description.window is None or 0 < description.window <= (description.context_length or description.window)


async def test_a_model_that_nobody_asks_is_idle(model):
    """A model is idle before a call and after it."""
    assert await model.idle()
    await model.complete(record_request(), deadline_s=5.0, on_progress=lambda _chars: None)

    assert await model.idle()


async def test_closing_twice_is_allowed(model):
    """The second close does nothing."""
    await model.close()
    await model.close()


async def test_a_name_is_provider_and_model(model):
    """Names have the form that policies match."""
    provider, _, name = model.name.partition(":")

    assert provider.isidentifier()
    assert name


@asynccontextmanager
async def hanging_ollama():
    async with FakeOllama(behaviour=BEHAVIOURS["hang"]) as server, model_over(server) as model:
        yield model


@asynccontextmanager
async def hanging_openai():
    async with openai(Quirks(hang=True)) as model:
        yield model


@asynccontextmanager
async def hanging_script():
    yield ScriptedModel([asyncio.Event()], clock=time.monotonic)


@pytest.mark.parametrize(
    "hanging", [hanging_ollama, hanging_openai, hanging_script], ids=["ollama", "openai", "scripted"]
)
async def test_a_deadline_ends_a_hanging_call(hanging):
    """A call that never ends by itself ends with a retryable error when its time is up."""
    async with hanging() as model:
        with pytest.raises(ModelError) as failure:
            await model.complete(record_request(), deadline_s=0.1, on_progress=lambda _chars: None)

        assert failure.value.retryable
        assert "0.1 s, the time of this request" in str(failure.value)
