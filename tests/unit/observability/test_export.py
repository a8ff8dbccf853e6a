"""Spans on the wire: the requests that a collector receives, and that one which hangs holds nobody up."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from abridged.observability.facts import RpcEnded, RpcStarted
from abridged.observability.tracing import TracingSettings, open_tracing

APPEND = "abridged.v1.ConversationService/AppendMessages"


@contextmanager
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """An OTLP/HTTP endpoint on loopback and the requests that it has received."""
    received: list[ExportTraceServiceRequest] = []

    class Receive(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the library's own name
            pass

    server = HTTPServer(("127.0.0.1", 0), Receive)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_closing_sends_what_is_waiting(caplog: pytest.LogCaptureFixture) -> None:
    """A span that ended just before the exit arrives, with the service's name and version; closing again is silent."""
    with collector() as (endpoint, received):
        tracing = open_tracing(TracingSettings(traces_endpoint=endpoint, service_version="1.2.3"))
        with tracing.span(RpcStarted(APPEND)) as span:
            span.note(RpcEnded("OK"))

        tracing.close()
        tracing.close()

    assert caplog.records == []
    (request,) = received
    (resource,) = request.resource_spans
    told = {a.key: a.value.string_value for a in resource.resource.attributes}
    assert [s.name for scope in resource.scope_spans for s in scope.spans] == [APPEND]
    assert (told["service.name"], told["service.version"]) == ("abridged", "1.2.3")


def test_a_collector_that_hangs_does_not_hold_up_the_exit() -> None:
    """close() returns while the collector, which accepts and never answers, is still being waited for."""
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        endpoint = f"http://127.0.0.1:{hanging.getsockname()[1]}/v1/traces"
        tracing = open_tracing(TracingSettings(traces_endpoint=endpoint))
        with tracing.span(RpcStarted(APPEND)):
            pass

        tracing.close()

        # Whoever had waited for the collector would have waited for this thread.
        assert "tracing-close" in {thread.name for thread in threading.enumerate()}
