"""The least that a gRPC server can do: the reference for every figure over gRPC.

The server takes the same request as an append and returns it unchanged, on the same kind of event loop as the sidecar.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import grpc

from abridged.service.event_loop import loop_factory
from abridged.v1.conversation_service_pb2 import AppendMessagesRequest

_SERVICE = "abridged.bench.Echo"
_METHOD = "Echo"


def run(address: str) -> None:
    """Serve until SIGTERM."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(address))


def echo_call(channel: grpc.aio.Channel) -> Any:
    """The stub's only method."""
    return channel.unary_unary(
        f"/{_SERVICE}/{_METHOD}",
        request_serializer=AppendMessagesRequest.SerializeToString,
        response_deserializer=AppendMessagesRequest.FromString,
    )


async def _serve(address: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    handler = grpc.unary_unary_rpc_method_handler(
        _echo,
        request_deserializer=AppendMessagesRequest.FromString,
        response_serializer=AppendMessagesRequest.SerializeToString,
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler}),))
    server.add_insecure_port(address)
    await server.start()
    await stop.wait()
    await server.stop(0)


async def _echo(request: AppendMessagesRequest, _context: Any) -> AppendMessagesRequest:
    return request
