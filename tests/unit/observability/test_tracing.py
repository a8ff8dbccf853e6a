"""Spans: their tree, their attributes, and the record of an exception."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from abridged.observability import exported
from abridged.observability.exported import LINKS_MAX, ExportedTracing
from abridged.observability.facts import (
    BatchCommitted,
    ChatAnswered,
    ChatAsked,
    ChatFailed,
    ChatStarted,
    PassEnded,
    PassOutcome,
    PassStarted,
    RecordCommitted,
    RpcEnded,
    RpcStarted,
)
from abridged.observability.tracing import (
    SilentTracing,
    TraceIds,
    TracingSettings,
    current_trace,
    current_traceparent,
    note,
    open_tracing,
    parse_traceparent,
)
from abridged.service.domain.events import ErrorClass, Trigger

APPEND = "abridged.v1.ConversationService/AppendMessages"
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN_ID = "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE_ID}-{SPAN_ID}-01"
UNSAMPLED = f"00-{TRACE_ID}-{SPAN_ID}-00"
CHAT = ChatStarted(
    "ollama",
    "qwen2.5:3b",
    conversation_id="c1",
    prompt_name="chain",
    prompt_version="1",
    temperature=0.2,
    seed=7,
    output_tokens_max=512,
    compacted=True,
)
_RPC = frozenset(
    {
        exported.RPC_SYSTEM_NAME,
        exported.RPC_METHOD,
        exported.RPC_RESPONSE_STATUS_CODE,
        exported.GEN_AI_CONVERSATION_ID,
        exported.ABRIDGED_ERROR_REASON,
        exported.ERROR_TYPE,
    }
)
_PASS = frozenset(
    {
        exported.GEN_AI_CONVERSATION_ID,
        exported.GEN_AI_REQUEST_MODEL,
        exported.ABRIDGED_SUMMARIZATION_ID,
        exported.ABRIDGED_TRIGGER,
        exported.ABRIDGED_OUTCOME,
        exported.ABRIDGED_SKIP_REASON,
        exported.ABRIDGED_DEPTH,
        exported.ABRIDGED_RATIO,
        exported.ABRIDGED_TOKENS_BEFORE,
        exported.ABRIDGED_MESSAGES,
        exported.ERROR_TYPE,
    }
)
_PREPARATION = frozenset(
    {
        exported.GEN_AI_CONVERSATION_ID,
        exported.GEN_AI_REQUEST_MODEL,
        exported.ABRIDGED_DEPTH,
        exported.ABRIDGED_RATIO,
        exported.ABRIDGED_TOKENS_BEFORE,
        exported.ABRIDGED_MESSAGES,
        exported.ERROR_TYPE,
    }
)
_CHAT = frozenset(
    {
        exported.GEN_AI_PROVIDER_NAME,
        exported.GEN_AI_OPERATION_NAME,
        exported.GEN_AI_REQUEST_MODEL,
        exported.GEN_AI_REQUEST_TEMPERATURE,
        exported.GEN_AI_REQUEST_SEED,
        exported.GEN_AI_REQUEST_MAX_TOKENS,
        exported.GEN_AI_RESPONSE_MODEL,
        exported.GEN_AI_RESPONSE_FINISH_REASONS,
        exported.GEN_AI_USAGE_INPUT_TOKENS,
        exported.GEN_AI_USAGE_OUTPUT_TOKENS,
        exported.GEN_AI_CONVERSATION_ID,
        exported.GEN_AI_CONVERSATION_COMPACTED,
        exported.GEN_AI_PROMPT_NAME,
        exported.GEN_AI_PROMPT_VERSION,
        exported.ABRIDGED_ATTEMPT,
        exported.SERVER_ADDRESS,
        exported.SERVER_PORT,
        exported.ERROR_TYPE,
    }
)

SPAN_ATTRIBUTES: Mapping[str, frozenset[str]] = {
    "rpc": _RPC,
    "commit": frozenset({exported.ABRIDGED_COMMIT_EVENTS}),
    "pass": _PASS,
    "preparation": _PREPARATION,
    "chat": _CHAT,
}
"""Every attribute that a span of each kind may carry: a message's text cannot become one."""


def started(trigger_traceparent: str = "") -> PassStarted:
    return PassStarted(
        conversation_id="c1",
        summarization_id="s1",
        trigger=Trigger.RATIO,
        depth=1,
        ratio=0.83,
        tokens_before=900,
        messages=14,
        model="ollama:qwen2.5:3b",
        trigger_traceparent=trigger_traceparent,
    )


class Traced:
    """Tracing into memory."""

    def __init__(self, settings: TracingSettings | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracing = ExportedTracing(settings or TracingSettings(), SimpleSpanProcessor(self._exporter))

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._exporter.get_finished_spans()}


def ids(span: ReadableSpan) -> tuple[str, str]:
    context = span.get_span_context()
    assert context is not None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def test_a_call_continues_the_trace_of_its_caller() -> None:
    """A server span has the caller's span as its parent and the RPC conventions' attributes."""
    traced = Traced()

    with traced.tracing.span(RpcStarted(APPEND, SAMPLED)) as span:
        span.note(RpcEnded("OK"))

    server = traced.spans[APPEND]
    assert server.kind is SpanKind.SERVER
    assert ids(server)[0] == TRACE_ID
    assert server.parent is not None
    assert f"{server.parent.span_id:016x}" == SPAN_ID
    assert server.attributes == {
        "rpc.system.name": "grpc",
        "rpc.method": APPEND,
        "rpc.response.status_code": "OK",
    }
    assert server.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(("code", "is_error"), [("INTERNAL", True), ("UNAVAILABLE", True), ("NOT_FOUND", False)])
def test_only_the_servers_own_failures_make_a_call_an_error(code: str, is_error: bool) -> None:
    """A client's mistake does not count as an error of ours."""
    traced = Traced()

    with traced.tracing.span(RpcStarted(APPEND)) as span:
        span.note(RpcEnded(code))

    server = traced.spans[APPEND]
    assert server.attributes is not None
    assert (server.status.status_code is StatusCode.ERROR) == is_error
    assert server.attributes.get("error.type") == (code if is_error else None)


def test_a_pass_is_a_new_trace_linked_to_its_trigger() -> None:
    """The stored traceparent becomes a link at creation, never a parent."""
    traced = Traced()

    with traced.tracing.span(started(SAMPLED)):
        pass

    root = traced.spans["summarize"]
    (link,) = root.links
    assert root.parent is None
    assert ids(root)[0] != TRACE_ID
    assert f"{link.context.trace_id:032x}-{link.context.span_id:016x}" == f"{TRACE_ID}-{SPAN_ID}"


def test_a_pass_begun_inside_a_call_is_still_a_trace_of_its_own() -> None:
    """The call that is current when the pass starts is not its parent."""
    traced = Traced()

    with traced.tracing.span(RpcStarted(APPEND, SAMPLED)), traced.tracing.span(started()):
        pass

    assert traced.spans["summarize"].parent is None


def test_a_trigger_without_a_trace_leaves_no_link() -> None:
    """An event that was appended untraced, or with garbage, does not break its pass."""
    for stored in ("", "garbage", f"00-{'0' * 32}-{SPAN_ID}-01"):
        traced = Traced()

        with traced.tracing.span(started(stored)):
            pass

        assert traced.spans["summarize"].links == ()


def test_a_model_call_lies_under_its_pass() -> None:
    """summarize > chat {model}, in one trace."""
    traced = Traced()

    with traced.tracing.span(started()), traced.tracing.span(CHAT) as chat:
        chat.note(ChatAnswered("qwen2.5:3b", "stop", input_tokens=800, output_tokens=90))

    spans = traced.spans
    root, call = spans["summarize"], spans["chat qwen2.5:3b"]
    assert call.parent is not None
    assert f"{call.parent.span_id:016x}" == ids(root)[1]
    assert not call.parent.is_remote
    assert call.kind is SpanKind.CLIENT
    assert call.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "ollama",
        "gen_ai.request.model": "qwen2.5:3b",
        "gen_ai.request.temperature": 0.2,
        "gen_ai.request.seed": 7,
        "gen_ai.request.max_tokens": 512,
        "gen_ai.response.model": "qwen2.5:3b",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 800,
        "gen_ai.usage.output_tokens": 90,
        "gen_ai.conversation.id": "c1",
        "gen_ai.conversation.compacted": True,
        "gen_ai.prompt.name": "chain",
        "gen_ai.prompt.version": "1",
        "abridged.summarization.attempt": 1,
    }


def test_an_uncompacted_prompt_leaves_the_attribute_out() -> None:
    """`gen_ai.conversation.compacted` is true or absent, never false."""
    traced = Traced()

    with traced.tracing.span(ChatStarted("ollama", "m")):
        pass

    attributes = traced.spans["chat m"].attributes
    assert attributes is not None
    assert "gen_ai.conversation.compacted" not in attributes


def test_a_pass_tells_what_triggered_it_and_what_it_committed() -> None:
    """Two span events carry depth, tokens before and after, and ratio."""
    traced = Traced()
    record = RecordCommitted(depth=1, tokens_before=900, tokens_after=200, ratio_after=0.4)

    with traced.tracing.span(started()) as span:
        span.note(PassEnded(PassOutcome.SUCCESS, Trigger.RATIO, model="ollama:qwen2.5:3b", record=record))

    triggered, committed = traced.spans["summarize"].events
    assert triggered.name == exported.EVENT_TRIGGERED
    assert triggered.attributes == {
        "abridged.summarization.trigger": "ratio",
        "abridged.summarization.depth": 1,
        "abridged.summarization.ratio": 0.83,
        "abridged.summarization.tokens_before": 900,
    }
    assert committed.attributes == {
        "abridged.summarization.depth": 1,
        "abridged.summarization.tokens_before": 900,
        "abridged.summarization.tokens_after": 200,
        "abridged.summarization.ratio_after": 0.4,
        "abridged.summarization.identifier_survival": 1.0,
    }


def test_a_failed_pass_is_an_error_by_its_class() -> None:
    """error.type is the class of the failure."""
    traced = Traced()

    with traced.tracing.span(started()) as span:
        span.note(PassEnded(PassOutcome.ERROR, Trigger.RATIO, error_class=ErrorClass.INVALID))

    root = traced.spans["summarize"]
    assert root.attributes is not None
    assert root.status.status_code is StatusCode.ERROR
    assert root.attributes["error.type"] == "INVALID"


def test_a_skipped_pass_is_no_error() -> None:
    """A pass without gain carries its reason and stays clean."""
    traced = Traced()

    with traced.tracing.span(started()) as span:
        span.note(PassEnded(PassOutcome.SKIPPED, Trigger.RATIO, skip_reason="NO_GAIN"))

    root = traced.spans["summarize"]
    assert root.attributes is not None
    assert root.status.status_code is StatusCode.UNSET
    assert root.attributes["abridged.summarization.skip_reason"] == "NO_GAIN"


def test_a_model_call_that_breaks_has_the_finish_reason_error() -> None:
    """An exception that leaves the chat span marks it, by class alone."""
    traced = Traced()

    with pytest.raises(TimeoutError), traced.tracing.span(CHAT):
        raise TimeoutError

    attributes = traced.spans["chat qwen2.5:3b"].attributes
    assert attributes is not None
    assert attributes["gen_ai.response.finish_reasons"] == ("error",)
    assert attributes["error.type"] == "TimeoutError"


def test_a_model_call_that_fails_has_the_class_that_metrics_count():
    """The note stands when the exception that it is about leaves the span."""
    traced = Traced()

    def fail() -> None:
        with traced.tracing.span(CHAT) as chat:
            chat.note(ChatFailed(ErrorClass.TRANSPORT))
            raise TimeoutError

    with pytest.raises(TimeoutError):
        fail()

    call = traced.spans["chat qwen2.5:3b"]
    assert call.attributes is not None
    assert call.attributes["gen_ai.response.finish_reasons"] == ("error",)
    assert call.attributes["error.type"] == "TRANSPORT"
    assert call.status.status_code is StatusCode.ERROR


def test_the_open_span_is_told_by_who_does_not_hold_it():
    """The host is chosen far below the place that opened the span; without a span nobody hears of it."""
    traced = Traced()

    note(ChatAsked("10.0.0.1", 1))
    with traced.tracing.span(CHAT):
        note(ChatAsked("10.0.0.1", 1))
        note(ChatAsked("10.0.0.2", 2))

    attributes = traced.spans["chat qwen2.5:3b"].attributes
    assert attributes is not None
    assert (attributes["server.address"], attributes["server.port"]) == ("10.0.0.2", 2)


def test_an_answered_call_that_is_left_by_an_exception_keeps_its_status() -> None:
    """The interceptor's verdict stands when the handler's coroutine is then cancelled."""
    traced = Traced()

    def answer_and_leave() -> None:
        with traced.tracing.span(RpcStarted(APPEND)) as span:
            span.note(RpcEnded("CANCELLED"))
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        answer_and_leave()

    assert traced.spans[APPEND].status.status_code is StatusCode.UNSET


def test_a_commit_lies_under_the_first_sampled_append_and_links_the_others() -> None:
    """One span per transaction, with the given times, found from every append in it."""
    traced = Traced()
    others = tuple(f"00-{number:032x}-{SPAN_ID}-01" for number in range(1, 4))

    traced.tracing.record_commit(BatchCommitted(1_000, 2_000, 5, (UNSAMPLED, SAMPLED, *others, SAMPLED, "garbage")))

    commit = traced.spans["commit batch"]
    assert (commit.start_time, commit.end_time) == (1_000, 2_000)
    assert ids(commit)[0] == TRACE_ID
    assert [link.context.trace_id for link in commit.links] == [1, 2, 3]
    assert commit.attributes == {"abridged.commit.events": 5}


def test_a_commit_of_unsampled_appends_is_not_written_down() -> None:
    """Nine of ten commits make no span at 10 % sampling."""
    traced = Traced()

    traced.tracing.record_commit(BatchCommitted(1, 2, 5, (UNSAMPLED, "")))

    assert traced.spans == {}


def test_a_large_commit_links_a_bounded_number_of_appends() -> None:
    """A thousand grouped appends make one span of at most 32 links."""
    traced = Traced()
    appends = tuple(f"00-{number:032x}-{SPAN_ID}-01" for number in range(1, 1_001))

    traced.tracing.record_commit(BatchCommitted(1, 2, 1_000, appends))

    assert len(traced.spans["commit batch"].links) == LINKS_MAX


def test_every_attribute_is_in_the_table() -> None:
    """The closed table knows each attribute that any span or span event carried, and no span carried another."""
    traced = Traced()
    record = RecordCommitted(depth=1, tokens_before=900, tokens_after=200, ratio_after=0.4)
    with traced.tracing.span(RpcStarted(APPEND)) as rpc:
        rpc.note(RpcEnded("INTERNAL", "INTERNAL", "c1"))
    with traced.tracing.span(started()) as root, traced.tracing.span(CHAT) as chat:
        chat.note(ChatAsked("127.0.0.1", 11434))
        chat.note(ChatAnswered("m", "stop", input_tokens=1, output_tokens=1))
        root.note(PassEnded(PassOutcome.SUCCESS, Trigger.RATIO, model="m", record=record))
    traced.tracing.record_commit(BatchCommitted(1, 2, 1, (SAMPLED,)))

    kinds = {APPEND: "rpc", "summarize": "pass", "chat qwen2.5:3b": "chat", "commit batch": "commit"}
    for name, span in traced.spans.items():
        assert set(span.attributes or ()) <= SPAN_ATTRIBUTES[kinds[name]], name
    assert set(traced.spans) == set(kinds)


def test_passes_are_sampled_whatever_the_ratio() -> None:
    """A ratio of zero drops calls and keeps passes with all that lies under them."""
    traced = Traced(TracingSettings(sampler="parentbased_traceidratio", sampler_ratio=0.0))

    with traced.tracing.span(RpcStarted(APPEND)):
        pass
    with traced.tracing.span(started()), traced.tracing.span(CHAT):
        pass

    assert set(traced.spans) == {"summarize", "chat qwen2.5:3b"}


def test_always_off_is_off_for_passes_too() -> None:
    """An operator who wants no spans gets none."""
    traced = Traced(TracingSettings(sampler="always_off"))

    with traced.tracing.span(started()):
        pass

    assert traced.spans == {}


def test_the_open_span_is_current_and_the_one_before_comes_back() -> None:
    """Events and log lines name the innermost span of their task."""
    traced = Traced()

    with traced.tracing.span(RpcStarted(APPEND, SAMPLED)) as outer:
        with traced.tracing.span(CHAT) as inner:
            assert current_traceparent() == inner.traceparent
        assert current_traceparent() == outer.traceparent
    assert current_traceparent() == ""
    assert current_trace() is None


async def test_tasks_do_not_see_each_others_spans() -> None:
    """Two calls on one event loop keep their traces apart."""
    traced = Traced()
    both_open = asyncio.Barrier(2)

    async def call(traceparent: str) -> str:
        with traced.tracing.span(RpcStarted(APPEND, traceparent)):
            await both_open.wait()
            trace = current_trace()
            return trace.trace_id if trace else ""

    seen = await asyncio.gather(call(f"00-{1:032x}-{SPAN_ID}-01"), call(f"00-{2:032x}-{SPAN_ID}-01"))

    assert list(seen) == [f"{1:032x}", f"{2:032x}"]


def test_without_a_collector_the_callers_trace_still_goes_through() -> None:
    """Silent tracing keeps a valid traceparent current for events and logs, and drops an invalid one."""
    silent = SilentTracing()

    with silent.span(RpcStarted(APPEND, SAMPLED)) as span, silent.span(CHAT) as inner:
        assert current_traceparent() == span.traceparent == inner.traceparent == SAMPLED
    with silent.span(RpcStarted(APPEND, "garbage")):
        assert current_traceparent() == ""
    with silent.span(RpcStarted(APPEND, f"01-{TRACE_ID}-{SPAN_ID}-01-{'x' * 9_000}")):
        assert current_traceparent() == SAMPLED


def test_without_a_collector_a_pass_does_not_borrow_the_trace_of_whoever_started_it() -> None:
    """A background pass is not part of the append's trace, exported or not."""
    silent = SilentTracing()

    with silent.span(RpcStarted(APPEND, SAMPLED)), silent.span(started()):
        assert current_traceparent() == ""


@pytest.mark.parametrize(
    ("header", "valid"),
    [
        (SAMPLED, True),
        (f"01-{TRACE_ID}-{SPAN_ID}-01-later-fields", True),
        (f"00-{TRACE_ID}-{SPAN_ID}-01-extra", False),
        (f"ff-{TRACE_ID}-{SPAN_ID}-01", False),
        (f"00-{TRACE_ID.upper()}-{SPAN_ID}-01", False),
        (f"00-{'0' * 32}-{SPAN_ID}-01", False),
        (f"00-{TRACE_ID}-{'0' * 16}-01", False),
        (SAMPLED + "\n", False),
        ("", False),
    ],
)
def test_a_traceparent_is_read_as_the_standard_says(header: str, valid: bool) -> None:
    """Unknown versions are read by their first fields; an unlawful one is ignored."""
    assert parse_traceparent(header) == (TraceIds(TRACE_ID, SPAN_ID, True) if valid else None)


def test_a_sidecar_without_otel_settings_looks_for_no_collector() -> None:
    """No endpoint, no exporter: silent."""
    settings = TracingSettings.from_environment({}, service_version="1")

    assert settings.traces_endpoint == ""
    assert isinstance(open_tracing(settings), SilentTracing)


@pytest.mark.parametrize(
    ("environ", "endpoint"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"}, "http://c:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/own"}, "http://c/own"),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "http://localhost:4318/v1/traces"),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, ""),
        ({"OTEL_SDK_DISABLED": "TRUE", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, ""),
    ],
)
def test_the_standard_variables_choose_the_endpoint(environ: dict[str, str], endpoint: str) -> None:
    """OTEL_* have the specification's meaning."""
    assert TracingSettings.from_environment(environ, service_version="1").traces_endpoint == endpoint


UNSERVED = [
    ("OTEL_TRACES_EXPORTER", "zipkin"),
    ("OTEL_TRACES_EXPORTER", "otlp,console"),
    ("OTEL_TRACES_SAMPLER", "sometimes"),
    ("OTEL_TRACES_SAMPLER_ARG", "1.5"),
    ("OTEL_TRACES_SAMPLER_ARG", "half"),
    ("OTEL_TRACES_SAMPLER_ARG", "nan"),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
    ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "brotli"),
    ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4318"),
    ("OTEL_BSP_SCHEDULE_DELAY", "soon"),
    ("OTEL_BSP_SCHEDULE_DELAY", "-5"),
    ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
    ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "9" * 5_000),
    ("OTEL_BSP_EXPORT_TIMEOUT", "\u0663"),
    ("OTEL_SDK_DISABLED", "maybe"),
]


@pytest.mark.parametrize(("name", "value"), UNSERVED)
def test_a_value_that_is_not_served_is_ignored_by_name(name: str, value: str) -> None:
    """The specification wants it so: an operator that sets variables for a whole cluster stops no sidecar."""
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}
    settings = TracingSettings.from_environment(endpoint | {name: value}, service_version="1")
    (ignored,) = settings.ignored

    assert ignored.startswith(f"{name} is ignored: it must be ")
    assert value not in ignored.removeprefix(name).split()
    assert replace(settings, ignored=()) == TracingSettings.from_environment(endpoint, service_version="1")


def test_the_batches_of_spans_are_as_the_standard_variables_say() -> None:
    """A batch is never larger than its queue."""
    served = {"OTEL_BSP_MAX_QUEUE_SIZE": "100", "OTEL_BSP_SCHEDULE_DELAY": "10", "OTEL_BSP_EXPORT_TIMEOUT": "20"}
    settings = TracingSettings.from_environment(served, service_version="1")

    assert (settings.queue_max, settings.batch_max) == (100, 100)
    assert (settings.batch_delay_ms, settings.export_timeout_ms) == (10, 20)
    assert settings.ignored == ()


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "many", "SilentTracing"),
        ("OTEL_ATTRIBUTE_COUNT_LIMIT", "-1", "SilentTracing"),
        ("OTEL_ATTRIBUTE_COUNT_LIMIT", "100", "ExportedTracing"),
        ("OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER", "nobody", "SilentTracing"),
        ("OTEL_BSP_SCHEDULE_DELAY", "soon", "ExportedTracing"),
        ("OTEL_RESOURCE_ATTRIBUTES", "junk", "ExportedTracing"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon", "ExportedTracing"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "brotli", "ExportedTracing"),
        ("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", "nobody", "ExportedTracing"),
        ("OTEL_PYTHON_CONTEXT", "nothing", "ExportedTracing"),
    ],
)
def test_no_variable_that_the_sdk_reads_by_itself_stops_the_start(name: str, value: str, kind: str) -> None:
    """A fresh interpreter, since the SDK reads some of them when it is imported."""
    program = (
        "import os, sys; from abridged.observability.tracing import *;"
        "tracing = open_tracing(TracingSettings.from_environment(os.environ, service_version='1'));"
        "print(type(tracing).__name__); tracing.close()"
    )
    environ = os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", name: value}

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environ)

    assert done.stdout.splitlines()[-1] == kind


def test_silent_tracing_imports_nothing_of_the_sdk() -> None:
    """A sidecar without a collector does not pay for one: a fresh interpreter shows the loaded modules."""
    program = (
        "import sys; from abridged.observability.tracing import *; from abridged.observability import logs, metrics;"
        "open_tracing(TracingSettings()); print(sorted({m.partition('.')[0] for m in sys.modules}))"
    )

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert "'opentelemetry'" not in loaded
    assert "'requests'" not in loaded
    assert "'grpc'" not in loaded
