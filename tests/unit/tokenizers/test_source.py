"""Whose count a count is: exact only for the models whose vocabulary counted."""

from __future__ import annotations

import pytest

from abridged.service.domain.tokens import TokenSource
from abridged.service.tokenizers.embedded import EmbeddedCounter
from abridged.service.tokenizers.estimated import EstimatingCounter

pytest.importorskip("bpe_openai", reason="the extra `bpe` is not installed")

O200K = [
    "gpt-4o",
    "gpt-4o-mini",
    "GPT-4.1-nano",
    "gpt-5",
    "o3-mini",
    "openai:gpt-4o-2024-08-06",
    "openrouter/openai/gpt-4.1",
    "ft:gpt-4o-mini:acme::7p4lURx",
    "gpt-oss:20b",
    "ollama:gpt-oss:20b",
]
CL100K = ["gpt-4", "gpt-4-turbo", "azure:gpt-4-32k", "gpt-3.5-turbo-0125", "gpt-35-turbo"]
NEITHER = ["", "qwen2.5:3b", "ollama:qwen2.5:3b", "openai:whisper-1", "claude-sonnet-4", "o1x", "my-gpt-4o", "llama3.2"]


@pytest.mark.parametrize(("vocabulary", "own", "others"), [("o200k", O200K, CL100K), ("cl100k", CL100K, O200K)])
def test_a_vocabulary_is_exact_for_its_own_models_alone(vocabulary, own, others):
    """The count for any other model is an estimate, which reported usage may correct."""
    counter = EmbeddedCounter(vocabulary)

    assert {counter.source_for(model) for model in own} == {TokenSource.TOKENIZER}
    assert {counter.source_for(model) for model in others + NEITHER} == {TokenSource.ESTIMATE}


@pytest.mark.parametrize("model", [*O200K, *NEITHER])
def test_an_estimate_is_one_for_every_model(model):
    """An estimate has no vocabulary."""
    assert EstimatingCounter().source_for(model) is TokenSource.ESTIMATE
