"""The summary as a message of the window: what it costs beside its text, who counts it, and that it does not change."""

from __future__ import annotations

from typing import Any

import pytest

from abridged.service.domain.tokens import MESSAGE_OVERHEAD_TOKENS
from abridged.service.tokenizers.embedded import EmbeddedCounter
from abridged.service.tokenizers.estimated import EstimatingCounter
from abridged.v1 import conversation_service_pb2 as api
from tests.support.answers import record
from tests.support.sidecar import ANY_DRAFT, Chat, said, script, sidecar

TEXT = "The user and the assistant settled how the importer reads orders, and where it writes them."


def turn(number: int) -> str:
    return f"Turn {number}: the importer reads table orders_{number} on host db-{number:02d}. " * 5


def estimated(text: str) -> int:
    return EstimatingCounter().count(text) + MESSAGE_OVERHEAD_TOKENS


async def summary_of(chat: Chat, *, counted: float | None = None) -> Any:
    """The summary message of a chat whose caller counts `counted` times our count, or nothing."""
    texts = {n: turn(n) for n in range(1, 15)}
    tokens = {n: None if counted is None else round(counted * estimated(text)) for n, text in texts.items()}
    await chat.append(*(said(n, text, tokens=tokens[n]) for n, text in texts.items()))
    await chat.summarize()
    (summary,) = [m for m in (await chat.context()).messages if m.tag]
    return summary


def answering(tmp_path: Any) -> dict[str, Any]:
    """A model that always writes TEXT, in windows without a ledger."""
    return script(tmp_path, {"text": record(TEXT)}) | ANY_DRAFT | {"policy.ledger_token_ratio": 0.0}


async def test_the_frame_of_a_summary_takes_less_than_thirty_tokens(tmp_path):
    """The cap may be 128: the rest is for what was said, and for the names that code keeps."""
    async with sidecar(tmp_path, answering(tmp_path)) as s:
        summary = await summary_of(s.chat(context_length=8_000))

        assert TEXT in summary.message.content
        assert summary.tokens == estimated(summary.message.content)
        lines = summary.message.content.splitlines()
        frame = "\n".join(line for line in lines if not line.startswith(("Names: ", "Participants: ")))
        real = EmbeddedCounter("o200k").count
        assert real(frame) + MESSAGE_OVERHEAD_TOKENS - real(TEXT) <= 30


async def test_the_same_record_is_the_same_message_byte_for_byte(tmp_path):
    """Two conversations have it alike, each time that it is asked for and after a restart: nothing in it is random."""
    async with sidecar(tmp_path, answering(tmp_path)) as s:
        one, two = [await summary_of(s.chat(name, context_length=8_000)) for name in ("one", "two")]
        assert one.message.id != two.message.id
        assert one.message.content == two.message.content
    async with sidecar(tmp_path, answering(tmp_path)) as s:
        again = (await s.chat("one").context()).messages[0]
        assert again == one


@pytest.mark.parametrize("counted", [0.8, 1.5])
async def test_a_caller_who_counts_everything_teaches_what_the_summary_costs(tmp_path, counted):
    """His tokens of the messages are to ours as those of the summary are."""
    async with sidecar(tmp_path, answering(tmp_path)) as s:
        summary = await summary_of(s.chat(context_length=8_000), counted=counted)

        expected = counted * estimated(summary.message.content)
        assert summary.tokens == pytest.approx(expected, rel=0.01, abs=1)
        assert (await s.chat().summaries())[0].tokens_after == summary.tokens


async def test_what_reports_and_counts_both_teach_is_learned_once(tmp_path):
    """Usage reports correct an estimate; a caller's counts that differ from it alike teach nothing more."""
    async with sidecar(tmp_path, answering(tmp_path)) as s:
        other = s.chat("other", context_length=8_000, model="m")
        await other.append(*(said(n, turn(n)) for n in range(1, 9)))
        tokens = (await other.context()).usage.window_tokens * 3 // 2
        report = api.ReportUsageRequest(conversation_id="other", message_version=8, prompt_tokens=tokens)
        factor = (await s.conversations.ReportUsage(report)).usage.calibration_factor

        summary = await summary_of(s.chat(context_length=8_000, model="m"), counted=1.5)

        assert factor > 1.1
        assert (await s.chat().state()).usage.calibration_factor == factor
        assert summary.tokens == pytest.approx(1.5 * estimated(summary.message.content), rel=0.02, abs=1)


async def test_the_ledger_follows_the_text_and_is_counted_like_it(tmp_path):
    """Identifiers that the record does not name stand after it, in its frame; GetContext returns them in full when
    asked.

    Entries are counted one by one, each with its name, also where several share a line: at least nine tenths of the
    tokens of the whole, as estimates of short lines differ, and for short ones at most half as many more.
    """
    async with sidecar(tmp_path, answering(tmp_path) | {"policy.ledger_token_ratio": 0.15}) as s:
        chat = s.chat(context_length=8_000)
        summary = await summary_of(chat)

        before, _, after = summary.message.content.partition("Facts as written:")
        assert TEXT in before
        assert "orders_1" in after
        assert after.rstrip().endswith("</conversation_summary>")
        whole = estimated(summary.message.content)
        assert 0.9 * whole <= summary.tokens < 1.5 * whole
        bare, full = await chat.context(), await chat.context(with_ledger=True)
        assert not bare.ledger
        first = next(entry for entry in full.ledger if entry.text == "orders_1")
        assert (list(first.numbers), first.count, first.rest) == ([1], 1, " on host db-01")
        (made,) = await chat.summaries()
        kept = await s.conversations.GetSummary(
            api.GetSummaryRequest(conversation_id=chat.id, summary_id=made.id), metadata=s.metadata
        )
        assert list(kept.ledger)[: len(full.ledger)] == list(full.ledger)
