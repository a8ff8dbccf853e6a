"""Stable starts of GetContext: no more is stable than is byte for byte the same, whatever changes a window."""

from __future__ import annotations

import json
from typing import Any

import pytest

from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import message_pb2
from tests.support.sidecar import Chat, Sidecar, call, said, sidecar, tool_result

RENDERINGS = (api.RENDERING_UNSPECIFIED, api.RENDERING_OPENAI, api.RENDERING_ANTHROPIC, api.RENDERING_OLLAMA)
EPHEMERAL = {"type": "ephemeral"}


async def spoken(s: Sidecar) -> Chat:
    chat = s.chat(policy={"min_range_tokens": 1, "preserve_recent": 2, "trigger_token_ratio": 1, "min_messages": 1_000})
    await chat.append(
        said(1, "You are terse.", role=message_pb2.ROLE_SYSTEM, tokens=5),
        *(said(n, tokens=120) for n in range(2, 9)),
    )
    return chat


async def asked(chat: Chat, **options: Any) -> Any:
    return await chat.context(summary_role=conversation.SUMMARY_ROLE_USER, **options)


@pytest.mark.parametrize("rendering", RENDERINGS)
async def test_a_window_that_grew_is_stable_up_to_what_is_new(tmp_path, rendering):
    """The first response has nothing before it."""
    async with sidecar(tmp_path) as s:
        chat = await spoken(s)
        first = await asked(chat, rendering=rendering)
        again = await asked(chat, rendering=rendering)
        await chat.append(said(9, tokens=50), said(10, tokens=50))
        grown = await asked(chat, rendering=rendering)

        assert (first.stable_messages, first.stable_tokens) == (0, 0)
        assert again.stable_tokens == again.usage.window_tokens
        assert grown.stable_messages == again.stable_messages > 0
        assert grown.stable_tokens == again.stable_tokens == grown.usage.window_tokens - 100


@pytest.mark.parametrize("rendering", RENDERINGS)
async def test_after_a_pass_the_system_messages_are_still_stable(tmp_path, rendering):
    """The summary is new; the messages before it are not."""
    async with sidecar(tmp_path) as s:
        chat = await spoken(s)
        await asked(chat, rendering=rendering)
        await chat.summarize()

        window = await asked(chat, rendering=rendering)

        assert window.compacted
        assert window.stable_messages == (0 if rendering == api.RENDERING_ANTHROPIC else 1)
        assert window.stable_tokens == 5


async def test_every_form_is_compared_with_its_own_last_response(tmp_path):
    """A window that went to one API is not in the cache of another."""
    async with sidecar(tmp_path) as s:
        chat = await spoken(s)
        await asked(chat)

        assert (await asked(chat, rendering=api.RENDERING_OPENAI)).stable_messages == 0
        assert (await chat.context(summary_role=conversation.SUMMARY_ROLE_SYSTEM)).stable_messages == 0
        assert (await asked(chat)).stable_messages == 8


async def test_a_restart_and_the_original_view_have_nothing_stable(tmp_path):
    """The sidecar claims nothing that it does not know."""
    async with sidecar(tmp_path) as s:
        chat = await spoken(s)
        for _ in range(2):
            assert (await asked(chat, view=api.CONTEXT_VIEW_ORIGINAL)).stable_messages == 0
        await asked(chat)
    async with sidecar(tmp_path) as s:
        assert (await asked(Chat(s, chat.id, chat.settings, chat.count))).stable_messages == 0


async def test_an_excerpt_is_stable_only_where_it_is_the_same(tmp_path):
    """A longer window leaves less of each large message."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(context_length=100_000)
        await chat.append(said(1, "Hello."), said(2, "word " * 800))
        limits = {"clip": True, "max_tokens": 300}
        await asked(chat, **limits)
        assert (await asked(chat, **limits)).stable_messages == 2
        await chat.append(said(3, "word " * 40))

        assert (await asked(chat, **limits)).stable_messages == 1


async def test_a_late_result_ends_what_is_stable_at_its_call(tmp_path):
    """The result joins its call, where chat APIs accept it; the call was quoted as text until then."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(context_length=100_000)
        await chat.append(said(1), call(2, "x"), said(3))
        before = await asked(chat)
        await chat.append(tool_result(4, "x"))
        late = await asked(chat)

        assert len(before.messages) == 3
        assert late.stable_messages == 1


async def test_a_new_calibration_changes_counts_and_nothing_that_a_model_reads(tmp_path):
    """The tokens of a message are not in a prompt."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(context_length=100_000)
        await chat.append(said(1, "word " * 200))
        before = await asked(chat)
        report = api.ReportUsageRequest(conversation_id=chat.id, message_version=1, prompt_tokens=1_000)
        await s.conversations.ReportUsage(report)
        after = await asked(chat)

        assert after.usage.window_tokens != before.usage.window_tokens
        assert (after.stable_messages, after.stable_tokens) == (1, after.usage.window_tokens)


async def test_a_cache_mark_stands_at_the_end_of_what_is_stable(tmp_path):
    """The mark is on the last block of the last stable turn, as Anthropic's API takes it, or absent."""
    async with sidecar(tmp_path) as s:
        chat = await spoken(s)
        options = {"rendering": api.RENDERING_ANTHROPIC, "cache_marks": True}
        first = await asked(chat, **options)
        await chat.append(said(9), said(10))
        grown = await asked(chat, **options)
        body = json.loads(grown.rendered_json)
        marks = [block.get("cache_control") for turn in body["messages"] for block in turn["content"]]

        assert "cache_control" not in first.rendered_json
        assert marks == [*[None] * (grown.stable_messages - 1), EPHEMERAL, None, None]
        assert grown.rendered_json.count("cache_control") == 1
        assert body["system"] == [{"type": "text", "text": "You are terse."}]


async def test_after_a_pass_the_cache_mark_stands_behind_the_system_messages(tmp_path):
    """They are all that a cache still has."""
    async with sidecar(tmp_path) as s:
        chat = await spoken(s)
        options = {"rendering": api.RENDERING_ANTHROPIC, "cache_marks": True}
        await asked(chat, **options)
        await chat.summarize()
        body = json.loads((await asked(chat, **options)).rendered_json)

        assert body["system"] == [{"type": "text", "text": "You are terse.", "cache_control": EPHEMERAL}]
        assert "cache_control" not in json.dumps(body["messages"])


async def test_a_mark_is_no_part_of_what_is_compared(tmp_path):
    """The mark moves with every response; the prompt that it marks is the same."""
    async with sidecar(tmp_path) as s:
        chat = await spoken(s)
        options = {"rendering": api.RENDERING_ANTHROPIC, "cache_marks": True}
        stable = [(await asked(chat, **options)).stable_messages for _ in range(3)]

        assert stable[0] == 0
        assert stable[1] == stable[2] > 0


async def test_other_renderings_take_no_mark(tmp_path):
    """APIs of other renderings find by themselves what is the same."""
    async with sidecar(tmp_path) as s:
        chat = await spoken(s)
        for rendering in (api.RENDERING_OPENAI, api.RENDERING_OLLAMA):
            plain = [await asked(chat, rendering=rendering) for _ in range(2)][-1]
            assert (await asked(chat, rendering=rendering, cache_marks=True)).rendered_json == plain.rendered_json
