"""Makes the calls that lines of JSON on standard input describe, and answers each with a line."""

from __future__ import annotations

import json
import sys
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2
from grpc_status import rpc_status

sys.path.insert(0, "gen")
for stub in Path("gen").glob("abridged/v1/*_pb2.py"):
    import_module(f"abridged.v1.{stub.stem}")

POOL = descriptor_pool.Default()
RETRIES = Path("contract/service_config.json").read_text(encoding="utf-8")


@cache
def channel(retries: bool, receive_bytes: int, keepalive_s: int) -> grpc.Channel:
    options: list[tuple[str, Any]] = [("grpc.service_config", RETRIES)] if retries else [("grpc.enable_retries", 0)]
    if receive_bytes:
        options.append(("grpc.max_receive_message_length", receive_bytes))
    if keepalive_s:
        options += [("grpc.keepalive_time_ms", 1_000 * keepalive_s), ("grpc.keepalive_timeout_ms", 5_000)]
        options += [("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.max_pings_without_data", 0)]
    return grpc.insecure_channel(sys.argv[1], options)


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    service, _, name = asked["call"].partition("/")
    method = POOL.FindServiceByName(service).methods_by_name[name]
    request = ParseDict(asked["request"], GetMessageClass(method.input_type)())
    wanted = asked.get("channel", {})
    opened = channel(wanted.get("retries", False), wanted.get("receiveBytes", 0), wanted.get("keepaliveS", 0))
    make = opened.unary_stream if method.server_streaming else opened.unary_unary
    call: Any = make(
        f"/{asked['call']}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    given = {"timeout": asked.get("deadlineS", 30), "metadata": tuple(asked.get("metadata", {}).items())}
    responses: list[Any] = []
    try:
        if method.server_streaming:
            stream = call(request, **given)
            responses.extend(islice(stream, asked["stream"]))
            stream.cancel()
        else:
            responses.append(call(request, **given))
    except grpc.RpcError as error:
        return refused(error) | {"responses": [MessageToDict(response) for response in responses]}
    return {
        "code": "OK",
        "reason": "",
        "fields": [],
        "retryAfterS": 0,
        "responses": list(map(MessageToDict, responses)),
    }


def refused(error: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"code": error.code().name, "reason": "", "fields": [], "retryAfterS": 0}
    status = rpc_status.from_call(error)
    for detail in status.details if status else ():
        info, bad, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            found["reason"] = info.reason
        elif detail.Unpack(bad):
            found["fields"] = [violation.field for violation in bad.field_violations]
        elif detail.Unpack(retry):
            found["retryAfterS"] = retry.retry_delay.ToTimedelta().total_seconds()
    return found


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
