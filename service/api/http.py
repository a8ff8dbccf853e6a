"""The HTTP port: liveness, readiness, start-up and metrics, for kubelets and Prometheus, and the contract's calls.

Invariant: no route's response contains text of a conversation, and no peer can hold one of `CONNECTIONS_MAX` places for
longer than its route takes plus twice `PATIENCE_S`; when all are taken, the slowest unfinished request gives up its
place. Calls have `CALLS_MAX` places apart. One request a connection. h11 reads the requests; docs/adr/0040 says why it
does no more.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

import h11
import structlog

from abridged.observability.metrics import Metrics
from abridged.service.api.http_exchange import HttpExchange, HttpRequest, HttpResponse, plain

HEAD_BYTES_MAX = 8 * 1024
PATIENCE_S = 5.0
"""Seconds that a peer may take to send its head, and again to receive the answer."""
CHECK_TIMEOUT_S = 1.0
CONNECTIONS_MAX = 64
CALLS_MAX = 512
"""Calls at once over this port. Each has a connection of its own."""
BACKLOG = 64
LINGER_S = 0.5
KEEPALIVE_S = 30
LINGER_BYTES_MAX = 1024 * 1024

_log = structlog.get_logger(__name__)


Route = Callable[[HttpRequest], Awaitable[HttpResponse]]

Calls = Callable[[HttpExchange], Awaitable[None]]
"""Serves a request with a body, and writes its response."""

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
        return plain(HTTPStatus.OK, "alive")

    async def startupz(_: HttpRequest) -> HttpResponse:
        return (
            plain(HTTPStatus.OK, "started")
            if started() or busy()
            else plain(HTTPStatus.SERVICE_UNAVAILABLE, "starting")
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


def http_server_at(address: str, routes: Mapping[str, Route], calls: Calls | None = None) -> HttpServer:
    """A server of `routes` and `calls` at `address`, HOST:PORT with an IPv6 host in brackets."""
    host, _, port = address.rpartition(":")
    return HttpServer(host.strip("[]"), int(port), routes=routes, calls=calls)


def metrics_route(metrics: Metrics, *, look: Callable[[], Awaitable[None]] | None = None) -> dict[str, Route]:
    """`/metrics`, in the format that the request's Accept header prefers; `look` comes before, and must be bounded."""

    async def scrape(request: HttpRequest) -> HttpResponse:
        if look is not None:
            await look()
        body, content_type = metrics.exposition(request.headers.get("accept", ""))
        return HttpResponse(HTTPStatus.OK, body, content_type, ("Vary: Accept",))

    return {"/metrics": scrape}


_Received = tuple[HttpRequest, h11.Connection]


class HttpServer:
    """Serves `routes` by exact path, and by `calls` whatever else has the path of a call, `/package.Service/Method`."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        routes: Mapping[str, Route],
        calls: Calls | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._host = host
        self._port = port
        self._routes = dict(routes)
        self._calls = calls
        self._calling: set[asyncio.Task[None]] = set()
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
        open_connections = self._connections | self._calling
        for task in open_connections:
            task.cancel()
        await asyncio.gather(*open_connections, return_exceptions=True)
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
            self._calling.discard(task)
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
                case HttpResponse():
                    raw = parsed.encoded()
                case request, connection if self._calls is not None and _is_call(request) and self._may_call(task):
                    _notice_when_gone(writer)
                    await self._calls(HttpExchange(request, connection, reader, writer))
                    raw = b""
                case request, _:
                    raw = (await self._answer(request)).encoded(head_only=request.method == "HEAD")
            async with asyncio.timeout(self._patience_s):
                writer.write(raw)
                await writer.drain()
                await _linger(reader, writer)
                writer.close()
                await writer.wait_closed()
        except OSError:
            return  # the peer is gone or too slow; both are its own affair

    def _may_call(self, task: asyncio.Task[None]) -> bool:
        """Move the connection to the places of calls. A connection that finds no room keeps the other kind, and is
        refused."""
        if len(self._calling) >= CALLS_MAX:
            return False
        self._connections.discard(task)
        self._calling.add(task)
        return True

    async def _read(self, reader: asyncio.StreamReader) -> _Received | HttpResponse | None:
        """The request, or the answer that refuses it, or None when the peer has gone."""
        try:
            async with asyncio.timeout(self._patience_s):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "request head too large")
        except asyncio.IncompleteReadError:
            return None
        except TimeoutError:
            return plain(HTTPStatus.REQUEST_TIMEOUT, "request head too slow")
        return _parse(head)

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        route = self._routes.get(request.path)
        if route is None and self._calls is not None and _is_call(request):
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "too many calls over this port", "Retry-After: 1")
        if route is None:
            return plain(HTTPStatus.NOT_FOUND, "not found")
        if request.method not in {"GET", "HEAD"}:
            return plain(HTTPStatus.METHOD_NOT_ALLOWED, "method not allowed", "Allow: GET, HEAD")
        try:
            return await route(request)
        except Exception as error:  # noqa: BLE001 -- supervision: one route's bug must not take the port down
            _log.error("http.route_failed", path=request.path, exc_info=error)
            return plain(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error")


def _parse(head: bytes) -> _Received | HttpResponse:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(head)
    try:
        request = connection.next_event()
        path = urlsplit(request.target.decode()).path if isinstance(request, h11.Request) else ""
    except h11.RemoteProtocolError as error:
        return plain(HTTPStatus(error.error_status_hint), "bad request")
    except ValueError:
        return plain(HTTPStatus.BAD_REQUEST, "bad target")
    assert isinstance(request, h11.Request), "a head that ends is a request or an error"
    if request.http_version not in {b"1.0", b"1.1"}:
        return plain(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "HTTP/1.0 and HTTP/1.1 only")
    # h11 unfolds what RFC 9112 calls obsolete; a server may refuse it, and nobody here sends it.
    if b"\r\n " in head or b"\r\n\t" in head:
        return plain(HTTPStatus.BAD_REQUEST, "folded header")
    headers: dict[str, str] = {}
    for raw_name, raw_value in request.headers:
        name, value = raw_name.decode(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return HttpRequest(request.method.decode(), path, headers), connection


def _is_call(request: HttpRequest) -> bool:
    """Return whether the path is one of gRPC's, `/package.Service/Method`."""
    return request.path.count("/") == 2 and "." in request.path.rpartition("/")[0]


def _notice_when_gone(writer: asyncio.StreamWriter) -> None:
    """Have the kernel ask a silent peer whether it is still there: a stream may last for days."""
    peer: socket.socket = writer.get_extra_info("socket")
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S)


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
