"""AppendMessages with `context`: the window that GetContext would return, in the same call, and never instead of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import error_reason_pb2, message_pb2
from tests.support.answers import gated
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refused
from tests.support.sidecar import on_ollama, said, script, sidecar

GRANTS = [
    {"token": "full", "namespace": "alpha", "scopes": ["append", "read"]},
    {"token": "append", "namespace": "alpha", "scopes": ["append"]},
]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rendering": api.RENDERING_OPENAI},
        {"rendering": api.RENDERING_ANTHROPIC, "summary_role": conversation.SUMMARY_ROLE_USER},
        {"view": api.CONTEXT_VIEW_ORIGINAL},
        {"max_tokens": 300, "clip": True},
        {"abort_on_failure": True},
    ],
    ids=str,
)
async def test_the_window_is_that_of_get_context_byte_for_byte(tmp_path, options: dict[str, Any]):
    """The window has a summary, a system message and the message that was just appended."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(policy={"min_range_tokens": 1, "preserve_recent": 4, "min_messages": 1_000})
        await chat.append(said(1, "You are terse.", role=message_pb2.ROLE_SYSTEM))
        await chat.talk(8, tokens=20)
        await chat.summarize()

        appended = await chat.append(said(10, "Where are the orders? " * 200), context=options)

        window = await chat.context(**options)
        # Of the responses for the same window, the second is the one that has seen the first.
        for field in ("stable_messages", "stable_tokens"):
            appended.context.ClearField(field)
            window.ClearField(field)
        assert appended.context.SerializeToString() == window.SerializeToString()
        assert appended.context.message_version == appended.message_version == 10
        assert not appended.HasField("context_failure")


async def test_an_append_sets_the_marks_of_the_window_before_it(tmp_path):
    """`cache_marks` and the stable start work from turn to turn without a GetContext."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        options = {"rendering": api.RENDERING_ANTHROPIC, "cache_marks": True}
        await chat.append(said(1), context=options)

        appended = await chat.append(said(2), context=options)

        assert appended.context.stable_messages == 1
        assert "cache_control" in appended.context.rendered_json


def test_the_options_are_those_of_get_context():
    """All but what names the conversation and what it waits for."""
    options = {(field.name, field.type) for field in api.ContextOptions.DESCRIPTOR.fields}
    asked = {(field.name, field.type) for field in api.GetContextRequest.DESCRIPTOR.fields}

    assert {name for name, _ in asked - options} == {"conversation_id", "wait", "min_version"}
    assert options <= asked


async def test_without_context_an_append_returns_no_window(tmp_path):
    """The response has no window and no reason for that."""
    async with sidecar(tmp_path) as s:
        appended = await s.chat().append(said(1))

        assert not appended.HasField("context")
        assert not appended.HasField("context_failure")


async def test_a_repeat_returns_the_window_too(tmp_path):
    """A retry of a call whose answer was lost needs all of that answer."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        first = await chat.append(said(1), context={})

        again = await chat.append(said(1), context={})

        assert again.messages[0].already_appended
        assert again.context.messages == first.context.messages


async def test_a_window_that_cannot_be_returned_leaves_the_append_as_it_is(tmp_path):
    """The reason and message are those of GetContext's error."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()

        appended = await chat.append(said(1, tokens=100), context={"max_tokens": 10})

        assert not appended.HasField("context")
        assert appended.context_failure.reason == error_reason_pb2.ERROR_REASON_WINDOW_TOO_LARGE
        async with refused("FAILED_PRECONDITION", "WINDOW_TOO_LARGE") as refusal:
            await chat.context(max_tokens=10)
        assert appended.context_failure.message == refusal.text
        assert (await chat.state()).message_version == appended.message_version == 1


async def test_a_failed_pass_leaves_out_the_window_if_the_caller_wants_that(tmp_path):
    """abort_on_failure counts for the pass that the append has waited for."""
    gate = asyncio.Event()
    gate.set()
    async with FakeOllama(responder=gated(gate, "not JSON")) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        turns = [said(n, tokens=120) for n in range(1, 15)]

        strict = await s.chat("strict").append(*turns, wait_s=PATIENCE_S, context={"abort_on_failure": True})
        tolerant = await s.chat("tolerant").append(*turns, wait_s=PATIENCE_S, context={})

        assert strict.context_failure.reason == error_reason_pb2.ERROR_REASON_SUMMARIZATION_FAILED
        assert len(tolerant.context.messages) == strict.message_version == 14


async def test_who_may_not_read_gets_no_window_and_appends_nothing(tmp_path):
    """The scope is asked for before anything is written."""
    async with sidecar(tmp_path, {"server.tokens": GRANTS}, metadata=[("authorization", "Bearer append")]) as s:
        async with refused("PERMISSION_DENIED", "PERMISSION_DENIED") as refusal:
            await s.chat().append(said(1), context={})
        assert refusal.metadata == {"scope": "read"}

        assert (await s.chat().append(said(2))).message_version == 1


async def test_a_window_counts_as_what_is_read(tmp_path):
    """The append goes through without room for answers, and says when to ask for its window."""
    settings = {"server.answer_bytes_max": 4 << 20}
    async with sidecar(tmp_path, script(tmp_path, {"hang": True}) | settings) as s:
        chat = s.chat(context_length=4_000_000)
        for first in range(1, 25, 4):
            await chat.append(*(said(n, "x" * 200_000, tokens=1) for n in range(first, first + 4)))

        appended = await chat.append(said(25), context={"view": api.CONTEXT_VIEW_ORIGINAL})

        assert appended.context_failure.reason == error_reason_pb2.ERROR_REASON_TOO_MANY_REQUESTS
        assert appended.context_failure.retry_delay.ToMilliseconds() > 0
        assert appended.message_version == 25


async def test_a_window_that_a_client_might_not_take_is_left_out(tmp_path):
    """A client takes 4 MiB by default: it would get an error, and not know that its messages are appended."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(context_length=4_000_000)
        for first in range(1, 17, 4):
            await chat.append(*(said(n, "x" * 200_000, tokens=1) for n in range(first, first + 4)))

        appended = await chat.append(said(17), context={})

        assert appended.context_failure.reason == error_reason_pb2.ERROR_REASON_TOO_LARGE
        assert appended.message_version == 17
