"""gRPC's own health service, whole: Check with a reason, Watch, and List."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio

from abridged.service.api.errors import ServiceNotFound


class HealthServicer(aio.HealthServicer):  # type: ignore[misc]  # the library leaves it untyped
    """Tells the status of the server, under the empty name, and of each of `services`."""

    def __init__(self, services: Iterable[str]) -> None:
        super().__init__()
        self._services = ("", *services)

    async def start(self) -> None:
        """Say that all of them serve."""
        for service in self._services:
            await self.set(service, health_pb2.HealthCheckResponse.SERVING)

    async def Check(self, request: Any, context: Any) -> Any:
        if request.service not in self._services:
            raise ServiceNotFound("there is no such service")
        return await super().Check(request, context)

    async def List(self, request: Any, context: Any) -> Any:
        known = {
            service: await self.Check(health_pb2.HealthCheckRequest(service=service), context)
            for service in self._services
        }
        return health_pb2.HealthListResponse(statuses=known)
