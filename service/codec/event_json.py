"""Stored events as lines of JSON: the contract's `Event` in protobuf's own JSON, after the namespace.

The payload is a `body`, which people can read and edit, if it comes back from there byte for byte; otherwise, because a
newer or older version wrote it, it is the `payload` in base64.
"""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import EncodeError

from abridged.eventlog.encryption.framing import is_encrypted
from abridged.eventlog.errors import LogEncrypted
from abridged.eventlog.event import EVENT_ID_BYTES, RecordedEvent, StreamId
from abridged.service.codec.events import UnknownEvent, current_form, decode, parsed
from abridged.service.codec.values import timestamp, timestamp_us
from abridged.service.domain.events import ConversationErased, ConversationForked, ConversationOpened, Event
from abridged.service.text.nested_json import strictly_parsed
from abridged.v1 import event_pb2

_OPENING = frozenset({ConversationOpened.__name__, ConversationForked.__name__})
_Naming = ConversationOpened | ConversationForked | ConversationErased

_Event = event_pb2.Event
_BODIES = {
    field.message_type.name: field.name
    for field in _Event.DESCRIPTOR.oneofs_by_name["body"].fields
    if field.message_type is not None
}


def event_line(log_id: str, event: RecordedEvent) -> str:
    """The event as a line of JSON, without its end. Raises LogEncrypted for one that is still encrypted."""
    if is_encrypted(event.payload):
        raise LogEncrypted("the log is encrypted, and its keys are not here")
    of_event = _Event(
        log_id=log_id,
        position=event.position,
        conversation_id=event.stream.name,
        version=event.version,
        event_id=event.event_id.hex(),
        type=event.type,
        schema_version=event.schema_version,
        time=timestamp(event.time_us),
        trace_context=event.trace_context,
    )
    body = _body(event)
    if body is None:
        of_event.payload = event.payload
    line = {"namespace": event.stream.namespace, **MessageToDict(of_event)}
    if body is not None:
        name = _Event.DESCRIPTOR.fields_by_name[_BODIES[event.type]].json_name
        line[name] = body
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def event_of_line(text: str, *, log_id: str) -> tuple[RecordedEvent, Event]:
    """The event in a line of JSON, as it is stored and as it is folded. Raises ValueError, saying why, for one that
    this version cannot store as it was, or that a conversation does not have in its place."""
    line = strictly_parsed(text)
    if not isinstance(line, dict):
        raise ValueError("a line is an object")
    namespace = line.pop("namespace", None)
    try:
        of_event = ParseDict(line, _Event())
        of_event.SerializeToString()
    except (ParseError, EncodeError, SystemError, UnicodeError) as error:
        # Half a surrogate pair is text to JSON, and none to protobuf.
        raise ValueError(str(error)) from error
    if of_event.log_id != log_id:
        raise ValueError(f"the event is of log {of_event.log_id[:64] or 'without id'}, not of {log_id}")
    if not isinstance(namespace, str) or not namespace or not of_event.conversation_id:
        raise ValueError("namespace and conversationId are needed")
    event_id = bytes.fromhex(of_event.event_id)
    if len(event_id) != EVENT_ID_BYTES or of_event.schema_version < 1:
        raise ValueError(f"eventId has {2 * EVENT_ID_BYTES} hexadecimal digits, and schemaVersion is from 1")
    event = RecordedEvent(
        of_event.position,
        StreamId(namespace, of_event.conversation_id),
        of_event.version,
        event_id,
        of_event.type,
        of_event.schema_version,
        timestamp_us(of_event.time),
        of_event.trace_context,
        _payload(of_event),
    )
    if event.time_us <= 0:
        raise ValueError("time is needed, and after 1970")
    try:
        decoded = decode(event.type, event.schema_version, event.payload)
    except (UnknownEvent, ValueError) as error:
        raise ValueError(f"this version cannot read the event: {error}") from error
    if (event.type in _OPENING) != (event.version == 1):
        raise ValueError("the first event of a conversation, and no other, opens it")
    if isinstance(decoded, _Naming) and decoded.conversation_id != event.stream.name:
        raise ValueError("the event names another conversation than its own")
    return event, decoded


def _payload(of_event: event_pb2.Event) -> bytes:
    body = of_event.WhichOneof("body")
    if body is None:
        return of_event.payload
    if _BODIES.get(of_event.type) != body:
        raise ValueError(f"the body {body} does not belong to the type {of_event.type[:64]!r}")
    content: bytes = getattr(of_event, body).SerializeToString(deterministic=True)
    if not of_event.payload:
        if current_form(of_event.type, of_event.schema_version, content) is not content:
            raise ValueError(f"a body has the newest schemaVersion, which {of_event.schema_version} is not")
        return content
    if current_form(of_event.type, of_event.schema_version, of_event.payload) != content:
        raise ValueError("body and payload differ: leave one of them out")
    return of_event.payload


def _body(event: RecordedEvent) -> dict[str, Any] | None:
    """The payload as protobuf's JSON; None if that would not lead back to it."""
    if current_form(event.type, event.schema_version, event.payload) is not event.payload:
        return None
    try:
        message = parsed(event.type, event.schema_version, event.payload)
        body: dict[str, Any] = MessageToDict(message)
        back = ParseDict(body, type(message)()).SerializeToString(deterministic=True)
    except (UnknownEvent, ValueError, ParseError):
        return None
    return body if back == event.payload else None
