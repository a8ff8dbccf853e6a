"""ReportUsage: a chat API's real counts correct the estimates, once."""

from __future__ import annotations

import pytest

from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import event_pb2
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refused
from tests.support.sidecar import Chat, said, sidecar

TEXT = "The importer reads orders from the queue and writes them to the warehouse. " * 20


async def report(chat: Chat, prompt_tokens: int, *, version: int = 0, summary_id: str = "") -> conversation.TokenUsage:
    request = api.ReportUsageRequest(
        conversation_id=chat.id,
        message_version=version or chat.count,
        prompt_tokens=prompt_tokens,
        summary_id=summary_id,
    )
    usage: conversation.TokenUsage = (await chat.sidecar.conversations.ReportUsage(request)).usage
    return usage


async def test_a_report_moves_the_estimate_towards_what_was_counted(tmp_path):
    """Window, ratio and every message's count follow."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(context_length=100_000)
        before = (await chat.append(said(1, TEXT))).usage.window_tokens

        usage = await report(chat, 2 * before)

        assert 1 < usage.calibration_factor <= 2
        assert usage.window_tokens == pytest.approx(before * usage.calibration_factor, abs=1)
        assert (await chat.context()).messages[0].tokens == usage.window_tokens


async def test_the_same_report_again_teaches_nothing(tmp_path):
    """Idempotent by message version."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(context_length=100_000)
        before = (await chat.append(said(1, TEXT))).usage.window_tokens
        first = await report(chat, 2 * before)

        again = await report(chat, 2 * before)

        assert again == first
        assert len(await chat.events("UsageReported")) == 1


@pytest.mark.parametrize(("model", "source"), [("openai:gpt-4o", "TOKENIZER"), ("ollama:qwen2.5:3b", "ESTIMATE")])
async def test_a_vocabulary_of_another_model_is_an_estimate_that_reports_correct(tmp_path, model, source):
    """The embedded vocabulary is exact for its own models; elsewhere a report says better."""
    pytest.importorskip("bpe_openai", reason="the extra `bpe` is not installed")
    async with sidecar(tmp_path, {"tokens.counter": "bpe"}) as s:
        chat = s.chat(context_length=100_000, model=model)
        before = (await chat.append(said(1, TEXT))).usage.window_tokens
        await chat.append(said(2, TEXT), said(3, tokens=7))
        appended = await chat.events("MessageAppended")

        usage = await report(chat, 4 * before)

    sources = [event_pb2.TokenSource.Name(event.token_source) for event in appended]
    assert sources == [f"TOKEN_SOURCE_{name}" for name in (source, source, "CALLER")]
    assert (usage.calibration_factor > 1) is (source == "ESTIMATE")


async def test_counts_of_the_caller_are_not_corrected(tmp_path):
    """Only estimates learn."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1, tokens=500))

        usage = await report(chat, 1_000)

        assert (usage.window_tokens, usage.calibration_factor) == (500, 1)


async def test_a_report_can_trigger_a_pass(tmp_path):
    """The rules run on the learned factor: a window that is fuller than thought is summarized."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(context_length=100_000)
        answer = await chat.append(*(said(n, TEXT) for n in range(1, 21)))
        await chat.update(["context_length"], context_length=round(answer.usage.window_tokens / 0.7))

        await report(chat, 2 * answer.usage.window_tokens)

        assert (await chat.context(wait_s=PATIENCE_S)).compacted


async def test_a_report_of_a_window_that_a_pass_has_replaced_teaches_nothing(tmp_path):
    """The report is accepted: the client could not know."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(policy={"min_range_tokens": 1})
        for number in range(1, 9):
            await chat.append(said(number, TEXT[:400]))
        await chat.summarize()

        usage = await report(chat, 5_000, summary_id="")

        assert usage.calibration_factor == 1
        assert await chat.events("UsageReported") == []


async def test_a_report_of_a_version_that_is_not_there_is_refused(tmp_path):
    """The refusal has both versions."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1))

        async with refused("FAILED_PRECONDITION", "VERSION_NOT_REACHED") as refusal:
            await report(chat, 100, version=2)

        assert refusal.metadata == {"wanted": "2", "actual": "1"}


async def test_what_was_learned_serves_the_next_conversation_of_the_model(tmp_path):
    """The factor does not serve other models."""
    async with sidecar(tmp_path) as s:
        chat = s.chat("c1", model="m", context_length=100_000)
        before = (await chat.append(said(1, TEXT))).usage.window_tokens
        factor = (await report(chat, 2 * before)).calibration_factor

        same = (await s.chat("c2", model="m").append(said(1))).usage.calibration_factor
        other = (await s.chat("c3", model="n").append(said(1))).usage.calibration_factor

        assert (same, other) == (factor, 1)


async def test_reports_of_all_conversations_of_a_model_teach_one_factor(tmp_path):
    """A second conversation goes on from what the first one's reports taught, and takes nothing back by an append."""
    async with sidecar(tmp_path) as s:
        old = s.chat("c0", model="m", context_length=100_000)
        await old.append(said(1))
        chat = s.chat("c1", model="m", context_length=100_000)
        before = (await chat.append(said(1, TEXT))).usage.window_tokens
        for version in range(1, 6):
            factor = (await report(chat, 2 * before * version, version=version)).calibration_factor
            await chat.append(said(version + 1, TEXT))
        await old.append(said(2, TEXT))

        tokens = (await old.state()).usage.window_tokens
        opened = (await s.chat("c2", model="m").append(said(1))).usage.calibration_factor
        alone = 1 + (2 - 1) / 2
        learned = (await report(old, 2 * tokens, version=2)).calibration_factor

    assert opened == factor > alone
    assert learned > factor
