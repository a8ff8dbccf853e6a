"""A collector for traces: takes whatever is exported over HTTP and keeps the bytes.

It runs in a thread of its own, since a sidecar that ends flushes its spans while its loop stands still.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["OtlpSink", "otlp_sink"]


@dataclass(slots=True)
class OtlpSink:
    """What came, and the variables that lead an exporter here."""

    environ: dict[str, str] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)

    @property
    def everything(self) -> bytes:
        """All requests, joined."""
        return b"\n".join(self.bodies)


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
