"""A scrape's figures of prompts: windows rewritten and why, and what providers had in their caches."""

from __future__ import annotations

from typing import Any

from abridged.v1 import conversation_service_pb2 as api
from tests.integration.test_pass_metrics import counted
from tests.support.refusal import refused
from tests.support.sidecar import Chat, said, sidecar


async def report(chat: Chat, **fields: Any) -> None:
    request = api.ReportUsageRequest(conversation_id=chat.id, message_version=chat.count, **fields)
    await chat.sidecar.conversations.ReportUsage(request)


async def test_every_rewritten_window_is_counted_by_its_cause(tmp_path):
    """The count is the epoch; a window that grows is not rewritten."""
    policy = {"min_range_tokens": 1, "trigger_token_ratio": 1, "min_messages": 1_000, "preserve_recent": 2}
    async with sidecar(tmp_path) as s:
        chat = s.chat(policy=policy)
        await chat.talk(8)
        assert await counted(s, "abridged_window_rewrites", "cause") == {}

        await chat.summarize()
        for numbers in ([3], [2]):
            await s.conversations.PinMessages(api.PinMessagesRequest(conversation_id=chat.id, numbers=numbers))
        await s.conversations.UnpinMessages(api.UnpinMessagesRequest(conversation_id=chat.id, numbers=[2]))
        await s.conversations.RewindConversation(api.RewindConversationRequest(conversation_id=chat.id, to_version=7))

        rewrites = await counted(s, "abridged_window_rewrites", "cause")
        assert rewrites == {("summarized",): 1, ("pinned",): 2, ("unpinned",): 1, ("rewound",): 1}
        assert (await chat.state()).epoch == sum(rewrites.values())


async def test_cached_tokens_are_counted_once_a_report(tmp_path):
    """A repeat counts nothing, nor does a report that does not say how many were cached."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(context_length=100_000)
        await chat.append(said(1))
        for _ in range(2):
            await report(chat, prompt_tokens=100, cached_tokens=0)
        await chat.append(said(2))
        await report(chat, prompt_tokens=200, cached_tokens=90)
        await chat.append(said(3))
        await report(chat, prompt_tokens=300)

        assert await counted(s, "abridged_prompt_tokens", "cache") == {("hit",): 90, ("miss",): 210}


async def test_a_prompt_has_no_more_cached_tokens_than_tokens(tmp_path):
    """Some APIs report them beside each other: a caller that adds nothing up is refused before the shares are wrong."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1))
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
            await report(chat, prompt_tokens=10, cached_tokens=11)

        assert list(refusal.fields) == ["cached_tokens"]
