"""A canary in every cage: message text that is handed to telemetry by mistake comes out of no sink."""

from __future__ import annotations

import asyncio
import gc
import io
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
import structlog
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from abridged.observability.exported import ExportedTracing
from abridged.observability.facts import ChatStarted, PassEnded, PassOutcome, PassStarted, RpcStarted
from abridged.observability.logs import LogSettings, configure_logs
from abridged.observability.metrics import Metrics
from abridged.observability.tracing import TracingSettings
from abridged.service.domain.events import ErrorClass, Trigger
from abridged.service.telemetry.telemetry import metric_labels

CANARY = "CANARY 7f3a sings of the merger"
WORD = "CANARY-7f3a"
METHOD = "abridged.v1.ConversationService/AppendMessages"


@dataclass
class Sinks:
    """Everything that leaves the process, as bytes."""

    lines: io.StringIO = field(default_factory=io.StringIO)
    spans: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    metrics: Metrics = field(
        default_factory=lambda: Metrics(version="1", labels=metric_labels(models=("m",), methods=(METHOD,)))
    )

    @property
    def everything(self) -> bytes:
        return b"\n".join(
            (
                self.lines.getvalue().encode(),
                encode_spans(self.spans.get_finished_spans()).SerializeToString(),
                self.metrics.exposition()[0],
                self.metrics.exposition("application/openmetrics-text;version=1.0.0")[0],
            )
        )


@pytest.fixture(params=["json", "console"])
def sinks(request: pytest.FixtureRequest) -> Iterator[Sinks]:
    opened = Sinks()
    undo = configure_logs(LogSettings(level="debug", style=request.param), opened.lines)
    yield opened
    undo()


@dataclass
class Message:
    """Stands for any object whose repr is its text."""

    content: str


def fail() -> None:
    """Raises with text in the message, in the cause and in an argument."""
    try:
        raise KeyError(CANARY)
    except KeyError as error:
        raise ValueError(CANARY, Message(CANARY)) from error


def test_text_in_log_fields_reaches_no_sink(sinks: Sinks) -> None:
    """The text may be under a content name, under an innocent name, nested, an object or the event itself."""
    log = structlog.get_logger()

    log.info("said", content=WORD, text=WORD, summary=WORD, prompt=WORD, error=WORD)
    log.info("said", note=CANARY, notes=[CANARY], stats={"text": WORD, CANARY: CANARY}, message_id=CANARY)
    log.info("said", thing=Message(CANARY), raw=CANARY.encode(), cause=ValueError(CANARY))
    log.warning(CANARY)
    log.info("said %s", CANARY)
    with structlog.contextvars.bound_contextvars(transcript=CANARY):
        log.info("said")

    assert b"CANARY" not in sinks.everything
    assert sinks.lines.getvalue().count("said") >= 4


def test_text_in_exceptions_reaches_no_log(sinks: Sinks) -> None:
    """Logged, raised in a thread, or lost in a task: class and place only."""
    log = structlog.get_logger()
    try:
        fail()
    except ValueError as error:
        log.exception("it_broke")
        log.error("it_broke", exc_info=error, stack_info=True)
        logging.getLogger("library").exception("broke on %s", CANARY)
        logging.getLogger("library").error(f"broke: {error}")  # noqa: G004 -- what libraries do
        sys.excepthook(type(error), error, error.__traceback__)
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()

    assert b"CANARY" not in sinks.everything
    assert sinks.lines.getvalue().count("exception.uncaught") == 2


def test_text_in_a_lost_task_reaches_no_log(sinks: Sinks) -> None:
    """asyncio prints the repr of a task that nobody awaited; our lines do not."""

    async def lose() -> None:
        async def broken(text: str) -> None:
            raise ValueError(text)

        task = asyncio.create_task(broken(CANARY))
        await asyncio.wait([task])
        asyncio.get_running_loop().call_soon(fail)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(lose())
    gc.collect()

    assert b"CANARY" not in sinks.everything
    assert sinks.lines.getvalue().count("asyncio") >= 2


def test_text_in_exceptions_on_spans_reaches_no_sink(sinks: Sinks) -> None:
    """A span that is left by an exception carries the class and no status text, no exception event."""
    tracing = ExportedTracing(TracingSettings(), SimpleSpanProcessor(sinks.spans))
    started = PassStarted("c1", "s1", Trigger.RATIO, 0, 0.9, 900, 14, "m")

    for fact in (RpcStarted(METHOD), started, ChatStarted("ollama", "m", conversation_id="c1")):
        with suppress(ValueError), tracing.span(fact):
            fail()

    spans = sinks.spans.get_finished_spans()
    assert len(spans) == 3
    assert b"CANARY" not in sinks.everything
    assert all(span.status.description is None for span in spans)
    assert all("exception" not in [event.name for event in span.events] for span in spans)


def test_text_in_labels_reaches_no_metric(sinks: Sinks) -> None:
    """Methods, codes, models, types and hosts that are not on a list never become label values."""
    sinks.metrics.rpc_ended(CANARY, CANARY, seconds=0.1)
    sinks.metrics.commit([CANARY], seconds=0.1)
    sinks.metrics.pass_ended(PassEnded(PassOutcome.ERROR, Trigger.RATIO, model=CANARY, error_class=ErrorClass.INVALID))

    assert b"CANARY" not in sinks.everything
