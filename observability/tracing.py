"""Opens spans, tracks the current trace, and handles W3C trace context as plain strings.

Invariant: a span carries what its fact carries and nothing else. No caller gets the SDK's span, and an exception leaves
only its class, never its message. The OpenTelemetry SDK is not imported without a collector, and a span costs two to
four microseconds; the caller's traceparent still goes into events and logs. No collector variable prevents a start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import structlog

from abridged.observability.facts import BatchCommitted, Fact, PassStarted, PreparationStarted, RpcStarted, SpanFact

SHUTDOWN_S = 2.0
"""Seconds that `close` waits for a collector; the whole process has 5 s to exit."""

_SAMPLERS = frozenset(
    {
        "always_on",
        "always_off",
        "traceidratio",
        "parentbased_always_on",
        "parentbased_always_off",
        "parentbased_traceidratio",
    }
)
_EXPORTERS = frozenset({"otlp", "none"})
_PROTOCOL = "http/protobuf"
_COMPRESSIONS = frozenset({"gzip", "deflate", "none"})
_DEFAULT_ENDPOINT = "http://localhost:4318"
_MILLISECONDS_MAX = 3_600_000

_log = structlog.get_logger()

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class TraceIds:
    """A position in a trace.

    Attributes:
        trace_id: 32 lower-case hex digits.
        span_id: 16 lower-case hex digits.
        sampled: True if the trace's spans are exported.
    """

    trace_id: str
    span_id: str
    sampled: bool

    @property
    def traceparent(self) -> str:
        """The ids as a version 00 header, whatever version they came from: always 55 characters."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """The values of the standard OTEL_* variables that this package reads.

    The SDK itself reads headers, certificates, timeouts, limits and resource attributes.

    Attributes:
        traces_endpoint: A full URL; empty if spans are not exported.
        service_name: The resource's `service.name`.
        service_version: The resource's `service.version`.
        sampler: A name from the specification; passes are sampled regardless, except by `always_off`.
        sampler_ratio: The ratio of the samplers by trace id, 0 to 1.
        queue_max: Most spans that wait for export; more are dropped.
        batch_max: Most spans in one export.
        batch_delay_ms: Longest delay before an export.
        export_timeout_ms: Timeout of an export.
        ignored: A sentence for each variable with an unsupported value, with its name but not its value.
    """

    traces_endpoint: str = ""
    service_name: str = "abridged"
    service_version: str = ""
    sampler: str = "parentbased_always_on"
    sampler_ratio: float = 1.0
    queue_max: int = 2_048
    batch_max: int = 512
    batch_delay_ms: int = 5_000
    export_timeout_ms: int = 30_000
    ignored: tuple[str, ...] = ()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], *, service_version: str) -> TracingSettings:
        """Read OTEL_* as the specification says; unsupported values are ignored and reported in `ignored`.

        One difference: without an endpoint and without OTEL_TRACES_EXPORTER, spans are not exported, because a sidecar
        without a configured collector should not look for one.
        """
        read = _Variables(environ)
        endpoint = _endpoint(read)
        queue_max = read.integer("OTEL_BSP_MAX_QUEUE_SIZE", default=2_048, at_most=1_000_000)
        return cls(
            traces_endpoint=endpoint if read.check_limits() else "",
            service_name=environ.get("OTEL_SERVICE_NAME") or "abridged",
            service_version=service_version,
            sampler=read.choice("OTEL_TRACES_SAMPLER", default="parentbased_always_on", among=_SAMPLERS),
            sampler_ratio=read.number("OTEL_TRACES_SAMPLER_ARG", default=1.0, at_most=1.0),
            queue_max=queue_max,
            batch_max=read.integer("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", default=min(512, queue_max), at_most=queue_max),
            batch_delay_ms=read.integer("OTEL_BSP_SCHEDULE_DELAY", default=5_000, at_most=_MILLISECONDS_MAX),
            export_timeout_ms=read.integer("OTEL_BSP_EXPORT_TIMEOUT", default=30_000, at_most=_MILLISECONDS_MAX),
            ignored=tuple(read.ignored),
        )


class Span(Protocol):
    """An open span."""

    @property
    def traceparent(self) -> str:
        """The header to store in an event or to propagate; empty if there is no trace."""
        ...

    def note(self, fact: Fact) -> None:
        """Record a fact that became known after the span was opened."""
        ...


class Tracing(Protocol):
    """Opens spans. One implementation exports them, the other discards them."""

    def span(self, fact: SpanFact) -> AbstractContextManager[Span]:
        """Open a span that is current, for this task and those it starts, until the context exits.

        A pass starts a new trace, linked to the one that triggered it: it may begin days later, and must not keep that
        trace open. An exception that leaves the span marks it as an error, with the exception's class.
        """
        ...

    def record_commit(self, fact: BatchCommitted) -> None:
        """Record a finished transaction as a child of its first sampled append, linked to the others."""
        ...

    def close(self) -> None:
        """Flush waiting spans, for at most `SHUTDOWN_S` seconds. May be called twice."""
        ...


class SilentSpan:
    """A span that is not exported. Entering it makes the caller's trace current, for logs and events."""

    __slots__ = ("_before", "traceparent")

    def __init__(self, traceparent: str) -> None:
        self.traceparent = traceparent

    def __enter__(self) -> Self:
        self._before = CURRENT.get()
        CURRENT.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        CURRENT.set(self._before)

    def note(self, fact: Fact) -> None:
        pass


class SilentTracing:
    """Tracing without a collector."""

    def span(self, fact: SpanFact) -> AbstractContextManager[Span]:
        match fact:
            case RpcStarted():
                ids = parse_traceparent(fact.traceparent) if fact.traceparent else None
                if ids is None and CURRENT.get() is None:
                    return _NOWHERE
                return SilentSpan(ids.traceparent if ids is not None else "")
            case PassStarted() | PreparationStarted():
                return SilentSpan("")
            case _:
                return _NOWHERE

    def record_commit(self, fact: BatchCommitted) -> None:
        pass

    def close(self) -> None:
        pass


CURRENT: ContextVar[Span | None] = ContextVar("abridged_span", default=None)
"""The open span of this task. The variable is not OpenTelemetry's own, so other libraries cannot add to the span."""


def open_tracing(settings: TracingSettings) -> Tracing:
    """Tracing as configured; imports the SDK only if there is an endpoint.

    Logs `tracing.not_opened` and exports no spans if the SDK raises on a variable that it reads itself.
    """
    if not settings.traces_endpoint:
        return SilentTracing()
    try:
        from abridged.observability.exported import open_exported

        return open_exported(settings)
    except (ValueError, RuntimeError, StopIteration) as error:
        _log.warning("tracing.not_opened", error_type=type(error).__name__, hint="see the OTEL_* variables")
        return SilentTracing()


def current_traceparent() -> str:
    """The traceparent of the open span; empty without one."""
    span = CURRENT.get()
    return span.traceparent if span is not None else ""


def current_trace() -> TraceIds | None:
    """The ids of the open span, for log lines and exemplars; None without one."""
    span = CURRENT.get()
    return parse_traceparent(span.traceparent) if span is not None and span.traceparent else None


def note(fact: Fact) -> None:
    """Record a fact on the open span, if there is one, from far below the code that opened it."""
    span = CURRENT.get()
    if span is not None:
        span.note(fact)


def parse_traceparent(header: str) -> TraceIds | None:
    """Parse a W3C traceparent; None if it is invalid, which the standard says to ignore."""
    match = _TRACEPARENT.fullmatch(header)
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more) or not trace_id.strip("0") or not span_id.strip("0"):
        return None
    return TraceIds(trace_id, span_id, bool(int(flags, 16) & 1))


def sampled_trace_id(traceparent: str) -> str:
    """The trace id of one of our own traceparents, for an exemplar; empty if it is not sampled."""
    # Every call and commit runs this, so it does not parse what TraceIds wrote.
    return traceparent[3:35] if traceparent.endswith("-01") else ""


class _Variables:
    """Reads the variables of an environment, and collects those it ignores."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.ignored: list[str] = []

    def text(self, name: str) -> str:
        return self._environ.get(name, "").strip()

    def choice(self, name: str, *, default: str, among: frozenset[str]) -> str:
        value = self.text(name).lower()
        if value and value not in among:
            self.ignore(name, f"must be one of {', '.join(sorted(among))}")
        return value if value in among else default

    def number(self, name: str, *, default: float, at_most: float) -> float:
        try:
            value = float(self.text(name) or default)
        except ValueError:
            value = -1.0
        if 0.0 <= value <= at_most:
            return value
        self.ignore(name, f"must be a number from 0 to {at_most:g}")
        return default

    def integer(self, name: str, *, default: int, at_most: int) -> int:
        text = self.text(name)
        if not text:
            return default
        if text.isascii() and text.isdigit() and len(text) <= len(str(at_most)) and 0 < int(text) <= at_most:
            return int(text)
        self.ignore(name, f"must be an integer from 1 to {at_most}")
        return default

    def url(self, name: str) -> str:
        text = self.text(name)
        if not text or text.startswith(("http://", "https://")):
            return text
        self.ignore(name, "must be a URL of http or https")
        return ""

    def check_limits(self) -> bool:
        """Return whether the SDK can be imported: the import raises if one of its limits is not a number."""
        limits = [name for name in self._environ if name.startswith("OTEL_") and name.endswith("_LIMIT")]
        broken = [name for name in limits if self.text(name) and not self.text(name).isdecimal()]
        self.ignored += [f"{name} must be an integer from 0: no span is sent" for name in broken]
        return not broken

    def ignore(self, name: str, rule: str) -> None:
        self.ignored.append(f"{name} is ignored: it {rule}")


def _endpoint(read: _Variables) -> str:
    if read.choice("OTEL_SDK_DISABLED", default="false", among=frozenset({"true", "false"})) == "true":
        return ""
    exporter = _exporter(read)
    full, base = read.url("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), read.url("OTEL_EXPORTER_OTLP_ENDPOINT")
    if exporter == "none" or not (exporter or full or base):
        return ""
    for what, served in (("PROTOCOL", frozenset({_PROTOCOL})), ("COMPRESSION", _COMPRESSIONS)):
        for name in (f"OTEL_EXPORTER_OTLP_TRACES_{what}", f"OTEL_EXPORTER_OTLP_{what}"):
            read.choice(name, default="", among=served)
    return full or (base or _DEFAULT_ENDPOINT).rstrip("/") + "/v1/traces"


def _exporter(read: _Variables) -> str:
    """`otlp` if the list contains it, `none` if it is the only entry, otherwise empty."""
    named = {name.strip().lower() for name in read.text("OTEL_TRACES_EXPORTER").split(",")} - {""}
    if named - _EXPORTERS:
        read.ignore("OTEL_TRACES_EXPORTER", f"must be one of {', '.join(sorted(_EXPORTERS))}")
    return next((name for name in ("otlp", "none") if name in named), "")


class _Nowhere:
    """A silent span inside another: stateless, so all share one."""

    __slots__ = ()

    @property
    def traceparent(self) -> str:
        return current_traceparent()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def note(self, fact: Fact) -> None:
        pass


_NOWHERE = _Nowhere()
