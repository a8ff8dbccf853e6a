"""A conversation that is closed, over the whole path: readable, and without appends or passes until it is reopened."""

from __future__ import annotations

import asyncio
from typing import Any

from abridged.client import AsyncConversations
from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import server_info_service_pb2 as info
from abridged.v1 import summary_pb2
from tests.support.answers import hanging
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refused
from tests.support.searching import WORDS, searched
from tests.support.sidecar import Chat, Sidecar, on_ollama, said, sidecar

FULL = {"policy.fallback": "always", "policy.emergency_token_ratio": 1.0}


async def closed(chat: Chat) -> Any:
    """The answer to closing it."""
    return await chat.sidecar.conversations.CloseConversation(api.CloseConversationRequest(conversation_id=chat.id))


async def reopened(chat: Chat) -> Any:
    """The answer to reopening it."""
    return await chat.sidecar.conversations.ReopenConversation(api.ReopenConversationRequest(conversation_id=chat.id))


async def listed(s: Sidecar, **filters: Any) -> list[str]:
    """The conversations of a list."""
    answer = await s.conversations.ListConversations(api.ListConversationsRequest(**filters))
    return sorted(c.id for c in answer.conversations)


async def test_a_closed_conversation_is_read_as_before_and_refuses_what_changes_its_window(tmp_path):
    """All refusals have one reason; closing it once more changes nothing."""
    async with sidecar(tmp_path, WORDS) as s:
        chat = s.chat()
        await chat.talk(20, wait_s=PATIENCE_S)
        (record,) = await chat.summaries()
        before = await chat.context()

        first, again = await closed(chat), await closed(chat)

        named = {"conversation_id": chat.id, "summary_id": record.id}
        refusals = [
            chat.append(said(21)),
            chat.summarize(),
            s.conversations.PinMessages(api.PinMessagesRequest(conversation_id=chat.id, numbers=[1])),
            s.conversations.UnpinMessages(api.UnpinMessagesRequest(conversation_id=chat.id, numbers=[1])),
            s.conversations.RewindConversation(api.RewindConversationRequest(conversation_id=chat.id, to_version=3)),
            s.conversations.RevokeSummary(api.RevokeSummaryRequest(**named)),
        ]
        for refusing in refusals:
            async with refused("FAILED_PRECONDITION", "CONVERSATION_CLOSED"):
                await refusing
        assert first == again
        assert first.conversation.closed
        assert (await chat.context()).messages == before.messages
        assert (await chat.state()).event_version == first.conversation.event_version
        expanded = await s.conversations.ExpandSummary(api.ExpandSummaryRequest(**named))
        assert expanded.messages
        assert (await searched(s, "importer")).hits
        assert len(await chat.events("ConversationClosed")) == 1


async def test_what_describes_a_closed_conversation_may_still_change(tmp_path):
    """Labels, ratings and usage reports may change; and a message that it has is a repeat like any other."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.talk(20, wait_s=PATIENCE_S)
        (record,) = await chat.summaries()
        await closed(chat)

        updated = await chat.update(["title", "labels"], title="Import", labels={"team": "a"})
        await s.conversations.RateSummary(
            api.RateSummaryRequest(conversation_id=chat.id, summary_id=record.id, rating=summary_pb2.RATING_GOOD)
        )
        await s.conversations.ReportUsage(
            api.ReportUsageRequest(
                conversation_id=chat.id, message_version=20, summary_id=record.id, prompt_tokens=2_000
            )
        )
        repeat = await chat.append(said(20, tokens=120))

        assert (updated.conversation.title, updated.conversation.closed) == ("Import", True)
        assert [m.already_appended for m in repeat.messages] == [True]


async def test_closing_cancels_the_pending_pass_and_whoever_waits_for_it_goes_on(tmp_path):
    """The pass that a model still works on ends as cancelled, and nothing is retried."""
    async with FakeOllama(responder=hanging()) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        chat = s.chat()
        await chat.talk(14)
        waiting = asyncio.ensure_future(
            s.info.WaitIdle(info.WaitIdleRequest(conversation_id=chat.id), timeout=PATIENCE_S)
        )

        await closed(chat)

        assert (await waiting).idle
        (ended,) = await chat.passes()
        assert ended.state == conversation.SUMMARIZATION_STATE_FAILED
        assert ended.error_class == conversation.ERROR_CLASS_CANCELLED
        assert (await chat.state()).held_by == conversation.HELD_BY_UNSPECIFIED


async def test_no_extraction_stands_in_for_a_closed_window_until_it_is_reopened(tmp_path):
    """GetContext says that the window is over its limit, and leaves it; reopened, the rules run at once."""
    async with FakeOllama(responder=hanging()) as ollama, sidecar(tmp_path, {**on_ollama(ollama), **FULL}) as s:
        chat = s.chat(context_length=100_000)
        await chat.talk(30)
        await closed(chat)
        await chat.update(["context_length"], context_length=2_000)

        full = await chat.context()
        answer = await reopened(chat)
        shown = await chat.context()

        assert (full.over_limit, full.compacted) == (True, False)
        assert answer.summarization.trigger == conversation.TRIGGER_EMERGENCY
        assert not answer.conversation.closed
        assert (shown.over_limit, shown.compacted) == (False, True)


async def test_reopening_what_is_open_changes_nothing(tmp_path):
    """Idempotent, as closing is; and messages are taken again."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1))
        await closed(chat)

        first, again = await reopened(chat), await reopened(chat)
        await chat.append(said(2))

        assert first == again
        assert len(await chat.events("ConversationReopened")) == 1


async def test_a_list_shows_and_filters_by_closed_also_after_a_restart(tmp_path):
    """The list is that of the read table; a page token is of one filter alone."""
    async with sidecar(tmp_path) as s:
        for name in ("a", "b", "c"):
            await s.chat(name).append(said(1))
        await closed(s.chat("b"))
    async with sidecar(tmp_path) as s:
        page = await s.conversations.ListConversations(api.ListConversationsRequest(page_size=1, closed=False))
        token = page.next_page_token

        assert await listed(s) == ["a", "b", "c"]
        assert await listed(s, closed=True) == ["b"]
        assert await listed(s, closed=False) == ["a", "c"]
        assert (await s.chat("b").state()).closed
        async with refused("INVALID_ARGUMENT", "INVALID_PAGE_TOKEN"):
            await listed(s, closed=True, page_token=token)


async def test_a_closed_window_over_its_budget_alarms_nobody(tmp_path):
    """The window is sent to no model, so the gauges leave it out, and count it once it is reopened."""
    async with sidecar(tmp_path, {"policy.enabled": False}) as s:
        chat = s.chat()
        await chat.talk(20)
        await closed(chat)
        quiet = await s.http("/metrics")
        await reopened(chat)
        counted = await s.http("/metrics")

    assert "abridged_conversations_over_budget 0.0" in quiet
    assert 'abridged_conversations_held{held_by="DISABLED"} 0.0' in quiet
    assert "abridged_conversations_over_budget 1.0" in counted


async def test_the_client_closes_waits_and_reopens(tmp_path):
    """The client's methods carry all fields of the calls."""
    async with sidecar(tmp_path) as s:
        await s.chat().append(said(1))
        async with AsyncConversations(s.running.grpc_addresses[0]) as client:
            assert (await client.close_conversation("c1")).closed
            assert await client.wait_idle("c1", wait_s=1)
            assert not (await client.reopen_conversation("c1")).conversation.closed
