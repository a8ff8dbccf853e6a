"""The two protocols that carry calls over plain HTTP: Connect (https://connectrpc.com/docs/protocol) and gRPC-Web
(https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-WEB.md). Each protocol has its own frames of messages, deadlines
and errors."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict, MessageToJson, ParseDict, ParseError
from google.protobuf.message import Message
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, ResourceInfo, RetryInfo
from google.rpc.status_pb2 import Status

from abridged.service.api.errors import CompressedRequest, InvalidRequest
from abridged.service.api.http_exchange import HttpResponse
from abridged.service.api.request_reader import FIELDS_MAX
from abridged.service.api.rich_status import retry_ms

ENVELOPE_BYTES: Final = 5
"""A byte of flags and a length, before each message of a stream and of gRPC-Web."""

_COMPRESSED: Final = 0x01
_CONNECT_END: Final = 0x02
_WEB_TRAILERS: Final = 0x80

_STATUSES: Mapping[str, HTTPStatus] = {
    "canceled": HTTPStatus.BAD_REQUEST,
    "unknown": HTTPStatus.INTERNAL_SERVER_ERROR,
    "invalid_argument": HTTPStatus.BAD_REQUEST,
    "deadline_exceeded": HTTPStatus.GATEWAY_TIMEOUT,
    "not_found": HTTPStatus.NOT_FOUND,
    "already_exists": HTTPStatus.CONFLICT,
    "permission_denied": HTTPStatus.FORBIDDEN,
    "resource_exhausted": HTTPStatus.TOO_MANY_REQUESTS,
    "failed_precondition": HTTPStatus.BAD_REQUEST,
    "aborted": HTTPStatus.CONFLICT,
    "out_of_range": HTTPStatus.BAD_REQUEST,
    "unimplemented": HTTPStatus.NOT_IMPLEMENTED,
    "internal": HTTPStatus.INTERNAL_SERVER_ERROR,
    "unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "data_loss": HTTPStatus.INTERNAL_SERVER_ERROR,
    "unauthenticated": HTTPStatus.UNAUTHORIZED,
}
"""Connect's own table of codes and HTTP statuses, but for its 499, which nobody is there to read."""

_UNITS_S: Mapping[str, float] = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_DETAILS = {detail.DESCRIPTOR.full_name: detail for detail in (BadRequest, ErrorInfo, ResourceInfo, RetryInfo)}

_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?', re.DOTALL)
"""JSON's strings, also one without an end: to look for its end from each quote in it would take time with the square of
its length."""

_MARKS = b",:[{"
_MARKS_MAX = 4 * FIELDS_MAX
"""Marks between the values of a JSON request, and so values: a field has at most four."""


@dataclass(frozen=True, slots=True)
class Codec:
    """The form in which a message is written: its bytes in the body, and a response in them."""

    read: Callable[[bytes, type[Message]], bytes]
    write: Callable[[Any, type[Message]], bytes]


def _json_read(data: bytes, kind: type[Message]) -> bytes:
    """The message's own bytes. Raises InvalidRequest for what is no message of this kind, and for a member that is no
    field: a misspelt one would be left out of a log that keeps it so for good."""
    text = _STRINGS.sub(b"", data)
    if sum(text.count(mark) for mark in _MARKS) > _MARKS_MAX:
        raise InvalidRequest((("", f"the request has more than {FIELDS_MAX} fields; send it in parts"),))
    try:
        members = json.loads(data or b"{}", object_pairs_hook=_once)
        if not isinstance(members, dict):
            raise InvalidRequest((("", "the request is no object of JSON"),))
        _once((_CAMEL.sub(lambda found: found[1].upper(), name), value) for name, value in members.items())
        return ParseDict(members, kind()).SerializeToString()
    except ParseError as error:
        raise InvalidRequest((_fault(str(error), members, kind.DESCRIPTOR),)) from error
    except (RecursionError, UnicodeDecodeError, ValueError) as error:
        raise InvalidRequest((("", "the request is not valid JSON of this method"),)) from error


def _once(members: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The members by their names. Raises InvalidRequest for one that is there twice: whichever were taken, the other
    would be left out in silence."""
    found: dict[str, Any] = {}
    for name, value in members:
        if name in found:
            raise InvalidRequest(((name[:_NAME_CHARS_MAX], "is given twice"),))
        found[name] = value
    return found


_NAME_CHARS_MAX = 64
_CAMEL = re.compile(r"_([a-z])")
_PARENT = re.compile(r"Failed to parse ([A-Za-z0-9_]{1,64}) field: ")
_PLACE = re.compile(r" at \"?\w+((?:\.\w{1,64}|\[\d{1,9}\])+)")
_STEP = re.compile(r"\w+|\[\d+\]")
_NO_FIELD = re.compile(r"has no field named \"([A-Za-z0-9_]{1,64})\"")


def _fault(words: str, members: Any, message: Any) -> tuple[str, str]:
    """The place that the parser names and what would be right there, without what it found: that may be a message's
    text."""
    field: FieldDescriptor | None = None
    parents = _PARENT.findall(words)
    for name in parents:
        field = message.fields_by_camelcase_name.get(name) or message.fields_by_name.get(name)
        if field is None:
            break
        message = field.message_type or message
    place = _PLACE.search(words)
    path = place[1].lstrip(".") if place else ".".join(parents)
    unknown = _NO_FIELD.search(words)
    if unknown is not None:
        if not isinstance(_at(members, path), dict):
            return path, "must be an object"
        return ".".join(filter(None, (path, unknown[1]))), "is not a field in this version"
    return (path, _wanted(field)) if field is not None else ("", "the request is not valid JSON of this method")


def _at(members: Any, path: str) -> Any:
    """The value at a place, such as a text in that of an object, whose letters the parser takes for members."""
    for step in _STEP.findall(path):
        members = members[int(step[1:-1])] if step[0] == "[" else members.get(step, {})
    return members


def _wanted(field: FieldDescriptor) -> str:
    """Say which values a field takes, in the words of JSON."""
    if field.enum_type is not None:
        return f"must be one of {', '.join(value.name for value in field.enum_type.values if value.number)}"
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return "must be an object, each member of it a text"
    if field.message_type is not None:
        kind = _MESSAGES_AS.get(field.message_type.full_name, "an object")
    else:
        kind = _SCALARS_AS.get(field.cpp_type, "a whole number")
    return f"must be {f'a list, each of it {kind}' if field.is_repeated else kind}"


_MESSAGES_AS: Mapping[str, str] = {
    "google.protobuf.Duration": 'a duration such as "30s"',
    "google.protobuf.Timestamp": 'a time such as "2026-11-25T09:00:00Z"',
    "google.protobuf.FieldMask": 'names of fields such as "title,labels"',
}
_SCALARS_AS: Mapping[int, str] = {
    FieldDescriptor.CPPTYPE_STRING: "a text",
    FieldDescriptor.CPPTYPE_BOOL: "true or false",
    FieldDescriptor.CPPTYPE_DOUBLE: "a number",
}


def _json_written(answer: Any, kind: type[Message]) -> bytes:
    message = kind.FromString(answer) if isinstance(answer, bytes) else answer
    return MessageToJson(message, indent=None, ensure_ascii=False).encode()


def _proto_written(answer: Any, _: type[Message]) -> bytes:
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


_JSON = Codec(_json_read, _json_written)
_PROTO = Codec(lambda data, _: data, _proto_written)


@dataclass(frozen=True, slots=True)
class WebProtocol:
    """One content type of requests and responses.

    `is_enveloped` is whether messages have envelopes, `takes_unary` and `takes_streams` which methods it is for;
    `is_text` that the body is base64.
    """

    content_type: str
    codec: Codec
    is_grpc: bool
    takes_unary: bool
    takes_streams: bool
    is_text: bool = False

    @property
    def is_enveloped(self) -> bool:
        return self.is_grpc or self.takes_streams

    def timeout_s(self, headers: Mapping[str, str]) -> float | None:
        """The seconds that the caller gives; None without a deadline. Raises InvalidRequest."""
        name = "grpc-timeout" if self.is_grpc else "connect-timeout-ms"
        value = headers.get(name)
        if value is None:
            return None
        number, unit = (value[:-1], value[-1:]) if self.is_grpc else (value, "m")
        if not (number.isascii() and number.isdigit() and len(number) <= 10 and unit in _UNITS_S):
            raise InvalidRequest(((name, "is no timeout of the protocol"),))
        return int(number) * _UNITS_S[unit]

    def is_compressed(self, headers: Mapping[str, str]) -> bool:
        """Return whether the request's body, or the messages in it, are compressed."""
        names = ("content-encoding", "connect-content-encoding", "grpc-encoding")
        return any(headers.get(name, "identity") not in ("identity", "") for name in names)

    def framed(self, message: bytes) -> bytes:
        """A message as it stands in the body."""
        return self._coded(_envelope(0, message)) if self.is_enveloped else message

    def takes(self, *, streams: bool) -> bool:
        """Return whether it is for methods that stream, or for those that do not."""
        return self.takes_streams if streams else self.takes_unary

    def end(self, status: Status | None) -> bytes:
        """The last frame of a body with envelopes; without `status` the call went well."""
        if not self.is_grpc:
            error = {} if status is None else {"error": _connect_error(status)}
            return _envelope(_CONNECT_END, json.dumps(error).encode())
        lines = [f"grpc-status: {0 if status is None else status.code}"]
        if status is not None:
            encoded = base64.b64encode(status.SerializeToString()).decode().rstrip("=")
            lines += [f"grpc-message: {quote(status.message, safe=' !,;:()[]{}=+*&@#?/')}"]
            lines += [f"grpc-status-details-bin: {encoded}"]
        return self._coded(_envelope(_WEB_TRAILERS, "".join(f"{line}\r\n" for line in lines).encode()))

    def refused(self, status: Status) -> HttpResponse:
        """The whole response of a call that ends in an error before anything was sent."""
        if self.is_enveloped:
            return HttpResponse(HTTPStatus.OK, self.end(status), self.content_type)
        error = _connect_error(status)
        wait_ms = retry_ms(status)
        again = () if wait_ms is None else (f"Retry-After: {max(1, -(-wait_ms // 1_000))}",)
        body = json.dumps(error, ensure_ascii=False).encode()
        return HttpResponse(_STATUSES[error["code"]], body, "application/json", again)

    def _coded(self, frame: bytes) -> bytes:
        return base64.b64encode(frame) if self.is_text else frame


def _envelope(flags: int, message: bytes) -> bytes:
    return bytes((flags,)) + len(message).to_bytes(4, "big") + message


def opened(envelope: bytes) -> int:
    """The length of the message after these ENVELOPE_BYTES. Raises CompressedRequest, and InvalidRequest for flags that
    no request has."""
    if envelope[0] == _COMPRESSED:
        raise CompressedRequest
    if envelope[0] != 0:
        raise InvalidRequest((("", "a message begins with five bytes: a zero, and its length"),))
    return int.from_bytes(envelope[1:], "big")


def _connect_error(status: Status) -> dict[str, Any]:
    """Connect's error: details as base64, and beside each in JSON where this version knows its type."""
    details = []
    for wrapped in status.details:
        name = wrapped.type_url.rpartition("/")[2]
        detail: dict[str, Any] = {"type": name, "value": base64.b64encode(wrapped.value).decode().rstrip("=")}
        if name in _DETAILS:
            detail["debug"] = MessageToDict(_DETAILS[name].FromString(wrapped.value))
        details.append(detail)
    code = Code.Name(status.code).lower().replace("cancelled", "canceled")
    return {"code": code, "message": status.message, "details": details}


def _protocols() -> dict[str, WebProtocol]:
    made = [
        WebProtocol(f"application/{name}", codec, is_grpc=False, takes_unary=True, takes_streams=False)
        for name, codec in (("json", _JSON), ("proto", _PROTO))
    ]
    made += [
        WebProtocol(f"application/connect+{name}", codec, is_grpc=False, takes_unary=False, takes_streams=True)
        for name, codec in (("json", _JSON), ("proto", _PROTO))
    ]
    made += [
        WebProtocol(
            f"application/grpc-web{text}{suffix}",
            _JSON if suffix == "+json" else _PROTO,
            is_grpc=True,
            takes_unary=True,
            takes_streams=True,
            is_text=bool(text),
        )
        for text in ("", "-text")
        for suffix in ("", "+proto", "+json")
    ]
    return {protocol.content_type: protocol for protocol in made}


PROTOCOLS: Mapping[str, WebProtocol] = _protocols()
"""The protocols by content type."""
