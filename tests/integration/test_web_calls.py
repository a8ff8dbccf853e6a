"""The contract's calls over plain HTTP: equal to those over gRPC, and closed to pages that nobody has let in."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc.code_pb2 import Code
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from abridged.service.api.http import HttpServer
from abridged.service.api.pipeline import Pipeline
from abridged.service.api.validation import Validation
from abridged.service.api.web_protocols import PROTOCOLS
from abridged.service.api.web_server import EVERYBODY_HERE, WebServer
from abridged.v1 import (
    conversation_service_pb2,
    event_log_service_pb2,
    server_info_service_pb2,
    text_service_pb2,
)
from abridged.v1 import conversation_service_pb2 as api
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import Sidecar, said, sidecar
from tests.support.web_calls import CONTENT_TYPES, Answered, answer_of, body_of, enveloped, web_client

CHAT = "/abridged.v1.ConversationService"
NOW_US = 1_790_000_000_000_000
VALID = b'{"conversationId":"c1","messages":[{"id":"m1","role":"ROLE_USER","content":"hello"}]'
_DRAWN = re.compile(r"latency \{[^}]*|payload: .*|[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}")
_FILES = (conversation_service_pb2, event_log_service_pb2, server_info_service_pb2, text_service_pb2)
METHODS = {
    f"{service.full_name}/{rpc.name}": rpc
    for file in _FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for rpc in service.methods
}
UNARY = sorted(name for name, rpc in METHODS.items() if not (rpc.client_streaming or rpc.server_streaming))


async def unary(served: Sidecar, name: str, request: Message, content_type: str = "") -> Answered:
    """Call a method over HTTP, or over gRPC without a content type."""
    kind = GetMessageClass(METHODS[name].output_type)
    if content_type:
        async with web_client(served.http_address) as client:
            body = body_of(request, content_type)
            return answer_of(await client.post(f"/{name}", content=body, headers={"content-type": content_type}), kind)
    call = served.channel.unary_unary(f"/{name}", type(request).SerializeToString, kind.FromString)
    try:
        return Answered([await call(request, timeout=PATIENCE_S)], None)
    except grpc.aio.AioRpcError as error:
        return Answered([], rpc_status.from_call(error))


def script() -> list[tuple[str, Message]]:
    """Each unary method with an empty request, in a chat that is played once for each transport, and with one that
    asks for what is not there."""
    turns = [said(n, tokens=150) for n in range(1, 16)]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("ConversationService/AppendMessages", {"messages": turns, "settings": {"context_length": 2_000}}),
        ("ConversationService/AppendMessages", {"messages": turns}),
        ("ServerInfoService/WaitIdle", {"timeout": {"seconds": int(PATIENCE_S)}}),
        ("ConversationService/GetContext", {}),
        ("ConversationService/GetConversation", {}),
        ("ConversationService/ListSummaries", {}),
        ("ConversationService/ListSummarizations", {}),
        ("ConversationService/PinMessages", {"numbers": [1]}),
        ("ConversationService/UnpinMessages", {"numbers": [1]}),
        ("ConversationService/ReportUsage", {"prompt_tokens": 1_234, "message_version": 15}),
        ("ConversationService/CloseConversation", {}),
        ("ConversationService/AppendMessages", {"messages": [said(99, tokens=10)]}),
        ("ConversationService/ReopenConversation", {}),
        ("EventLogService/ReadEvents", {"limit": 5}),
        ("TextService/CountTokens", {"texts": ["a text to count"]}),
    ]
    made = []
    for short, fields in calls:
        made.append(_request(f"abridged.v1.{short}", "c1", fields))
    for name in UNARY:
        made += [_request(name, "", {}), _request(name, "missing", {}), _request(name, "not an id!", {})]
    return made


def _request(name: str, conversation_id: str, fields: dict[str, Any]) -> tuple[str, Message]:
    kind = GetMessageClass(METHODS[name].input_type)
    known = {key: value for key, value in fields.items() if key in kind.DESCRIPTOR.fields_by_name}
    assert len(known) == len(fields), f"{name} has no {set(fields) - set(known)}"
    if conversation_id and "conversation_id" in kind.DESCRIPTOR.fields_by_name:
        known["conversation_id"] = conversation_id
    return name, kind(**known)


def shown(answered: Answered) -> tuple[list[str], str]:
    """The messages and the error in full, but for what each sidecar draws or measures anew."""
    return [_DRAWN.sub("ID", str(m)) for m in answered.messages], _DRAWN.sub("ID", str(answered.error))


@pytest.mark.timeout(300)
async def test_every_unary_method_answers_alike_over_each_transport(tmp_path: Path) -> None:
    """gRPC, Connect in JSON and in bytes, and gRPC-Web in three forms: equal messages and equal errors, method by
    method, from sidecars that have seen the same calls."""
    transports: Sequence[str] = ("", *CONTENT_TYPES)
    async with AsyncExitStack() as stack:
        sidecars = []
        for number in range(len(transports)):
            folder = tmp_path / str(number)
            folder.mkdir()
            sidecars.append(await stack.enter_async_context(sidecar(folder, now_us=lambda: NOW_US)))
        seen: set[str] = set()
        failed: set[str] = set()
        for name, request in script():
            answers = [
                await unary(served, name, request, content_type)
                for served, content_type in zip(sidecars, transports, strict=True)
            ]
            for content_type, answer in zip(transports, answers, strict=True):
                assert shown(answer) == shown(answers[0]), f"{name} over {content_type or 'gRPC'}"
            (failed if answers[0].error else seen).add(name)
            # A pass that one of them has still to make would show in its next answer.
            await asyncio.gather(*(served.idle() for served in sidecars))

        assert len(UNARY) >= 27
        assert failed | seen == set(UNARY)
        assert {"abridged.v1.ConversationService/GetContext", "abridged.v1.TextService/CountTokens"} <= seen


async def test_a_stream_comes_over_http(tmp_path: Path) -> None:
    """WatchConversation yields the same responses over Connect and gRPC-Web as they happen; the end says that the
    server stopped."""
    async with sidecar(tmp_path) as served:
        chat = served.chat()
        await chat.talk(2)
        request = api.WatchConversationRequest(conversation_id="c1")
        kinds = ("application/connect+json", "application/connect+proto", "application/grpc-web+proto")

        async def watched(content_type: str) -> Answered:
            async with web_client(served.http_address) as client:
                body = body_of(request, content_type)
                response = await client.post(
                    f"{CHAT}/WatchConversation", content=body, headers={"content-type": content_type}
                )
                return answer_of(response, api.WatchConversationResponse)

        watching = [asyncio.create_task(watched(kind)) for kind in kinds]
        async with asyncio.timeout(PATIENCE_S):
            while (await served.http("/metrics")).count("abridged_subscribers 3") == 0:
                continue
        await chat.talk(2)
        await served.stop()
        answers = await asyncio.gather(*watching)

    for answer in answers:
        versions = [m.event.version for m in answer.messages if m.WhichOneof("item") == "event"]
        assert versions == list(range(1, len(versions) + 1))
        assert len(versions) >= 2
        assert answer.error is None or answer.error.code == Code.UNAVAILABLE


async def test_a_stream_of_appends_comes_over_http(tmp_path: Path) -> None:
    """IngestMessages takes one envelope after another, and answers each in order."""
    async with sidecar(tmp_path) as served, web_client(served.http_address) as client:
        requests = [
            api.IngestMessagesRequest(
                append=api.AppendMessagesRequest(conversation_id="c1", messages=[said(n, tokens=10)])
            )
            for n in range(1, 4)
        ]
        body = b"".join(enveloped(request.SerializeToString()) for request in requests)
        response = await client.post(
            f"{CHAT}/IngestMessages", content=body, headers={"content-type": "application/connect+proto"}
        )
        answer = answer_of(response, api.IngestMessagesResponse)

        assert (len(answer.messages), answer.error) == (3, None)
        assert (await served.chat().state()).message_version == 3


@pytest.mark.parametrize("content_type", ["application/connect+json", "application/grpc-web+json"])
@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (b"\1\0\0\0\2{}", Code.UNIMPLEMENTED),
        (b"\2\0\0\0\2{}", Code.INVALID_ARGUMENT),
        (b"\0\0", Code.INVALID_ARGUMENT),
        (b"\0\0\0\0\3{}", Code.INVALID_ARGUMENT),
        (b"\0\xff\0\0\0{}", Code.INVALID_ARGUMENT),
    ],
    ids=["compressed", "flag", "head", "cut off", "large"],
)
async def test_a_broken_envelope_ends_a_stream_of_appends(
    tmp_path: Path, content_type: str, broken: bytes, code: int
) -> None:
    """The end has its status, after the results of all that came before it; a request that is whole, and no message of
    the method, is refused alone."""
    appended = enveloped(b'{"append":{"conversationId":"c1","messages":[{"role":"ROLE_USER","content":"a"}]}}')
    body = enveloped(b'{"bogus":1}') + appended + broken
    async with sidecar(tmp_path) as served, web_client(served.http_address) as client:
        response = await client.post(f"{CHAT}/IngestMessages", content=body, headers={"content-type": content_type})
        answer = answer_of(response, api.IngestMessagesResponse)

        assert [m.WhichOneof("result") for m in answer.messages] == ["refusal", "appended"]
        assert answer.error is not None
        assert answer.error.code == code
        assert (await served.chat().state()).message_version == 1


async def test_a_person_calls_by_curl(tmp_path: Path) -> None:
    """JSON in, JSON out; a refusal has an HTTP status, and its reason can be read without a decoder."""
    async with sidecar(tmp_path) as served, web_client(served.http_address) as client:
        body = {"conversationId": "c1", "messages": [{"role": "ROLE_USER", "content": "hello", "id": "m1"}]}
        appended = await client.post(f"{CHAT}/AppendMessages", json=body)
        refused = await client.post(f"{CHAT}/GetContext", json={"conversationId": "c2"})

        assert (appended.status_code, appended.headers["content-type"]) == (200, "application/json")
        assert appended.json()["messageVersion"] == "1"
        assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
        assert refused.json()["details"][0]["debug"]["reason"] == "CONVERSATION_NOT_FOUND"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"conversationId": "a", "conversationId": "b"}', "conversationId: is given twice"),
        (b'{"conversationId": "a", "conversation_id": "b"}', "conversationId: is given twice"),
        (b'{"messages": [{"content": "a", "content": "b"}]}', "content: is given twice"),
    ],
)
async def test_a_member_that_is_there_twice_is_refused(tmp_path: Path, body: bytes, message: str) -> None:
    """The last one would win, and a message would go to another conversation than its writer may think."""
    async with sidecar(tmp_path) as served, web_client(served.http_address) as client:
        kind = {"content-type": "application/json"}
        refused = await client.post(f"{CHAT}/AppendMessages", content=body, headers=kind)

        assert (refused.status_code, refused.json()["message"]) == (400, message)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"messages": [{"contents": "secret"}]}, "messages[0].contents: is not a field in this version"),
        ({"bogus": "secret"}, "bogus: is not a field in this version"),
        (
            {"messages": [{"role": "user"}]},
            "messages[0].role: must be one of ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL",
        ),
        ({"settings": {"contextLength": "secret"}}, "settings.contextLength: must be a whole number"),
        ({"wait": 30}, 'wait: must be a duration such as "30s"'),
        ({"messages": {"role": "secret"}}, "messages: must be a list, each of it an object"),
        ({"conversationId": 5}, "conversationId: must be a text"),
        ({"settings": {"labels": {"secret": 5}}}, "settings.labels: must be an object, each member of it a text"),
        ({"messages": ["secret"]}, "messages[0]: must be an object"),
        (
            {"messages": [{"toolCalls": [{"secret": 1}]}]},
            "messages[0].toolCalls[0].secret: is not a field in this version",
        ),
        (
            {"messages": [{"createTime": "secret"}]},
            'messages[0].createTime: must be a time such as "2026-11-25T09:00:00Z"',
        ),
        (["secret"], "the request is no object of JSON"),
        ("secret", "the request is no object of JSON"),
    ],
)
async def test_a_member_that_does_not_fit_is_named_without_its_value(tmp_path: Path, body: Any, message: str) -> None:
    """A misspelt member is refused, so that no log keeps a message without its text."""
    async with sidecar(tmp_path) as served, web_client(served.http_address) as client:
        refused = await client.post(f"{CHAT}/AppendMessages", json=body)

        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_argument")
        assert refused.json()["message"] == message


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"content-type": "text/plain"}, b"{}", 415),
        ({"content-type": "application/connect+json"}, enveloped(b"{}"), 415),
        ({"content-type": "application/json", "content-encoding": "gzip"}, b"{}", 501),
        ({"content-type": "application/json", "connect-timeout-ms": "soon"}, b"{}", 400),
        ({"content-type": "application/json"}, b"", 400),
        ({"content-type": "application/json"}, b"[" * 100_000, 400),
        ({"content-type": "application/json"}, b'{"messages":[' + b"{}," * 100_000 + b"{}]}", 400),
        ({"content-type": "application/json"}, VALID + b',"unknown":[' + b"1," * 100_000 + b"1]}", 400),
        ({"content-type": "application/json"}, b'{"conversationId": "\xff"}', 400),
        ({"content-type": "application/json"}, b'{"conversationId": "' + b"x" * (11 << 20) + b'"}', 400),
        # Time with the square of its length would be hours.
        ({"content-type": "application/json"}, b'{"conversationId": "' + b'\\"' * (1 << 20), 400),
        ({"content-type": "application/json", "connect-timeout-ms": "1" * 11}, b"{}", 400),
    ],
    ids=[
        "type",
        "stream",
        "gzip",
        "timeout",
        "empty",
        "deep",
        "many",
        "unknown",
        "bytes",
        "large",
        "quotes",
        "long timeout",
    ],
)
async def test_bad_requests_are_refused(tmp_path: Path, headers: dict[str, str], body: bytes, status: int) -> None:
    """Each ends with the status of its kind, and the next call is served."""
    async with sidecar(tmp_path) as served, web_client(served.http_address) as client:
        refused = await client.post(f"{CHAT}/AppendMessages", content=body, headers=headers)

        assert refused.status_code == status
        assert (await client.post("/abridged.v1.ServerInfoService/GetServerInfo", json={})).status_code == 200
        assert not [line for line in served.logs if line["event"] == "rpc.failed"]


FRAME = enveloped(b'{"conversationId": "c1"}')


@pytest.mark.parametrize(
    ("content_type", "body", "code", "message"),
    [
        ("application/connect+json", b"\1" + FRAME[1:], Code.UNIMPLEMENTED, "compressed"),
        ("application/connect+json", b'{"conversationId": "c1"}', Code.INVALID_ARGUMENT, "begins with five bytes"),
        ("application/connect+json", FRAME[:3], Code.INVALID_ARGUMENT, "ends in the middle"),
        ("application/connect+json", FRAME[:-3], Code.INVALID_ARGUMENT, "ends in the middle"),
        ("application/connect+json", FRAME + FRAME, Code.INVALID_ARGUMENT, "takes one request"),
        ("application/connect+json", b"\0\xff\0\0\0", Code.INVALID_ARGUMENT, "limit"),
        ("application/connect+json", b"", Code.INVALID_ARGUMENT, "no request came"),
        ("application/grpc-web-text", b"not base64!", Code.INVALID_ARGUMENT, "no base64"),
        ("application/grpc-web-text", b"A" * (14 << 20), Code.INVALID_ARGUMENT, "limit"),
    ],
)
async def test_bad_frames_are_refused(tmp_path: Path, content_type: str, body: bytes, code: int, message: str) -> None:
    """A stream's error stands at its end, in words about the fault of the request."""
    async with sidecar(tmp_path) as served, web_client(served.http_address) as client:
        await served.chat().talk(1)
        response = await client.post(f"{CHAT}/WatchConversation", content=body, headers={"content-type": content_type})
        error = answer_of(response, api.WatchConversationResponse).error

        assert error is not None
        assert (error.code, message in error.message) == (code, True)


async def test_marks_in_a_text_are_no_fields(tmp_path: Path) -> None:
    """A message may have as many commas and brackets as it likes."""
    async with sidecar(tmp_path) as served, web_client(served.http_address) as client:
        message = {"id": "m1", "role": "ROLE_USER", "content": ',:[{\\"' * 30_000}
        body = {"conversationId": "c1", "messages": [message]}

        assert (await client.post(f"{CHAT}/AppendMessages", json=body)).status_code == 200
        assert (await served.chat().context()).messages[0].message.content == message["content"]


async def test_a_deadline_in_the_middle_of_a_response_cuts_it_off(tmp_path: Path) -> None:
    """Bytes end short of the announced length: a reader that is too slow sees the end of its connection."""
    async with sidecar(tmp_path, {"server.message_bytes_max": 1_000_000}) as served:
        chat = served.chat()
        for number in range(24):
            await chat.append(said(number, "x" * 900_000, tokens=1))
        host, _, port = served.http_address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1_024)
        body = b'{"conversationId":"c1"}'
        writer.write(
            f"POST {CHAT}/GetContext HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Connect-Timeout-Ms: 1500\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = await reader.readuntil(b"\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            while "DEADLINE_EXCEEDED" not in await served.http("/metrics") and not reader.at_eof():
                continue
        rest = b""
        with suppress(ConnectionResetError):
            while part := await reader.read(1 << 20):
                rest += part
        writer.close()

    announced = re.search(rb"Content-Length: (\d+)", head)
    assert announced is not None
    assert len(rest) <= int(announced[1])
    assert b"deadline_exceeded" not in rest


async def test_a_method_that_is_not_there_says_so(tmp_path: Path) -> None:
    """A method that this version lacks is UNIMPLEMENTED; GET is no call."""
    async with sidecar(tmp_path) as served, web_client(served.http_address) as client:
        unknown = await client.post(f"{CHAT}/Nothing", json={})
        got = await client.get(f"{CHAT}/GetContext")

        assert (unknown.status_code, unknown.json()["code"]) == (501, "unimplemented")
        assert (got.status_code, got.headers["allow"]) == (405, "POST")


async def test_a_page_of_a_foreign_origin_is_refused(tmp_path: Path) -> None:
    """A page whose origin no setting names gets nothing, not even by its preflight; one that is named may call."""
    known, foreign = "http://localhost:5173", "http://evil.example"
    async with (
        sidecar(tmp_path, {"server.http_origins": [known]}) as served,
        web_client(served.http_address) as client,
    ):
        path = "/abridged.v1.ServerInfoService/GetServerInfo"
        for origin, status in ((known, 200), (foreign, 403), ("null", 403)):
            called = await client.post(path, json={}, headers={"origin": origin})
            asked = await client.options(path, headers={"origin": origin, "access-control-request-method": "POST"})

            assert called.status_code == status
            assert asked.status_code == (204 if status == 200 else 403)
            assert (called.headers.get("vary") == "Origin") == (status == 200)
            shown = called.headers.get("access-control-allow-origin")
            assert shown == (origin if status == 200 else None)


async def test_calls_need_their_token(tmp_path: Path) -> None:
    """The same credential as over gRPC, and the same refusal."""
    token = "0123456789abcdef0123456789abcdef"
    settings = {"server.tokens": [{"token": token, "namespace": "a", "scopes": ["read", "append"]}]}
    async with sidecar(tmp_path, settings) as served, web_client(served.http_address) as client:
        path = f"{CHAT}/GetConversation"
        refused = await client.post(path, json={"conversationId": "c1"})
        taken = await client.post(path, json={"conversationId": "c1"}, headers={"authorization": f"Bearer {token}"})

        assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
        assert taken.json()["code"] == "not_found"


async def test_other_machines_call_with_tokens_alone(tmp_path: Path) -> None:
    """The port serves probes and metrics beyond loopback, and no calls unless tokens are set."""
    async with sidecar(tmp_path, {"server.http_listen": "0.0.0.0:0"}) as served:
        address = served.http_address.replace("0.0.0.0", "127.0.0.1")
        async with web_client(address) as client:
            refused = await client.post("/abridged.v1.ServerInfoService/GetServerInfo", json={})

            assert (refused.status_code, "server.tokens" in refused.text) == (403, True)
            assert (await client.get("/livez")).status_code == 200


async def test_a_deadline_ends_a_wait(tmp_path: Path) -> None:
    """`connect-timeout-ms` is a deadline like gRPC's: the wait ends, and the call says so."""
    async with sidecar(tmp_path) as served, web_client(served.http_address) as client:
        await served.chat().talk(1)
        body = {"conversationId": "c1", "minVersion": 50, "wait": "30s"}
        late = await client.post(f"{CHAT}/GetContext", json=body, headers={"connect-timeout-ms": "300"})

        assert (late.status_code, late.json()["code"]) == (504, "deadline_exceeded")


async def test_a_deadline_ends_a_request_that_does_not_come(tmp_path: Path) -> None:
    """A body that was announced and never sent holds a call no longer than its deadline."""
    async with sidecar(tmp_path) as served:
        host, _, port = served.http_address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"POST {CHAT}/GetContext HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            "Connect-Timeout-Ms: 100\r\nContent-Length: 100\r\n\r\n".encode()
        )
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
        writer.transport.abort()

    assert answer.startswith(b"HTTP/1.1 504 ")
    assert b'"deadline_exceeded"' in answer


@pytest.mark.parametrize("content_type", CONTENT_TYPES)
async def test_a_caller_that_goes_ends_its_call(tmp_path: Path, content_type: str) -> None:
    """A wait whose caller has gone is cancelled, and gives its place back."""
    request = api.GetContextRequest(conversation_id="c1", min_version=50)
    request.wait.FromSeconds(60)
    async with sidecar(tmp_path, {"server.waits_max": 1}) as served, web_client(served.http_address) as client:
        await served.chat().talk(1)
        for gone in range(1, 4):
            await gone_after(served, "GetContext", content_type, body_of(request, content_type))
            async with asyncio.timeout(PATIENCE_S):
                while cancelled(await served.http("/metrics")) < gone:
                    continue
        # Each protocol has its own name for a deadline.
        soon = {"content-type": content_type, "connect-timeout-ms": "100", "grpc-timeout": "100m"}
        late = await client.post(f"{CHAT}/GetContext", content=body_of(request, content_type), headers=soon)
        error = answer_of(late, api.GetContextResponse).error

    assert error is not None
    assert error.code == Code.DEADLINE_EXCEEDED


@pytest.mark.parametrize("content_type", ["application/connect+json", "application/grpc-web+proto"])
async def test_a_watcher_that_goes_is_let_go(tmp_path: Path, content_type: str) -> None:
    """The watcher's stream does not wait for an event that nobody hears."""
    request = api.WatchConversationRequest(conversation_id="c1")
    body = enveloped(b'{"conversationId":"c1"}' if "json" in content_type else request.SerializeToString())
    async with sidecar(tmp_path) as served:
        await served.chat().talk(1)
        await gone_after(served, "WatchConversation", content_type, body, until="abridged_subscribers 1")
        async with asyncio.timeout(PATIENCE_S):
            while "abridged_subscribers 0" not in await served.http("/metrics"):
                continue


async def gone_after(served: Sidecar, method: str, content_type: str, body: bytes, *, until: str = "") -> None:
    """Make a call and go, when the metrics have `until`."""
    host, _, port = served.http_address.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"POST {CHAT}/{method} HTTP/1.1\r\nHost: x\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    await writer.drain()
    async with asyncio.timeout(PATIENCE_S):
        while until not in await served.http("/metrics"):
            continue
    writer.transport.abort()


def cancelled(metrics: str) -> int:
    """Count the calls of GetContext that were cancelled."""
    found = re.search(r'abridged_grpc_server_calls_total\{code="CANCELLED",method="[^"]*GetContext"\} (\d+)', metrics)
    return int(found[1]) if found else 0


async def test_a_call_that_comes_before_the_server_is_open_is_refused() -> None:
    """The port answers probes while the log is still read; calls are served once gRPC takes them too."""
    unused = cast(Pipeline, None)
    closed = WebServer(
        (), unused, Validation(), request_bytes_max=1_000, receive_bytes_max=1_000, access=EVERYBODY_HERE
    )
    server = HttpServer("127.0.0.1", 0, routes={}, calls=closed)
    try:
        async with web_client(f"127.0.0.1:{await server.start()}") as client:
            early = await client.post(f"{CHAT}/GetContext", json={"conversationId": "c1"})
    finally:
        await server.close()

    assert (early.status_code, early.json()["code"]) == (503, "unavailable")


def test_the_statuses_of_errors_are_complete() -> None:
    """Every code of gRPC has an HTTP status."""
    for code in range(1, 17):
        response = PROTOCOLS["application/json"].refused(Status(code=code, message="x"))
        assert 400 <= response.status.value < 600
