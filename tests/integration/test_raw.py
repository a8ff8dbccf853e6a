"""A part of the record by an operator's own schema, from the settings to GetSummary and over a restart."""

from __future__ import annotations

import json

import pytest

from abridged.service.domain.errors import InvalidPolicy
from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from tests.support.answers import record, saying
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import ANY_DRAFT, on_ollama, sidecar

SCHEMA = {
    "type": "object",
    "properties": {"topic": {"type": "string", "maxLength": 60}, "urgent": {"type": "boolean"}},
}
RAW = {"topic": "how the importer reads orders", "urgent": False}


@pytest.fixture
def schema_file(tmp_path):
    path = tmp_path / "raw.json"
    path.write_text(json.dumps(SCHEMA))
    return {"summarizer.raw_schema_file": str(path), **ANY_DRAFT}


async def test_raw_goes_from_the_model_into_the_record_and_stays(tmp_path, schema_file):
    """Asked for by the schema, returned by GetSummary, not part of the window, and there after a restart."""
    async with FakeOllama(responder=saying(record(raw=RAW))) as ollama:
        async with sidecar(tmp_path, on_ollama(ollama) | schema_file) as s:
            chat = s.chat()
            await chat.talk(20, wait_s=PATIENCE_S)
            (made,) = await chat.summaries()
            window = await chat.context()
        async with sidecar(tmp_path, on_ollama(ollama)) as s:
            request = api.GetSummaryRequest(conversation_id="c1", summary_id=made.id)
            kept = (await s.conversations.GetSummary(request, timeout=PATIENCE_S)).summary

    body = ollama.asked()[0]
    assert body["format"]["properties"]["raw"]["required"] == ["topic", "urgent"]
    assert '"maxLength":60' in body["messages"][0]["content"]
    assert json.loads(made.context.raw) == json.loads(kept.context.raw) == RAW
    assert "urgent" not in str(window.messages)


async def test_the_next_record_is_told_the_raw_before_it(tmp_path, schema_file):
    """The next record covers all that this one covers, so it has to be able to carry what is still true."""
    async with (
        FakeOllama(responder=saying(record(raw=RAW))) as ollama,
        sidecar(tmp_path, on_ollama(ollama) | schema_file) as s,
    ):
        chat = s.chat()
        await chat.talk(20, wait_s=PATIENCE_S)
        await chat.talk(20, wait_s=PATIENCE_S)

    assert any('Its raw was {"topic":' in body["messages"][-1]["content"] for body in ollama.asked())


async def test_raw_against_the_schema_is_sent_back_once_and_then_fails(tmp_path, schema_file):
    """The failure is that of any bad answer: INVALID, with the place in the reasons."""
    async with (
        FakeOllama(responder=saying(record(raw={"topic": 3, "urgent": True}))) as ollama,
        sidecar(tmp_path, on_ollama(ollama) | schema_file) as s,
    ):
        done = (await s.chat().talk(14, wait_s=PATIENCE_S)).summarization
        text = s.log_text

    assert done.error_class == conversation.ERROR_CLASS_INVALID
    assert len(ollama.asked()) == 2
    assert "raw.topic: string type" in ollama.asked()[1]["messages"][-1]["content"]
    assert "raw.topic: string type" in text


async def test_a_schema_that_cannot_be_used_is_refused_at_start(tmp_path):
    """No log is opened for it."""
    path = tmp_path / "raw.json"
    path.write_text('{"$ref": "https://example.com/ticket.json"}')

    with pytest.raises(InvalidPolicy, match="not in its"):
        async with sidecar(tmp_path, {"summarizer.raw_schema_file": str(path)}):
            pass
