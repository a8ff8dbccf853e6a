"""Appending, reading back, forcing passes and looking at their records, over a real channel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import message_pb2, summary_pb2
from tests.support.answers import hanging
from tests.support.ollama_server import FakeOllama
from tests.support.otlp_sink import otlp_sink
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refused
from tests.support.sidecar import call, on_ollama, said, script, sidecar, tool_result


async def test_an_append_answers_numbers_positions_and_usage(tmp_path):
    """Every message gets its number and its place in the log, and the answer says how full the window is."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(reserved_output_tokens=200, overhead_tokens=90)

        answer = await chat.append(said(1, tokens=100), said(2, tokens=80))

        assert [(m.id, m.number, m.position, m.already_appended) for m in answer.messages] == [
            ("m1", 1, 2, False),
            ("m2", 2, 3, False),
        ]
        assert answer.message_version == 2
        assert (answer.usage.window_tokens, answer.usage.budget_tokens) == (180, 1_800)
        assert answer.usage.ratio == pytest.approx((180 + 90) / 1_800)
        assert not answer.HasField("summarization")


async def test_every_field_of_a_message_comes_back_as_it_was_sent(tmp_path):
    """Message, stored event and original view are the same message."""
    sent = message_pb2.Message(
        id="m-1",
        role=message_pb2.ROLE_ASSISTANT,
        content="Überprüft: 東京 \N{SNOWMAN}\x00 end",
        name="ada",
        tool_calls=[message_pb2.ToolCall(id="c1", name="search", arguments='{"a": [1, 2]}')],
        attachments=[message_pb2.Attachment(uri="file:///a.png", media_type="image/png", token_count=7)],
        token_count=31,
        user_id="u",
        agent_id="a",
        labels={"team": "blue", "empty": ""},
    )
    sent.create_time.FromJsonString("2026-01-02T03:04:05.678Z")
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(sent)

        window = await chat.context()
        original = await chat.context(view=api.CONTEXT_VIEW_ORIGINAL)
        (event,) = await chat.events("MessageAppended")

        assert window.messages[0].message == original.messages[0].message == event.message == sent


async def test_the_first_append_opens_the_conversation_with_its_settings(tmp_path):
    """Settings of a later append are ignored, and its answer says so where they ask for something else."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(title="Import", labels={"team": "blue"}, model="qwen2.5:7b")
        opened = await chat.append(said(1))
        same = await chat.append(said(2))
        chat.settings = conversation.ConversationSettings(context_length=2_000, labels={"team": "blue"})
        part = await chat.append(said(3))
        chat.settings = conversation.ConversationSettings(context_length=9_999, title="other")
        other = await chat.append(said(4))
        repeated = await chat.append(said(4))

        state = await chat.state()

        assert [a.settings_ignored for a in (opened, same, part, other, repeated)] == [False, False, False, True, True]
        assert (state.settings.title, state.settings.context_length, state.message_version) == ("Import", 2_000, 4)
        assert state.usage.context_length_source == conversation.CONTEXT_LENGTH_SOURCE_CONVERSATION


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"policy": {"trigger_token_ratio": 0.5, "reset_token_ratio": 0.9}}, "settings.policy.reset_token_ratio"),
        ({"policy": {"pass_calls_max": 5}}, "settings.policy.pass_calls_max"),
        ({"context_length": 1_000, "reserved_output_tokens": 1_000}, "settings.reserved_output_tokens"),
    ],
)
async def test_impossible_settings_are_refused_even_where_they_would_be_ignored(tmp_path, settings, field):
    """The call appends nothing: a caller that would have opened with them hears of its mistake every time."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1))
        chat.settings = conversation.ConversationSettings(**settings)

        async with refused("INVALID_ARGUMENT", "INVALID_POLICY") as refusal:
            await chat.append(said(2))

        assert list(refusal.fields) == [field]
        assert (await chat.state()).message_version == 1


async def test_settings_that_the_operator_has_since_taken_back_stop_no_append(tmp_path):
    """A client that sends the same settings with every append goes on, as its conversation does."""
    async with sidecar(tmp_path, {"client_policy_fields": ["min_messages"]}) as s:
        await s.chat(policy={"min_messages": 20}).append(said(1))

    async with sidecar(tmp_path, {"client_policy_fields": ["enabled"]}) as s:
        answer = await s.chat(policy={"min_messages": 20}).append(said(2))

        assert (answer.message_version, answer.settings_ignored) == (2, False)


async def test_a_conversation_without_a_context_length_takes_the_operators(tmp_path):
    """The client's length goes first, then the operator's table by model, then the default; the source is named."""
    settings = {"tokens.context_lengths": {"gpt-*": 64_000}, "tokens.default_context_length": 5_000}
    async with sidecar(tmp_path, settings) as s:
        named, other = s.chat("c1", model="gpt-5", context_length=0), s.chat("c2", context_length=0)

        named_usage = (await named.append(said(1))).usage
        other_usage = (await other.append(said(1))).usage

        assert named_usage.context_length == 64_000
        assert named_usage.context_length_source == conversation.CONTEXT_LENGTH_SOURCE_TABLE
        assert other_usage.context_length == 5_000
        assert other_usage.context_length_source == conversation.CONTEXT_LENGTH_SOURCE_DEFAULT


async def test_a_models_description_arrives_without_anybody_waiting(tmp_path):
    """The conversation opens at once, and an event brings the length when the model's server has answered."""
    async with FakeOllama() as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        chat = s.chat(model="qwen2.5:3b", context_length=0)

        await chat.append(said(1))
        watch = s.conversations.WatchConversation(
            api.WatchConversationRequest(conversation_id="c1"), timeout=PATIENCE_S
        )
        async for item in watch:
            if item.event.type == "SettingsChanged":
                break
        watch.cancel()
        usage = (await chat.state()).usage

        assert usage.context_length == 32_768
        assert usage.context_length_source == conversation.CONTEXT_LENGTH_SOURCE_MODEL


async def test_a_forced_pass_ignores_ratio_and_message_count(tmp_path):
    """SummarizeConversation answers the pass at its end, and its record is live."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(policy={"min_range_tokens": 1})
        await chat.talk(6, tokens=200)

        done = await chat.summarize()

        (record,) = await chat.summaries()
        assert (done.trigger, done.state) == (conversation.TRIGGER_FORCED, conversation.SUMMARIZATION_STATE_COMPLETED)
        assert done.summary_id == record.id == (await chat.state()).live_summary_id
        assert record.provenance == summary_pb2.PROVENANCE_MODEL
        assert [(r.first, r.last) for r in record.covered] == [(1, 3)]
        assert record.covered_message_count == 3
        assert record.tokens_after < record.tokens_before == 600


async def test_a_forced_pass_without_wait_answers_at_once(tmp_path):
    """A second call while it is under way answers the same pass."""
    async with FakeOllama(responder=hanging()) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        chat = s.chat(policy={"min_range_tokens": 1})
        await chat.talk(6, tokens=200)

        first = await chat.summarize(wait_s=0)
        second = await chat.summarize(wait_s=0.05)

        assert first.state == second.state == conversation.SUMMARIZATION_STATE_PENDING
        assert first.id == second.id == (await chat.state()).pending_summarization_id


async def test_passes_and_records_can_be_asked_for_one_by_one(tmp_path):
    """GetSummarization and GetSummary answer as the lists do; a superseded record is not live by itself only."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.talk(14, wait_s=PATIENCE_S)
        await chat.talk(8, wait_s=PATIENCE_S)
        passes, records = await chat.passes(), await chat.summaries()

        one = await s.conversations.GetSummarization(
            api.GetSummarizationRequest(conversation_id="c1", summarization_id=passes[0].id)
        )
        parent = await s.conversations.GetSummary(api.GetSummaryRequest(conversation_id="c1", summary_id=records[1].id))

        assert one.summarization == passes[0]
        assert parent.summary == records[1]
        assert parent.live, "the newer record stands on it"
        assert [r.depth for r in records] == [1, 0]
        assert records[0].parent_id == records[1].id


async def test_conversations_are_listed_last_changed_first_and_filtered(tmp_path):
    """The filter takes every label that is asked for, and the ratio."""
    async with sidecar(tmp_path) as s:
        await s.chat("a", labels={"team": "blue", "env": "prod"}).append(said(1, tokens=1_000))
        await s.chat("b", labels={"team": "blue"}).append(said(1, tokens=10))
        await s.chat("c", labels={"team": "blu"}).append(said(1, tokens=1_200))

        async def listed(**query: Any) -> list[str]:
            answer = await s.conversations.ListConversations(api.ListConversationsRequest(**query))
            return [c.id for c in answer.conversations]

        assert await listed() == ["c", "b", "a"]
        assert await listed(labels={"team": "blue"}) == ["b", "a"]
        assert await listed(labels={"team": "blue", "env": "prod"}) == ["a"]
        assert await listed(labels={"team": "%"}) == []
        assert await listed(min_ratio=0.5) == ["c", "a"]


async def test_tool_messages_keep_their_calls_in_the_window(tmp_path):
    """A call and its results are there together, in the order in which they came."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1), call(2, "x", "y"), tool_result(3, "y"), tool_result(4, "x"), said(5))

        window = await chat.context()

        assert [m.message.id for m in window.messages] == ["m1", "m2", "m3", "m4", "m5"]
        assert [c.id for c in window.messages[1].message.tool_calls] == ["x", "y"]


async def test_a_forced_pass_at_the_depth_limit_with_halt_is_refused(tmp_path):
    """HALT is S1's rule to the letter, and says so."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(
            policy={
                "min_range_tokens": 1,
                "max_summary_chain_depth": 1,
                "on_depth_limit": conversation.DEPTH_LIMIT_HALT,
            }
        )
        await chat.talk(6, tokens=200)
        await chat.summarize()
        await chat.talk(6, tokens=20)

        async with refused("FAILED_PRECONDITION", "DEPTH_LIMIT"):
            await chat.summarize()


async def test_a_model_that_is_missing_leads_to_the_next_of_the_list(tmp_path):
    """The order of preference is S1's summarizerModelPreference."""
    async with FakeOllama() as ollama:
        settings = on_ollama(ollama, "absent:1b") | {
            "summarizer.models": ["ollama:absent:1b", script(tmp_path, {"default": True})["summarizer.models"][0]]
        }
        async with sidecar(tmp_path, settings) as s:
            chat = s.chat(policy={"min_range_tokens": 1})
            await chat.talk(6, tokens=200)

            done = await chat.summarize()

            assert done.state == conversation.SUMMARIZATION_STATE_COMPLETED
            assert (await chat.summaries())[0].model.startswith("scripted:")


async def test_an_unknown_method_is_refused_with_a_reason(tmp_path):
    """A newer client learns that this version lacks the method; every error has an ErrorInfo."""
    async with sidecar(tmp_path) as s:
        for method in ("/abridged.v1.ConversationService/NothingYet", "/abridged.v1.Nothing/AtAll"):
            unary: Any = s.channel.unary_unary(method)
            async with refused("UNIMPLEMENTED", "NOT_IMPLEMENTED"):
                await unary(b"", timeout=PATIENCE_S)
        stream: Any = s.channel.stream_stream("/abridged.v1.ConversationService/NothingYetStreamed")
        async with refused("UNIMPLEMENTED", "NOT_IMPLEMENTED"):
            async for _ in stream(iter([b"", b""]), timeout=PATIENCE_S):
                pass
        assert s.channel.get_state() is grpc.ChannelConnectivity.READY


async def test_an_unknown_method_whose_request_never_comes_is_answered_and_holds_no_place(tmp_path):
    """Nobody can keep others out by calling a method that does not exist and then saying nothing."""
    never = asyncio.Event()

    async def silent() -> AsyncIterator[bytes]:
        await never.wait()
        yield b""

    async with sidecar(tmp_path, {"server.concurrent_rpcs_max": 1}) as s:
        unknown: Any = s.channel.stream_unary("/abridged.v1.Nothing/AtAll")
        calling = asyncio.ensure_future(unknown(silent(), timeout=PATIENCE_S))
        await asyncio.wait({calling}, timeout=0.3)

        assert (await s.chat().append(said(1))).message_version == 1
        assert not calling.done()
        async with refused("UNIMPLEMENTED", "NOT_IMPLEMENTED"):
            await calling


async def test_the_name_of_an_unknown_method_reaches_no_span(tmp_path):
    """The name is a client's text, and spans would have names without number."""
    with otlp_sink() as sink:
        async with sidecar(tmp_path, environ=sink.environ) as s:
            unknown: Any = s.channel.unary_unary("/abridged.v1.Nothing/CANARY")
            async with refused("UNIMPLEMENTED", "NOT_IMPLEMENTED"):
                await unknown(b"", timeout=PATIENCE_S)

    assert b"_OTHER" in sink.everything
    assert b"CANARY" not in sink.everything
