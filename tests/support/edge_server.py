"""The edge around servicers of a test: a real gRPC server without a log, whose methods do what the test wants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc

from abridged.observability.metrics import Metrics
from abridged.observability.tracing import TracingSettings, open_tracing
from abridged.service.api.admission import Admission, Limits
from abridged.service.api.auth import Authenticator
from abridged.service.api.deadlines import default_deadline_s
from abridged.service.api.pipeline import Pipeline
from abridged.service.api.server import Connections, GrpcServer, Servicers
from abridged.service.api.slow_calls import SlowCalls
from abridged.service.api.validation import Validation
from abridged.service.telemetry.telemetry import metric_labels
from abridged.v1 import conversation_service_pb2, conversation_service_pb2_grpc
from tests.support.patience import PATIENCE_S

REQUEST_BYTES_MAX = 1 << 20
CONNECTIONS = Connections()

ROOMY = Limits(concurrent_rpcs_max=10, streams_max=10, waits_max=10, answer_bytes_max=64 << 20, texts_max=10)


class Silent:
    """Has a method of every name, which is never called."""

    def __getattr__(self, name: str) -> Any:
        return name


class Working(Silent):
    """Works at GetConversation until its gate opens."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.gate = asyncio.Event()

    async def GetConversation(self, request: Any, context: Any) -> Any:
        """See the contract."""
        self.began.set()
        await self.gate.wait()
        return conversation_service_pb2.GetConversationResponse()


@asynccontextmanager
async def edge_listening(
    conversations: Silent,
    *,
    limits: Limits = ROOMY,
    deadline_s: Callable[[str], float] = default_deadline_s,
    connections: Connections = CONNECTIONS,
) -> AsyncIterator[str]:
    """Serve ConversationService by `conversations`, and nothing else; yields the address."""
    pipeline = Pipeline(
        authenticator=Authenticator(()),
        admission=Admission(limits, request_bytes_max=REQUEST_BYTES_MAX, multi_tenant=False),
        tracing=open_tracing(TracingSettings()),
        metrics=Metrics(version="1", labels=metric_labels()),
        slow=SlowCalls(60.0),
        deadline_s=deadline_s,
    )
    servicers = Servicers(conversations, Silent(), Silent(), Silent())  # type: ignore[arg-type]  # one of a test
    server = GrpcServer(
        servicers,
        pipeline,
        Validation(),
        request_bytes_max=REQUEST_BYTES_MAX,
        stopping=asyncio.Event(),
        connections=connections,
    )
    (address,) = server.listen(["127.0.0.1:0"])
    await server.start()
    try:
        yield address
    finally:
        await server.stop(grace_s=0.1)


@asynccontextmanager
async def edge_server(
    conversations: Silent,
    *,
    limits: Limits = ROOMY,
    deadline_s: Callable[[str], float] = default_deadline_s,
) -> AsyncIterator[Any]:
    """Serve as `edge_listening` does, and yield a stub of ConversationService."""
    async with (
        edge_listening(conversations, limits=limits, deadline_s=deadline_s) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        yield conversation_service_pb2_grpc.ConversationServiceStub(channel)


@asynccontextmanager
async def only_place_taken(working: Working) -> AsyncIterator[tuple[str, grpc.aio.Channel, Awaitable[Any]]]:
    """Serve `working` with a place for one call, which a GetConversation has until the gate opens.

    Yields the address, a channel to it, and that call, which has ended well when this is left.
    """
    async with (
        edge_listening(working, limits=replace(ROOMY, concurrent_rpcs_max=1)) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        stub: Any = conversation_service_pb2_grpc.ConversationServiceStub(channel)
        only = stub.GetConversation(
            conversation_service_pb2.GetConversationRequest(conversation_id="c1"), timeout=PATIENCE_S
        )
        await working.began.wait()
        yield address, channel, only
        working.gate.set()
        await only
