"""Events as bytes that were put together are the messages that the contract's own encoder would make."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from abridged.v1 import event_log_service_pb2, event_pb2, summary_pb2
from eventlog.event import RecordedEvent, StreamId
from service.api.event_wire import EventEncoder, field, repeated
from service.codec.values import timestamp

LOG_ID = "f" * 32
NUMBERS = st.integers(1, (1 << 63) - 1) | st.sampled_from([1 << bits for bits in range(0, 63, 7)])
TEXTS = st.text(max_size=40)

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
    """Its stored bytes stay beside it as they are."""
    event = recorded("SummarizationCompleted", COMPLETED_OF_VERSION_1)
    record = summary_pb2.SummaryRecord()
    record.latency.FromMilliseconds(25)

    encoded = EventEncoder(LOG_ID)(event)

    completed = event_pb2.SummarizationCompleted(record=record)
    assert event_pb2.Event.FromString(encoded) == expected(event, summarization_completed=completed)


def test_a_payload_of_a_newer_version_has_no_body():
    """Neither has one of a type that nobody knows yet."""
    for event in (recorded("MessageAppended", b"?", schema_version=9), recorded("MessageForgotten", b"?")):
        assert event_pb2.Event.FromString(EventEncoder(LOG_ID)(event)) == expected(event)


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_events_are_put_together_to_a_page_in_its_response(payloads):
    """Fields that a message has beside them come after them."""
    events = [recorded("MessageForgotten", payload, position=place + 1) for place, payload in enumerate(payloads)]
    page = event_log_service_pb2.EventPage(events=[expected(event) for event in events], cursor=300)

    encoded = repeated(1, map(EventEncoder(LOG_ID), events))
    encoded += event_log_service_pb2.EventPage(cursor=300).SerializeToString()

    response = event_log_service_pb2.SubscribeEventsResponse
    assert response.FromString(field(1, encoded)) == response(page=page)
