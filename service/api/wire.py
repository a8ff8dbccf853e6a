"""Requests into domain values and domain values into responses; pure functions only."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask

from abridged.service.api.errors import InvalidRequest
from abridged.service.api.field_rules import NANOS_PER_S
from abridged.service.codec.enums import (
    CONTEXT_LENGTH_SOURCES,
    ERROR_CLASSES,
    HELD_BY,
    SKIP_REASONS,
    TRIGGERS,
)
from abridged.service.codec.records import RECEIPT
from abridged.service.codec.values import (
    canonical,
    message_from_proto,
    message_to_proto,
    overrides_from_proto,
    ranges_to_proto,
    requested_settings,
    system_prompt_from_proto,
    timestamp,
)
from abridged.service.codec.wire_format import field
from abridged.service.conversations.prefixes import segment_digest
from abridged.service.conversations.row import Row
from abridged.service.domain.attachments import is_data
from abridged.service.domain.conversation import Conversation, EndedPass
from abridged.service.domain.errors import TooLarge
from abridged.service.domain.events import PassPlan, Settings, SystemPrompt
from abridged.service.domain.message import Message, Role
from abridged.service.domain.notice import PassAhead
from abridged.service.domain.profiles.profile import HeldBy
from abridged.service.domain.read_json import NotMessages, read_json, require_own_form
from abridged.service.domain.render import RenderedMessage
from abridged.service.domain.render_json import Rendering
from abridged.v1 import conversation_pb2, conversation_service_pb2

WAIT_WITHOUT_DEADLINE_S = 60.0
"""The longest that a call without a deadline waits, whatever it asks for."""

IDLE_WITHOUT_DEADLINE_S = 600.0
"""The same for WaitIdle."""

DEADLINE_MARGIN_S = 0.05
DEADLINE_MARGIN_SHARE = 0.05
DEADLINE_MARGIN_MAX_S = 1.0
"""The share of a deadline that a wait leaves, so that the answer still arrives, and its bounds. A busy machine takes
longer than the least of them to make an answer."""

PROMPT_BYTES_MAX = 1 << 20
"""Bytes of a system prompt with its form, in an update."""

PROMPT_CHARS_MAX = 262_144
"""Characters of a system prompt, as the contract has it."""

JSON_CHARS = 200
"""Characters of JSON that take as long to read as a part of a message."""

_SETTINGS_KEPT = 512
"""Settings that are remembered, of some hundred bytes each."""

ADDRESS_CHARS_MAX = 2_048
"""Characters of an attachment's URI that names a place and holds no data; a prompt quotes it whole."""

MASK_PATHS_MAX = 64
"""The most paths of a mask: more than there are settings."""

_MESSAGES = conversation_service_pb2.GetContextResponse.MESSAGES_FIELD_NUMBER
_MESSAGE = conversation_service_pb2.ContextMessage.MESSAGE_FIELD_NUMBER

_pb = conversation_pb2
_READ = {
    conversation_service_pb2.RENDERING_OPENAI: Rendering.OPENAI,
    conversation_service_pb2.RENDERING_ANTHROPIC: Rendering.ANTHROPIC,
}


def parts(request: conversation_service_pb2.AppendMessagesRequest) -> int:
    """Messages, and the calls, attachments, labels and hints in them: what reading a request's messages grows with."""
    messages = request.messages
    # A part takes as long to read as so much JSON.
    return (
        len(request.rendered.json) // JSON_CHARS
        + len(messages)
        + sum(len(m.tool_calls) + len(m.attachments) + len(m.labels) + len(m.flows) + len(m.tools) for m in messages)
    )


def read_rendered(request: conversation_service_pb2.AppendMessagesRequest, *, messages_max: int) -> SystemPrompt | None:
    """Put the messages of `rendered` into the request's `messages`, and return the system prompt beside them."""
    if request.messages:
        raise InvalidRequest((("rendered", "stands instead of messages, not beside them"),))
    try:
        read = read_json(request.rendered.json, _READ[request.rendered.rendering], messages_max=messages_max)
    except NotMessages as error:
        raise InvalidRequest((("rendered.json", str(error)),)) from error
    request.messages.extend(message_to_proto(message) for message in read.messages)
    return read.system_prompt


def messages_of(
    request: conversation_service_pb2.AppendMessagesRequest,
    *,
    new_id: Callable[[], str],
    message_bytes_max: int,
    batch_messages_max: int,
    batch_bytes_max: int,
) -> tuple[tuple[Message, ...], dict[str, bytes]]:
    """The messages, each with an id: the client's, or one derived from the request id, or a new one; and, by id, each
    in the canonical form that a repeat is compared by."""
    if not request.messages:
        raise InvalidRequest((("messages", "must not be empty"),))
    if len(request.messages) > batch_messages_max:
        raise InvalidRequest((("messages", f"must contain at most {batch_messages_max} item(s)"),))
    sizes = [proto.ByteSize() for proto in request.messages]
    if max(sizes, default=0) > message_bytes_max:
        place, size = next((place, size) for place, size in enumerate(sizes) if size > message_bytes_max)
        raise TooLarge(f"messages[{place}]", size=size, limit=message_bytes_max)
    if sum(sizes) > batch_bytes_max:
        raise TooLarge("messages", size=sum(sizes), limit=batch_bytes_max)
    result: list[Message] = []
    contents: dict[str, bytes] = {}
    for place, proto in enumerate(request.messages):
        if not proto.id:
            proto.id = _derived_id(request.request_id, place) if request.request_id else f"msg-{new_id()}"
        message = message_from_proto(proto)
        if message.id in contents:
            first = list(contents).index(message.id)
            raise InvalidRequest(((f"messages[{place}].id", f"is that of messages[{first}] too"),))
        _require_fitting_role(message, place)
        if message.attachments:
            _require_short_addresses(message, place)
        if message.extra_json:
            _require_form(message, f"messages[{place}].extra_json")
        if proto.HasField("create_time") and not 0 <= proto.create_time.nanos < NANOS_PER_S:
            raise InvalidRequest(((f"messages[{place}].create_time.nanos", "must be from 0 to 999,999,999"),))
        contents[message.id] = canonical(proto)
        result.append(message)
    return tuple(result), contents


def requested(proto: conversation_pb2.ConversationSettings) -> Settings:
    """Return the client's settings; context length and calibration are still to be resolved."""
    if not (proto.title or proto.labels or proto.HasField("policy") or proto.HasField("system_prompt")):
        return _short_settings(proto.model, proto.context_length, proto.reserved_output_tokens, proto.overhead_tokens)
    return Settings(
        model=proto.model,
        requested_context_length=proto.context_length,
        context_length=proto.context_length or Settings().context_length,
        reserved_output_tokens=proto.reserved_output_tokens,
        overhead_tokens=proto.overhead_tokens,
        policy=overrides_from_proto(proto.policy),
        title=proto.title,
        labels=MappingProxyType(dict(proto.labels)),
        system_prompt=system_prompt_from_proto(proto.system_prompt),
    )


@lru_cache(_SETTINGS_KEPT)
def _short_settings(model: str, context_length: int, reserved_tokens: int, overhead_tokens: int) -> Settings:
    """Settings without title, policy, labels and prompt, which many clients send with each append. They outlive an
    erasure, so no words of people are among them."""
    return Settings(
        model=model,
        requested_context_length=context_length,
        context_length=context_length or Settings().context_length,
        reserved_output_tokens=reserved_tokens,
        overhead_tokens=overhead_tokens,
    )


def masked(current: Settings, update: conversation_pb2.ConversationSettings, mask: FieldMask) -> Settings:
    """The current settings with the masked fields of `update`; what `update` leaves unset goes back to the default.

    Paths are in the contract's snake_case or in JSON's lowerCamelCase; `*` is every field.
    """
    if not mask.paths:
        raise InvalidRequest((("update_mask", "names no field"),))
    if len(mask.paths) > MASK_PATHS_MAX:
        raise InvalidRequest((("update_mask", f"names more than {MASK_PATHS_MAX} fields"),))
    if "*" in mask.paths and len(mask.paths) > 1:
        raise InvalidRequest((("update_mask", "names '*', which is every field, beside others"),))
    if "*" in mask.paths:
        return requested(update)
    result = requested_settings(current)
    for path in mask.paths:
        _take(result, update, path.split("."), path)
    return requested(result)


def with_kept(settings: Settings, current: Settings) -> Settings:
    """The settings with what no client sets: the profile, and while the model stays the same the calibration."""
    factor = current.calibration_factor if settings.model == current.model else settings.calibration_factor
    return replace(settings, profile=current.profile, calibration_factor=factor)


def usage_of(figures: Conversation | Row, settings: Settings) -> conversation_pb2.TokenUsage:
    """The use of the window: its tokens, their limits and their ratio."""
    return _pb.TokenUsage(
        window_tokens=figures.window_tokens,
        overhead_tokens=settings.overhead,
        context_length=settings.context_length,
        context_length_source=CONTEXT_LENGTH_SOURCES.to_proto(settings.context_length_source),
        reserved_output_tokens=settings.reserved_output_tokens,
        budget_tokens=settings.budget,
        ratio=figures.ratio,
        lowest_ratio_since_pass=figures.lowest_ratio_since_pass,
        calibration_factor=settings.calibration_factor,
    )


def conversation_view(
    shown: Row, settings: Settings, *, held_by: HeldBy | None = None
) -> conversation_pb2.Conversation:
    """The conversation of a row with these settings as clients see it."""
    last = shown.last_summarization
    return _pb.Conversation(
        id=shown.id,
        message_version=shown.message_version,
        event_version=shown.event_version,
        settings=requested_settings(settings),
        usage=None if shown.archive_file else usage_of(shown, settings),
        window_messages=shown.window_messages,
        messages_since_pass=shown.messages_since_pass,
        live_summary_id=shown.live_summary_id,
        depth=shown.depth,
        summary_count=shown.summary_count,
        pending_summarization_id=shown.pending_pass,
        failures_in_row=shown.failures_in_row,
        last_summarization=_pb.LastSummarization(
            depth=last.depth, message_count=last.message_count, token_ratio=last.token_ratio
        )
        if last
        else None,
        create_time=timestamp(shown.created_us),
        update_time=timestamp(shown.updated_us),
        held_by=HELD_BY.to_proto(held_by) if held_by else _pb.HELD_BY_UNSPECIFIED,
        title=shown.title,
        closed=bool(shown.closed),
        forked_from=shown.forked_from,
        archive_file=shown.archive_file,
    )


def pending_pass(plan: PassPlan, since_us: int) -> conversation_pb2.Summarization:
    """A pass under way."""
    return _pb.Summarization(
        id=plan.pass_id,
        trigger=TRIGGERS.to_proto(plan.trigger),
        state=_pb.SUMMARIZATION_STATE_PENDING,
        covered=ranges_to_proto(plan.covered),
        depth=plan.depth,
        token_ratio=plan.token_ratio,
        create_time=timestamp(since_us),
    )


def ended_pass(ended: EndedPass) -> conversation_pb2.Summarization:
    """A pass that is over."""
    proto = pending_pass(ended.plan, ended.requested_us)
    proto.end_time.CopyFrom(timestamp(ended.ended_us))
    proto.attempts = ended.attempts
    proto.models_tried.extend(ended.tried)
    if ended.receipt is not None:
        proto.receipt.CopyFrom(RECEIPT.to_proto(ended.receipt))
    if ended.error_class is not None:
        proto.state = _pb.SUMMARIZATION_STATE_FAILED
        proto.error_class = ERROR_CLASSES.to_proto(ended.error_class)
        proto.retryable = ended.retryable
        proto.cause = ended.cause
        proto.asked = ended.asked
    elif ended.skip_reason is not None:
        proto.state = _pb.SUMMARIZATION_STATE_SKIPPED
        proto.skip_reason = SKIP_REASONS.to_proto(ended.skip_reason)
    elif ended.cleared:
        proto.state = _pb.SUMMARIZATION_STATE_CLEARED
    else:
        proto.state = _pb.SUMMARIZATION_STATE_COMPLETED
        proto.summary_id = ended.record_id
    return proto


def pass_ahead_to_proto(ahead: PassAhead) -> conversation_pb2.PassAhead:
    """The notice of a pass in the contract's form."""
    return _pb.PassAhead(
        leaving=ranges_to_proto(ahead.leaving),
        message_count=sum(map(len, ahead.leaving)),
        clears=ahead.clears,
        token_ratio=ahead.token_ratio,
        trigger_token_ratio=ahead.trigger_token_ratio,
        message_version=ahead.message_version,
    )


def sent_message(m: RenderedMessage) -> tuple[bytes, bytes]:
    """A GetContextResponse of this one message, and the digest of the message alone.

    The bytes of several messages, joined with those of the other fields, are a response.
    """
    message = message_to_proto(m.message).SerializeToString(deterministic=True)
    costs = conversation_service_pb2.ContextMessage(number=m.number, tokens=m.tokens, tag=m.tag, clipped=m.clipped)
    return field(_MESSAGES, field(_MESSAGE, message) + costs.SerializeToString()), segment_digest(message)


def seconds(duration: Duration) -> float:
    """A Duration in seconds."""
    return duration.seconds + duration.nanos / 1e9


def patience_s(remaining_s: float | None) -> float:
    """Seconds that a call may wait, given the time left of its deadline; None if it has none."""
    if remaining_s is None:
        return WAIT_WITHOUT_DEADLINE_S
    margin_s = min(DEADLINE_MARGIN_MAX_S, max(DEADLINE_MARGIN_S, DEADLINE_MARGIN_SHARE * remaining_s))
    return max(0.0, remaining_s - margin_s)


def _require_fitting_role(message: Message, place: int) -> None:
    """Check the rules over two fields, which as field rules of the contract cost twice as much as all others."""
    if message.tool_calls and message.role is not Role.ASSISTANT:
        raise InvalidRequest(((f"messages[{place}].tool_calls", "only an assistant message makes tool calls"),))
    if bool(message.tool_call_id) != (message.role is Role.TOOL):
        what = "a tool message names the call that it answers, and no other message does"
        raise InvalidRequest(((f"messages[{place}].tool_call_id", what),))


def _require_short_addresses(message: Message, place: int) -> None:
    for i, attachment in enumerate(message.attachments):
        if len(attachment.uri) > ADDRESS_CHARS_MAX and not is_data(attachment.uri):
            what = f"must be at most {ADDRESS_CHARS_MAX} characters, if it is no data: URI"
            raise InvalidRequest(((f"messages[{place}].attachments[{i}].uri", what),))


def require_prompt(prompt: SystemPrompt | None, *, bytes_max: int) -> None:
    """Raise InvalidRequest or TooLarge for a system prompt that is too long, or says another one in its form."""
    if prompt is None:
        return
    size = len(prompt.content.encode()) + len(prompt.extra_json.encode())
    if size > bytes_max:
        raise TooLarge("system_prompt", size=size, limit=bytes_max)
    if len(prompt.content) > PROMPT_CHARS_MAX:
        raise InvalidRequest((("system_prompt.content", f"must be at most {PROMPT_CHARS_MAX} characters"),))
    _require_form(prompt.message, "system_prompt.extra_json")


def _require_form(message: Message, field: str) -> None:
    try:
        require_own_form(message)
    except ValueError as error:
        raise InvalidRequest(((field, f"{error}: send none, or the message as it was read"),)) from error


def _derived_id(request_id: str, place: int) -> str:
    digest = hashlib.blake2b(f"{request_id}\x00{place}".encode(), digest_size=16).hexdigest()
    return f"msg-{digest}"


def _take(target: Any, source: Any, parts: list[str], path: str) -> None:
    """Copy one masked field, presence included."""
    names = target.DESCRIPTOR
    field = names.fields_by_name.get(parts[0]) or names.fields_by_camelcase_name.get(parts[0])
    if field is None:
        raise InvalidRequest((("update_mask", f"there is no field '{path[:80]}'"),))
    if len(parts) > 1:
        if field.message_type is None or field.is_repeated:
            raise InvalidRequest((("update_mask", f"there is no field '{path[:80]}'"),))
        _take(getattr(target, field.name), getattr(source, field.name), parts[1:], path)
        return
    target.ClearField(field.name)
    if field.is_repeated or field.message_type is not None:
        getattr(target, field.name).MergeFrom(getattr(source, field.name))
    elif not field.has_presence or source.HasField(field.name):
        setattr(target, field.name, getattr(source, field.name))
