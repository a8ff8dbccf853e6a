"""A client of Connect and gRPC-Web that shows all that the server sends: its statuses, frames and errors."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from google.protobuf.json_format import MessageToJson, Parse
from google.protobuf.message import Message
from google.rpc.code_pb2 import Code
from google.rpc.status_pb2 import Status

from tests.support.patience import PATIENCE_S

CONTENT_TYPES = (
    "application/json",
    "application/proto",
    "application/grpc-web+proto",
    "application/grpc-web+json",
    "application/grpc-web-text",
)
"""Content types of unary calls."""

_NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Authorities of this machine take each client 20 ms to load, and no call over plain HTTP needs them."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The messages that came, and the error at the end or None."""

    messages: list[Any]
    error: Status | None


def enveloped(message: bytes) -> bytes:
    """The message in an envelope."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def body_of(request: Message, content_type: str) -> bytes:
    """The request as its content type has it."""
    is_json = content_type.endswith("json")
    raw = MessageToJson(request).encode() if is_json else request.SerializeToString()
    if content_type in ("application/json", "application/proto"):
        return raw
    return base64.b64encode(enveloped(raw)) if "text" in content_type else enveloped(raw)


def answer_of(response: httpx.Response, kind: type[Message]) -> Answered:
    """The messages and the error of a response in any of the content types."""
    content_type = response.headers["content-type"]
    if content_type in ("application/json", "application/proto") and response.status_code == 200:
        return Answered([_message(response.content, content_type, kind)], None)
    if content_type == "application/json":
        return Answered([], _connect_error(response.json()))
    body = response.content
    if "text" in content_type:
        body = b"".join(base64.b64decode(part + "=") for part in _padded(body.decode()))
    frames = list(_frames(body))
    *messages, (flags, end) = frames
    read = [_message(data, content_type, kind) for _, data in messages]
    assert flags in (0x02, 0x80), "the last frame ends the stream"
    if flags == 0x02:
        error = json.loads(end).get("error")
        return Answered(read, error and _connect_error(error))
    trailers = dict(line.split(": ", 1) for line in end.decode().splitlines())
    if trailers["grpc-status"] == "0":
        return Answered(read, None)
    details = trailers["grpc-status-details-bin"]
    status = Status.FromString(base64.b64decode(details + "=" * (-len(details) % 4)))
    assert str(status.code) == trailers["grpc-status"], "both say the same"
    return Answered(read, status)


@asynccontextmanager
async def web_client(address: str, headers: Mapping[str, str] | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the HTTP port at `address`."""
    async with httpx.AsyncClient(
        base_url=f"http://{address}", headers=headers, timeout=PATIENCE_S, trust_env=False, verify=_NO_AUTHORITIES
    ) as client:
        yield client


def _message(data: bytes, content_type: str, kind: type[Message]) -> Message:
    return Parse(data, kind()) if content_type.endswith("json") else kind.FromString(data)


def _frames(body: bytes) -> Any:
    while body:
        size = int.from_bytes(body[1:5], "big")
        yield body[0], body[5 : 5 + size]
        body = body[5 + size :]


def _padded(text: str) -> Any:
    """The parts of base64 that were encoded one by one: each ends with its padding."""
    part = ""
    for at in range(0, len(text), 4):
        part += text[at : at + 4]
        if part.endswith("=") or at + 4 >= len(text):
            yield part.rstrip("=") + "=" * (-len(part.rstrip("=")) % 4)
            part = ""


def _connect_error(error: Mapping[str, Any]) -> Status:
    status = Status(code=Code.Value(error["code"].upper().replace("CANCELED", "CANCELLED")), message=error["message"])
    for detail in error["details"]:
        value = base64.b64decode(detail["value"] + "=" * (-len(detail["value"]) % 4))
        status.details.add(type_url=f"type.googleapis.com/{detail['type']}", value=value)
    return status
