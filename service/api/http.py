"""The HTTP port: liveness, readiness, start-up and metrics, for kubelets and Prometheus.

Invariant: no response contains text of a conversation, and no peer can hold one of `CONNECTIONS_MAX` places for longer
than its route takes plus twice `PATIENCE_S`; when all are taken, the slowest unfinished request gives up its place.
Only GET and HEAD, one request a connection, no bodies. h11 reads the heads; docs/adr/0040 says why it does no more.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

import h11
import structlog

from abridged.observability.metrics import Metrics

HEAD_BYTES_MAX = 8 * 1024
PATIENCE_S = 5.0
"""Seconds that a peer may take to send its head, and again to receive the answer."""
CHECK_TIMEOUT_S = 1.0
CONNECTIONS_MAX = 64
BACKLOG = 64
LINGER_S = 0.5
LINGER_BYTES_MAX = 1024 * 1024

_HEADERS = (
    "Cache-Control: no-store",
    "Connection: close",
    "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy: same-origin",
    "Referrer-Policy: no-referrer",
    "X-Content-Type-Options: nosniff",
)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """The head of a request. Names of `headers` are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer; `headers` are whole lines beside those that every answer has."""

    status: HTTPStatus
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[str, ...] = ()


Route = Callable[[HttpRequest], Awaitable[HttpResponse]]

Check = Callable[[], Awaitable[str]]
"""Returns an empty string when all is well, else the reason in our own words: it is shown to every caller."""


def health_routes(
    *,
    started: Callable[[], bool],
    busy: Callable[[], bool] = lambda: False,
    ready: Mapping[str, Check],
    details: Mapping[str, Check],
) -> dict[str, Route]:
    """`/livez`, `/readyz` and `/startupz`.

    A process that responds is alive. `ready` alone decides readiness; `details`, such as a model host's health, are
    shown beside it and change nothing: a model that is away must not take the caller's whole Pod out of rotation.
    While it is `busy` a start may take as long as it needs: `/startupz` is 200, or the kubelet would end it, and the
    next one would begin again.
    """

    async def livez(_: HttpRequest) -> HttpResponse:
        return _plain(HTTPStatus.OK, "alive")

    async def startupz(_: HttpRequest) -> HttpResponse:
        return (
            _plain(HTTPStatus.OK, "started")
            if started() or busy()
            else _plain(HTTPStatus.SERVICE_UNAVAILABLE, "starting")
        )

    async def readyz(_: HttpRequest) -> HttpResponse:
        checks, shown = await asyncio.gather(_ask(ready), _ask(details))
        fit = started() and all(answer == "ok" for answer in checks.values())
        body = {"status": "ready" if fit else "not_ready", "started": started(), "checks": checks, "details": shown}
        return HttpResponse(
            HTTPStatus.OK if fit else HTTPStatus.SERVICE_UNAVAILABLE,
            json.dumps(body).encode() + b"\n",
            "application/json",
        )

    return {"/livez": livez, "/readyz": readyz, "/startupz": startupz}


def http_server_at(address: str, routes: Mapping[str, Route]) -> HttpServer:
    """A server of `routes` at `address`, HOST:PORT with an IPv6 host in brackets."""
    host, _, port = address.rpartition(":")
    return HttpServer(host.strip("[]"), int(port), routes=routes)


def metrics_route(metrics: Metrics, *, look: Callable[[], Awaitable[None]] | None = None) -> dict[str, Route]:
    """`/metrics`, in the format that the request's Accept header prefers; `look` comes before, and must be bounded."""

    async def scrape(request: HttpRequest) -> HttpResponse:
        if look is not None:
            await look()
        body, content_type = metrics.exposition(request.headers.get("accept", ""))
        return HttpResponse(HTTPStatus.OK, body, content_type, ("Vary: Accept",))

    return {"/metrics": scrape}


class HttpServer:
    """Serves `routes` by exact path."""

    def __init__(self, host: str, port: int, *, routes: Mapping[str, Route], patience_s: float = PATIENCE_S) -> None:
        self._host = host
        self._port = port
        self._routes = dict(routes)
        self._patience_s = patience_s
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._reading: dict[asyncio.Task[None], None] = {}

    async def start(self) -> int:
        """Listen; returns the bound port. Raises OSError when the address is taken or not ours."""
        self._server = await asyncio.start_server(
            self._accept, self._host, self._port, limit=HEAD_BYTES_MAX, backlog=BACKLOG
        )
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Stop listening and drop what is open. Calling it twice is allowed."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            slowest = next(iter(self._reading), None)
            if slowest is None:
                writer.transport.abort()
                return
            del self._reading[slowest]
            slowest.cancel()
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        self._reading[task] = None

        def forget(_: asyncio.Task[None]) -> None:
            # Not in the task's own `finally`: one that is cancelled before its first step never comes there.
            self._connections.discard(task)
            self._reading.pop(task, None)
            writer.transport.abort()

        task.add_done_callback(forget)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            parsed = await self._read(reader)
            task = asyncio.current_task()
            assert task is not None, "runs as a task"
            self._reading.pop(task, None)
            match parsed:
                case None:
                    return
                case HttpRequest():
                    raw = _encode(await self._answer(parsed), head_only=parsed.method == "HEAD")
                case HttpResponse():
                    raw = _encode(parsed, head_only=False)
            async with asyncio.timeout(self._patience_s):
                writer.write(raw)
                await writer.drain()
                await _linger(reader, writer)
                writer.close()
                await writer.wait_closed()
        except OSError:
            return  # the peer is gone or too slow; both are its own affair

    async def _read(self, reader: asyncio.StreamReader) -> HttpRequest | HttpResponse | None:
        """The request, or the answer that refuses it, or None when the peer has gone."""
        try:
            async with asyncio.timeout(self._patience_s):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "request head too large")
        except asyncio.IncompleteReadError:
            return None
        except TimeoutError:
            return _plain(HTTPStatus.REQUEST_TIMEOUT, "request head too slow")
        return _parse(head)

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        route = self._routes.get(request.path)
        if route is None:
            return _plain(HTTPStatus.NOT_FOUND, "not found")
        if request.method not in {"GET", "HEAD"}:
            return HttpResponse(HTTPStatus.METHOD_NOT_ALLOWED, b"method not allowed\n", headers=("Allow: GET, HEAD",))
        try:
            return await route(request)
        except Exception as error:  # noqa: BLE001 -- supervision: one route's bug must not take the port down
            _log.error("http.route_failed", path=request.path, exc_info=error)
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error")


def _parse(head: bytes) -> HttpRequest | HttpResponse:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(head)
    try:
        request = connection.next_event()
        path = urlsplit(request.target.decode()).path if isinstance(request, h11.Request) else ""
    except h11.RemoteProtocolError as error:
        return _plain(HTTPStatus(error.error_status_hint), "bad request")
    except ValueError:
        return _plain(HTTPStatus.BAD_REQUEST, "bad target")
    assert isinstance(request, h11.Request), "a head that ends is a request or an error"
    if request.http_version not in {b"1.0", b"1.1"}:
        return _plain(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "HTTP/1.0 and HTTP/1.1 only")
    # h11 unfolds what RFC 9112 calls obsolete; a server may refuse it, and nobody here sends it.
    if b"\r\n " in head or b"\r\n\t" in head:
        return _plain(HTTPStatus.BAD_REQUEST, "folded header")
    headers: dict[str, str] = {}
    for raw_name, raw_value in request.headers:
        name, value = raw_name.decode(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return HttpRequest(request.method.decode(), path, headers)


def _plain(status: HTTPStatus, text: str) -> HttpResponse:
    return HttpResponse(status, f"{text}\n".encode())


def _encode(response: HttpResponse, *, head_only: bool) -> bytes:
    lines = (
        f"HTTP/1.1 {response.status.value} {response.status.phrase}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        *_HEADERS,
        *response.headers,
        "\r\n",
    )
    head = "\r\n".join(lines).encode("latin-1")
    return head if head_only else head + response.body


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read what the peer still sends before closing: unread input would make the kernel reset the connection, and the
    reset can overtake our answer."""
    writer.write_eof()
    left = LINGER_BYTES_MAX
    try:
        async with asyncio.timeout(LINGER_S):
            while left > 0 and (more := await reader.read(HEAD_BYTES_MAX)):
                left -= len(more)
    except TimeoutError:
        pass


async def _ask(checks: Mapping[str, Check]) -> dict[str, str]:
    answers = await asyncio.gather(*(_one(check) for check in checks.values()))
    return dict(zip(checks, answers, strict=True))


async def _one(check: Check) -> str:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            return await check() or "ok"
    except TimeoutError:
        return "timeout"
    except Exception as error:  # noqa: BLE001 -- supervision: a check that breaks is a check that fails
        _log.error("health.check_failed", exc_info=error)
        return f"failed: {type(error).__qualname__}"
