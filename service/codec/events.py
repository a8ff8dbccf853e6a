"""Converts domain events to stored protobuf payloads and back.

The registry has one row per type. A payload is never rewritten: when a type's schema changes, an upcaster, a pure
function from old bytes to the current message, keeps the old version readable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Proto
from google.protobuf.unknown_fields import UnknownFieldSet

from abridged.v1 import event_pb2
from service.codec.enums import DRAFT_FORMS, ERROR_CLASSES, RATINGS, SKIP_REASONS, TOKEN_SOURCES, TRIGGERS
from service.codec.ledger import finds_from_proto, finds_to_proto
from service.codec.values import (
    canonical,
    duration,
    message_from_proto,
    message_to_proto,
    policy_from_proto,
    policy_to_proto,
    ranges_from_proto,
    ranges_to_proto,
    record_from_proto,
    record_to_proto,
    settings_from_proto,
    settings_to_proto,
    timestamp,
    timestamp_us,
)
from service.codec.wire_format import LENGTH_DELIMITED, VARINT, length, tag, varint
from service.domain import events as domain
from service.domain.ledger import NOTHING_FOUND
from service.domain.record import FormName
from service.domain.tokens import TokenSource

COUNTS_KEPT = 4_096
"""Encoded token counts that are remembered: nearly all are those of short messages."""

_NUMBER = tag(event_pb2.MessageAppended.NUMBER_FIELD_NUMBER, VARINT)
_MESSAGE = tag(event_pb2.MessageAppended.MESSAGE_FIELD_NUMBER, LENGTH_DELIMITED)


class UnknownEvent(Exception):
    """This version cannot read a stored event: its type or schema version is newer, or its payload is broken."""


@dataclass(frozen=True, slots=True)
class _Codec:
    """How one event type is stored.

    Attributes:
        proto: Makes an empty payload.
        encode: From a domain event to its payload.
        decode: From a current payload to its domain event.
        schema_version: The version that `encode` writes.
        upcasters: From the bytes of an older version, by that version, to a current payload.
    """

    proto: Callable[[], Proto]
    encode: Callable[[Any], Proto]
    decode: Callable[[Any], domain.Event]
    schema_version: int = 1
    upcasters: Mapping[int, Callable[[bytes], Proto]] = field(default_factory=dict)


def encode(event: domain.Event, *, sent: bytes | None = None) -> tuple[str, int, bytes]:
    """Type name, schema version and payload. `sent` is a message's own bytes, to avoid encoding it again."""
    name = type(event).__name__
    codec = _REGISTRY[name]
    if sent is not None and isinstance(event, domain.MessageAppended):
        return name, codec.schema_version, _appended_around(event, sent)
    return name, codec.schema_version, codec.encode(event).SerializeToString(deterministic=True)


def decode(type_name: str, schema_version: int, payload: bytes) -> domain.Event:
    """The event. Raises UnknownEvent if it cannot be read, because skipping one would falsify the fold."""
    return fact(parsed(type_name, schema_version, payload))


def fact(payload: Proto) -> domain.Event:
    """The event in a payload from `parsed`. Raises UnknownEvent if it has values of a newer contract."""
    name = payload.DESCRIPTOR.name
    try:
        return _REGISTRY[name].decode(payload)
    except KeyError as error:
        raise UnknownEvent(f"{name}: unreadable payload") from error


def parsed(type_name: str, schema_version: int, payload: bytes) -> Proto:
    """The payload as a message of the current contract. Raises UnknownEvent if it cannot be read."""
    codec = _REGISTRY.get(type_name)
    if codec is None or (schema_version != codec.schema_version and schema_version not in codec.upcasters):
        raise UnknownEvent(f"{type_name} version {schema_version}")
    try:
        if schema_version in codec.upcasters:
            return codec.upcasters[schema_version](payload)
        proto = codec.proto()
        proto.ParseFromString(payload)
    except DecodeError as error:
        raise UnknownEvent(f"{type_name} version {schema_version}: unreadable payload") from error
    return proto


def current_form(type_name: str, schema_version: int, payload: bytes) -> bytes | None:
    """The payload in the form of the current contract; None if a newer version wrote it."""
    codec = _REGISTRY.get(type_name)
    if codec is None:
        return None
    if schema_version == codec.schema_version:
        return payload
    upcaster = codec.upcasters.get(schema_version)
    return None if upcaster is None else upcaster(payload).SerializeToString()


def sent_content(payload: bytes) -> bytes:
    """Return the client's own message, in canonical form, from the stored payload of a MessageAppended."""
    return canonical(event_pb2.MessageAppended.FromString(payload).message)


def _plan_to_proto(plan: domain.PassPlan) -> event_pb2.PassPlan:
    return event_pb2.PassPlan(
        summarization_id=plan.pass_id,
        trigger=TRIGGERS.to_proto(plan.trigger),
        covered=ranges_to_proto(plan.covered),
        base_summary_id=plan.base_id,
        parent_summary_id=plan.parent_id,
        depth=plan.depth,
        rebase=plan.rebase,
        source=ranges_to_proto(plan.source),
        replaces_summary_id=plan.replaces_id,
        token_ratio=plan.token_ratio,
        message_version=plan.message_version,
        replaced_tokens=plan.replaced_tokens,
        summary_tokens_max=plan.summary_tokens_max,
        policy=policy_to_proto(plan.policy),
        room_tokens=plan.room_tokens,
        covered_tokens=plan.covered_tokens,
        rewrites=plan.rewrites,
        extractive=plan.extractive,
        cut=plan.cut,
        beside_summary_ids=plan.beside_ids,
        form=DRAFT_FORMS.to_proto(plan.form),
        merged_summary_ids=plan.merged_ids,
        label=plan.label,
        short_summary_ids=plan.short_ids,
        overlap=ranges_to_proto(plan.overlap),
    )


def _plan_from_proto(proto: event_pb2.PassPlan) -> domain.PassPlan:
    return domain.PassPlan(
        pass_id=proto.summarization_id,
        trigger=TRIGGERS.to_domain(proto.trigger),
        covered=ranges_from_proto(proto.covered),
        source=ranges_from_proto(proto.source),
        base_id=proto.base_summary_id,
        parent_id=proto.parent_summary_id,
        depth=proto.depth,
        token_ratio=proto.token_ratio,
        message_version=proto.message_version,
        replaced_tokens=proto.replaced_tokens,
        summary_tokens_max=proto.summary_tokens_max,
        policy=policy_from_proto(proto.policy),
        rebase=proto.rebase,
        replaces_id=proto.replaces_summary_id,
        room_tokens=proto.room_tokens,
        covered_tokens=proto.covered_tokens,
        rewrites=proto.rewrites,
        extractive=proto.extractive,
        cut=proto.cut,
        beside_ids=tuple(proto.beside_summary_ids),
        # Plans from before there was a choice.
        form=DRAFT_FORMS.to_domain(proto.form) if proto.form else FormName.FACETS,
        merged_ids=tuple(proto.merged_summary_ids),
        label=proto.label,
        short_ids=tuple(proto.short_summary_ids),
        overlap=ranges_from_proto(proto.overlap),
    )


def _appended_around(event: domain.MessageAppended, sent: bytes) -> bytes:
    """The payload with the message's own bytes in it, its fields in the order in which protobuf writes them."""
    count = _count(event.tokens, event.source, event.counter)
    return b"".join((_NUMBER, varint(event.number), _MESSAGE, length(len(sent)), sent, count))


@lru_cache(COUNTS_KEPT)
def _count(tokens: int, source: TokenSource, counter: str) -> bytes:
    """The fields after the message."""
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


def _usage_to_proto(event: domain.UsageReported) -> event_pb2.UsageReported:
    return event_pb2.UsageReported(
        message_version=event.message_version,
        summary_id=event.summary_id,
        prompt_tokens=event.prompt_tokens,
        exact_tokens=event.exact_tokens,
        estimated_tokens=event.estimated_tokens,
        calibration_factor=event.calibration_factor,
        reports=event.reports,
    )


def _usage_from_proto(proto: event_pb2.UsageReported) -> domain.UsageReported:
    return domain.UsageReported(
        proto.message_version,
        proto.summary_id,
        proto.prompt_tokens,
        proto.exact_tokens,
        proto.estimated_tokens,
        proto.calibration_factor,
        proto.reports,
    )


def _completed_to_proto(event: domain.SummarizationCompleted) -> event_pb2.SummarizationCompleted:
    return event_pb2.SummarizationCompleted(
        summarization_id=event.pass_id,
        record=record_to_proto(event.record),
        fallback=event.fallback,
        token_source=TOKEN_SOURCES.to_proto(event.source),
        wait_messages=event.wait_messages,
        wait_until=timestamp(event.wait_until_us) if event.wait_until_us else None,
        models_tried=event.tried,
        marks=_marks_to_proto(event.marks),
        finds=finds_to_proto(event.finds) if event.finds != NOTHING_FOUND else None,
    )


def _marks_to_proto(marks: Iterable[domain.ResultMark]) -> list[event_pb2.ResultMark]:
    return [event_pb2.ResultMark(number=m.number, text=m.text, tokens=m.tokens) for m in marks]


def _marks_from_proto(protos: Iterable[event_pb2.ResultMark]) -> tuple[domain.ResultMark, ...]:
    return tuple(domain.ResultMark(p.number, p.text, p.tokens) for p in protos)


def _completed_from_proto(proto: event_pb2.SummarizationCompleted) -> domain.SummarizationCompleted:
    return domain.SummarizationCompleted(
        proto.summarization_id,
        record_from_proto(proto.record),
        TOKEN_SOURCES.to_domain(proto.token_source),
        proto.fallback,
        proto.wait_messages,
        timestamp_us(proto.wait_until),
        tuple(proto.models_tried),
        _marks_from_proto(proto.marks),
        finds_from_proto(proto.finds) if proto.HasField("finds") else NOTHING_FOUND,
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


def _failed_to_proto(event: domain.SummarizationFailed) -> event_pb2.SummarizationFailed:
    return event_pb2.SummarizationFailed(
        summarization_id=event.pass_id,
        error_class=ERROR_CLASSES.to_proto(event.error_class),
        attempts=event.attempts,
        retryable=event.retryable,
        output_bytes=event.output_bytes,
        output_hash=event.output_hash,
        wait_messages=event.wait_messages,
        wait_until=timestamp(event.wait_until_us),
        cause=event.cause,
        models_tried=event.tried,
        asked=event.asked,
    )


def _failed_from_proto(proto: event_pb2.SummarizationFailed) -> domain.SummarizationFailed:
    return domain.SummarizationFailed(
        pass_id=proto.summarization_id,
        error_class=ERROR_CLASSES.to_domain(proto.error_class),
        attempts=proto.attempts,
        retryable=proto.retryable,
        wait_messages=proto.wait_messages,
        wait_until_us=timestamp_us(proto.wait_until),
        output_bytes=proto.output_bytes,
        output_hash=proto.output_hash,
        cause=proto.cause,
        tried=tuple(proto.models_tried),
        asked=proto.asked,
    )


def _skipped_to_proto(event: domain.SummarizationSkipped) -> event_pb2.SummarizationSkipped:
    return event_pb2.SummarizationSkipped(
        summarization_id=event.pass_id,
        reason=SKIP_REASONS.to_proto(event.reason),
        attempts=event.attempts,
        wait_messages=event.wait_messages,
        wait_until=timestamp(event.wait_until_us) if event.wait_until_us else None,
    )


def _skipped_from_proto(proto: event_pb2.SummarizationSkipped) -> domain.SummarizationSkipped:
    return domain.SummarizationSkipped(
        SKIP_REASONS.to_domain(proto.reason),
        pass_id=proto.summarization_id,
        attempts=proto.attempts,
        wait_messages=proto.wait_messages,
        wait_until_us=timestamp_us(proto.wait_until),
    )


_REGISTRY: dict[str, _Codec] = {
    "ConversationOpened": _Codec(
        event_pb2.ConversationOpened,
        lambda e: event_pb2.ConversationOpened(
            conversation_id=e.conversation_id, settings=settings_to_proto(e.settings)
        ),
        lambda p: domain.ConversationOpened(p.conversation_id, settings_from_proto(p.settings)),
    ),
    "SettingsChanged": _Codec(
        event_pb2.SettingsChanged,
        lambda e: event_pb2.SettingsChanged(settings=settings_to_proto(e.settings)),
        lambda p: domain.SettingsChanged(settings_from_proto(p.settings)),
    ),
    "MessageAppended": _Codec(event_pb2.MessageAppended, _appended_to_proto, _appended_from_proto),
    "UsageReported": _Codec(event_pb2.UsageReported, _usage_to_proto, _usage_from_proto),
    "SummarizationRequested": _Codec(
        event_pb2.SummarizationRequested,
        lambda e: event_pb2.SummarizationRequested(plan=_plan_to_proto(e.plan)),
        lambda p: domain.SummarizationRequested(_plan_from_proto(p.plan)),
    ),
    "SummarizationStarted": _Codec(
        event_pb2.SummarizationStarted,
        lambda e: event_pb2.SummarizationStarted(summarization_id=e.pass_id, claim=e.claim),
        lambda p: domain.SummarizationStarted(p.summarization_id, p.claim),
    ),
    "SummarizationReleased": _Codec(
        event_pb2.SummarizationReleased,
        lambda e: event_pb2.SummarizationReleased(summarization_id=e.pass_id),
        lambda p: domain.SummarizationReleased(p.summarization_id),
    ),
    "SummarizationCompleted": _Codec(
        event_pb2.SummarizationCompleted,
        _completed_to_proto,
        _completed_from_proto,
        schema_version=2,
        upcasters={1: _completed_of_version_1},
    ),
    "SummarizationFailed": _Codec(event_pb2.SummarizationFailed, _failed_to_proto, _failed_from_proto),
    "SummarizationSkipped": _Codec(event_pb2.SummarizationSkipped, _skipped_to_proto, _skipped_from_proto),
    "SummarizationCleared": _Codec(
        event_pb2.SummarizationCleared,
        lambda e: event_pb2.SummarizationCleared(plan=_plan_to_proto(e.plan), marks=_marks_to_proto(e.marks)),
        lambda p: domain.SummarizationCleared(_plan_from_proto(p.plan), _marks_from_proto(p.marks)),
    ),
    "SummaryRevoked": _Codec(
        event_pb2.SummaryRevoked,
        lambda e: event_pb2.SummaryRevoked(
            summary_id=e.record_id,
            revoked_summary_ids=e.revoked_ids,
            shown_summary_ids=e.shown_ids,
            short_summary_ids=e.short_ids,
        ),
        lambda p: domain.SummaryRevoked(
            p.summary_id, tuple(p.revoked_summary_ids), tuple(p.shown_summary_ids), tuple(p.short_summary_ids)
        ),
    ),
    "SummaryRated": _Codec(
        event_pb2.SummaryRated,
        lambda e: event_pb2.SummaryRated(summary_id=e.record_id, rating=RATINGS.to_proto(e.rating), comment=e.comment),
        lambda p: domain.SummaryRated(p.summary_id, RATINGS.to_domain(p.rating), p.comment),
    ),
    "MessagesPinned": _Codec(
        event_pb2.MessagesPinned,
        lambda e: event_pb2.MessagesPinned(numbers=e.numbers),
        lambda p: domain.MessagesPinned(tuple(p.numbers)),
    ),
    "MessagesUnpinned": _Codec(
        event_pb2.MessagesUnpinned,
        lambda e: event_pb2.MessagesUnpinned(numbers=e.numbers),
        lambda p: domain.MessagesUnpinned(tuple(p.numbers)),
    ),
    "ConversationRewound": _Codec(
        event_pb2.ConversationRewound,
        lambda e: event_pb2.ConversationRewound(
            to_version=e.to,
            revoked_summary_ids=e.revoked_ids,
            shown_summary_ids=e.shown_ids,
            short_summary_ids=e.short_ids,
        ),
        lambda p: domain.ConversationRewound(
            p.to_version, tuple(p.revoked_summary_ids), tuple(p.shown_summary_ids), tuple(p.short_summary_ids)
        ),
    ),
    "ConversationClosed": _Codec(
        event_pb2.ConversationClosed,
        lambda _: event_pb2.ConversationClosed(),
        lambda _: domain.ConversationClosed(),
    ),
    "ConversationReopened": _Codec(
        event_pb2.ConversationReopened,
        lambda _: event_pb2.ConversationReopened(),
        lambda _: domain.ConversationReopened(),
    ),
    "TitleChanged": _Codec(
        event_pb2.TitleChanged,
        lambda e: event_pb2.TitleChanged(title=e.title, summary_id=e.record_id),
        lambda p: domain.TitleChanged(p.title, p.summary_id),
    ),
}

EVENT_TYPES = tuple(_REGISTRY)
