"""The client behind the commands: one error, one retry policy, against a server that fails on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyProto
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message as Proto
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from abridged.client import AsyncConversations, Patience, SidecarError
from abridged.client.errors import DEFAULT_PATIENCE
from abridged.v1 import conversation_pb2
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1.message_pb2 import ROLE_USER, Message

Code = grpc.StatusCode
MESSAGE = Message(id="m1", role=ROLE_USER, content="hello")


def status(code: grpc.StatusCode, *details: Proto, message: str = "no") -> Any:
    packed = []
    for detail in details:
        one = AnyProto()
        one.Pack(detail)
        packed.append(one)
    return rpc_status.to_status(Status(code=code.value[0], message=message, details=packed))


BUSY = status(Code.UNAVAILABLE, ErrorInfo(reason="LOG_UNAVAILABLE"), RetryInfo(retry_delay=Duration(nanos=500_000_000)))
FULL = status(Code.RESOURCE_EXHAUSTED, ErrorInfo(reason="LOG_FULL"), RetryInfo(retry_delay=Duration(seconds=5)))
PROXY = status(Code.UNAVAILABLE)
INVALID = status(
    Code.INVALID_ARGUMENT,
    ErrorInfo(reason="INVALID_FIELD", metadata={"limit": "3"}),
    BadRequest(field_violations=[BadRequest.FieldViolation(field="messages[0].role", description="is required")]),
)


class Failing:
    """Fails as often as there are failures, then answers; keeps the ids that were asked."""

    def __init__(self, *failures: Any) -> None:
        self.failures = list(failures)
        self.asked: list[str] = []
        self.metadata: dict[str, str] = {}

    async def append(self, request: Any, context: Any) -> api.AppendMessagesResponse:
        self.metadata = {name: str(value) for name, value in context.invocation_metadata()}
        self.asked.append(request.messages[0].id)
        if self.failures:
            await context.abort_with_status(self.failures.pop(0))
        return api.AppendMessagesResponse(message_version=1)

    async def list(self, request: Any, _context: Any) -> api.ListSummarizationsResponse:
        place = int(request.page_token or "0")
        return api.ListSummarizationsResponse(
            summarizations=[conversation_pb2.Summarization(id=str(place))],
            next_page_token=str(place + 1) if place < 2 else "",
        )


@asynccontextmanager
async def client_of(
    service: Failing, *, patience: Patience = DEFAULT_PATIENCE, **options: Any
) -> AsyncIterator[tuple[AsyncConversations, list[float]]]:
    """A client of a server with `service`, and the pauses that it made."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_handlers(service),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        patient = replace(patience, uniform=lambda _low, high: high)
        async with AsyncConversations(f"127.0.0.1:{port}", sleep=sleep, patience=patient, **options) as client:
            yield client, pauses
    finally:
        await server.stop(None)


def _handlers(service: Failing) -> grpc.GenericRpcHandler:
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "AppendMessages": grpc.unary_unary_rpc_method_handler(
            service.append,
            request_deserializer=api.AppendMessagesRequest.FromString,
            response_serializer=api.AppendMessagesResponse.SerializeToString,
        ),
        "ListSummarizations": grpc.unary_unary_rpc_method_handler(
            service.list,
            request_deserializer=api.ListSummarizationsRequest.FromString,
            response_serializer=api.ListSummarizationsResponse.SerializeToString,
        ),
    }
    return grpc.method_handlers_generic_handler("abridged.v1.ConversationService", methods)


async def test_what_may_pass_is_tried_again_with_the_same_ids():
    """The server's own delay where it gives one, doubling pauses where it does not."""
    service = Failing(BUSY, PROXY, PROXY)

    async with client_of(service) as (client, pauses):
        answer = await client.append("c", [MESSAGE])

    assert answer.message_version == 1
    assert service.asked == ["m1"] * 4
    assert pauses == pytest.approx([0.6, 0.2, 0.4])


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("a..b:7420", "a..b:7420: no host of this name is known"),
        (
            "http://127.0.0.1:7420",
            "http://127.0.0.1:7420: an address is 'host:port' or 'unix:/path', without 'http://'",
        ),
        ("127.0.0.1:7420/v1", "127.0.0.1:7420/v1: an address is 'host:port' or 'unix:/path', without 'http://'"),
        ("127.0.0.1:1", "127.0.0.1:1: nobody answers"),
    ],
)
async def test_a_wrong_address_is_told_from_an_absent_sidecar(address, message):
    """Only the last of them may be right later."""
    async with AsyncConversations(address, patience=Patience(attempts_max=1)) as client:
        with pytest.raises(SidecarError) as told:
            await client.server_info()

    assert (told.value.code, told.value.message) == ("UNAVAILABLE", message)


async def test_a_server_of_another_protocol_is_told_as_one():
    """The HTTP port of a sidecar is one."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 505 HTTP Version Not Supported\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with AsyncConversations(f"127.0.0.1:{port}", patience=Patience(attempts_max=1)) as client:
            with pytest.raises(SidecarError, match=f"{port}: what answers there does not speak gRPC"):
                await client.server_info()


async def test_patience_has_an_end():
    """The client makes as many attempts as are allowed, and raises the last error."""
    service = Failing(*[FULL] * 10)

    async with client_of(service, patience=Patience(attempts_max=3, pause_base_s=0.1, pause_max_s=2.0)) as (c, pauses):
        with pytest.raises(SidecarError) as told:
            await c.append("c", [MESSAGE])

    assert len(service.asked) == 3
    assert pauses == pytest.approx([2.1, 2.1])
    assert (told.value.code, told.value.reason, told.value.retry_after_s) == ("RESOURCE_EXHAUSTED", "LOG_FULL", 5.0)


@pytest.mark.parametrize("code", [Code.CANCELLED, Code.UNKNOWN])
async def test_a_connection_that_breaks_is_no_answer(code):
    """The call that a transport breaks is made again; ids make that safe."""
    service = Failing(status(code))

    async with client_of(service) as (client, _):
        await client.append("c", [MESSAGE])

    assert service.asked == ["m1"] * 2


@pytest.mark.parametrize("failure", [status(Code.RESOURCE_EXHAUSTED), status(Code.UNKNOWN, ErrorInfo(reason="ODD"))])
async def test_an_answer_that_would_be_the_same_again_is_not_asked_for(failure):
    """A request too large for the transport stays so, and an error with a reason of ours is an answer."""
    service = Failing(failure)

    async with client_of(service) as (client, _):
        with pytest.raises(SidecarError):
            await client.append("c", [MESSAGE])

    assert service.asked == ["m1"]


async def test_what_will_not_pass_is_tried_once_and_told_field_by_field():
    """Reason, metadata and violations as the contract has them."""
    service = Failing(INVALID)

    async with client_of(service) as (client, pauses):
        with pytest.raises(SidecarError) as told:
            await client.append("c", [MESSAGE])

    assert pauses == []
    assert (told.value.code, told.value.reason) == ("INVALID_ARGUMENT", "INVALID_FIELD")
    assert told.value.metadata == {"limit": "3"}
    assert told.value.violations == (("messages[0].role", "is required"),)


async def test_a_status_that_is_not_ours_says_where_nobody_answered():
    """A transport's words stay out; the address says what to check."""
    async with client_of(Failing(*[PROXY] * 10)) as (client, _):
        with pytest.raises(SidecarError, match=r"127\.0\.0\.1:\d+: nobody answers") as told:
            await client.append("c", [MESSAGE])

    assert told.value.reason == ""


async def test_a_deadline_is_an_error_of_its_own():
    """A server that never answers does not hold a command for ever."""

    async with client_of(Failing(status(Code.DEADLINE_EXCEEDED))) as (client, pauses):
        with pytest.raises(SidecarError, match="no answer in time"):
            await client.append("c", [MESSAGE])

    assert pauses == []


async def test_the_token_goes_along_with_every_call():
    """The token is a bearer token; a client without one sends no such header."""
    with_token, without = Failing(), Failing()

    async with client_of(with_token, token="s3cret") as (client, _):
        await client.append("c", [MESSAGE])
    async with client_of(without) as (client, _):
        await client.append("c", [MESSAGE])

    assert with_token.metadata["authorization"] == "Bearer s3cret"
    assert "authorization" not in without.metadata


async def test_lists_are_read_to_their_last_page():
    """Page by page, in order."""
    async with client_of(Failing()) as (client, _):
        assert [found.id async for found in client.summarizations("c")] == ["0", "1", "2"]
