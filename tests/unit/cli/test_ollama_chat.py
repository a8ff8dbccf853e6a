"""The model side of `abridged chat`, and the questions to a host before passes depend on it, over real HTTP."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from abridged.service.models.chat import ChatAnswer
from abridged.service.models.model import ModelMissing, ModelUnavailable
from abridged.service.models.ollama.chat import OllamaChat
from abridged.service.models.ollama.host import open_hosts
from abridged.service.models.ollama.inventory import inventory_of
from abridged.service.models.ollama.settings import OllamaSettings, parse_address
from tests.support.ollama_behaviour import BEHAVIOURS
from tests.support.ollama_catalogue import FakeModel
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S

MESSAGES = [{"role": "user", "content": "Which shard is slow?"}]


def chat_of(server: FakeOllama, model: str = "qwen2.5:3b", **settings: Any) -> OllamaChat:
    chosen = OllamaSettings(**settings)
    (host,) = open_hosts([parse_address(server.url)], chosen, clock=time.monotonic)
    return OllamaChat(model, host, chosen, clock=time.monotonic)


async def answered(chat: OllamaChat) -> tuple[ChatAnswer, list[str]]:
    pieces: list[str] = []
    try:
        await chat.open()
        return await chat.answer(MESSAGES, on_text=pieces.append), pieces
    finally:
        await chat.close()


def sent_to(server: FakeOllama) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(next(request for request in server.requests if request.path == "/api/chat").body)
    return body


async def test_an_answer_is_told_while_it_comes():
    """The pieces are the answer, and the prompt's tokens are the server's count."""
    async with FakeOllama() as server:
        answer, pieces = await answered(chat_of(server))

    assert "".join(pieces) == answer.text != ""
    assert len(pieces) > 1
    assert answer.prompt_tokens is not None
    assert answer.prompt_tokens > 0


async def test_the_context_is_neither_cut_nor_shifted_by_the_server():
    """A context that does not fit is an error that is seen; the window is the one that passes use."""
    async with FakeOllama() as server:
        await answered(chat_of(server, num_ctx=4_096))
        body = sent_to(server)

    assert body["messages"] == MESSAGES
    assert (body["truncate"], body["shift"], body["options"]) == (False, False, {"num_ctx": 4_096})
    assert "format" not in body
    assert "think" not in body


async def test_a_models_own_context_length_is_not_exceeded():
    """Ollama would load it with more than it was trained for."""
    async with FakeOllama(models=[FakeModel(context_length=2_048)]) as server:
        chat = chat_of(server, num_ctx=8_192)
        await answered(chat)

    assert chat.context_length == 2_048


async def test_a_model_that_thinks_is_asked_not_to():
    """Thoughts are no part of a transcript."""
    async with FakeOllama(models=[FakeModel(capabilities=("completion", "thinking"))]) as server:
        await answered(chat_of(server))

        assert sent_to(server)["think"] is False


async def test_half_an_answer_is_no_answer():
    """Text that was streamed before the failure is not returned."""
    async with FakeOllama(behaviour=BEHAVIOURS["eof"]) as server:
        with pytest.raises(ModelUnavailable):
            await answered(chat_of(server))


async def test_a_model_that_is_not_there_is_missing():
    """The error comes before the first turn."""
    async with FakeOllama() as server:
        with pytest.raises(ModelMissing):
            await answered(chat_of(server, model="never-pulled:7b"))


async def test_the_inventory_has_version_models_and_what_is_missing():
    """One look at a host, for the doctor and the demonstration."""
    async with FakeOllama() as server:
        found = await inventory_of(
            parse_address(server.url),
            ["qwen2.5:3b", "never-pulled:7b"],
            token="",
            timeout_s=PATIENCE_S,
            clock=time.monotonic,
        )

    there, missing = found.models
    assert (found.problem, found.version != "", found.has_all) == ("", True, False)
    assert (there.context_length, there.problem) == (32_768, "")
    assert missing.is_missing


@pytest.mark.parametrize("behaviour", ["dead", "unauthorized", "forbidden", "not-ollama", "redirect"])
async def test_a_host_that_does_not_answer_as_ollama_is_a_problem_in_words(behaviour):
    """The inventory raises nothing, and does not wait longer than its timeout."""
    async with FakeOllama(behaviour=BEHAVIOURS[behaviour]) as server:
        found = await inventory_of(
            parse_address(server.url), ["qwen2.5:3b"], token="", timeout_s=0.3, clock=time.monotonic
        )

    assert found.problem.startswith(found.host)
    assert not found.has_all
