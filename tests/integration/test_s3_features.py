"""Features that the design "Summarisation Approaches" asked for, over the whole path and with its preset."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from abridged.service.config.sources import load
from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import summary_pb2
from abridged.v1 import text_service_pb2 as texts
from tests.support.answers import record, saying
from tests.support.ollama_behaviour import BEHAVIOURS
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.presets import preset
from tests.support.sidecar import ANY_DRAFT, Sidecar, call, on_ollama, said, script, sidecar, tool_result
from tests.support.texts import document, summarized

S3 = preset("s3", "policy", "summarizer")
"""The preset, as flags."""


@asynccontextmanager
async def s3(folder: Path, **settings: Any) -> AsyncIterator[Sidecar]:
    """A sidecar with the preset."""
    async with sidecar(folder, {**S3, **settings}) as s:
        yield s


async def test_s3_extractive_fallback_serves_when_the_model_is_offline(tmp_path):
    """Graceful fallback to the heuristic: the same, whenever it is asked, and labelled."""
    async with FakeOllama(behaviour=BEHAVIOURS["busy"]) as ollama, s3(tmp_path, **on_ollama(ollama)) as s:
        first, second = [(await summarized(s, document(20))).summary for _ in range(2)]

    assert first.provenance == summary_pb2.PROVENANCE_EXTRACTIVE
    assert first.error_class == conversation.ERROR_CLASS_TRANSPORT
    assert first.text == second.text != ""


async def test_s3_extractive_fallback_serves_a_pass_too(tmp_path):
    """A conversation's record, when the model fails."""
    async with s3(tmp_path, **script(tmp_path, {"error": "refused"})) as s:
        chat = s.chat()
        await chat.talk(20, wait_s=PATIENCE_S)
        (made,) = await chat.summaries()

    assert made.provenance == summary_pb2.PROVENANCE_EXTRACTIVE


async def test_s3_the_input_guard_refuses_nothing(tmp_path):
    """Above 4,000 tokens a text is read in parts, where the design's tool said SECURITY_ERROR."""
    async with s3(tmp_path, **ANY_DRAFT) as s:
        made = (await summarized(s, document(150), fallback=conversation.FALLBACK_NEVER)).summary

    assert made.tokens_before > 4_000
    assert made.provenance == summary_pb2.PROVENANCE_MERGED


@pytest.mark.parametrize(("paragraphs", "most"), [(60, 256), (7, 256), (1, 128)])
async def test_s3_a_summary_is_at_most_half_of_what_it_replaces(tmp_path, paragraphs, most):
    """token_cap = min(SUMMARY_MAX_TOKENS, max(128, dropped_tokens // 2))."""
    async with s3(tmp_path, **{"summarizer.models": ["extractive:default"]}) as s:
        made = (await summarized(s, document(paragraphs))).summary

    assert made.tokens_after <= min(256, max(128, made.tokens_before // 2)) <= most


async def test_s3_envelopes_are_unwrapped_when_counted_and_prompted(tmp_path):
    """`{payload, sig}` costs what its result costs, and no signature reaches a model."""
    signature = "eyJhbGciOiJIUzI1NiJ9." + "c2lnbmF0dXJl" * 30
    payload = json.dumps({"result": "Table orders_7 has 4711 rows."})
    envelope = json.dumps({"payload": payload, "sig": signature})
    async with FakeOllama(responder=saying(record())) as ollama, s3(tmp_path, **on_ollama(ollama)) as s:
        chat = s.chat()
        await chat.append(said(1), call(2, "a"), tool_result(3, "a", envelope))
        await chat.talk(16, wait_s=PATIENCE_S)
        wrapped, bare = [
            await s.texts.CountTokens(texts.CountTokensRequest(messages=[tool_result(1, "a", content)]))
            for content in (envelope, "Table orders_7 has 4711 rows.")
        ]
        prompts = "".join(m["content"] for asked in ollama.asked() for m in asked["messages"])

    assert wrapped.total_tokens == bare.total_tokens
    assert "orders_7" in prompts
    assert signature not in prompts


async def test_s3_the_stateless_tool_keeps_nothing(tmp_path):
    """`summarize_text`: no conversation, no event, and `max_tokens` holds."""
    async with s3(tmp_path) as s:
        made = (await summarized(s, document(20), max_tokens=100)).summary
        listed = await s.conversations.ListConversations(api.ListConversationsRequest())

    assert made.tokens_after <= 100
    assert list(listed.conversations) == []


async def test_s3_the_recursive_summarizer_reports_each_of_its_calls(tmp_path):
    """Chunks, then merges: the design's multi-stage summarisation, streamed for very long inputs."""
    async with s3(tmp_path, **ANY_DRAFT) as s:
        heard = await summarized(s, document(150), fallback=conversation.FALLBACK_NEVER)

    last = heard.progress[-1]
    assert 1 < heard.summary.attempts == last.attempt == last.calls_done <= last.calls_total


@pytest.mark.parametrize(
    ("environ", "model"),
    [
        ({"SUMMARY_MODEL": "gemma:2b", "LLM_MODEL": "qwen2.5:7b"}, "ollama:gemma:2b"),
        ({"LLM_MODEL": "qwen2.5:7b"}, "ollama:qwen2.5:7b"),
        ({}, "ollama:qwen2.5:3b"),
    ],
)
def test_s3_the_model_is_summary_model_else_llm_model(environ, model):
    """The variables are read as the design's settings were."""
    assert load(environ).settings.summarizer.models == (model,)


async def test_s3_raw_access_needs_no_pre_chunking(tmp_path):
    """The messages as they were appended stay readable after a pass: `view: ORIGINAL`."""
    async with s3(tmp_path) as s:
        chat = s.chat()
        await chat.talk(20, wait_s=PATIENCE_S)
        window = await chat.context()
        original = await chat.context(view=api.CONTEXT_VIEW_ORIGINAL)

    assert window.compacted
    assert [m.message.id for m in original.messages] == [f"m{n}" for n in range(1, 21)]
