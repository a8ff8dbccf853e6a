"""The gRPC server's life: bind, serve, lame duck, drain, stop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import cast

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from abridged.v1 import (
    conversation_service_pb2,
    conversation_service_pb2_grpc,
    event_log_service_pb2,
    event_log_service_pb2_grpc,
    server_info_service_pb2,
    server_info_service_pb2_grpc,
)
from service.api.conversation_servicer import ConversationServicer
from service.api.edge import Edge, GuardedServer
from service.api.event_log_servicer import EventLogServicer
from service.api.listeners import NO_REUSE, bind, guarded
from service.api.server_info_servicer import ServerInfoServicer

__all__ = ["SERVICES", "GrpcServer", "Servicers"]

SERVICES = tuple(
    file.DESCRIPTOR.services_by_name[name].full_name
    for file, name in (
        (conversation_service_pb2, "ConversationService"),
        (event_log_service_pb2, "EventLogService"),
        (server_info_service_pb2, "ServerInfoService"),
    )
)

RECEIVE_FACTOR = 2
"""What the transport takes, in largest appends. What is a little too large gets a rule's answer, with the limit."""

LAME_DUCK_S = 0.2
"""Between saying NOT_SERVING and refusing calls: time for load balancers and clients to hear of it."""


@dataclass(frozen=True, slots=True)
class Servicers:
    """What is served."""

    conversations: ConversationServicer
    event_log: EventLogServicer
    server_info: ServerInfoServicer


class GrpcServer:
    """One server on one event loop. `stopping` is set when streams should end."""

    def __init__(self, servicers: Servicers, edge: Edge, *, batch_bytes_max: int, stopping: asyncio.Event) -> None:
        self._stopping = stopping
        self._resources = ExitStack()
        self._health = health_aio.HealthServicer()
        self._server = grpc.aio.server(
            options=(
                NO_REUSE,
                ("grpc.max_receive_message_length", RECEIVE_FACTOR * batch_bytes_max),
                # What is compressed comes as it was sent, and is refused by us: some kilobytes can become gigabytes.
                ("grpc.per_message_decompression", 0),
                # Else a window that has grown with a fast connection lets each call send megabytes that nobody reads.
                ("grpc.http2.bdp_probe", 0),
                ("grpc.max_send_message_length", -1),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
                ("grpc.max_connection_age_ms", 1_800_000),
                ("grpc.max_connection_age_grace_ms", 60_000),
            ),
        )
        guard = GuardedServer(self._server, edge)
        guarded = cast(grpc.aio.Server, guard)
        conversation_service_pb2_grpc.add_ConversationServiceServicer_to_server(servicers.conversations, guarded)
        event_log_service_pb2_grpc.add_EventLogServiceServicer_to_server(servicers.event_log, guarded)
        server_info_service_pb2_grpc.add_ServerInfoServiceServicer_to_server(servicers.server_info, guarded)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, guarded)
        names = (*SERVICES, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflection.aio.ReflectionServicer(names), guarded)
        guard.refuse_the_rest()

    def listen(self, addresses: Sequence[str]) -> tuple[str, ...]:
        """Take the addresses; answers them with their real ports. Raises ListenError."""
        try:
            for address in addresses:
                guarded(address, self._resources)
            return tuple(bind(self._server, address) for address in addresses)
        except BaseException:
            self._resources.close()
            raise

    async def start(self) -> None:
        """Serve what comes to the addresses that `listen` took."""
        await self._server.start()
        for service in ("", *SERVICES):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, *, grace_s: float) -> None:
        """Say that nothing new should come, end the streams, give running calls `grace_s`, then end them."""
        await self._health.enter_graceful_shutdown()
        await asyncio.sleep(min(LAME_DUCK_S, grace_s))
        self._stopping.set()
        await self._server.stop(grace_s)
        self._resources.close()
