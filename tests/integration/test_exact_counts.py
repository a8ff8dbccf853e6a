"""Counts by a chat model's own tokenizer, from Ollama's description or from a file, and what says which counter
counted."""

from __future__ import annotations

import asyncio

import pytest

from abridged.service.domain.tokens import MESSAGE_OVERHEAD_TOKENS
from abridged.service.tokenizers.exact import ExactCounter
from abridged.service.tokenizers.rebuilt import rebuilt
from abridged.v1 import conversation_pb2, event_pb2, server_info_service_pb2, text_service_pb2
from tests.support.ollama_catalogue import FakeModel
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import Chat, Sidecar, on_ollama, said, sidecar
from tests.support.vocabularies import byte_level_info, bytes_alone_info, three_token_info

TEXT = "The importer isn't done: 4096 rows of orders_17.\n漢字 🎉 "
NAME = "chat:1b"
MODEL = f"ollama:{NAME}"
NOT_EXACT = {"tokens.exact": False}


def fake(pre: str = "gpt-2") -> FakeModel:
    return FakeModel(name=NAME, vocabulary=byte_level_info(pre)[0])


def real_count(text: str) -> int:
    return ExactCounter("real", NAME, rebuilt(byte_level_info()[0])).count(text)


async def counted(s: Sidecar) -> text_service_pb2.CountTokensResponse:
    request = text_service_pb2.CountTokensRequest(texts=[TEXT], model=MODEL)
    answer: text_service_pb2.CountTokensResponse = await s.texts.CountTokens(request)
    return answer


async def settled(s: Sidecar) -> text_service_pb2.CountTokensResponse:
    """The count once it is known whether the model's tokenizer can be had."""
    async with asyncio.timeout(PATIENCE_S):
        while (answer := await counted(s)).estimate_reason == "its tokenizer is being read":
            pass
    return answer


async def test_a_models_own_tokenizer_counts_as_soon_as_it_is_known(tmp_path):
    """Texts and messages alike; what came before is counted again, and the factor of its estimate says so."""
    async with FakeOllama(models=[fake()]) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        chat = s.chat("c1", model=MODEL)
        await chat.append(said(1, TEXT))
        answer = await settled(s)
        before = await recounted(chat)
        await chat.append(said(2, TEXT))
        after = (await chat.state()).usage
        info = await s.info.GetServerInfo(server_info_service_pb2.GetServerInfoRequest())

    assert answer.counter.startswith("tokenizer:")
    assert answer.estimate_reason == ""
    assert [c.source for c in answer.texts] == [event_pb2.TOKEN_SOURCE_TOKENIZER]
    assert answer.total_tokens == real_count(TEXT)
    assert before.window_tokens == real_count(TEXT) + MESSAGE_OVERHEAD_TOKENS
    assert after.window_tokens - before.window_tokens == real_count(TEXT) + MESSAGE_OVERHEAD_TOKENS
    assert (info.counter, info.counts_exactly) == ("estimate:o200k", True)


async def recounted(chat: Chat) -> conversation_pb2.TokenUsage:
    """The usage once the estimates of the window have been counted again."""
    async with asyncio.timeout(PATIENCE_S):
        usage: conversation_pb2.TokenUsage = (await chat.state()).usage
        while usage.calibration_factor == 1.0:
            usage = (await chat.state()).usage
    return usage


async def test_a_restart_counts_again_what_was_estimated_before_it(tmp_path):
    """The next message has a conversation counted that got none since the tokenizer was ready, too."""
    async with FakeOllama(models=[fake()]) as ollama:
        async with sidecar(tmp_path, on_ollama(ollama) | NOT_EXACT) as s:
            await s.chat("c1", model=MODEL).append(said(1, TEXT))
        async with sidecar(tmp_path, on_ollama(ollama)) as s:
            await settled(s)
            await s.chat("c1").append(said(2, TEXT))
            usage = await recounted(s.chat("c1"))

    assert usage.window_tokens == 2 * (real_count(TEXT) + MESSAGE_OVERHEAD_TOKENS)


async def test_a_restart_reads_the_tokenizer_from_disk(tmp_path):
    """The host is asked for no second description, and a conversation that is there needs no new setting."""
    async with FakeOllama(models=[fake()]) as ollama:
        async with sidecar(tmp_path, on_ollama(ollama)) as s:
            await s.chat("c1", model=MODEL).append(said(1, TEXT))
            first = await settled(s)
        async with sidecar(tmp_path, on_ollama(ollama)) as s:
            await s.chat("c1").append(said(2, TEXT))
            second = await settled(s)
        verbose = [r for r in ollama.requests if r.path == "/api/show" and r.json.get("verbose")]

    assert (second.counter, second.total_tokens) == (first.counter, first.total_tokens)
    assert len(verbose) == 1


async def test_a_vocabulary_that_cannot_be_rebuilt_is_estimated_and_said_so(tmp_path):
    """Never silently: the reason names the pre-tokenizer."""
    async with (
        FakeOllama(models=[fake("of-tomorrow")]) as ollama,
        sidecar(tmp_path, on_ollama(ollama)) as s,
    ):
        answer = await settled(s)

    assert (answer.counter, answer.texts[0].source) == ("estimate:o200k", event_pb2.TOKEN_SOURCE_ESTIMATE)
    assert answer.estimate_reason == "the pre-tokenizer 'of-tomorrow' is not known"


@pytest.mark.parametrize(
    ("vocabulary", "reason"),
    [(three_token_info(), "finite numbers"), (bytes_alone_info(), "tokens in a text that has about")],
)
async def test_a_vocabulary_that_no_chat_model_has_counts_nothing_as_exact(vocabulary, reason, tmp_path):
    """The vocabulary has bad scores, or miscounts a known text: counts are estimates, logged once with a remedy."""
    model = FakeModel(name=NAME, vocabulary=vocabulary)
    async with FakeOllama(models=[model]) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        answer = await settled(s)
        await s.chat("c1", model=MODEL).append(said(1, TEXT))
        await counted(s)
        logged = [line["hint"] for line in s.logs if line["event"] == "tokenizer.missing"]

    assert (answer.counter, answer.texts[0].source) == ("estimate:o200k", event_pb2.TOKEN_SOURCE_ESTIMATE)
    assert reason in answer.estimate_reason
    remedy = "messages stay counted by estimate:o200k; tokens.tokenizer_files may name a tokenizer.json"
    assert logged == [f"{answer.estimate_reason}: {remedy}"]


async def test_a_tokenizer_from_a_file_needs_no_server(tmp_path):
    """The file is chosen by a glob on the model's name."""
    path = tmp_path / "own.json"
    path.write_text(rebuilt(byte_level_info()[0]), encoding="utf-8")
    async with sidecar(tmp_path, {"tokens.tokenizer_files": {"chat:*": str(path)}}) as s:
        answer = await settled(s)

    assert (answer.total_tokens, answer.texts[0].source) == (real_count(TEXT), event_pb2.TOKEN_SOURCE_TOKENIZER)


async def test_no_vocabulary_is_read_if_the_operator_wants_none(tmp_path):
    """Exact counts take memory, and a setting saves it."""
    async with FakeOllama(models=[fake()]) as ollama, sidecar(tmp_path, on_ollama(ollama) | NOT_EXACT) as s:
        await s.chat("c1", model=MODEL).append(said(1, TEXT))
        answer = await counted(s)
        verbose = [r for r in ollama.requests if r.path == "/api/show" and r.json.get("verbose")]

    assert (answer.counter, verbose) == ("estimate:o200k", [])
    assert "tokens.exact" in answer.estimate_reason
