"""ServerInfoService, health and reflection: what a client can find out, and when the sidecar is idle."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from abridged.service.version import VERSION
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import conversation_service_pb2_grpc
from abridged.v1 import server_info_service_pb2 as info
from tests.support.answers import gated
from tests.support.edge_server import Working, only_place_taken
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refused
from tests.support.searching import BOTH, WORDS, searched
from tests.support.sidecar import duration, on_ollama, said, sidecar

ATTEMPTS_MAX = 50
SERVICES = {
    "abridged.v1.ConversationService",
    "abridged.v1.EventLogService",
    "abridged.v1.ServerInfoService",
    "abridged.v1.TextService",
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
}


async def test_the_server_tells_version_capabilities_and_limits(tmp_path):
    """The capabilities leave out what is not whole: the later profiles are absent."""
    settings = {"server.batch_messages_max": 7, "server.streams_max": 9, "summarizer.queue_max": 11}
    async with sidecar(tmp_path, settings) as s:
        answer = await s.info.GetServerInfo(info.GetServerInfoRequest())

        assert answer.version == VERSION
        assert answer.log_id == s.running.log_id
        assert answer.namespace == "default"
        assert list(answer.summarizer_models) == ["scripted:default"]
        assert (answer.limits.append_messages_max, answer.limits.streams_max) == (7, 9)
        assert answer.limits.queued_passes_max == 11
        assert {"profile.chain", "profile.episodes", "profile.rolling"} <= set(answer.capabilities)
        assert not {"search", "pins"} & set(answer.capabilities)
        assert answer.start_time.seconds > 0


async def test_the_server_tells_whether_searches_are_there_and_how_far_the_index_is(tmp_path):
    """Capabilities, model and positions; the positions are those of the caller's events."""
    async with sidecar(tmp_path) as s:
        answer = await s.info.GetServerInfo(info.GetServerInfoRequest())
        assert not [name for name in answer.capabilities if name.startswith("recall")]
        assert not answer.HasField("recall")

    async with sidecar(tmp_path, WORDS) as s:
        answer = await s.info.GetServerInfo(info.GetServerInfoRequest())
        assert [name for name in answer.capabilities if name.startswith("recall")] == ["recall.words"]
        assert (answer.recall.embedder, answer.recall.dimension) == ("", 0)

    tokens = {"server.tokens": [{"token": n, "namespace": n, "scopes": ["append", "read"]} for n in ("alpha", "beta")]}
    async with sidecar(tmp_path, {**BOTH, **tokens}) as s:
        alpha, beta = (replace(s, metadata=[("authorization", f"Bearer {n}")]) for n in ("alpha", "beta"))
        await alpha.chat().append(said(1, "red"))
        await searched(alpha, "red")
        await beta.chat().append(said(1, "blue"), said(2, "blue"))
        await searched(beta, "blue")

        async with asyncio.timeout(PATIENCE_S):
            while True:
                answer = await s.info.GetServerInfo(info.GetServerInfoRequest(), metadata=alpha.metadata)
                # Not the moment in which the vectors are there and the position still comes.
                if answer.recall.vectors_position == answer.recall.words_position:
                    break

        assert [name for name in answer.capabilities if name.startswith("recall")] == ["recall.meaning", "recall.words"]
        assert answer.recall == info.RecallInfo(
            embedder="wordllama:l2_supercat", dimension=64, head_position=2, words_position=2, vectors_position=2
        )


async def test_wait_idle_returns_when_the_last_pass_has_ended(tmp_path):
    """Tests and drains use it."""
    gate = asyncio.Event()
    async with FakeOllama(responder=gated(gate)) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        await s.chat("a").talk(14)
        await s.chat("b").talk(14)
        waiting = asyncio.ensure_future(s.info.WaitIdle(info.WaitIdleRequest(), timeout=PATIENCE_S))
        await ollama.until(lambda o: bool(o.asked()))
        assert not waiting.done()

        gate.set()

        assert (await waiting) == info.WaitIdleResponse(idle=True)
        assert [(await s.chat(name).context()).compacted for name in "ab"] == [True, True]


async def test_wait_idle_gives_up_with_its_timeout_and_says_how_many_wait(tmp_path):
    """A timeout of zero only asks."""
    async with FakeOllama(responder=gated(asyncio.Event())) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        await s.chat().talk(14)

        asked = await s.info.WaitIdle(info.WaitIdleRequest(timeout=duration(0)))
        waited = await s.info.WaitIdle(info.WaitIdleRequest(timeout=duration(0.1)))
        bounded = None
        # The answer comes a moment before the deadline; a busy client may be later than that, and asks again.
        for _ in range(ATTEMPTS_MAX):
            with suppress(grpc.aio.AioRpcError):
                bounded = await s.info.WaitIdle(info.WaitIdleRequest(), timeout=0.3)
                break

        assert asked == waited == bounded == info.WaitIdleResponse(idle=False, pending=1)


async def test_wait_idle_of_a_conversation_waits_for_its_pass_alone(tmp_path):
    """Another conversation's pass keeps nobody; a conversation that there is not is no idle one."""
    gate = asyncio.Event()
    async with FakeOllama(responder=gated(gate)) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        await s.chat("busy").talk(14)
        await s.chat("quiet").append(said(1))

        quiet = await s.info.WaitIdle(info.WaitIdleRequest(conversation_id="quiet"), timeout=PATIENCE_S)
        busy = await s.info.WaitIdle(info.WaitIdleRequest(conversation_id="busy", timeout=duration(0)))
        assert (quiet.idle, busy) == (True, info.WaitIdleResponse(idle=False, pending=1))

        waiting = asyncio.ensure_future(s.info.WaitIdle(info.WaitIdleRequest(conversation_id="busy")))
        gate.set()
        assert (await waiting) == info.WaitIdleResponse(idle=True)
        assert (await s.chat("busy").context()).compacted
        async with refused("NOT_FOUND", "CONVERSATION_NOT_FOUND"):
            await s.info.WaitIdle(info.WaitIdleRequest(conversation_id="none"))


@pytest.mark.parametrize("service", ["", "abridged.v1.ConversationService", "abridged.v1.EventLogService"])
async def test_health_says_serving_for_every_service(tmp_path, service):
    """The answer is that of gRPC's own health protocol."""
    async with sidecar(tmp_path) as s:
        answer = await s.health.Check(health_pb2.HealthCheckRequest(service=service))

        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_health_lists_every_service_with_its_status(tmp_path):
    """The server itself is the one without a name."""
    async with sidecar(tmp_path) as s:
        listed = await s.health.List(health_pb2.HealthListRequest())

        assert {name: answer.status for name, answer in listed.statuses.items()} == dict.fromkeys(
            {"", *(name for name in SERVICES if name.startswith("abridged."))}, health_pb2.HealthCheckResponse.SERVING
        )


async def test_the_health_of_a_service_that_is_not_here_is_not_found(tmp_path):
    """The status is the protocol's, with a reason of ours."""
    async with sidecar(tmp_path) as s, refused("NOT_FOUND", "SERVICE_NOT_FOUND"):
        await s.health.Check(health_pb2.HealthCheckRequest(service="abridged.v1.Conversations"))


async def test_health_says_not_serving_before_the_sidecar_stops(tmp_path):
    """A load balancer hears of it by its watch while calls are still answered."""
    async with sidecar(tmp_path) as s:
        watch = s.health.Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING

        stopping = asyncio.ensure_future(s.stop())

        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()
        await stopping


async def test_health_is_answered_under_any_load():
    """A full sidecar is not a dead one: it must not be restarted for being busy."""
    busy = Working()
    async with only_place_taken(busy) as (_, channel, _):
        stub: Any = conversation_service_pb2_grpc.ConversationServiceStub(channel)
        health: Any = health_pb2_grpc.HealthStub(channel)
        request = api.GetConversationRequest(conversation_id="c1")
        async with refused("RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS"):
            await stub.GetConversation(request, timeout=PATIENCE_S)

        answers = await asyncio.gather(*(health.Check(health_pb2.HealthCheckRequest()) for _ in range(20)))

        assert {a.status for a in answers} == {health_pb2.HealthCheckResponse.SERVING}


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_lists_the_services_and_their_methods(tmp_path, version):
    """A generic client needs no files of ours, whichever version it speaks."""
    async with sidecar(tmp_path) as s:
        requests = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol="abridged.v1.ConversationService"),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=f"grpc.reflection.{version}.ErrorResponse"),
        ]
        # The messages of both versions are the same on the wire.
        ask = s.channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )

        listed, described, itself = [answer async for answer in ask(iter(requests), timeout=PATIENCE_S)]

        assert {service.name for service in listed.list_services_response.service} == SERVICES
        files = [FileDescriptorProto.FromString(f) for f in described.file_descriptor_response.file_descriptor_proto]
        methods = {m.name for f in files for service in f.service for m in service.method}
        assert "AppendMessages" in methods
        (file,) = [FileDescriptorProto.FromString(f) for f in itself.file_descriptor_response.file_descriptor_proto]
        assert (file.package, [service.name for service in file.service]) == (
            f"grpc.reflection.{version}",
            ["ServerReflection"],
        )


async def test_reflection_takes_a_token_where_tokens_are_set(tmp_path):
    """Only health is open to everybody."""
    grants = [{"token": "secret-1", "namespace": "one", "scopes": ["read"]}]
    async with sidecar(tmp_path, {"server.tokens": grants}) as s:
        stub = reflection_pb2_grpc.ServerReflectionStub(s.channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")

        async with refused("UNAUTHENTICATED", "UNAUTHENTICATED"):
            async for _ in stub.ServerReflectionInfo(iter([request]), timeout=PATIENCE_S):
                pass

        known = stub.ServerReflectionInfo(iter([request]), metadata=[("authorization", "Bearer secret-1")])
        assert len([answer async for answer in known]) == 1
