"""The gRPC server's life: bind, serve, lame duck, drain, stop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from abridged.service.api.conversation_servicer import ConversationServicer
from abridged.service.api.event_log_servicer import EventLogServicer
from abridged.service.api.guarded_server import GuardedServer
from abridged.service.api.health import HealthServicer
from abridged.service.api.listeners import NO_REUSE, bind
from abridged.service.api.pipeline import Pipeline
from abridged.service.api.reflection import reflection_handlers
from abridged.service.api.server_info_servicer import ServerInfoServicer
from abridged.service.api.text_servicer import TextServicer
from abridged.service.api.validation import Validation
from abridged.service.api.web_server import EVERYBODY_HERE, WebAccess, WebServer
from abridged.v1 import (
    conversation_service_pb2,
    conversation_service_pb2_grpc,
    event_log_service_pb2,
    event_log_service_pb2_grpc,
    server_info_service_pb2,
    server_info_service_pb2_grpc,
    text_service_pb2,
    text_service_pb2_grpc,
)

_DESCRIPTORS = tuple(
    file.DESCRIPTOR.services_by_name[name]
    for file, name in (
        (conversation_service_pb2, "ConversationService"),
        (event_log_service_pb2, "EventLogService"),
        (server_info_service_pb2, "ServerInfoService"),
        (text_service_pb2, "TextService"),
    )
)
SERVICES = tuple(descriptor.full_name for descriptor in _DESCRIPTORS)

RECEIVE_BYTES_MAX = 10 << 20
"""Three of the largest appends that can be set: what is too large by mistake is refused by us, with a reason and the
limit. The transport refuses by itself past it, before it has read anything."""

PENDING_CALLS_MAX = 10_240
"""Calls that have come and that the event loop has not seen yet. Callers past it get a bare CANCELLED from the
transport, so it lies far above what we refuse ourselves; each call costs about 12 kB and what it has sent, at most
UNREAD_BYTES_MAX, and all of them are to fit into 400 MB with the rest of the process."""

UNREAD_BYTES_MAX = 2_048
"""The bytes that a call may have sent before it is taken up: without credential, so they are few. More is let come when
the request is read, a round trip later."""

CONNECTIONS_MAX = 4_096
"""Open connections of all listeners: each takes a descriptor, and about 30 kB."""

HANDSHAKE_S = 10.0
"""Seconds for a peer to speak HTTP/2 after it has connected."""

LAME_DUCK_S = 0.2
"""Seconds between reporting NOT_SERVING and refusing calls: time for load balancers and clients to notice."""

GOAWAY_S = 0.05
"""Seconds between telling clients that the connection goes and refusing those who were held for it."""

FLUSH_S = 1.0
"""Seconds for the last responses to be made and to arrive, at most."""


@dataclass(frozen=True, slots=True)
class Connections:
    """Limits of one listener's connections: one without a call is closed after `idle_s`, and clients open it again
    unasked."""

    listener_max: int = CONNECTIONS_MAX
    idle_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Servicers:
    """The services of the server."""

    conversations: ConversationServicer
    event_log: EventLogServicer
    server_info: ServerInfoServicer
    texts: TextServicer


class GrpcServer:
    """One server on one event loop, and the same calls over HTTP, `web`. `stopping` is set when streams should end."""

    def __init__(
        self,
        servicers: Servicers,
        pipeline: Pipeline,
        validation: Validation,
        *,
        request_bytes_max: int,
        stopping: asyncio.Event,
        connections: Connections = Connections(),
        web: WebAccess = EVERYBODY_HERE,
    ) -> None:
        self._stopping = stopping
        self._drain = pipeline.drain
        self._health = HealthServicer(SERVICES)
        self._server = grpc.aio.server(
            options=(
                NO_REUSE,
                ("grpc.http2.lookahead_bytes", UNREAD_BYTES_MAX),
                # Else a window that has grown with a fast connection lets each call send megabytes that nobody reads.
                ("grpc.http2.bdp_probe", 0),
                ("grpc.server.max_pending_requests", PENDING_CALLS_MAX),
                ("grpc.server.max_pending_requests_hard_limit", PENDING_CALLS_MAX),
                ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
                # What is compressed comes as it was sent, and is refused by us: some kilobytes can become gigabytes.
                ("grpc.per_message_decompression", 0),
                ("grpc.max_send_message_length", -1),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
                # No age: it would cut off streams, which may live for days.
                ("grpc.max_connection_idle_ms", round(connections.idle_s * 1e3)),
                ("grpc.server_handshake_timeout_ms", round(HANDSHAKE_S * 1e3)),
                ("grpc.max_allowed_incoming_connections", connections.listener_max),
            ),
        )
        guard = GuardedServer(self._server, pipeline, validation, request_bytes_max=request_bytes_max)
        guarded = cast(grpc.aio.Server, guard)
        conversation_service_pb2_grpc.add_ConversationServiceServicer_to_server(
            cast(conversation_service_pb2_grpc.ConversationServiceServicer, servicers.conversations), guarded
        )
        event_log_service_pb2_grpc.add_EventLogServiceServicer_to_server(servicers.event_log, guarded)
        server_info_service_pb2_grpc.add_ServerInfoServiceServicer_to_server(servicers.server_info, guarded)
        text_service_pb2_grpc.add_TextServiceServicer_to_server(servicers.texts, guarded)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, guarded)
        health = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
        guard.add_generic_rpc_handlers(reflection_handlers((*SERVICES, health)))
        guard.refuse_the_rest()
        parts = (servicers.conversations, servicers.event_log, servicers.server_info, servicers.texts)
        self.web = WebServer(
            zip(_DESCRIPTORS, parts, strict=True),
            pipeline,
            validation,
            request_bytes_max=request_bytes_max,
            receive_bytes_max=RECEIVE_BYTES_MAX,
            access=web,
        )

    def listen(self, addresses: Sequence[str]) -> tuple[str, ...]:
        """Take the addresses, which are `guarded`; returns them with their real ports. Raises ListenError."""
        return tuple(bind(self._server, address) for address in addresses)

    async def start(self) -> None:
        """Serve what comes to the addresses that `listen` took."""
        await self._server.start()
        await self._health.start()
        self.web.open()

    async def stop(self, *, grace_s: float) -> None:
        """Say that nothing new should come, end the streams, give running calls `grace_s`, then end them."""
        await self._health.enter_graceful_shutdown()
        await asyncio.sleep(min(LAME_DUCK_S, grace_s))
        self._stopping.set()
        # Before gRPC stops: what it has not handed over by then it cancels without a word.
        await self._drain.finish(within_s=grace_s)
        stopped = asyncio.create_task(self._server.stop(FLUSH_S))
        await asyncio.wait((stopped,), timeout=GOAWAY_S)
        self._drain.let_go()
        await stopped
