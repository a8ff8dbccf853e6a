"""Questions to a model after a bad answer, and the words of a pass about it, over the whole path, in both dialects."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from abridged.v1 import conversation_pb2 as conversation
from tests.support.answers import record, saying
from tests.support.ollama_behaviour import Behaviour
from tests.support.ollama_responder import Ask, AskRefused, Piece, Responder
from tests.support.ollama_server import FakeOllama
from tests.support.openai_quirks import Quirks
from tests.support.openai_server import FakeOpenAI
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import ANY_DRAFT, on_ollama, sidecar

DIALECTS = ("ollama", "openai")
STALLED_SOON = {"ollama.stall_timeout_s": 0.3, "openai.stall_timeout_s": 0.3}
LENIENT = ANY_DRAFT | {"summarizer.backoff_base_ms": 1}


@asynccontextmanager
async def served(dialect: str, folder: Any, responder: Responder, *, settings: Any = (), **fault: Any) -> Any:
    """A fake server that speaks the dialect and has the fault, and a sidecar that asks it."""
    more = LENIENT | dict(settings)
    if dialect == "ollama":
        ollama = FakeOllama(responder=responder, behaviour=Behaviour(**fault))
        async with ollama as server, sidecar(folder, on_ollama(server) | more) as s:
            yield server, s
    else:
        async with FakeOpenAI(responder=responder, quirks=Quirks(**fault)) as endpoint:
            named = {"openai.url": endpoint.url, "summarizer.models": ["openai:gpt-fake"]}
            async with sidecar(folder, named | more) as s:
                yield endpoint, s


def in_turn(*steps: Responder) -> Responder:
    """Answers by one responder a call; the last one repeats."""
    left = list(steps)

    async def respond(ask: Ask) -> AsyncIterator[Piece]:
        async for piece in (left.pop(0) if len(left) > 1 else left[0])(ask):
            yield piece

    return respond


async def looping(_: Ask) -> AsyncIterator[Piece]:
    yield Piece(content='{"summary": "')
    for _again in range(200):
        for word in (" The", " importer", " reads", " orders."):
            yield Piece(content=word)
    yield Piece(done_reason="stop")


async def busy(_: Ask) -> AsyncIterator[Piece]:
    raise AskRefused(503, "loading model")
    yield Piece()


def options_of(body: dict[str, Any]) -> dict[str, Any]:
    """The sampling of a request, in Ollama's names."""
    return body.get("options") or body | {"num_predict": body.get("max_tokens")}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_loop_is_ended_and_asked_about_again_with_another_seed(tmp_path, dialect):
    """The server would have let it write on to the limit."""
    async with served(dialect, tmp_path, in_turn(looping, saying(record()))) as (server, s):
        done = (await s.chat().talk(14, wait_s=PATIENCE_S)).summarization
        first, second = map(options_of, server.asked())

    assert (done.state, done.attempts) == (conversation.SUMMARIZATION_STATE_COMPLETED, 2)
    assert second["seed"] == first["seed"] + 1
    assert "- loop: the answer repeated itself without end" in server.asked()[1]["messages"][-1]["content"]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_cut_off_is_invalid_whatever_becomes_of_its_repair(tmp_path, dialect):
    """The cause names the first failure; that the repair met a busy host says nothing of the answer."""
    cut = saying('{"summary": "The', done_reason="length")
    async with served(dialect, tmp_path, in_turn(cut, busy)) as (server, s):
        done = (await s.chat().talk(14, wait_s=PATIENCE_S)).summarization
        calls = len(server.asked())

    assert (done.error_class, done.retryable) == (conversation.ERROR_CLASS_INVALID, False)
    assert done.cause == "the answer was cut off at its length limit"
    assert done.attempts == calls == 3


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_cause_names_what_failed_first_and_not_its_retry(tmp_path, dialect):
    """A host that stalls is often busy when it is asked again."""
    once = {"requests": 1, "stall_after": 1}
    responder = in_turn(saying("{"), busy)
    async with served(dialect, tmp_path, responder, settings=STALLED_SOON, **once) as (server, s):
        done = (await s.chat().talk(14, wait_s=PATIENCE_S)).summarization
        calls = len(server.asked())

    assert (done.error_class, done.attempts, calls) == (conversation.ERROR_CLASS_TRANSPORT, 2, 2)
    assert "stalled: no further line within 0.3 s" in done.cause


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_range_that_is_asked_about_again_is_asked_with_other_seeds(tmp_path, dialect):
    """The same question with the same seed has the same bad answer."""
    async with served(dialect, tmp_path, saying("not JSON")) as (server, s):
        chat = s.chat()
        await chat.talk(14, wait_s=PATIENCE_S)
        await chat.summarize(wait_s=PATIENCE_S)
        seeds = [options_of(body)["seed"] for body in server.asked()]

    assert len(seeds) == 4
    assert len(set(seeds)) == 4


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_answer_may_be_half_as_long_again_as_asked_and_is_kept_from_looping(tmp_path, dialect):
    """The limit counts the model's own tokens: as many as the prompt names, and half as many again."""
    async with served(dialect, tmp_path, saying(record())) as (server, s):
        await s.chat(context_length=32_768).talk(14, tokens=2_000, wait_s=PATIENCE_S)
        body = server.asked()[0]

    asked = int(re.findall(r"at most\s+(\d+) tokens", body["messages"][-1]["content"])[-1])
    assert asked >= 256
    assert options_of(body)["num_predict"] == -(-3 * asked // 2)
    assert options_of(body)["repeat_penalty"] == 1.1


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_two_objects_are_no_record_and_bad_items_are_left_out_of_one(tmp_path, dialect):
    """The first is refused and said; the second costs no further call."""
    partly = record(decisions=["The importer reads orders.", 7, None])
    async with served(dialect, tmp_path, saying(record() * 2, record() * 2, partly)) as (_, s):
        refused = (await s.chat("c1").talk(14, wait_s=PATIENCE_S)).summarization
        made = (await s.chat("c2").talk(14, wait_s=PATIENCE_S)).summarization

    assert refused.cause == "the answer is no valid record: the answer: json invalid"
    assert (made.state, made.attempts) == (conversation.SUMMARIZATION_STATE_COMPLETED, 1)
