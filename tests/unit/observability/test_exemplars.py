"""The trace to which an exemplar points."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import pytest

from abridged.eventlog.event import StreamId
from abridged.observability.facts import PassEnded, SpanFact
from abridged.observability.metrics import Metrics
from abridged.observability.tracing import SilentSpan, SilentTracing, Span, TraceIds, sampled_trace_id
from abridged.service.domain.events import PassPlan, Trigger
from abridged.service.domain.policy import Policy
from abridged.service.passes.report import PassReport
from abridged.service.telemetry.progress import ProgressBoard
from abridged.service.telemetry.telemetry import Telemetry, metric_labels

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
PLAN = PassPlan("p", Trigger.RATIO, (), (), "", "", 0, 0.9, 14, 1_000, 100, Policy())


class _Noted(SilentSpan):
    """A span that keeps each note."""

    def __init__(self, traceparent: str) -> None:
        super().__init__(traceparent)
        self.facts: list[object] = []

    def note(self, fact: object) -> None:
        self.facts.append(fact)


class _Tracing(SilentTracing):
    """Opens one span for any purpose."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def span(self, _fact: SpanFact) -> AbstractContextManager[Span]:
        return nullcontext(self._span)


@pytest.mark.parametrize(("sampled", "shown"), [(True, TRACE), (False, "")])
def test_only_a_sampled_trace_is_pointed_to(sampled, shown):
    """Nobody will find the spans of another."""
    assert sampled_trace_id(TraceIds(TRACE, SPAN, sampled).traceparent) == shown


def test_without_a_trace_there_is_nothing_to_point_to():
    """No header, no exemplar."""
    assert sampled_trace_id("") == ""


@pytest.mark.parametrize(("sampled", "shown"), [(True, TRACE), (False, "")])
def test_a_pass_points_to_its_trace_only_when_it_is_sampled(sampled, shown):
    """The exemplar of an unsampled pass would lead nowhere."""
    metrics = Metrics(version="1", labels=metric_labels())
    span = _Noted(TraceIds(TRACE, SPAN, sampled).traceparent)
    telemetry = Telemetry(metrics, _Tracing(span), ProgressBoard(), log_content=False)

    report = PassReport(telemetry, StreamId("default", "c"), PLAN, model="x:y", now_us=lambda: 1)
    with report.opened(""):
        report.cancelled()

    (ended,) = span.facts
    assert isinstance(ended, PassEnded)
    assert ended.trace_id == shown
