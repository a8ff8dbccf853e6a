"""A scrape's figures of passes, over a whole sidecar: the model that made a record decides, whatever its list."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from abridged.v1 import summary_pb2
from tests.support.answers import hanging, record, saying
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import Sidecar, on_ollama, sidecar


async def counted(s: Sidecar, family: str, *labels: str) -> dict[tuple[str, ...], float]:
    """The samples of a family that are not 0, by the values of these labels."""
    _, _, body = (await s.http("/metrics")).partition("\r\n\r\n")
    samples = [sample for found in parse_text(body) if found.name == family for sample in found.samples]
    return {tuple(sample.labels[label] for label in labels): sample.value for sample in samples if sample.value}


async def test_extraction_from_the_list_of_models_is_a_fallback_and_a_failure_of_the_missing_model(tmp_path):
    """`ollama:gone,extractive:default`: the record is extractive, so no model had a success."""
    async with FakeOllama() as ollama:
        settings = on_ollama(ollama) | {"summarizer.models": ["ollama:gone", "extractive:default"]}
        async with sidecar(tmp_path, settings) as s:
            chat = s.chat()
            await chat.talk(14, wait_s=PATIENCE_S)

            (made,) = await chat.summaries()
            assert made.provenance == summary_pb2.PROVENANCE_EXTRACTIVE
            ended = await counted(s, "abridged_summarizations", "outcome", "trigger", "model")
            assert ended == {("fallback", "ratio", "extractive:default"): 1}
            failures = await counted(s, "abridged_summarization_failures", "error_class")
            assert failures == {("MODEL_MISSING",): 1}


async def test_extraction_that_was_wanted_is_a_fallback_without_a_failure(tmp_path):
    """The record is no model's either way; but no model was asked, so none has failed."""
    async with sidecar(tmp_path, {"summarizer.models": ["extractive:default"]}) as s:
        await s.chat().talk(14, wait_s=PATIENCE_S)

        ended = await counted(s, "abridged_summarizations", "outcome", "model")
        assert ended == {("success", "extractive:default"): 1}
        assert await counted(s, "abridged_summarization_failures", "error_class") == {}


@pytest.mark.parametrize("models", [("qwen2.5:3b",), ("gone", "qwen2.5:3b")])
async def test_a_failure_is_counted_for_the_model_that_failed(tmp_path, models):
    """The model before it is merely missing, and is not blamed."""
    async with FakeOllama(responder=hanging()) as ollama:
        slow = {"policy.fallback": "never", "summarizer.deadline_s": 1, "summarizer.retries": 0}
        settings = on_ollama(ollama, *models) | slow
        async with sidecar(tmp_path, settings) as s:
            await s.chat().talk(14, wait_s=PATIENCE_S)

            ended = await counted(s, "abridged_summarizations", "outcome", "model")
            assert ended == {("error", "ollama:qwen2.5:3b"): 1}


@pytest.mark.parametrize("models", [("qwen2.5:3b",), ("gone", "qwen2.5:3b")])
async def test_a_success_is_counted_for_the_model_that_made_the_record(tmp_path, models):
    """The model need not be the one that was wanted."""
    async with FakeOllama(responder=saying(record())) as ollama, sidecar(tmp_path, on_ollama(ollama, *models)) as s:
        await s.chat().talk(14, wait_s=PATIENCE_S)

        ended = await counted(s, "abridged_summarizations", "outcome", "model")
        assert ended == {("success", "ollama:qwen2.5:3b"): 1}
