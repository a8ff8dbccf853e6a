"""Tracing that exports through the OpenTelemetry SDK; the only file that imports it, and only if configured.

Invariant: every attribute is a field of a fact, never a text of an error: the SDK's own recording of exceptions, which
copies their messages, is never used.

Names of spans, attributes and events are spelled only here. RPC names follow the OpenTelemetry semantic conventions
1.44, GenAI names those of the conventions' own repository (status Development, no release so far). Names that no
convention covers begin with `abridged.`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from types import TracebackType
from typing import Self, assert_never

from opentelemetry import trace as api
from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace import sampling as sdk_sampling
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.util import types as api_types

from abridged.observability.facts import (
    BatchCommitted,
    ChatAnswered,
    ChatAsked,
    ChatFailed,
    ChatStarted,
    Fact,
    PassEnded,
    PassOutcome,
    PassStarted,
    PreparationStarted,
    RpcEnded,
    RpcStarted,
    SpanFact,
)
from abridged.observability.tracing import CURRENT, SHUTDOWN_S, Span, TraceIds, TracingSettings, parse_traceparent

LINKS_MAX = 32
"""Most links of one commit span: a transaction can contain a thousand appends, at a microsecond each."""

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""The schema of the resource, of calls and of commits."""

GEN_AI_SCHEMA_URL = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"
"""The schema of passes and model calls: the URL in model/manifest.yaml of semantic-conventions-genai."""

SPAN_COMMIT = "commit batch"
SPAN_SUMMARIZE = "summarize"
SPAN_PREPARE = "prepare summary"
SPANS_OF_RECORDS = frozenset({SPAN_SUMMARIZE, SPAN_PREPARE})
EVENT_TRIGGERED = "abridged.summarization.triggered"
EVENT_COMMITTED = "abridged.summarization.committed"

ERROR_TYPE = "error.type"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"

RPC_SYSTEM_NAME = "rpc.system.name"
RPC_METHOD = "rpc.method"
RPC_RESPONSE_STATUS_CODE = "rpc.response.status_code"
RPC_SYSTEM_GRPC = "grpc"
RPC_SERVER_ERRORS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})
"""Status codes that are the server's fault; only these make a server span an error (gRPC conventions, 1.44)."""

GEN_AI_PROVIDER_NAME = "gen_ai.provider.name"
GEN_AI_OPERATION_NAME = "gen_ai.operation.name"
GEN_AI_REQUEST_MODEL = "gen_ai.request.model"
GEN_AI_REQUEST_TEMPERATURE = "gen_ai.request.temperature"
GEN_AI_REQUEST_SEED = "gen_ai.request.seed"
GEN_AI_REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
GEN_AI_RESPONSE_MODEL = "gen_ai.response.model"
GEN_AI_RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons"
GEN_AI_USAGE_INPUT_TOKENS = "gen_ai.usage.input_tokens"
GEN_AI_USAGE_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
GEN_AI_CONVERSATION_ID = "gen_ai.conversation.id"
GEN_AI_CONVERSATION_COMPACTED = "gen_ai.conversation.compacted"
GEN_AI_PROMPT_NAME = "gen_ai.prompt.name"
GEN_AI_PROMPT_VERSION = "gen_ai.prompt.version"
OPERATION_CHAT = "chat"

ABRIDGED_SUMMARIZATION_ID = "abridged.summarization.id"
ABRIDGED_TRIGGER = "abridged.summarization.trigger"
ABRIDGED_OUTCOME = "abridged.summarization.outcome"
ABRIDGED_SKIP_REASON = "abridged.summarization.skip_reason"
ABRIDGED_DEPTH = "abridged.summarization.depth"
ABRIDGED_RATIO = "abridged.summarization.ratio"
ABRIDGED_RATIO_AFTER = "abridged.summarization.ratio_after"
ABRIDGED_TOKENS_BEFORE = "abridged.summarization.tokens_before"
ABRIDGED_TOKENS_AFTER = "abridged.summarization.tokens_after"
ABRIDGED_MESSAGES = "abridged.summarization.messages"
ABRIDGED_IDENTIFIER_SURVIVAL = "abridged.summarization.identifier_survival"
ABRIDGED_ATTEMPT = "abridged.summarization.attempt"
ABRIDGED_COMMIT_EVENTS = "abridged.commit.events"
ABRIDGED_ERROR_REASON = "abridged.error.reason"
"""The reason in the ErrorInfo that a caller got: more specific than the status, and set for callers' mistakes too."""

_ROOT = Context()

Attributes = dict[str, api_types.AttributeValue]

_BROKEN_CHAT: Attributes = {GEN_AI_RESPONSE_FINISH_REASONS: ("error",)}
"""The conventions' value for a model call without an answer."""


def open_exported(settings: TracingSettings) -> ExportedTracing:
    """Tracing that sends batches to the OTLP endpoint of `settings` from its own thread."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    processor = BatchSpanProcessor(
        OTLPSpanExporter(endpoint=settings.traces_endpoint),
        max_queue_size=settings.queue_max,
        max_export_batch_size=settings.batch_max,
        schedule_delay_millis=settings.batch_delay_ms,
        export_timeout_millis=settings.export_timeout_ms,
    )
    return ExportedTracing(settings, processor)


class ExportedTracing:
    """Opens SDK spans and passes them to `processor` when they end."""

    def __init__(self, settings: TracingSettings, processor: SpanProcessor) -> None:
        named = {SERVICE_NAME: settings.service_name, SERVICE_VERSION: settings.service_version}
        resource = Resource.create(named, schema_url=SCHEMA_URL)
        provider = TracerProvider(sampler=_sampler(settings), resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(processor)
        self._provider = provider
        # A scope has one schema, and the attributes of passes and model calls come from another registry.
        version = settings.service_version
        self._tracer = provider.get_tracer("abridged", version, schema_url=SCHEMA_URL)
        self._gen_ai = provider.get_tracer("abridged", version, schema_url=GEN_AI_SCHEMA_URL)

    def span(self, fact: SpanFact) -> AbstractContextManager[Span]:
        match fact:
            case RpcStarted():
                attributes: Attributes = {
                    RPC_SYSTEM_NAME: RPC_SYSTEM_GRPC,
                    RPC_METHOD: fact.method,
                }
                parent = _remote(fact.traceparent)
                return _ExportedSpan(self._tracer.start_span(fact.method, parent, SpanKind.SERVER, attributes))
            case PassStarted():
                trigger = {ABRIDGED_TRIGGER: str(fact.trigger), **_room_attributes(fact)}
                attributes = {**_source_attributes(fact), **trigger}
                attributes[ABRIDGED_SUMMARIZATION_ID] = fact.summarization_id
                links = _links((fact.trigger_traceparent,))
                span = self._gen_ai.start_span(SPAN_SUMMARIZE, _ROOT, attributes=attributes, links=links)
                span.add_event(EVENT_TRIGGERED, trigger)
                return _ExportedSpan(span)
            case PreparationStarted():
                attributes = {**_source_attributes(fact), **_room_attributes(fact)}
                return _ExportedSpan(self._gen_ai.start_span(SPAN_PREPARE, _ROOT, attributes=attributes))
            case ChatStarted():
                name = f"{OPERATION_CHAT} {fact.model}"
                parent, attributes = _local(CURRENT.get()), _chat_attributes(fact)
                return _ExportedSpan(
                    self._gen_ai.start_span(name, parent, SpanKind.CLIENT, attributes), broken=_BROKEN_CHAT
                )
            case _:
                assert_never(fact)

    def record_commit(self, fact: BatchCommitted) -> None:
        distinct = dict.fromkeys(fact.traceparents)
        found = (t for t in distinct if (ids := parse_traceparent(t)) is not None and ids.sampled)
        sampled = list(islice(found, LINKS_MAX + 1))
        if not sampled:
            return
        span = self._tracer.start_span(
            SPAN_COMMIT,
            _remote(sampled[0]),
            SpanKind.INTERNAL,
            {ABRIDGED_COMMIT_EVENTS: fact.events},
            _links(sampled[1:]),
            start_time=fact.started_ns,
        )
        span.end(fact.ended_ns)

    def close(self) -> None:
        # The SDK waits 30 s for an unresponsive collector, with no way to change that; its thread is a daemon.
        closer = threading.Thread(target=self._provider.shutdown, name="tracing-close", daemon=True)
        closer.start()
        closer.join(SHUTDOWN_S)


class _ExportedSpan:
    __slots__ = ("_before", "_broken", "_settled", "sdk_span", "traceparent")

    def __init__(self, sdk_span: api.Span, *, broken: Attributes | None = None) -> None:
        self.sdk_span = sdk_span
        self._broken = broken or {}
        self._settled = False
        context = sdk_span.get_span_context()
        ids = TraceIds(f"{context.trace_id:032x}", f"{context.span_id:016x}", context.trace_flags.sampled)
        self.traceparent = ids.traceparent

    def __enter__(self) -> Self:
        self._before = CURRENT.get()
        CURRENT.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        CURRENT.set(self._before)
        if kind is not None and not self._settled:
            self.sdk_span.set_attributes(self._broken)
            self._fail(kind.__qualname__)
        self.sdk_span.end()

    def note(self, fact: Fact) -> None:
        if not self.sdk_span.is_recording():
            return
        attributes, error_type = _outcome(fact)
        self.sdk_span.set_attributes(attributes)
        if isinstance(fact, PassEnded) and fact.record is not None:
            record = fact.record
            self.sdk_span.add_event(
                EVENT_COMMITTED,
                {
                    ABRIDGED_DEPTH: record.depth,
                    ABRIDGED_TOKENS_BEFORE: record.tokens_before,
                    ABRIDGED_TOKENS_AFTER: record.tokens_after,
                    ABRIDGED_RATIO_AFTER: record.ratio_after,
                    ABRIDGED_IDENTIFIER_SURVIVAL: record.identifier_survival,
                },
            )
        if error_type:
            self._fail(error_type)
        # The response decides how it ended; an exception that then leaves the coroutine adds nothing.
        self._settled = isinstance(fact, RpcEnded | PassEnded | ChatFailed)

    def _fail(self, error_type: str) -> None:
        self.sdk_span.set_attribute(ERROR_TYPE, error_type)
        self.sdk_span.set_status(Status(StatusCode.ERROR))


class _PassesToo(sdk_sampling.Sampler):
    """Samples every pass, and the rest as configured: passes are rare, and a ratio could drop the one that failed."""

    def __init__(self, configured: sdk_sampling.Sampler) -> None:
        self._configured = configured

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: api_types.Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: api.TraceState | None = None,
    ) -> sdk_sampling.SamplingResult:
        chosen = sdk_sampling.ALWAYS_ON if name in SPANS_OF_RECORDS else self._configured
        return chosen.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        return f"PassesToo({self._configured.get_description()})"


def _source_attributes(fact: PassStarted | PreparationStarted) -> Attributes:
    return {
        GEN_AI_CONVERSATION_ID: fact.conversation_id,
        GEN_AI_REQUEST_MODEL: fact.model,
        ABRIDGED_MESSAGES: fact.messages,
    }


def _room_attributes(fact: PassStarted | PreparationStarted) -> Attributes:
    return {
        ABRIDGED_DEPTH: fact.depth,
        ABRIDGED_RATIO: fact.ratio,
        ABRIDGED_TOKENS_BEFORE: fact.tokens_before,
    }


def _chat_attributes(fact: ChatStarted) -> Attributes:
    always: Attributes = {
        GEN_AI_OPERATION_NAME: OPERATION_CHAT,
        GEN_AI_PROVIDER_NAME: fact.provider,
        GEN_AI_REQUEST_MODEL: fact.model,
        ABRIDGED_ATTEMPT: fact.attempt,
    }
    known = {
        GEN_AI_CONVERSATION_ID: fact.conversation_id or None,
        GEN_AI_PROMPT_NAME: fact.prompt_name or None,
        GEN_AI_PROMPT_VERSION: fact.prompt_version or None,
        GEN_AI_REQUEST_TEMPERATURE: fact.temperature,
        GEN_AI_REQUEST_SEED: fact.seed,
        GEN_AI_REQUEST_MAX_TOKENS: fact.output_tokens_max,
        # By convention, true or absent.
        GEN_AI_CONVERSATION_COMPACTED: fact.compacted or None,
    }
    return always | {name: value for name, value in known.items() if value is not None}


def _outcome(fact: Fact) -> tuple[Attributes, str]:
    """The attributes that a fact adds to its span, and the error type; empty unless the fact is a failure."""
    match fact:
        case RpcEnded():
            attributes: Attributes = {RPC_RESPONSE_STATUS_CODE: fact.code}
            if fact.conversation_id:
                attributes[GEN_AI_CONVERSATION_ID] = fact.conversation_id
            if fact.reason:
                attributes[ABRIDGED_ERROR_REASON] = fact.reason
            return attributes, fact.code if fact.code in RPC_SERVER_ERRORS else ""
        case PassEnded():
            attributes = {ABRIDGED_OUTCOME: fact.outcome.value, GEN_AI_REQUEST_MODEL: fact.model}
            if fact.skip_reason is not None:
                attributes[ABRIDGED_SKIP_REASON] = str(fact.skip_reason)
            failed = fact.outcome in {PassOutcome.ERROR, PassOutcome.CANCELLED}
            return attributes, str(fact.error_class or "") if failed else ""
        case ChatAsked():
            return {SERVER_ADDRESS: fact.server_address, SERVER_PORT: fact.server_port}, ""
        case ChatAnswered():
            return {
                GEN_AI_RESPONSE_MODEL: fact.model,
                GEN_AI_RESPONSE_FINISH_REASONS: (fact.finish_reason,),
                GEN_AI_USAGE_INPUT_TOKENS: fact.input_tokens,
                GEN_AI_USAGE_OUTPUT_TOKENS: fact.output_tokens,
            }, ""
        case ChatFailed():
            return _BROKEN_CHAT, str(fact.error_class)
        case _:
            assert_never(fact)


def _local(span: Span | None) -> Context:
    return api.set_span_in_context(span.sdk_span, _ROOT) if isinstance(span, _ExportedSpan) else _ROOT


def _remote(traceparent: str) -> Context:
    context = _span_context(traceparent)
    return _ROOT if context is None else api.set_span_in_context(api.NonRecordingSpan(context), _ROOT)


def _links(traceparents: Iterable[str]) -> tuple[Link, ...]:
    return tuple(Link(context) for t in traceparents if (context := _span_context(t)) is not None)


def _span_context(traceparent: str) -> SpanContext | None:
    ids = parse_traceparent(traceparent)
    if ids is None:
        return None
    flags = TraceFlags(TraceFlags.SAMPLED if ids.sampled else TraceFlags.DEFAULT)
    return SpanContext(int(ids.trace_id, 16), int(ids.span_id, 16), is_remote=True, trace_flags=flags)


def _sampler(settings: TracingSettings) -> sdk_sampling.Sampler:
    ratio = sdk_sampling.TraceIdRatioBased(settings.sampler_ratio)
    roots: dict[str, sdk_sampling.Sampler] = {
        "always_on": sdk_sampling.ALWAYS_ON,
        "always_off": sdk_sampling.ALWAYS_OFF,
        "traceidratio": ratio,
    }
    root = roots[settings.sampler.removeprefix("parentbased_")]
    configured = sdk_sampling.ParentBased(root) if settings.sampler.startswith("parentbased_") else root
    return configured if root is sdk_sampling.ALWAYS_OFF else _PassesToo(configured)
