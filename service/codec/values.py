"""Converts messages, settings and policies between domain and contract; pure, exact in both directions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from abridged.service.codec.enums import (
    CONTEXT_LENGTH_SOURCES,
    DEPTH_LIMITS,
    DRAFT_FORMS,
    FALLBACKS,
    PROFILES,
    ROLES,
    SUMMARY_ROLES,
    TOKEN_SOURCES,
    TOOL_OUTPUTS,
    EnumMap,
)
from abridged.service.codec.message_map import Conversion, MessageMap
from abridged.service.domain.events import Settings, SystemPrompt
from abridged.service.domain.message import Attachment, Message, ToolCall
from abridged.service.domain.policy import Policy, ProfileName
from abridged.service.domain.record import MessageRange
from abridged.service.domain.tokens import TokenSource
from abridged.v1 import conversation_pb2, event_pb2, message_pb2, summary_pb2

_NO_LABELS: Mapping[str, str] = MappingProxyType({})
_POLICY_ENUMS: Mapping[str, EnumMap[Any]] = {
    "profile": PROFILES,
    "on_depth_limit": DEPTH_LIMITS,
    "fallback": FALLBACKS,
    "tool_output": TOOL_OUTPUTS,
    "summary_role": SUMMARY_ROLES,
    "record_form": DRAFT_FORMS,
}
_ENUM_FIELDS = frozenset(_POLICY_ENUMS)


def timestamp(us: int) -> Timestamp:
    """Microseconds since the epoch as a Timestamp."""
    return Timestamp(seconds=us // 1_000_000, nanos=us % 1_000_000 * 1_000)


def timestamp_us(value: Timestamp) -> int:
    """A Timestamp as microseconds since the epoch, truncated to whole ones."""
    return value.seconds * 1_000_000 + value.nanos // 1_000


def duration(ms: int) -> Duration:
    """Milliseconds as a Duration."""
    return Duration(seconds=ms // 1_000, nanos=ms % 1_000 * 1_000_000)


def message_to_proto(message: Message) -> message_pb2.Message:
    """The message in the contract's form."""
    proto = message_pb2.Message(
        id=message.id,
        role=ROLES.to_proto(message.role),
        content=message.content,
        name=message.name,
        tool_call_id=message.tool_call_id,
        token_count=message.token_count,
        user_id=message.user_id,
        agent_id=message.agent_id,
        pinned=message.pinned,
        is_continuation=message.is_continuation,
        sentiment=message.sentiment,
        flows=message.flows,
        tools=message.tools,
        extra_json=message.extra_json,
    )
    # Most messages have none of these, and checking costs less than writing nothing.
    if message.tool_calls:
        proto.tool_calls.extend(
            message_pb2.ToolCall(id=c.id, name=c.name, arguments=c.arguments) for c in message.tool_calls
        )
    if message.attachments:
        proto.attachments.extend(
            message_pb2.Attachment(uri=a.uri, media_type=a.media_type, token_count=a.token_count, name=a.name)
            for a in message.attachments
        )
    if message.create_time_us:
        proto.create_time.CopyFrom(timestamp(message.create_time_us))
    if message.labels:
        proto.labels.update(message.labels)
    return proto


def canonical(proto: message_pb2.Message) -> bytes:
    """Return the client's message in one form for all clients, for comparing repeated messages."""
    return proto.SerializeToString(deterministic=True)


def message_from_proto(proto: message_pb2.Message) -> Message:
    """The message in the domain's form."""
    calls, attachments, labels = proto.tool_calls, proto.attachments, proto.labels
    return Message(
        proto.id,
        ROLES.to_domain(proto.role),
        proto.content,
        proto.name,
        tuple([ToolCall(c.id, c.name, c.arguments) for c in calls]) if calls else (),
        proto.tool_call_id,
        tuple([Attachment(a.uri, a.media_type, a.token_count, a.name) for a in attachments]) if attachments else (),
        timestamp_us(proto.create_time) if proto.HasField("create_time") else 0,
        proto.token_count if proto.HasField("token_count") else None,
        proto.user_id,
        proto.agent_id,
        MappingProxyType(dict(labels)) if labels else _NO_LABELS,
        proto.pinned,
        proto.is_continuation if proto.HasField("is_continuation") else None,
        proto.sentiment if proto.HasField("sentiment") else None,
        tuple(flows) if (flows := proto.flows) else (),
        tuple(tools) if (tools := proto.tools) else (),
        proto.extra_json,
    )


RANGE = MessageMap(MessageRange, summary_pb2.MessageRange)
TIME = Conversion(timestamp, timestamp_us)


def ranges_to_proto(ranges: Iterable[MessageRange]) -> list[summary_pb2.MessageRange]:
    """The ranges in the contract's form."""
    return list(map(RANGE.to_proto, ranges))


def _policy_name(field: FieldDescriptor) -> str:
    """The policy's name of a field of the contract, which has durations where the policy has seconds."""
    return field.name if field.message_type is None else f"{field.name}_s"


_POLICY_FIELDS = {_policy_name(field): field for field in conversation_pb2.PolicyOverrides.DESCRIPTOR.fields}


def overrides_from_proto(proto: conversation_pb2.PolicyOverrides) -> Mapping[str, Any]:
    """The fields that are set; an enum's UNSPECIFIED counts as unset."""
    return MappingProxyType({_policy_name(field): _policy_value(field, value) for field, value in proto.ListFields()})


def _policy_value(field: FieldDescriptor, value: Any) -> Any:
    if field.is_repeated:
        return tuple(value)
    if isinstance(value, Duration):
        return value.seconds
    return _POLICY_ENUMS[field.name].to_domain(value) if field.name in _ENUM_FIELDS else value


def overrides_to_proto(overrides: Mapping[str, Any]) -> conversation_pb2.PolicyOverrides:
    """The contract's message with the fields of a policy that `overrides` has."""
    proto = conversation_pb2.PolicyOverrides()
    for name, value in overrides.items():
        field = _POLICY_FIELDS[name]
        if field.message_type is not None:
            getattr(proto, field.name).CopyFrom(Duration(seconds=value))
        elif isinstance(value, tuple):
            getattr(proto, name).extend(value)
        else:
            setattr(proto, name, _POLICY_ENUMS[name].to_proto(value) if name in _ENUM_FIELDS else value)
    return proto


def policy_to_proto(policy: Policy) -> conversation_pb2.PolicyOverrides:
    """The policy, with every field of the contract set."""
    return overrides_to_proto({name: getattr(policy, name) for name in _POLICY_FIELDS})


def policy_from_proto(proto: conversation_pb2.PolicyOverrides) -> Policy:
    """The policy from a message of policy_to_proto."""
    return Policy(**overrides_from_proto(proto))


POLICY = Conversion(policy_to_proto, policy_from_proto)


def settings_to_bytes(settings: Settings) -> bytes:
    """The settings without the text of the system prompt, the same bytes for the same settings.

    They are written with every append, and the text may be long.
    """
    proto = settings_to_proto(settings)
    proto.requested.ClearField("system_prompt")
    return proto.SerializeToString(deterministic=True)


def settings_from_bytes(stored: bytes) -> Settings:
    """The settings that settings_to_bytes wrote."""
    return settings_from_proto(event_pb2.ResolvedSettings.FromString(stored))


def settings_to_proto(settings: Settings) -> event_pb2.ResolvedSettings:
    """The settings with everything that the fold needs."""
    prompt = settings.system_prompt
    return event_pb2.ResolvedSettings(
        requested=requested_settings(settings),
        context_length=settings.context_length,
        context_length_source=CONTEXT_LENGTH_SOURCES.to_proto(settings.context_length_source),
        calibration_factor=settings.calibration_factor,
        profile=PROFILES.to_proto(settings.profile),
        system_prompt_tokens=prompt.tokens if prompt else 0,
        system_prompt_source=TOKEN_SOURCES.to_proto(prompt.source) if prompt else event_pb2.TOKEN_SOURCE_UNSPECIFIED,
    )


def requested_settings(settings: Settings) -> conversation_pb2.ConversationSettings:
    """Return the client's settings, unchanged."""
    return conversation_pb2.ConversationSettings(
        model=settings.model,
        context_length=settings.requested_context_length,
        reserved_output_tokens=settings.reserved_output_tokens,
        overhead_tokens=settings.overhead_tokens,
        policy=overrides_to_proto(settings.policy) if settings.policy else None,
        title=settings.title,
        labels=dict(settings.labels),
        system_prompt=system_prompt_to_proto(settings.system_prompt),
    )


def system_prompt_to_proto(prompt: SystemPrompt | None) -> conversation_pb2.SystemPrompt | None:
    """The prompt in the contract's form, without its count."""
    if prompt is None or not prompt.content:
        return None
    return conversation_pb2.SystemPrompt(content=prompt.content, extra_json=prompt.extra_json)


def system_prompt_from_proto(
    proto: conversation_pb2.SystemPrompt, tokens: int = 0, source: TokenSource = TokenSource.ESTIMATE
) -> SystemPrompt | None:
    """The prompt in the domain's form; None without a text, or the count of one."""
    return SystemPrompt(proto.content, proto.extra_json, tokens, source) if proto.content or tokens else None


def settings_from_proto(proto: event_pb2.ResolvedSettings) -> Settings:
    """The settings in the domain's form."""
    requested = proto.requested
    return Settings(
        model=requested.model,
        requested_context_length=requested.context_length,
        context_length=proto.context_length,
        context_length_source=CONTEXT_LENGTH_SOURCES.to_domain(proto.context_length_source),
        reserved_output_tokens=requested.reserved_output_tokens,
        overhead_tokens=requested.overhead_tokens,
        calibration_factor=proto.calibration_factor,
        policy=overrides_from_proto(requested.policy),
        title=requested.title,
        labels=MappingProxyType(dict(requested.labels)) if requested.labels else _NO_LABELS,
        # Settings from before there was a choice.
        profile=PROFILES.to_domain(proto.profile) if proto.profile else ProfileName.CHAIN,
        system_prompt=system_prompt_from_proto(
            requested.system_prompt, proto.system_prompt_tokens, TOKEN_SOURCES.to_domain(proto.system_prompt_source)
        )
        if proto.system_prompt_tokens or requested.HasField("system_prompt")
        else None,
    )


SETTINGS = Conversion(settings_to_proto, settings_from_proto)

assert set(_POLICY_FIELDS) == {f.name for f in fields(Policy)}, "the contract and the policy have the same fields"
