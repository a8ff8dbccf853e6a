"""A window repaired by hand, over the whole path: expand, revoke, pin, unpin, rewind, rate; and what clearing took."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import summary_pb2
from abridged.v1.message_pb2 import ROLE_SYSTEM
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import Chat, Sidecar, call, on_ollama, said, sidecar, tool_result


async def compressed(s: Sidecar, messages: int = 20) -> tuple[Chat, summary_pb2.SummaryRecord]:
    """A chat with one record, and the record."""
    chat = s.chat()
    await chat.talk(messages, wait_s=PATIENCE_S)
    (record,) = await chat.summaries()
    return chat, record


async def asked(chat: Chat, method: str, **fields: Any) -> Any:
    """The answer of a ConversationService method about this chat."""
    request = getattr(api, f"{method}Request")(conversation_id=chat.id, **fields)
    return await getattr(chat.sidecar.conversations, method)(request, timeout=PATIENCE_S)


async def numbers(chat: Chat) -> list[int]:
    """The messages in the window, without its summary."""
    return [m.number for m in (await chat.context()).messages if m.number]


async def test_a_record_expands_to_its_originals_page_by_page(tmp_path):
    """Every covered message once, in order, as it was sent."""
    async with sidecar(tmp_path) as s:
        chat, record = await compressed(s)
        found: list[api.ContextMessage] = []
        token = ""
        while True:
            page = await asked(chat, "ExpandSummary", summary_id=record.id, page_size=5, page_token=token)
            assert len(page.messages) <= 5
            found += page.messages
            token = page.next_page_token
            if not token:
                break

        assert [m.number for m in found] == [n for r in record.covered for n in range(r.first, r.last + 1)]
        assert found[0].message.content == said(1, tokens=120).content


async def test_a_page_of_originals_keeps_to_its_tokens(tmp_path):
    """A caller that reads them back pays for them; one message alone that is too large is excerpted and marked."""
    async with sidecar(tmp_path) as s:
        chat, record = await compressed(s)
        long = said(21, "a long tool log, line by line; " * 400)
        await chat.append(long)

        page = await asked(chat, "ExpandSummary", summary_id=record.id, max_tokens=300)
        alone = await asked(chat, "ExpandSummary", messages={"first": 21, "last": 21}, max_tokens=200)

        assert (len(page.messages), bool(page.next_page_token)) == (2, True)
        (excerpt,) = alone.messages
        assert excerpt.clipped
        assert excerpt.tokens <= 200


async def test_paging_passes_what_does_not_fit_in_a_page(tmp_path):
    """A long call, a system message and an image cannot be excerpted: they are named, and the pages go on."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(context_length=20_000)
        await chat.append(
            said(1, "hello", tokens=3),
            call(2, "c1", tokens=3_000),
            tool_result(3, "c1", "a line of the log; " * 400),
            said(4, "be brief", tokens=600, role=ROLE_SYSTEM),
            said(5, "tiny", tokens=5_000),
            said(6, "short", tokens=3),
            said(7, "last", tokens=9_000),
        )
        found: list[tuple[int, bool]] = []
        named: list[tuple[int, int]] = []
        page = await asked(chat, "ExpandSummary", messages={"first": 1, "last": 7}, max_tokens=300)
        while True:
            assert sum(m.tokens for m in page.messages) <= 300
            found += [(m.number, m.clipped) for m in page.messages]
            named += [(m.number, m.tokens) for m in page.too_large]
            if not page.next_page_token:
                break
            page = await asked(
                chat,
                "ExpandSummary",
                messages={"first": 1, "last": 7},
                max_tokens=300,
                page_token=page.next_page_token,
            )

        assert found == [(1, False), (3, True), (6, False)]
        assert named == [(2, 3_000), (4, 600), (5, 5_000), (7, 9_000)]
        assert page.too_large[0].message_id == "m7"


async def test_messages_expand_by_number_whether_they_are_in_the_window_or_not(tmp_path):
    """A mark in the window names such numbers."""
    async with sidecar(tmp_path) as s:
        chat, _ = await compressed(s)

        page = await asked(chat, "ExpandSummary", messages={"first": 3, "last": 20})

        assert [m.number for m in page.messages] == [*range(3, 21)]


async def test_a_revoked_record_is_redone_and_still_expands(tmp_path):
    """The record's messages are back at once; the log keeps it for audit, and lists say that it is out of use."""
    async with sidecar(tmp_path) as s:
        chat, record = await compressed(s, 15)

        answer = await asked(chat, "RevokeSummary", summary_id=record.id)
        await chat.context(wait_s=PATIENCE_S)

        assert list(answer.revoked_summary_ids) == [record.id]
        assert answer.conversation.window_messages == 15
        assert answer.summarization.trigger == conversation.TRIGGER_RATIO
        shown = await asked(chat, "GetSummary", summary_id=record.id)
        assert (shown.live, shown.revoked) == (False, True)
        listed = await asked(chat, "ListSummaries")
        assert list(listed.revoked_summary_ids) == [record.id]
        assert len(listed.summaries) == 2
        assert listed.summaries[0].id == (await chat.state()).live_summary_id
        assert len((await asked(chat, "ExpandSummary", summary_id=record.id)).messages) > 5


async def test_a_pin_stays_verbatim_through_every_pass(tmp_path):
    """The pin also stays through a restart; unpinned, it is a message like any other."""
    async with sidecar(tmp_path) as s:
        chat, _ = await compressed(s)
        await asked(chat, "PinMessages", numbers=[2])
        for _ in range(4):
            await chat.talk(10, wait_s=PATIENCE_S)
            assert 2 in await numbers(chat)
        passes = len(await chat.passes())
    async with sidecar(tmp_path) as s:
        chat = s.chat()

        assert 2 in await numbers(chat)
        assert list((await chat.state()).pinned_numbers) == [2]
        await asked(chat, "UnpinMessages", numbers=[2])
        assert 2 not in await numbers(chat)
        assert passes > 2


async def test_a_pinned_call_has_its_result_with_it(tmp_path):
    """The window is one that a chat API takes."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1), call(2, "a", tokens=100), tool_result(3, "a", "found", tokens=100))
        await chat.talk(20, wait_s=PATIENCE_S)

        answer = await asked(chat, "PinMessages", numbers=[3])

        assert list(answer.conversation.pinned_numbers) == [2, 3]
        assert (await numbers(chat))[:2] == [2, 3]


async def test_a_rewind_lets_a_user_say_it_again(tmp_path):
    """Edit and regenerate: the old turn is in the log and in no answer, the new one follows the rest."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1), said(2), said(3, "Where is gate 12?"), said(4))

        answer = await asked(chat, "RewindConversation", to_version=2, expected_version=4)
        await chat.append(said(5, "Where is gate 14?"))

        assert [(r.first, r.last) for r in answer.conversation.removed] == [(3, 4)]
        assert await numbers(chat) == [1, 2, 5]
        original = await chat.context(view=api.CONTEXT_VIEW_ORIGINAL)
        assert [m.number for m in original.messages] == [1, 2, 5]
        assert len(await chat.events("MessageAppended")) == 5


async def test_a_removed_id_is_refused_and_nothing_of_its_batch_is_written(tmp_path):
    """`already_appended` would say that it is in the conversation; a batch without it would have a gap."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1), said(2), said(3))
        await asked(chat, "RewindConversation", to_version=2)

        for batch in ([said(3)], [said(2), said(3), said(4)]):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await chat.append(*batch)
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert refused.value.details() == "a rewind removed message 3"
        kept = await chat.append(said(2), said(4))

        assert [(m.number, m.already_appended) for m in kept.messages] == [(2, True), (4, False)]
        assert await numbers(chat) == [1, 2, 4]


async def test_a_rewind_behind_a_record_brings_its_messages_back(tmp_path):
    """A summary of what was taken back would tell the model what nobody said; the same after a restart."""
    async with sidecar(tmp_path) as s:
        chat, record = await compressed(s)
        last = record.covered[-1].last - 1

        await asked(chat, "RewindConversation", to_version=last)

        assert await numbers(chat) == [*range(1, last + 1)]
        assert (await asked(chat, "GetSummary", summary_id=record.id)).revoked
    async with sidecar(tmp_path) as s:
        assert await numbers(s.chat()) == [*range(1, last + 1)]


async def test_a_rating_is_kept_with_its_record(tmp_path):
    """The latest one counts; the comment is in the event alone."""
    async with sidecar(tmp_path) as s:
        chat, record = await compressed(s)

        await asked(chat, "RateSummary", summary_id=record.id, rating=summary_pb2.RATING_GOOD)
        await asked(chat, "RateSummary", summary_id=record.id, rating=summary_pb2.RATING_BAD, comment="No gate.")

        assert (await asked(chat, "GetSummary", summary_id=record.id)).rating == summary_pb2.RATING_BAD
        assert [e.comment for e in await chat.events("SummaryRated")] == ["", "No gate."]


async def test_a_call_is_unpinned_by_its_result_and_a_far_one_is_pinned_whole(tmp_path):
    """The result alone asked for its pin; the other call's result came 300 messages later."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(context_length=6_000)
        kept = tool_result(3, "c2", "kept", tokens=5)
        kept.pinned = True
        await chat.append(said(1, tokens=5), call(2, "c2", tokens=5), kept, said(4, tokens=5), call(5, "c5", tokens=5))
        await chat.append(*(said(n, tokens=5) for n in range(6, 300)))
        await chat.append(tool_result(300, "c5", "late", tokens=5), *(said(n, tokens=300) for n in range(301, 320)))
        await chat.context(wait_s=PATIENCE_S)
        window = await numbers(chat)
        assert window[:2] == [2, 3]
        assert not {5, 300} & set(window)

        unpinned = await asked(chat, "UnpinMessages", numbers=[2])
        pinned = await asked(chat, "PinMessages", numbers=[5])

        assert list(unpinned.conversation.pinned_numbers) == []
        assert list(pinned.conversation.pinned_numbers) == [5, 300]


async def test_a_message_may_ask_to_be_pinned_as_it_is_appended(tmp_path):
    """A standing rule of the user needs no second call."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        rule = said(1, "Never book a middle seat.", tokens=20)
        rule.pinned = True
        await chat.append(rule)
        await chat.talk(30, wait_s=PATIENCE_S)

        assert (await numbers(chat))[0] == 1


async def test_the_epoch_changes_when_the_window_does_and_not_with_a_message(tmp_path):
    """Within one, a provider's prompt cache holds; ReportUsage names the window by it."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1))
        first = (await chat.context()).epoch
        await chat.append(said(2))
        assert (await chat.context()).epoch == first
        await asked(chat, "RewindConversation", to_version=1)

        assert (await chat.context()).epoch == first + 1


async def test_cleared_results_cost_no_call_and_expand_by_number(tmp_path):
    """Marks in the place of old results, a pass in state CLEARED, and the text behind a mark for whoever asks."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        for n in range(1, 33, 4):
            result = tool_result(n + 2, f"c{n}", f"flight {n}", tokens=220)
            await chat.append(said(n, tokens=5), call(n + 1, f"c{n}", tokens=5), result, said(n + 3, tokens=5))

        (cleared,) = await chat.passes()
        shown = await chat.context()
        back = await asked(chat, "ExpandSummary", messages={"first": 3, "last": 3})

        assert cleared.state == conversation.SUMMARIZATION_STATE_CLEARED
        assert (cleared.attempts, await chat.summaries()) == (0, [])
        assert shown.messages[2].message.content.startswith("[Result of")
        assert [m.message.content for m in back.messages] == ["flight 1"]
        assert not shown.over_limit
        metrics = await s.http("/metrics")
        assert 'abridged_summarizations_total{model="_OTHER",outcome="cleared",trigger="ratio"} 1.0' in metrics


async def test_a_pass_after_clearing_reads_the_results_and_not_their_marks(tmp_path):
    """A record made from marks would know nothing of the results behind them."""
    async with FakeOllama() as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        chat = s.chat()
        for n in range(1, 33, 4):
            result = tool_result(n + 2, f"c{n}", f"flight LH{n}", tokens=220)
            await chat.append(said(n, tokens=5), call(n + 1, f"c{n}", tokens=5), result, said(n + 3, tokens=5))
        assert [p.state for p in await chat.passes()] == [conversation.SUMMARIZATION_STATE_CLEARED]

        await chat.summarize()

        (prompt,) = (body["messages"][-1]["content"] for body in ollama.asked())
        assert "flight LH1" in prompt
        assert "cleared" not in prompt
