"""Converts domain events to stored protobuf payloads and back.

Each type has one form; its payload is the contract's message of the same name, and is never rewritten. An upcaster, a
pure function from old bytes to the current message, keeps the old version readable when a type's schema changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Proto
from google.protobuf.unknown_fields import UnknownFieldSet

from abridged.eventlog.encryption.framing import ClearTypes
from abridged.eventlog.event import RecordedEvent
from abridged.service.codec.enums import DRAFT_FORMS, ERROR_CLASSES, RATINGS, SKIP_REASONS, TOKEN_SOURCES, TRIGGERS
from abridged.service.codec.message_map import Conversion, Field, Form, MessageMap
from abridged.service.codec.records import FINDS, RECEIPT, RECORD, RULE_FINDS, RULE_NAME
from abridged.service.codec.values import (
    POLICY,
    RANGE,
    SETTINGS,
    TIME,
    canonical,
    duration,
    message_from_proto,
    message_to_proto,
)
from abridged.service.codec.wire_format import LENGTH_DELIMITED, VARINT, length, tag, varint
from abridged.service.domain import events as domain
from abridged.service.domain.ledger import NOTHING_FOUND
from abridged.service.domain.record import FormName
from abridged.service.domain.rules import NO_RULES_FOUND
from abridged.service.domain.tokens import TokenSource
from abridged.v1 import event_pb2

COUNTS_KEPT = 4_096
"""Encoded token counts that are remembered: nearly all are those of short messages."""

ERASED = event_pb2.ErasedContent(erased=True).SerializeToString()
"""The payload of an event whose content was erased or archived, whatever its type."""

CLEAR = ClearTypes(frozenset({domain.ConversationErased.__name__, domain.TextPurged.__name__}), ERASED)
"""The events that are read when a conversation's keys are erased; none has a word of anybody."""

_NUMBER = tag(event_pb2.MessageAppended.NUMBER_FIELD_NUMBER, VARINT)
_MESSAGE = tag(event_pb2.MessageAppended.MESSAGE_FIELD_NUMBER, LENGTH_DELIMITED)


class UnknownEvent(Exception):
    """A stored event that this version cannot read: its type or schema version is newer, or its payload is broken."""


def encode(event: domain.Event, *, sent: bytes | None = None) -> tuple[str, int, bytes]:
    """Type name, schema version and payload. `sent` is a message's own bytes, to avoid encoding it again."""
    name = type(event).__name__
    if sent is not None and isinstance(event, domain.MessageAppended):
        return name, _VERSIONS[name], _appended_around(event, sent)
    payload: Proto = _FORMS[name].to_proto(event)
    return name, _VERSIONS[name], payload.SerializeToString(deterministic=True)


def decode(type_name: str, schema_version: int, payload: bytes) -> domain.Event:
    """The event. Raises UnknownEvent if it cannot be read, because skipping one would falsify the fold."""
    if payload == ERASED:
        return domain.ErasedEvent()
    return fact(parsed(type_name, schema_version, payload))


def decoded(recorded: RecordedEvent) -> domain.Event:
    """The event of a record of the log. Raises UnknownEvent."""
    return decode(recorded.type, recorded.schema_version, recorded.payload)


def fact(payload: Proto) -> domain.Event:
    """The event in a payload from `parsed`. Raises UnknownEvent if it has values of a newer contract."""
    name = payload.DESCRIPTOR.name
    try:
        event: domain.Event = _FORMS[name].to_domain(payload)
    except KeyError as error:
        raise UnknownEvent(f"{name}: unreadable payload") from error
    return event


def parsed(type_name: str, schema_version: int, payload: bytes) -> Proto:
    """The payload as a message of the current contract. Raises UnknownEvent if it cannot be read."""
    parse = _PARSERS.get((type_name, schema_version))
    if parse is None:
        raise UnknownEvent(f"{type_name} version {schema_version}")
    try:
        return parse(payload)
    except DecodeError as error:
        raise UnknownEvent(f"{type_name} version {schema_version}: unreadable payload") from error


def current_form(type_name: str, schema_version: int, payload: bytes) -> bytes | None:
    """The payload in the form of the current contract; None if a newer version wrote it."""
    if is_current(type_name, schema_version):
        return payload
    parse = _PARSERS.get((type_name, schema_version))
    return None if parse is None else parse(payload).SerializeToString()


def is_current(type_name: str, schema_version: int) -> bool:
    """Return whether a payload of that version has the form of the current contract."""
    return _VERSIONS.get(type_name) == schema_version


def sent_content(payload: bytes) -> bytes:
    """Return the client's own message, in canonical form, from the stored payload of a MessageAppended."""
    return canonical(event_pb2.MessageAppended.FromString(payload).message)


def content_of(type_name: str, payload: bytes) -> bytes:
    """Return the bytes by which a repeat of a stored event is known: of a message, those that its client sent."""
    return sent_content(payload) if type_name == domain.MessageAppended.__name__ else payload


def _appended_around(event: domain.MessageAppended, sent: bytes) -> bytes:
    """The payload with the message's own bytes in it, its fields in the order in which protobuf writes them."""
    count = _count(event.tokens, event.source, event.counter)
    return b"".join((_NUMBER, varint(event.number), _MESSAGE, length(len(sent)), sent, count))


@lru_cache(COUNTS_KEPT)
def _count(tokens: int, source: TokenSource, counter: str) -> bytes:
    return event_pb2.MessageAppended(
        tokens=tokens, token_source=TOKEN_SOURCES.to_proto(source), counter=counter
    ).SerializeToString()


def _appended_to_proto(event: domain.MessageAppended) -> event_pb2.MessageAppended:
    return event_pb2.MessageAppended(
        number=event.number,
        message=message_to_proto(event.message),
        tokens=event.tokens,
        token_source=TOKEN_SOURCES.to_proto(event.source),
        counter=event.counter,
    )


def _appended_from_proto(proto: event_pb2.MessageAppended) -> domain.MessageAppended:
    return domain.MessageAppended(
        proto.number,
        message_from_proto(proto.message),
        proto.tokens,
        TOKEN_SOURCES.to_domain(proto.token_source),
        proto.counter,
    )


def _completed_of_version_1(payload: bytes) -> event_pb2.SummarizationCompleted:
    """Upcast version 1, where the latency was a number of milliseconds."""
    proto = event_pb2.SummarizationCompleted.FromString(payload)
    for unknown in UnknownFieldSet(proto.record):  # type: ignore[attr-defined]  # iterates by index
        if (unknown.field_number, unknown.wire_type) == (_LATENCY_MS_OF_VERSION_1, _VARINT):
            proto.record.latency.CopyFrom(duration(unknown.data))
    proto.record.DiscardUnknownFields()
    return proto


_LATENCY_MS_OF_VERSION_1 = 17
_VARINT = 0
"""The wire type of integers."""


_SUMMARIZATION = "summarization_id"
_MARK = MessageMap(domain.ResultMark, event_pb2.ResultMark)
_PLAN = MessageMap(
    domain.PassPlan,
    event_pb2.PassPlan,
    pass_id=_SUMMARIZATION,
    trigger=TRIGGERS,
    covered=RANGE,
    source=RANGE,
    base_id="base_summary_id",
    parent_id="parent_summary_id",
    policy=POLICY,
    replaces_id="replaces_summary_id",
    beside_ids="beside_summary_ids",
    # Plans from before there was a choice.
    form=Field(form=DRAFT_FORMS, default=FormName.FACETS),
    merged_ids="merged_summary_ids",
    short_ids="short_summary_ids",
    overlap=RANGE,
)
_WAIT_UNTIL = Field("wait_until", TIME, default=0)
_CHANGED_IDS = {
    "revoked_ids": "revoked_summary_ids",
    "shown_ids": "shown_summary_ids",
    "short_ids": "short_summary_ids",
}
_ARCHIVED = MessageMap(domain.ConversationArchived, event_pb2.ConversationArchived, apart=("labels",))
_FORMS: dict[str, Form] = {
    "ConversationOpened": MessageMap(domain.ConversationOpened, event_pb2.ConversationOpened, settings=SETTINGS),
    "SettingsChanged": MessageMap(domain.SettingsChanged, event_pb2.SettingsChanged, settings=SETTINGS),
    "MessageAppended": Conversion(_appended_to_proto, _appended_from_proto),
    "UsageReported": MessageMap(domain.UsageReported, event_pb2.UsageReported),
    "SummarizationRequested": MessageMap(domain.SummarizationRequested, event_pb2.SummarizationRequested, plan=_PLAN),
    "SummarizationStarted": MessageMap(
        domain.SummarizationStarted, event_pb2.SummarizationStarted, pass_id=_SUMMARIZATION
    ),
    "SummarizationReleased": MessageMap(
        domain.SummarizationReleased, event_pb2.SummarizationReleased, pass_id=_SUMMARIZATION
    ),
    "SummarizationCompleted": MessageMap(
        domain.SummarizationCompleted,
        event_pb2.SummarizationCompleted,
        pass_id=_SUMMARIZATION,
        record=RECORD,
        source=Field("token_source", TOKEN_SOURCES),
        wait_until_us=_WAIT_UNTIL,
        tried="models_tried",
        marks=_MARK,
        finds=Field(form=FINDS, default=NOTHING_FOUND),
        receipt=Field(form=RECEIPT, default=None),
        rules=Field(form=RULE_FINDS, default=NO_RULES_FOUND),
    ),
    "SummarizationFailed": MessageMap(
        domain.SummarizationFailed,
        event_pb2.SummarizationFailed,
        pass_id=_SUMMARIZATION,
        error_class=ERROR_CLASSES,
        wait_until_us=Field("wait_until", TIME),
        tried="models_tried",
    ),
    "SummarizationSkipped": MessageMap(
        domain.SummarizationSkipped,
        event_pb2.SummarizationSkipped,
        reason=SKIP_REASONS,
        pass_id=_SUMMARIZATION,
        wait_until_us=_WAIT_UNTIL,
    ),
    "SummarizationCleared": MessageMap(
        domain.SummarizationCleared,
        event_pb2.SummarizationCleared,
        plan=_PLAN,
        marks=_MARK,
        receipt=Field(form=RECEIPT, default=None),
    ),
    "SummaryRevoked": MessageMap(
        domain.SummaryRevoked, event_pb2.SummaryRevoked, record_id="summary_id", **_CHANGED_IDS
    ),
    "SummaryRated": MessageMap(domain.SummaryRated, event_pb2.SummaryRated, record_id="summary_id", rating=RATINGS),
    "MessagesPinned": MessageMap(domain.MessagesPinned, event_pb2.MessagesPinned),
    "MessagesUnpinned": MessageMap(domain.MessagesUnpinned, event_pb2.MessagesUnpinned),
    "RulesDropped": MessageMap(domain.RulesDropped, event_pb2.RulesDropped, rules=RULE_NAME),
    "ConversationRewound": MessageMap(
        domain.ConversationRewound, event_pb2.ConversationRewound, to="to_version", **_CHANGED_IDS
    ),
    "MessagesRedacted": MessageMap(
        domain.MessagesRedacted,
        event_pb2.MessagesRedacted,
        **_CHANGED_IDS,
        finds=Field(form=FINDS, default=NOTHING_FOUND),
        rules=Field(form=RULE_FINDS, default=NO_RULES_FOUND),
        dropped_rules=RULE_NAME,
    ),
    "ConversationForked": MessageMap(domain.ConversationForked, event_pb2.ConversationForked),
    "ConversationClosed": MessageMap(domain.ConversationClosed, event_pb2.ConversationClosed),
    "ConversationReopened": MessageMap(domain.ConversationReopened, event_pb2.ConversationReopened),
    "TitleChanged": MessageMap(domain.TitleChanged, event_pb2.TitleChanged, record_id="summary_id"),
    "ConversationErased": MessageMap(domain.ConversationErased, event_pb2.ConversationErased),
    "ConversationArchived": Conversion(
        lambda event: _ARCHIVED.to_proto(event, labels=dict(event.labels)),
        lambda proto: _ARCHIVED.to_domain(proto, labels=MappingProxyType(dict(proto.labels))),
    ),
    "ConversationUnarchived": MessageMap(domain.ConversationUnarchived, event_pb2.ConversationUnarchived),
    "TextPurged": MessageMap(domain.TextPurged, event_pb2.TextPurged),
}
"""The form of each type's current version."""

_UPCASTERS: Mapping[str, Mapping[int, Callable[[bytes], Proto]]] = {
    "SummarizationCompleted": {1: _completed_of_version_1}
}
"""Functions from the bytes of an older version of a type to a current payload. Every older version has one."""

_VERSIONS = {name: 1 + len(_UPCASTERS.get(name, ())) for name in _FORMS}
"""The schema version that is written of each type."""

_PARSERS: Mapping[tuple[str, int], Callable[[bytes], Proto]] = {
    **{(name, version): getattr(event_pb2, name).FromString for name, version in _VERSIONS.items()},
    **{(name, version): upcast for name, older in _UPCASTERS.items() for version, upcast in older.items()},
}

EVENT_TYPES = tuple(_FORMS)

ERASING = frozenset(
    {
        domain.ConversationErased.__name__,
        domain.ConversationArchived.__name__,
        domain.MessagesRedacted.__name__,
    }
)
"""Types of events that take the contents of earlier ones away."""


def fact_of(event: event_pb2.Event) -> domain.Event | None:
    """Return the fact of an event; None when it is newer than this program."""
    body = event.WhichOneof("body")
    try:
        if body is not None:
            return fact(getattr(event, body))
        return domain.ErasedEvent() if event.payload == ERASED else None
    except UnknownEvent:
        return None
