"""Lessons of answers for the provider: tokens for one of our own count, and when others use its host."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from abridged.service.models.figures import FACTOR_MAX, FACTOR_MIN, TokenFactor
from abridged.service.models.model import Completion, PromptTruncated, SummaryModel
from tests.support.ollama_behaviour import BEHAVIOURS
from tests.support.ollama_catalogue import FakeModel
from tests.support.ollama_manner import Manner
from tests.support.ollama_model import model_over, record_request
from tests.support.ollama_responder import TEMPLATE_TOKENS, Ask, Piece, Responder, count_tokens, schema_answer, spoken
from tests.support.ollama_server import FakeOllama

REAL = sum(count_tokens(text) + TEMPLATE_TOKENS for text in (record_request().system, record_request().user))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def ask(model: SummaryModel, **fields) -> Completion:
    return await model.complete(record_request(**fields), deadline_s=5.0, on_progress=lambda _chars: None)


async def factor(model: SummaryModel) -> float:
    return (await model.describe()).token_factor


async def test_a_whole_prompt_teaches_the_token_factor():
    """A third of the real tokens counted means three for one, from the next description on."""
    async with FakeOllama() as server, model_over(server) as model:
        assert await factor(model) == 1.0
        await ask(model, prompt_tokens=64)

        assert await factor(model) == REAL / 64


async def test_a_refused_prompt_teaches_by_its_figures():
    """The refusal has the server's own count since 0.30."""
    async with FakeOllama() as server, model_over(server) as model:
        with pytest.raises(PromptTruncated) as refusal:
            await ask(model, words=5_000, prompt_tokens=1_700)

        assert refusal.value.prompt_tokens == REAL + 5_000
        assert refusal.value.context == 2_048
        assert await factor(model) == (REAL + 5_000) / 1_700


@pytest.mark.parametrize(("version", "silent"), [("0.24.0", False), ("0.24.0", True), ("0.33.0", True)])
async def test_a_prompt_over_the_window_teaches_at_least_the_window(version, silent):
    """Refused without figures, or cut against orders: it had more tokens than the window has."""
    behaviour = BEHAVIOURS["silent-cut" if silent else "normal"]
    async with FakeOllama(manner=Manner(version), behaviour=behaviour) as server, model_over(server) as model:
        with pytest.raises(PromptTruncated) as cut:
            await ask(model, words=5_000, prompt_tokens=1_600)

        assert cut.value.context == 2_048
        assert await factor(model) == 2_048 / 1_600


async def test_a_whole_prompt_that_was_counted_far_too_high_is_answered():
    """A page of `=` is a few tokens, and no cut prompt however often it is asked about."""
    page = "\n".join("=" * 40 for _ in range(40))
    async with FakeOllama(responder=few_tokens(spoken(schema_answer))) as server, model_over(server) as model:
        for _ in range(2):
            assert (await ask(model, user=page, prompt_tokens=700)).input_tokens == 100


def few_tokens(responder: Responder) -> Responder:
    async def respond(asked: Ask) -> AsyncIterator[Piece]:
        async for piece in responder(asked):
            yield replace(piece, prompt_tokens=100)

    return respond


async def test_a_cut_prompt_of_a_script_that_is_counted_too_low_is_caught():
    """Once learned, the factor tells half a window from a whole prompt."""
    async with FakeOllama(models=[FakeModel(context_length=2_048)]) as server, model_over(server) as model:
        await ask(model, words=1_500, prompt_tokens=500)
        server.behaviour = BEHAVIOURS["silent-cut"]

        with pytest.raises(PromptTruncated):
            await ask(model, user="x" * 10 + "。" * 3_000, prompt_tokens=1_000)


async def test_counts_without_the_cached_part_do_not_lower_the_factor():
    """0.30.0 leaves out cached tokens, so its figure is a lower bound."""
    async with FakeOllama(manner=Manner("0.30.0")) as server, model_over(server) as model:
        await ask(model, prompt_tokens=64)
        learned = await factor(model)
        for _ in range(20):
            await ask(model, prompt_tokens=1_000)

        assert await factor(model) == learned > 1.0


def test_a_factor_falls_slowly_and_rises_at_once():
    """Too low a factor overflows a window; too high a one costs a call."""
    learned = TokenFactor()
    learned.learn(counted=1_000, tokens=3_000)
    for _ in range(7):
        learned.learn(counted=1_000, tokens=1_000)

    assert 1.5 < learned.value < 2.2
    learned.learn(counted=1_000, tokens=4_000)
    assert learned.value == 4.0


def test_a_factor_keeps_its_bounds_and_short_prompts_teach_nothing():
    """A template outweighs a few words; one odd answer must not make a model useless."""
    learned = TokenFactor()
    learned.learn(counted=10, tokens=100)
    assert learned.value == 1.0
    learned.learn(counted=100, tokens=1)
    assert learned.value == FACTOR_MIN
    learned.learn(counted=100, tokens=100_000)
    assert learned.value == FACTOR_MAX


async def test_a_host_that_nobody_uses_is_idle():
    """The host has no call under way from here, and nothing moved there."""
    async with FakeOllama() as server, model_over(server) as model:
        assert [await model.idle(), await model.idle()] == [True, True]
        await ask(model)
        assert await model.idle()


async def test_a_host_that_others_use_is_not_idle_for_a_minute():
    """A model's expiry that moved without a call of ours was moved by somebody else's."""
    clock = Clock()
    async with FakeOllama() as server, model_over(server, clock=clock) as model:
        assert await model.idle()
        server.models = [replace(FakeModel(), expires_at="2026-01-02T03:09:05Z")]
        assert not await model.idle()
        clock.now += 59.0
        assert not await model.idle()
        clock.now += 2.0
        assert await model.idle()


async def test_a_use_of_our_own_is_nobody_elses():
    """The expiry that a call of ours moved tells nothing."""
    async with FakeOllama() as server, model_over(server) as model:
        assert await model.idle()
        await ask(model)
        server.models = [replace(FakeModel(), expires_at="2026-01-02T03:09:05Z")]

        assert await model.idle()


async def test_a_host_that_is_away_is_not_idle():
    """A call now would fail; one that only hides its list is taken for idle."""
    async with FakeOllama() as server, model_over(server) as model:
        server.hidden_paths = {"/api/ps"}
        assert await model.idle()
        await server.stop()
        assert not await model.idle()


async def test_an_answer_has_the_servers_own_name_of_the_model():
    """The settings' name is for the record, the server's for comparisons of models."""
    async with FakeOllama() as server, model_over(server) as model:
        completion = await ask(model)

    assert (completion.model, completion.response_model) == (f"ollama:{FakeModel().name}", FakeModel().name)
