"""Traces of a whole sidecar, as a collector reads them from the wire."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import event_log_service_pb2
from tests.support.answers import record, saying
from tests.support.ollama_server import FakeOllama
from tests.support.otlp_sink import OtlpSink, otlp_sink
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refused
from tests.support.sidecar import ANY_DRAFT, Sidecar, on_ollama, said, sidecar

SERVICE = "abridged.v1.ConversationService"
CORE = "https://opentelemetry.io/schemas/1.44.0"
GEN_AI = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"
ALWAYS = {"policy": {"fallback": conversation.FALLBACK_ALWAYS}}


@pytest.fixture
def sink():
    with otlp_sink() as opened:
        yield opened


async def compressed(s: Sidecar, name: str) -> None:
    """Append messages that trigger a pass, and wait for its record."""
    await s.chat(name).talk(14, wait_s=PATIENCE_S)


async def test_a_model_call_names_the_server_that_answered_it(tmp_path, sink: OtlpSink):
    """The span has address and port, and the model's own name for itself, without ours for its provider."""
    async with (
        FakeOllama(responder=saying(record())) as ollama,
        sidecar(tmp_path, on_ollama(ollama), environ=sink.environ) as s,
    ):
        await compressed(s, "c1")

    (call,) = sink.named("chat qwen2.5:3b")
    assert (call.attributes["server.address"], call.attributes["server.port"]) == ("127.0.0.1", ollama.port)
    assert call.attributes["gen_ai.response.model"] == "qwen2.5:3b"
    assert call.attributes["gen_ai.conversation.id"] == "c1"
    assert not call.failed


async def test_a_model_call_that_fails_names_the_server_and_the_class_of_its_failure(tmp_path, sink: OtlpSink):
    """The word is that of the metrics and of the pass, not a name from our code."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    dead = {"summarizer.models": ["ollama:x"], "ollama.hosts": [f"127.0.0.1:{port}"], "summarizer.retries": 0}
    async with sidecar(tmp_path, dead, environ=sink.environ) as s:
        await compressed(s, "c1")

    (call,) = sink.named("chat x")
    assert (call.attributes["server.address"], call.attributes["server.port"]) == ("127.0.0.1", port)
    assert (call.attributes["error.type"], call.failed) == ("TRANSPORT", True)
    assert sink.named("summarize")[0].attributes["error.type"] == "TRANSPORT"


async def test_each_model_of_the_list_has_a_span_of_its_own(tmp_path, sink: OtlpSink):
    """A model that is missing and the one that stood in for it are two calls, and neither has the other's name."""
    async with (
        FakeOllama(responder=saying(record())) as ollama,
        sidecar(tmp_path, on_ollama(ollama, "gone", "qwen2.5:3b"), environ=sink.environ) as s,
    ):
        await compressed(s, "c1")

    (gone,), (answered,) = sink.named("chat gone"), sink.named("chat qwen2.5:3b")
    assert (gone.attributes["error.type"], gone.failed) == ("MODEL_MISSING", True)
    assert (answered.attributes["gen_ai.response.model"], answered.failed) == ("qwen2.5:3b", False)


async def test_a_call_names_its_conversation_and_why_it_was_refused(tmp_path, sink: OtlpSink):
    """The reason is that of the ErrorInfo, for a caller's mistakes too; an id that breaks a field rule is left out."""
    async with sidecar(tmp_path, environ=sink.environ) as s:
        await s.chat("known").append(said(1))
        async with refused("NOT_FOUND", "CONVERSATION_NOT_FOUND"):
            await s.chat("unknown").context()
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD"):
            await s.chat("CANARY is no id").state()

    (append,) = sink.named(f"{SERVICE}/AppendMessages")
    assert append.attributes["gen_ai.conversation.id"] == "known"
    assert "abridged.error.reason" not in append.attributes
    (missing,) = sink.named(f"{SERVICE}/GetContext")
    assert missing.attributes["gen_ai.conversation.id"] == "unknown"
    assert missing.attributes["abridged.error.reason"] == "CONVERSATION_NOT_FOUND"
    assert not missing.failed
    (invalid,) = sink.named(f"{SERVICE}/GetConversation")
    assert invalid.attributes["abridged.error.reason"] == "INVALID_FIELD"
    assert b"CANARY" not in sink.everything


async def test_probes_and_reflection_make_no_spans(tmp_path, sink: OtlpSink):
    """Every second a root of its own, and an error each time that a probe hangs up: nobody would find the rest."""
    async with sidecar(tmp_path, environ=sink.environ) as s:
        await s.health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
        watching = s.health.Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
        await watching.read()
        watching.cancel()
        stub = reflection_pb2_grpc.ServerReflectionStub(s.channel)
        asked = stub.ServerReflectionInfo(timeout=PATIENCE_S)
        await asked.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        await asked.read()
        await asked.done_writing()
        await s.chat().append(said(1))
        metrics = await s.http("/metrics")

    assert {span.name for span in sink.spans} == {f"{SERVICE}/AppendMessages", "commit batch"}
    assert "abridged_grpc_server_calls_total" in metrics


async def test_spans_say_by_which_schema_they_are_to_be_read(tmp_path, sink: OtlpSink):
    """Calls and the resource by the conventions' release; passes and model calls by those of GenAI."""
    async with (
        FakeOllama(responder=saying(record())) as ollama,
        sidecar(tmp_path, on_ollama(ollama), environ=sink.environ) as s,
    ):
        await compressed(s, "c1")

    schemas = {span.name: span.schema_url for span in sink.spans}
    assert schemas[f"{SERVICE}/AppendMessages"] == schemas["commit batch"] == CORE
    assert schemas["summarize"] == schemas["chat qwen2.5:3b"] == GEN_AI
    assert {span.resource_schema_url for span in sink.spans} == {CORE}


async def test_a_remake_is_linked_to_the_append_behind_the_record_that_it_replaces(tmp_path, sink: OtlpSink):
    """Another conversation's pass finds that the model is back; its trace is none of the remade conversation's."""
    dead = {"summarizer.models": ["ollama:x"], "ollama.hosts": ["127.0.0.1:9"]}
    async with sidecar(tmp_path, dead, environ=sink.environ) as s:
        await s.chat("first", **ALWAYS).talk(14, wait_s=PATIENCE_S)
    (append,) = sink.named(f"{SERVICE}/AppendMessages")

    async with (
        FakeOllama(responder=saying(record())) as ollama,
        sidecar(tmp_path, on_ollama(ollama) | ANY_DRAFT, environ=sink.environ) as s,
    ):
        watch = s.conversations.WatchConversation(
            api.WatchConversationRequest(
                conversation_id="first", after_version=(await s.chat("first").state()).event_version
            ),
            timeout=PATIENCE_S,
        )
        await compressed(s, "second")
        async for item in watch:
            if item.event.type == "SummarizationCompleted":
                break
        watch.cancel()
        await s.idle()
        requested = await requested_events(s, "first")

    remake = next(p for p in sink.named("summarize") if p.attributes["abridged.summarization.trigger"] == "remake")
    assert remake.attributes["gen_ai.conversation.id"] == "first"
    assert remake.links == ((append.trace_id, append.span_id),)
    assert requested[-1].trace_context == ""


async def requested_events(s: Sidecar, name: str) -> list[Any]:
    """The stored triggers of a conversation."""
    page = await s.event_log.ReadEvents(event_log_service_pb2.ReadEventsRequest(conversation_id=name, limit=500))
    return [event for event in page.events if event.type == "SummarizationRequested"]
