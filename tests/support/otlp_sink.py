"""A collector for traces: takes all exports over HTTP and keeps the bytes.

The collector runs in a thread of its own, since a sidecar that ends flushes its spans while its loop stands still.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True, slots=True)
class SeenSpan:
    """A span as a collector reads it. `links` are trace ids and span ids, like `trace_id` and `span_id` in hex."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    links: tuple[tuple[str, str], ...]
    attributes: dict[str, Any]
    failed: bool
    schema_url: str
    resource_schema_url: str


@dataclass(slots=True)
class OtlpSink:
    """The exports received, and the variables that lead an exporter here."""

    environ: dict[str, str] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)

    @property
    def everything(self) -> bytes:
        """All requests, joined."""
        return b"\n".join(self.bodies)

    @property
    def spans(self) -> list[SeenSpan]:
        """All spans, in the order of their ends."""
        return [
            _seen(span, scope.schema_url, resource.schema_url)
            for body in self.bodies
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def named(self, name: str) -> list[SeenSpan]:
        """The spans of this name."""
        return [span for span in self.spans if span.name == name]


def _seen(span: Any, schema_url: str, resource_schema_url: str) -> SeenSpan:
    return SeenSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        attributes={a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes},
        failed=span.status.code == span.status.STATUS_CODE_ERROR,
        schema_url=schema_url,
        resource_schema_url=resource_schema_url,
    )


@contextmanager
def otlp_sink() -> Iterator[OtlpSink]:
    """Collect for as long as the block lasts; bodies come uncompressed."""
    sink = OtlpSink()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sink.bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's name
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    sink.environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
    }
    try:
        yield sink
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
