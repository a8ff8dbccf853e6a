"""A chat's own model is asked after the chat's own messages, so that its server has read them already."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import message_pb2
from tests.support.answers import record, saying
from tests.support.ollama_server import FakeOllama
from tests.support.openai_server import FakeOpenAI
from tests.support.sidecar import ANY_DRAFT, Chat, Sidecar, call, on_ollama, said, sidecar, tool_result

AFTER_CHAT = {**ANY_DRAFT, "summarizer.after_chat": True, "policy.preserve_recent": 2, "policy.min_range_tokens": 1}
MODELS = {"ollama": "ollama:qwen2.5:3b", "openai": "openai:gpt-fake"}
RENDERINGS = {"ollama": api.RENDERING_OLLAMA, "openai": api.RENDERING_OPENAI}


@asynccontextmanager
async def served(dialect: str, folder: Any, **more: Any) -> AsyncIterator[tuple[Sidecar, Any]]:
    """A sidecar on a server of the dialect, and the way to the bodies that the server was asked."""
    settings = AFTER_CHAT | more
    if dialect == "ollama":
        async with (
            FakeOllama(responder=saying(record())) as server,
            sidecar(folder, on_ollama(server) | settings) as s,
        ):
            yield s, server.asked
        return
    async with FakeOpenAI(responder=saying(record())) as endpoint:
        models = {"openai.url": endpoint.url, "summarizer.models": [MODELS[dialect]]}
        async with sidecar(folder, models | settings) as s:
            yield s, lambda: [r.json for r in endpoint.requests if r.path.endswith("/chat/completions")]


async def talked(chat: Chat) -> None:
    await chat.append(
        said(1, "You are terse.", role=message_pb2.ROLE_SYSTEM),
        said(2, "How many rows has orders_17? " * 9),
        call(3, "t1"),
        tool_result(4, "t1"),
        *(said(n, f"Message {n} of the importer, said at length. " * 9) for n in range(5, 15)),
    )


async def sent(chat: Chat, dialect: str) -> list[Any]:
    """The messages of the window as the dialect's API gets them."""
    window = await chat.context(rendering=RENDERINGS[dialect])
    messages: list[Any] = json.loads(window.rendered_json)["messages"]
    return messages


@pytest.mark.parametrize("dialect", sorted(MODELS))
async def test_a_pass_asks_after_the_messages_that_were_sent(tmp_path, dialect):
    """The question follows the messages, which are equal value for value; the second has the record of the first."""
    async with served(dialect, tmp_path) as (s, asked):
        chat = s.chat(model=MODELS[dialect])
        await talked(chat)
        first_window = await sent(chat, dialect)
        await chat.summarize()
        await chat.append(*(said(n, f"Message {n} of the importer, said at length. " * 9) for n in range(15, 25)))
        second_window = await sent(chat, dialect)
        await chat.summarize()
        first, second = [body["messages"] for body in asked()]
        states = [done.state for done in await chat.passes()]

    assert states == [conversation.SUMMARIZATION_STATE_COMPLETED] * 2
    for question, window in ((first, first_window), (second, second_window)):
        assert len(question) > 8
        assert question[:-1] == window[: len(question) - 1]
        assert "Do not answer them" in question[-1]["content"]
        assert "<message " not in question[-1]["content"]


@pytest.mark.parametrize("model", ["ollama:other:7b", ""])
async def test_a_chat_with_another_model_is_quoted(tmp_path, model):
    """No server has its messages in a cache, and a frame keeps them apart from the instructions."""
    async with served("ollama", tmp_path) as (s, asked):
        chat = s.chat(model=model)
        await talked(chat)
        await chat.summarize()
        (body,) = asked()

    assert [m["role"] for m in body["messages"]] == ["system", "user"]
    assert "<message 2 assistant>" in body["messages"][1]["content"]


async def test_a_chat_that_does_not_fit_one_call_is_read_in_parts(tmp_path):
    """The pass quotes the messages, because only the quoted form can be cut into parts."""
    async with served("ollama", tmp_path, **{"policy.max_input_tokens": 1_000}) as (s, asked):
        chat = s.chat(model=MODELS["ollama"])
        await talked(chat)
        await chat.append(*(said(n, f"Message {n} of the importer, said at length. " * 30) for n in range(15, 20)))
        await chat.summarize()
        roles = {tuple(m["role"] for m in body["messages"]) for body in asked()}

    assert roles == {("system", "user")}
