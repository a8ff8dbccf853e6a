"""gRPC's reflection in both of its versions: v1, and v1alpha, which is what gRPC's package for Python has.

The messages of both are the same but for the name of their package, so one servicer serves both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf import descriptor_pool, json_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection, reflection_pb2

REFLECTION_SERVICES = ("grpc.reflection.v1.ServerReflection", reflection.SERVICE_NAME)


def reflection_handlers(services: Iterable[str]) -> tuple[grpc.GenericRpcHandler, ...]:
    """Return the handlers that serve reflection of `services` and of itself."""
    _describe_v1()
    servicer = reflection.aio.ReflectionServicer((*services, *REFLECTION_SERVICES))
    method: Any = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return tuple(
        grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": method}) for name in REFLECTION_SERVICES
    )


def _describe_v1() -> None:
    """Make the file of v1 known, so that v1 describes itself too. A second addition changes nothing."""
    alpha = FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(alpha)
    v1 = json_format.Parse(json_format.MessageToJson(alpha).replace("v1alpha", "v1"), FileDescriptorProto())
    descriptor_pool.Default().AddSerializedFile(v1.SerializeToString())
