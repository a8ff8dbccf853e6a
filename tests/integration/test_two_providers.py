"""Passes by an OpenAI-compatible endpoint, alone and in lists with Ollama and extraction, over the whole path."""

from __future__ import annotations

from typing import Any

import pytest

from abridged.service.config.sources import load
from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import summary_pb2
from tests.support.answers import record, saying
from tests.support.ollama_behaviour import Refusal
from tests.support.ollama_catalogue import FakeModel
from tests.support.ollama_server import FakeOllama
from tests.support.openai_quirks import QUIRKS, Quirks, openai_error
from tests.support.openai_server import FakeOpenAI
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import ANY_DRAFT, on_ollama, said, sidecar

MISSING = Quirks(refusal=openai_error(404, "The model `gpt-fake` does not exist"))
SUCCESS, FALLBACK = 'outcome="success"', 'outcome="fallback"'


def on_openai(server: FakeOpenAI, *models: str, **more: Any) -> dict[str, Any]:
    """Settings for these models, with their providers, and the endpoint."""
    return {"openai.url": server.url, "summarizer.models": list(models or ("openai:gpt-fake",)), **ANY_DRAFT, **more}


def counted(metrics: str, outcome: str, model: str) -> bool:
    """Return whether a pass with this outcome and model was counted."""
    lines = [line for line in metrics.splitlines() if outcome in line and f'model="{model}"' in line]
    return any(not line.endswith(" 0.0") for line in lines if line.startswith("abridged_summarizations_total"))


@pytest.mark.parametrize("quirks", ["normal", "strict-openai", "no-done", "comments"])
async def test_a_pass_is_made_by_an_endpoint_whatever_its_ways(tmp_path, quirks):
    """The record, its model and its tokens; the same as with Ollama."""
    async with (
        FakeOpenAI(quirks=QUIRKS[quirks], responder=saying(record())) as server,
        sidecar(tmp_path, on_openai(server)) as s,
    ):
        chat = s.chat()
        done = (await chat.talk(20, wait_s=PATIENCE_S)).summarization
        (made,) = await chat.summaries()
        metrics = await s.http("/metrics")

    assert done.state == conversation.SUMMARIZATION_STATE_COMPLETED
    assert (made.model, made.provenance) == ("openai:gpt-fake", summary_pb2.PROVENANCE_MODEL)
    assert counted(metrics, SUCCESS, "openai:gpt-fake")


async def test_what_a_server_refuses_of_a_request_is_said_in_the_log(tmp_path):
    """One warning for each step down; a pass that follows begins where the last one ended."""
    async with (
        FakeOpenAI(quirks=QUIRKS["objects-only"], responder=saying(record())) as server,
        sidecar(tmp_path, on_openai(server)) as s,
    ):
        await s.chat("c1").talk(20, wait_s=PATIENCE_S)
        await s.chat("c2").talk(20, wait_s=PATIENCE_S)
        lines = [line for line in s.logs if line["event"] == "model.asked_for_less"]

    assert [line["model"] for line in lines] == ["openai:gpt-fake"] * 2
    assert lines[-1]["hint"] == "response_format json_object, max_tokens"
    assert len(server.asked()) == 4


async def test_a_server_that_ignores_the_schema_ends_as_invalid(tmp_path):
    """Text that is no record is refused, repaired once, and then the pass fails by its class."""
    async with FakeOpenAI(quirks=Quirks(ignores_schema=True)) as server, sidecar(tmp_path, on_openai(server)) as s:
        done = (await s.chat().talk(14, wait_s=PATIENCE_S)).summarization

    assert done.error_class == conversation.ERROR_CLASS_INVALID
    assert len(server.asked()) == 2


@pytest.mark.parametrize(
    ("quirks", "error_class"),
    [
        (Quirks(key="other"), conversation.ERROR_CLASS_MODEL_REFUSED),
        (
            Quirks(refusal=openai_error(404, "The model `gpt-fake` does not exist")),
            conversation.ERROR_CLASS_MODEL_MISSING,
        ),
        (Quirks(says_model="llama-3"), conversation.ERROR_CLASS_MODEL_MISSING),
        (Quirks(refusal=openai_error(500, "boom")), conversation.ERROR_CLASS_TRANSPORT),
        (Quirks(garbage_after=1), conversation.ERROR_CLASS_TRANSPORT),
        (Quirks(prompt_tokens=3), conversation.ERROR_CLASS_TRUNCATED),
    ],
)
async def test_a_pass_that_the_endpoint_fails_ends_by_its_class(tmp_path, quirks, error_class):
    """The messages stay as with Ollama, and the class says what to do."""
    async with (
        FakeOpenAI(quirks=quirks, responder=saying(record())) as server,
        sidecar(tmp_path, on_openai(server)) as s,
    ):
        done = (await s.chat().talk(14, wait_s=PATIENCE_S)).summarization

    assert (done.state, done.error_class) == (conversation.SUMMARIZATION_STATE_FAILED, error_class)


async def test_the_key_is_sent_and_shown_nowhere(tmp_path):
    """The log, metrics, refusals and `config show` leave it out."""
    key = "sk-canary-4b1f9a77"
    async with FakeOpenAI(quirks=Quirks(key=key, refusal=openai_error(400, f"key {key}"))) as server:
        settings = on_openai(server, **{"openai.api_key": key})
        async with sidecar(tmp_path, settings) as s:
            await s.chat().talk(14, wait_s=PATIENCE_S)
            shown = s.log_text + await s.http("/metrics")

    assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {key}"}
    assert key not in shown
    settings_shown = load({"OPENAI_API_KEY": key}).shown()
    assert [value for name, value, _ in settings_shown if name == "openai.api_key"] == ['"(secret)"']
    assert key not in repr(load({"OPENAI_API_KEY": key}))


async def test_a_missing_model_moves_on_to_another_provider(tmp_path):
    """The list crosses providers: the endpoint lacks its model, Ollama's answers, and the record says so."""
    async with FakeOpenAI(quirks=MISSING) as server, FakeOllama(responder=saying(record())) as ollama:
        listed = on_ollama(ollama) | on_openai(server, "openai:gpt-fake", "ollama:qwen2.5:3b", "extractive")
        async with sidecar(tmp_path, listed) as s:
            chat = s.chat()
            await chat.talk(20, wait_s=PATIENCE_S)
            (made,) = await chat.summaries()
            metrics = await s.http("/metrics")

    assert (made.model, made.provenance) == ("ollama:qwen2.5:3b", summary_pb2.PROVENANCE_MODEL)
    assert counted(metrics, SUCCESS, "ollama:qwen2.5:3b")


async def test_a_list_without_any_model_ends_in_extraction(tmp_path):
    """Both providers lack their models, so the list's last entry makes the record."""
    async with FakeOpenAI(quirks=MISSING) as server, FakeOllama(models=[FakeModel(name="other:1b")]) as ollama:
        listed = on_ollama(ollama) | on_openai(server, "openai:gpt-fake", "ollama:qwen2.5:3b", "extractive")
        async with sidecar(tmp_path, listed) as s:
            chat = s.chat()
            await chat.talk(20, wait_s=PATIENCE_S)
            (made,) = await chat.summaries()

    assert made.provenance == summary_pb2.PROVENANCE_EXTRACTIVE
    assert ollama.asked() == []


async def test_an_endpoint_that_is_down_is_not_replaced_by_the_next_model(tmp_path):
    """A lesser model silently in its place would be no decision of the operator's; the fallback is one."""
    down = Quirks(refusal=Refusal(502, b"bad gateway", "text/plain"))
    async with FakeOpenAI(quirks=down) as server, FakeOllama(responder=saying(record())) as ollama:
        listed = on_ollama(ollama) | on_openai(server, "openai:gpt-fake", "ollama:qwen2.5:3b")
        async with sidecar(tmp_path, listed) as s:
            done = (await s.chat().talk(14, wait_s=PATIENCE_S)).summarization

    assert done.error_class == conversation.ERROR_CLASS_TRANSPORT
    assert ollama.asked() == []


async def test_a_fallback_record_is_remade_when_the_endpoint_is_back(tmp_path):
    """The model remakes it from the same range, at its first answer."""
    async with (
        FakeOpenAI(quirks=Quirks(refusal=openai_error(503, "busy")), responder=saying(record())) as server,
        sidecar(tmp_path, on_openai(server, **{"summarizer.retries": 0})) as s,
    ):
        chat = s.chat(policy={"fallback": conversation.FALLBACK_ALWAYS})
        await chat.talk(14, wait_s=PATIENCE_S)
        (stand_in,) = await chat.summaries()
        server.quirks = Quirks()
        await s.chat("c2").talk(14, wait_s=PATIENCE_S)
        await s.idle()
        await chat.context(wait_s=PATIENCE_S)
        while (newest := (await chat.summaries())[0]).id == stand_in.id:
            await chat.context(wait_s=PATIENCE_S)
        metrics = await s.http("/metrics")

    assert stand_in.provenance == summary_pb2.PROVENANCE_EXTRACTIVE
    assert (newest.model, newest.provenance) == ("openai:gpt-fake", summary_pb2.PROVENANCE_MODEL)
    assert list(newest.covered) == list(stand_in.covered)
    assert counted(metrics, FALLBACK, "extractive:default")


async def test_a_chat_models_context_length_is_asked_of_its_provider(tmp_path):
    """The endpoint lists it, so that the ratio is computed against the real window."""
    quirks = Quirks(listed={"max_model_len": 3_000})
    async with (
        FakeOpenAI(quirks=quirks, responder=saying(record())) as server,
        sidecar(tmp_path, on_openai(server)) as s,
    ):
        chat = s.chat(model="openai:gpt-fake", context_length=0)
        await chat.talk(2)
        while (window := await chat.context()).usage.context_length == 8_192:
            await chat.append(said(chat.count + 1))

    assert window.usage.context_length == 3_000


async def test_policies_of_a_chat_model_are_found_by_provider_and_name(tmp_path):
    """The glob is on the conversation's chat model, whichever model summarizes."""
    table = {"openai:gpt-*": {"min_messages": 40}}
    async with (
        FakeOllama(responder=saying(record())) as ollama,
        sidecar(tmp_path, on_ollama(ollama) | {"policy_by_model": table} | ANY_DRAFT) as s,
    ):
        rare, usual = s.chat("rare", model="openai:gpt-4o"), s.chat("usual", model="ollama:gpt-oss")
        for chat in (rare, usual):
            await chat.talk(14, wait_s=PATIENCE_S)
        passes = [await chat.passes() for chat in (rare, usual)]

    assert [len(found) for found in passes] == [0, 1]
