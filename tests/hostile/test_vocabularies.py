"""A model server that describes a vocabulary of millions of tokens: what refusing it takes of a sidecar's memory."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from abridged.service.models.ollama.vocabulary import DESCRIPTION_BYTES_MAX
from abridged.v1 import text_service_pb2, text_service_pb2_grpc
from tests.support.command import served
from tests.support.ollama_catalogue import FakeModel
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.process_memory import peak_mib
from tests.support.vocabularies import byte_level_info

pytestmark = pytest.mark.hostile

TOKENS = 2_000_000
PEAK_MAX_MIB = 3 * DESCRIPTION_BYTES_MAX / (1 << 20)
"""The limit is the description as it is read, the same as one piece, and the memory that the call itself takes."""


def described(token_chars: int) -> FakeModel:
    tokens = [f"t{number:0{token_chars}}" for number in range(TOKENS)]
    info = byte_level_info()[0]
    return FakeModel(
        name="large:1b",
        vocabulary=info | {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [1] * TOKENS},
    )


@pytest.mark.parametrize(("token_chars", "reason"), [(7, "2,000,000 values"), (20, "32,000,000 bytes")])
async def test_an_oversize_vocabulary_is_refused_in_little_memory(token_chars, reason, tmp_path):
    """The refusal comes before parsing: by the bytes, and by the values, each of which takes more than its bytes."""
    async with FakeOllama(models=[described(token_chars)]) as ollama:
        with served(tmp_path, f"ollama.hosts={ollama.url}", "tokens.exact=true") as run:
            before_mib = peak_mib(run.process.pid)
            async with grpc.aio.insecure_channel(run.address) as channel:
                stub = text_service_pb2_grpc.TextServiceStub(channel)
                request = text_service_pb2.CountTokensRequest(texts=["hello world"], model="ollama:large:1b")
                async with asyncio.timeout(PATIENCE_S):
                    while (await stub.CountTokens(request)).estimate_reason == "its tokenizer is being read":
                        pass
                answer = await stub.CountTokens(request)
            grown_mib = peak_mib(run.process.pid) - before_mib

    assert answer.counter == "estimate:o200k"
    assert reason in answer.estimate_reason
    assert grown_mib <= PEAK_MAX_MIB
