"""The plan's integration tests of the route and its edge cases, item by item, over the whole path.

The plan numbers its lists "integration (route) 1 to 5" and "edge cases 1 to 4"; the tests are named for the items.
"""

from __future__ import annotations

import pytest

from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import message_pb2
from tests.support.answers import record, saying
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import ANY_DRAFT, Chat, call, on_ollama, said, script, sidecar, tool_result

BOTH = pytest.mark.parametrize("model", ["scripted:default", "extractive:"])


async def covered_or_in_window(chat: Chat) -> set[int]:
    """The numbers of all messages that the window has or that a record of its chain stands for."""
    window = await chat.context()
    numbers = {m.number for m in window.messages if m.number}
    for made in await chat.summaries():
        numbers |= {n for r in made.covered for n in range(r.first, r.last + 1)}
    return numbers


@BOTH
async def test_s1_integration_1_a_long_thread_triggers_exactly_once_at_the_ratio(tmp_path, model):
    """Single long thread triggers summarization exactly once at a ratio of about 0.8."""
    async with sidecar(tmp_path, {"summarizer.models": [model]}) as s:
        chat = s.chat()
        triggered = []
        for _ in range(16):
            answer = await chat.talk(1, wait_s=PATIENCE_S)
            if answer.HasField("summarization"):
                triggered.append(answer.summarization)

        (only,) = triggered
        assert only.trigger == conversation.TRIGGER_RATIO
        assert only.state == conversation.SUMMARIZATION_STATE_COMPLETED
        assert 0.80 <= only.token_ratio < 0.80 + 120 / 2_000
        state = await chat.state()
        assert state.last_summarization.message_count == 14
        assert state.last_summarization.token_ratio == only.token_ratio
        assert len(await chat.events("SummarizationRequested")) == 1


async def test_s1_integration_2_hysteresis_prevents_a_second_pass_after_a_small_burst(tmp_path):
    """Past the trigger again, but neither below reset since nor enough new messages: nothing."""
    policy = {
        "reset_token_ratio": 0.45,
        "tail_token_ratio": 0.32,
        "min_messages": 2,
        "cooldown_messages": 0,
        "rearm_messages": 20,
    }
    async with sidecar(tmp_path) as s:
        chat = s.chat(policy=policy, overhead_tokens=600)
        await chat.talk(12, tokens=85, wait_s=PATIENCE_S)
        assert len(await chat.passes()) == 1
        after_pass = (await chat.state()).usage.ratio
        assert 0.45 < after_pass < 0.8

        burst = await chat.talk(3, tokens=195, wait_s=PATIENCE_S)

        assert burst.usage.ratio >= 0.8
        assert not burst.HasField("summarization")
        rearmed = await chat.talk(17, tokens=1, wait_s=PATIENCE_S)
        assert rearmed.summarization.trigger == conversation.TRIGGER_RATIO


async def test_s1_integration_2_cooldown_holds_the_next_pass_back(tmp_path):
    """Fewer than cooldown_messages since the last pass: nothing, though armed."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(policy={"cooldown_messages": 5, "min_messages": 2})
        await chat.talk(14, wait_s=PATIENCE_S)

        held = await chat.talk(4, tokens=220)
        released = await chat.talk(1, tokens=1)

        assert held.usage.ratio >= 0.8
        assert not held.HasField("summarization")
        assert released.HasField("summarization")


async def test_s1_integration_3_the_depth_guard_halts_after_the_configured_maximum(tmp_path):
    """The setting on_depth_limit HALT keeps the plan to the letter: no further pass, said once."""
    policy = {"max_summary_chain_depth": 2, "on_depth_limit": conversation.DEPTH_LIMIT_HALT}
    async with sidecar(tmp_path) as s:
        chat = s.chat(policy=policy)
        for _ in range(10):
            await chat.talk(6, wait_s=PATIENCE_S)

        assert [r.depth for r in await chat.summaries()] == [1, 0]
        skips = await chat.events("SummarizationSkipped")
        assert [skip.reason for skip in skips] == [conversation.SKIP_REASON_DEPTH_LIMIT]
        assert (await chat.state()).held_by == conversation.HELD_BY_DEPTH_LIMIT


async def test_s1_integration_3_by_default_the_chain_is_made_anew_at_the_maximum(tmp_path):
    """REBASE: the window never overflows for want of depth, and everything stays covered."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(policy={"max_summary_chain_depth": 2})
        for _ in range(10):
            await chat.talk(6, wait_s=PATIENCE_S)

        depths = [r.depth for r in reversed(await chat.summaries())]
        assert depths[:3] == [0, 1, 0]
        assert max(depths) == 1
        assert (await chat.state()).usage.ratio < 0.8
        assert await covered_or_in_window(chat) == set(range(1, 61))


async def test_s1_integration_4_an_emergency_ignores_the_cooldown(tmp_path):
    """A ratio of 1.0 or more lets nothing hold a pass back."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(policy={"cooldown_messages": 50, "rearm_messages": 50})
        await chat.talk(14, wait_s=PATIENCE_S)
        assert (await chat.talk(3, tokens=280)).usage.ratio < 1

        answer = await chat.talk(3, tokens=120)

        assert answer.usage.ratio >= 1
        assert answer.summarization.trigger == conversation.TRIGGER_EMERGENCY


@pytest.mark.parametrize("steps", [[{"text": "not JSON"}], [{"error": "unavailable"}], [{"error": "refused"}]])
async def test_s1_integration_5_a_failed_summarization_loses_no_message(tmp_path, steps):
    """Falls back to the original messages, and marks it by an event."""
    async with sidecar(tmp_path, script(tmp_path, *steps)) as s:
        chat = s.chat()
        await chat.talk(14, wait_s=PATIENCE_S)

        window = await chat.context()

        assert [m.message.id for m in window.messages] == [f"m{n}" for n in range(1, 15)]
        assert not window.compacted
        assert len(await chat.events("SummarizationFailed")) == 1
        assert (await chat.append(said(15, tokens=1))).message_version == 15


@BOTH
async def test_s1_edge_1_an_extremely_long_single_user_message_is_kept_and_said(tmp_path, model):
    """The newest user message stays verbatim; a window that it alone overfills is irreducible, said once."""
    async with sidecar(tmp_path, {"summarizer.models": [model]}) as s:
        chat = s.chat()
        long = "The importer reads orders. " * 4_000
        await chat.append(said(1, long), wait_s=PATIENCE_S)

        window = await chat.context()

        assert window.messages[0].message.content == long
        assert window.over_limit
        assert [e.reason for e in await chat.events("SummarizationSkipped")] == [conversation.SKIP_REASON_IRREDUCIBLE]


@BOTH
async def test_s1_edge_1_an_extremely_long_message_is_summarized_once_it_is_old(tmp_path, model):
    """A model that cannot hold it whole reads it in parts: nothing is trimmed."""
    async with sidecar(tmp_path, {"summarizer.models": [model]}) as s:
        chat = s.chat(context_length=20_000)
        long = "\n\n".join(f"Paragraph {n}: table orders_{n} was moved to host db-{n}." for n in range(900))
        await chat.append(said(1, long))
        for number in range(2, 14):
            await chat.append(said(number, tokens=60), wait_s=PATIENCE_S)

        window = await chat.context(wait_s=PATIENCE_S)

        assert window.compacted
        assert window.usage.ratio < 0.8
        assert await covered_or_in_window(chat) == set(range(1, 14))


@BOTH
async def test_s1_edge_2_a_rapid_burst_across_the_threshold_makes_one_summarization(tmp_path, model):
    """Rapid 5-message burst crossing threshold: only one summarization, in one batch or in five calls."""
    async with sidecar(tmp_path, {"summarizer.models": [model]}) as s:
        one_batch, five_calls = s.chat("a"), s.chat("b")
        await one_batch.talk(11)
        await five_calls.talk(11)

        await one_batch.talk(5, wait_s=PATIENCE_S)
        for _ in range(5):
            await five_calls.talk(1)
        await s.idle()

        assert len(await one_batch.passes()) == 1
        assert len(await five_calls.passes()) == 1


@BOTH
async def test_s1_edge_3_a_small_context_compresses_several_times_up_to_the_depth_cap(tmp_path, model):
    """Model with small context (2K) triggers multiple compressions up to depth cap, and never stays past its budget."""
    policy = {"max_summary_chain_depth": 3, "on_depth_limit": conversation.DEPTH_LIMIT_HALT}
    async with sidecar(tmp_path, {"summarizer.models": [model]}) as s:
        chat = s.chat(context_length=2_048, policy=policy)
        ratios = []
        for _ in range(40):
            answer = await chat.talk(1, wait_s=PATIENCE_S)
            ratios.append(answer.usage.ratio)
            if (await chat.state()).held_by == conversation.HELD_BY_DEPTH_LIMIT:
                break

        assert [r.depth for r in await chat.summaries()] == [2, 1, 0]
        assert max(ratios) < 1
        assert await covered_or_in_window(chat) == set(range(1, chat.count + 1))


@BOTH
async def test_s1_edge_4_tool_output_does_not_bloat_the_summary(tmp_path, model):
    """Tool output messages (optionally filtered): a record stays within its cap however much the tools printed."""
    async with sidecar(tmp_path, {"summarizer.models": [model]}) as s:
        chat = s.chat(context_length=20_000)
        output = "\n".join(f"row {n}: order-{n} shipped from db-{n % 7}" for n in range(600))
        await chat.append(said(1), call(2, "a"), tool_result(3, "a", output), said(4), *(said(n) for n in range(5, 12)))

        done = await chat.summarize()

        assert done.state == conversation.SUMMARIZATION_STATE_COMPLETED
        (made,) = await chat.summaries()
        assert made.tokens_after < 1_400 < made.tokens_before
        assert await covered_or_in_window(chat) == set(range(1, 12))


@pytest.mark.parametrize(
    ("mode", "rows"),
    [
        (conversation.TOOL_OUTPUT_FULL, 1_800),
        (conversation.TOOL_OUTPUT_CAPPED, 30),
        (conversation.TOOL_OUTPUT_OMITTED, 0),
    ],
)
async def test_s1_edge_4_tool_output_is_filtered_as_the_policy_says(tmp_path, mode, rows):
    """Whole, its first and last lines, or a line that says that there was one: in prompts of a source that is too long.

    The cap leaves nothing out that one call could hold.
    """
    async with (
        FakeOllama(responder=saying(record())) as ollama,
        sidecar(tmp_path, on_ollama(ollama) | ANY_DRAFT) as s,
    ):
        chat = s.chat(context_length=30_000, policy={"tool_output": mode})
        output = "\n".join(f"row {n}: shipped" for n in range(1_800))
        await chat.append(said(1), call(2, "a"), tool_result(3, "a", output), *(said(n) for n in range(4, 13)))

        await chat.summarize()

        prompts = "".join(body["messages"][-1]["content"] for body in ollama.asked())
        assert prompts.count("shipped") <= rows
        assert ("row 0: shipped" in prompts) == (rows > 0)
        assert ("row 1799: shipped" in prompts) == (rows > 0)
        original = await chat.context(view=api.CONTEXT_VIEW_ORIGINAL)
        assert original.messages[2].message.content == output
        assert original.messages[2].message.role == message_pb2.ROLE_TOOL


async def test_s1_edge_4_a_tool_result_that_one_call_holds_is_read_whole(tmp_path):
    """The default caps only a result that would take more calls."""
    async with (
        FakeOllama(responder=saying(record())) as ollama,
        sidecar(tmp_path, on_ollama(ollama) | ANY_DRAFT) as s,
    ):
        chat = s.chat(context_length=30_000)
        output = "\n".join(f"row {n}: shipped" for n in range(300))
        await chat.append(said(1), call(2, "a"), tool_result(3, "a", output), *(said(n) for n in range(4, 13)))

        await chat.summarize()

        (body,) = ollama.asked()
        assert body["messages"][-1]["content"].count("shipped") == 300
