"""Events as bytes that were put together are the messages that the contract's own encoder would make."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message as Proto
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.service.api.event_wire import EventEncoder
from abridged.service.codec.events import EVENT_TYPES
from abridged.service.codec.values import timestamp
from abridged.v1 import event_log_service_pb2, event_pb2, summary_pb2

LOG_ID = "f" * 32
NUMBERS = st.integers(1, (1 << 63) - 1) | st.sampled_from([1 << bits for bits in range(0, 63, 7)])
TEXTS = st.text(max_size=40)

BODIES = {f.message_type.name: f for f in event_pb2.Event.DESCRIPTOR.oneofs_by_name["body"].fields if f.message_type}
CURRENT_VERSIONS = {"SummarizationCompleted": 2}
VALUES = {
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats(allow_nan=False),
    FieldDescriptor.CPPTYPE_FLOAT: st.floats(width=32, allow_nan=False),
    FieldDescriptor.CPPTYPE_ENUM: st.integers(0, 9),
}

COMPLETED_OF_VERSION_1 = b"\x12\x03\x88\x01\x19"
"""A record with a latency of 25 in field 17, which was a number of milliseconds then."""


def recorded(event_type: str, payload: bytes, *, schema_version: int = 1, **fields: Any) -> RecordedEvent:
    given_fields: dict[str, Any] = {
        "position": 1,
        "version": 1,
        "time_us": 1,
        "trace_context": "",
        "name": "c",
    } | fields
    return RecordedEvent(
        given_fields["position"],
        StreamId("default", given_fields["name"]),
        given_fields["version"],
        bytes(range(16)),
        event_type,
        schema_version,
        given_fields["time_us"],
        given_fields["trace_context"],
        payload,
    )


def expected(event: RecordedEvent, **body: Any) -> event_pb2.Event:
    return event_pb2.Event(
        log_id=LOG_ID,
        position=event.position,
        conversation_id=event.stream.name,
        version=event.version,
        event_id=event.event_id.hex(),
        type=event.type,
        schema_version=event.schema_version,
        time=timestamp(event.time_us),
        trace_context=event.trace_context,
        payload=event.payload,
        **body,
    )


def fill(data: st.DataObject, message: Proto, *, depth: int = 4) -> None:
    """Set some fields of the message, and of those within it, to anything that they take."""
    for f in message.DESCRIPTOR.fields:
        if not data.draw(st.booleans()) or (f.message_type and depth == 0):
            continue
        if f.message_type and f.message_type.GetOptions().map_entry:
            getattr(message, f.name).update(data.draw(st.dictionaries(TEXTS, TEXTS, max_size=3)))
        elif f.message_type:
            of_many = getattr(message, f.name)
            inner = of_many.add() if f.is_repeated else of_many
            inner.SetInParent()
            fill(data, inner, depth=depth - 1)
        elif f.is_repeated:
            getattr(message, f.name).extend(data.draw(st.lists(value_of(f), max_size=3)))
        else:
            setattr(message, f.name, data.draw(value_of(f)))


def value_of(f: Any) -> st.SearchStrategy[Any]:
    if f.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return TEXTS if f.type == FieldDescriptor.TYPE_STRING else st.binary(max_size=300)
    return VALUES[f.cpp_type]


@pytest.mark.parametrize("event_type", EVENT_TYPES)
@settings(max_examples=40)
@given(st.data())
def test_an_event_of_any_type_is_the_message_that_protobuf_would_write(event_type, data):
    """Byte for byte, alone and among others, whatever its payload has."""
    field_of_body = BODIES[event_type]
    body = getattr(event_pb2, event_type)()
    fill(data, body)
    payload = body.SerializeToString(deterministic=True)
    assume(payload or not body.DESCRIPTOR.fields)  # no event that may have a field is written without one
    event = recorded(event_type, payload, schema_version=CURRENT_VERSIONS.get(event_type, 1))

    message = expected(event, **{field_of_body.name: body})

    assert EventEncoder(LOG_ID)(event) == message.SerializeToString(deterministic=True)
    page = event_log_service_pb2.EventPage(events=[message, message])
    assert EventEncoder(LOG_ID).repeated(1, [event, event]) == page.SerializeToString(deterministic=True)


@given(
    position=NUMBERS,
    version=NUMBERS,
    time_us=st.integers(-(10**15), 10**17),
    name=TEXTS,
    trace_context=TEXTS,
    counter=st.text(max_size=300),
)
def test_an_event_is_the_message_that_protobuf_would_write(counter, **fields):
    """Byte for byte, whatever the sizes of its numbers and texts."""
    appended = event_pb2.MessageAppended(number=3, counter=counter)
    event = recorded("MessageAppended", appended.SerializeToString(), **fields)

    encoded = EventEncoder(LOG_ID)(event)

    assert encoded == expected(event, message_appended=appended).SerializeToString()


def test_a_payload_of_an_older_version_has_a_body_of_todays_contract():
    """The payload's stored bytes stay beside it as they are."""
    event = recorded("SummarizationCompleted", COMPLETED_OF_VERSION_1)
    record = summary_pb2.SummaryRecord()
    record.latency.FromMilliseconds(25)

    encoded = EventEncoder(LOG_ID)(event)

    completed = event_pb2.SummarizationCompleted(record=record)
    assert event_pb2.Event.FromString(encoded) == expected(event, summarization_completed=completed)


def test_a_payload_of_a_newer_version_has_no_body():
    """An event of a type that nobody knows yet has none either."""
    for event in (recorded("MessageAppended", b"?", schema_version=9), recorded("MessageForgotten", b"?")):
        assert event_pb2.Event.FromString(EventEncoder(LOG_ID)(event)) == expected(event)


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_events_are_put_together_to_a_page_in_its_response(payloads):
    """Fields that a message has beside them come after them."""
    events = [recorded("MessageForgotten", payload, position=place + 1) for place, payload in enumerate(payloads)]
    page = event_log_service_pb2.EventPage(events=[expected(event) for event in events], cursor=300)

    after = event_log_service_pb2.EventPage(cursor=300).SerializeToString()
    number = event_log_service_pb2.SubscribeEventsResponse.PAGE_FIELD_NUMBER
    alone = EventEncoder(LOG_ID).repeated(1, events, after=after)
    within = EventEncoder(LOG_ID).repeated(1, events, after=after, within=number)

    assert event_log_service_pb2.EventPage.FromString(alone) == page
    assert within == event_log_service_pb2.SubscribeEventsResponse(page=page).SerializeToString()
