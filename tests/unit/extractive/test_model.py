"""The extractive model keeps the protocol: JSON of the agreed keys, in a thread, within its deadline."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest

from service.domain.message import Message, Role
from service.models.extractive import EXTRACTIVE_MODEL, ExtractiveModel
from service.models.model import CompletionRequest, Material, ModelUnavailable
from tests.support.patience import PATIENCE_S
from tests.unit.extractive.corpora import PLANNING

KEYS = [
    *("summary", "key_points", "participants", "decisions", "action_items", "unresolved", "domain_entities"),
]


def request_for(messages, *, tokens_max: int = 600) -> CompletionRequest:
    return CompletionRequest(
        system="", user="", schema={}, material=Material(messages=tuple(messages)), prompt_tokens=321,
        output_tokens_max=2_000, summary_tokens_max=tokens_max, temperature=0.2, seed=1,
    )  # fmt: skip


def model() -> ExtractiveModel:
    return ExtractiveModel(clock=itertools.count().__next__)


def ignored(_chars: int) -> None:
    """Progress that nobody watches."""


async def test_the_answer_is_json_with_exactly_the_agreed_keys() -> None:
    """The parser of drafts takes it as it takes any model's."""
    completion = await model().complete(request_for(PLANNING), deadline_s=PATIENCE_S, on_progress=ignored)
    answer = json.loads(completion.text)

    assert list(answer) == KEYS
    assert all(set(item) == {"task", "owner", "due"} for item in answer["action_items"])
    assert (completion.model, completion.finish_reason, completion.input_tokens) == (EXTRACTIVE_MODEL, "stop", 321)
    assert completion.output_tokens > 0
    assert completion.duration_s == 1


async def test_progress_tells_the_length_and_no_text() -> None:
    """Watchers see that something came."""
    told: list[int] = []
    completion = await model().complete(request_for(PLANNING), deadline_s=PATIENCE_S, on_progress=told.append)

    assert told == [len(completion.text)]


async def test_the_event_loop_goes_on_during_a_large_extract() -> None:
    """Other conversations are served meanwhile."""
    large = [Message("m", Role.USER, "The harbour crane 17 lifted container MSKU4711 at noon. " * 9_000)]
    work = asyncio.create_task(model().complete(request_for(large), deadline_s=PATIENCE_S, on_progress=ignored))
    turns = 0
    while not work.done():
        await asyncio.sleep(0)
        turns += 1

    assert turns > 10


async def test_a_deadline_that_passes_is_an_unavailable_model() -> None:
    """The pass goes on without waiting for the thread."""
    large = [Message("m", Role.USER, "The harbour crane 17 lifted container MSKU4711 at noon. " * 9_000)]

    with pytest.raises(ModelUnavailable):
        await model().complete(request_for(large), deadline_s=0.001, on_progress=ignored)


async def test_it_describes_itself_and_closes_twice() -> None:
    """Nothing to ask, nothing to release."""
    extractive = model()

    assert (await extractive.describe()).context_length
    assert extractive.name == "extractive:default"
    await extractive.close()
    await extractive.close()
