"""The HTTP port over real sockets: service for well-behaved peers, and limits of the others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest

from abridged.observability.metrics import Metrics
from abridged.service.api.http import (
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    Check,
    HttpServer,
    Route,
    health_routes,
    metrics_route,
)
from abridged.service.api.http_exchange import HttpRequest, HttpResponse
from abridged.service.telemetry.telemetry import metric_labels
from tests.support.patience import PATIENCE_S

SHORT_S = 0.3
"""The port's patience where a test wants to see its end."""


async def fine() -> str:
    return ""


async def broken_route(_: HttpRequest) -> HttpResponse:
    raise ValueError("CANARY-in-an-exception")


@asynccontextmanager
async def serving(
    *,
    started: Callable[[], bool] = lambda: True,
    ready: dict[str, Check] | None = None,
    details: dict[str, Check] | None = None,
    more: dict[str, Route] | None = None,
    patience_s: float = PATIENCE_S,
) -> AsyncIterator[int]:
    metrics = Metrics(version="1.2.3", labels=metric_labels())
    routes = health_routes(started=started, ready=ready or {"log": fine}, details=details or {})
    server = HttpServer("127.0.0.1", 0, routes=routes | metrics_route(metrics) | (more or {}), patience_s=patience_s)
    port = await server.start()
    try:
        yield port
    finally:
        await server.close()


async def send(port: int, request: bytes) -> bytes:
    """Everything the server answers before it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(), PATIENCE_S)
    finally:
        writer.transport.abort()


async def hung_up(reader: asyncio.StreamReader) -> bool:
    """Return whether the server closed without an answer, by an orderly end or a reset."""
    try:
        return await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
    except ConnectionError:
        return True


async def get(port: int, path: str, *, method: str = "GET", accept: str = "*/*") -> tuple[int, dict[str, str], bytes]:
    raw = await send(port, f"{method} {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n".encode())
    return split(raw)


def split(raw: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split(" ")[1]), headers, body


async def test_a_live_process_says_so() -> None:
    """/livez answers 200 whatever the checks say."""

    async def away() -> str:
        return "unreachable"

    async with serving(started=lambda: False, ready={"log": away}) as port:
        status, _, body = await get(port, "/livez")

        assert (status, body) == (200, b"alive\n")


async def test_startup_is_over_when_the_service_says_so() -> None:
    """/startupz answers 503 until the service has started."""
    begun: list[bool] = []

    async with serving(started=lambda: bool(begun)) as port:
        before, _, _ = await get(port, "/startupz")
        begun.append(True)
        after, _, _ = await get(port, "/startupz")

        assert (before, after) == (503, 200)


async def test_a_service_that_has_not_started_is_not_ready() -> None:
    """Checks that pass do not make a starting process ready."""
    async with serving(started=lambda: False) as port:
        status, _, body = await get(port, "/readyz")

        assert (status, json.loads(body)["started"]) == (503, False)


async def test_readiness_names_the_check_that_fails() -> None:
    """/readyz answers 503 and says which check failed and why."""

    async def full() -> str:
        return "no space left"

    async with serving(ready={"append": full, "read": fine}) as port:
        status, headers, body = await get(port, "/readyz")

        assert (status, headers["content-type"]) == (503, "application/json")
        assert json.loads(body)["checks"] == {"append": "no space left", "read": "ok"}


async def test_a_model_that_is_away_is_a_detail_and_never_unreadiness() -> None:
    """A failing detail is shown and the answer stays 200."""

    async def away() -> str:
        return "breaker open"

    async with serving(details={"ollama": away}) as port:
        status, _, body = await get(port, "/readyz")

        assert status == 200
        assert json.loads(body)["details"] == {"ollama": "breaker open"}


async def test_a_check_that_hangs_fails_within_its_second() -> None:
    """A probe is answered although a check never returns."""

    async def hang() -> str:
        await asyncio.Event().wait()
        return ""

    async with serving(ready={"log": hang}) as port:
        status, _, body = await get(port, "/readyz")

        assert (status, json.loads(body)["checks"]["log"]) == (503, "timeout")


async def test_a_check_that_raises_fails_by_its_class_without_its_message() -> None:
    """The words of an exception never reach a probe."""

    async def raises() -> str:
        raise RuntimeError("CANARY")

    async with serving(ready={"log": raises}) as port:
        status, _, body = await get(port, "/readyz")

        assert (status, json.loads(body)["checks"]["log"]) == (503, "failed: RuntimeError")


async def test_metrics_come_as_text_unless_openmetrics_is_asked_for() -> None:
    """The Accept header chooses the format."""
    async with serving() as port:
        _, plain, text = await get(port, "/metrics")
        _, open_, lines = await get(port, "/metrics", accept="application/openmetrics-text;version=1.0.0")

        assert plain["content-type"].startswith("text/plain; version=0.0.4")
        assert open_["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        assert b'abridged_build_info{python="' in text
        assert lines.endswith(b"# EOF\n")


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("application/openmetrics-text;version=9.9.9", "text/plain; version=0.0.4"),
        ("application/openmetrics-text; version=one", "text/plain; version=0.0.4"),
        ("application/openmetrics-text;version=2.0.0,text/plain;version=1.0.0", "text/plain; version=0.0.4"),
        ("application/openmetrics-text;version=", "text/plain; version=0.0.4"),
        ("application/openmetrics-text;version=2.0.0,application/openmetrics-text", "application/openmetrics-text"),
        ("application/openmetrics-text;version=1.0.0;escaping=odd;q=0.6", "application/openmetrics-text"),
        (";;;=,version=1,", "text/plain; version=0.0.4"),
    ],
)
async def test_a_format_that_is_not_known_is_answered_as_text(accept: str, kind: str) -> None:
    """The server knows one version of OpenMetrics; no scraper gets an error, or hears that it got another one."""
    async with serving() as port:
        status, headers, body = await get(port, "/metrics", accept=accept)

    assert (status, headers["content-type"].partition("; charset")[0].partition("; version=1")[0]) == (200, kind)
    assert body.endswith(b"# EOF\n") is ("openmetrics" in kind)


async def test_head_answers_the_length_and_no_body() -> None:
    """HEAD is GET without the body."""
    async with serving() as port:
        status, headers, body = await get(port, "/livez", method="HEAD")

        assert (status, headers["content-length"], body) == (200, "6", b"")


async def test_every_answer_carries_the_security_headers() -> None:
    """No sniffing, no caching, no framing, on errors too."""
    async with serving() as port:
        for path in ("/livez", "/nowhere"):
            _, headers, _ = await get(port, path)

            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"
            assert headers["content-security-policy"].startswith("default-src 'none'")
            assert "server" not in headers


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET * HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi", 405),
        (b"GET /livez HTTP/2.0\r\nHost: x\r\n\r\n", 505),
        (b"GET /livez HTTP/1.1\r\n\r\n", 400),
        (b"GET /livez\r\n\r\n", 400),
        (b"GET  /livez HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n", 400),
        (b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST /livez HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"GET http://[/livez HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET http://elsewhere/livez?probe=1 HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET /livez HTTP/1.0\r\n\r\n", 200),
    ],
)
async def test_each_request_gets_the_status_that_http_gives_it(request_bytes: bytes, status: int) -> None:
    """Unknown paths, other methods, other versions and garbage each have their own answer."""
    async with serving() as port:
        assert split(await send(port, request_bytes))[0] == status


async def test_a_refused_method_names_the_allowed_ones() -> None:
    """405 carries Allow."""
    async with serving() as port:
        _, headers, _ = await get(port, "/livez", method="DELETE")

        assert headers["allow"] == "get, head"


async def test_a_head_past_its_limit_is_refused() -> None:
    """More than 8 KiB of head is answered with 431 whether or not it ever ends."""
    async with serving() as port:
        ended = b"GET /livez HTTP/1.1\r\nHost: x\r\nX: " + b"a" * HEAD_BYTES_MAX + b"\r\n\r\n"
        endless = b"a" * (4 * HEAD_BYTES_MAX)

        assert split(await send(port, ended))[0] == 431
        assert split(await send(port, endless))[0] == 431


async def test_a_body_that_nobody_reads_does_not_cost_the_answer() -> None:
    """The answer arrives although the peer is still sending."""
    async with serving() as port:
        raw = await send(port, b"POST /livez HTTP/1.1\r\nHost: x\r\n\r\n" + b"z" * 600_000)

        assert split(raw)[0] == 405


async def test_a_head_that_drips_is_cut_off_in_time() -> None:
    """A slow-loris peer is answered 408 when its time is up, however often it sends a byte."""
    async with serving(patience_s=SHORT_S) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def drip() -> None:
            while True:
                writer.write(b"G")
                await asyncio.sleep(SHORT_S / 20)

        dripping = asyncio.create_task(drip())
        raw = await asyncio.wait_for(reader.read(), PATIENCE_S)
        dripping.cancel()
        writer.transport.abort()

        assert split(raw)[0] == 408


async def test_a_house_full_of_dawdlers_still_answers_a_probe() -> None:
    """The slowest request gives up its place to the next caller when every place is taken by unfinished ones."""
    async with serving(patience_s=PATIENCE_S * 10) as port:
        dawdlers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
        for _, writer in dawdlers:
            writer.write(b"GET /livez HTTP/1.1\r\n")

        status, _, _ = await asyncio.wait_for(get(port, "/livez"), PATIENCE_S)

        first, last = dawdlers[0], dawdlers[-1]
        assert status == 200
        assert await hung_up(first[0])
        assert not last[0].at_eof()
        for _, writer in dawdlers:
            writer.transport.abort()


async def test_a_peer_that_does_not_take_its_answer_is_dropped_in_time() -> None:
    """A place is given back although the answer fits into nobody's buffers and the peer reads none of it."""

    served_by: asyncio.Queue[asyncio.Task[None]] = asyncio.Queue()

    async def endless(_: HttpRequest) -> HttpResponse:
        task = asyncio.current_task()
        assert task is not None
        served_by.put_nowait(task)
        return HttpResponse(HTTPStatus.OK, bytes(64 * 1024 * 1024))

    async with serving(more={"/endless": endless}, patience_s=SHORT_S) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /endless HTTP/1.0\r\n\r\n")

        _, still_open = await asyncio.wait({await served_by.get()}, timeout=PATIENCE_S)

        assert not still_open
        writer.transport.abort()


async def test_a_house_full_of_running_requests_turns_the_next_caller_away() -> None:
    """A running answer is never cut off for a newcomer, whose connection is closed at once."""
    arrivals: asyncio.Queue[None] = asyncio.Queue()
    finish = asyncio.Event()

    async def slow(_: HttpRequest) -> HttpResponse:
        arrivals.put_nowait(None)
        await finish.wait()
        return HttpResponse(HTTPStatus.OK, b"done")

    async with serving(more={"/slow": slow}) as port:
        running = [asyncio.create_task(get(port, "/slow")) for _ in range(CONNECTIONS_MAX)]
        for _ in running:
            await asyncio.wait_for(arrivals.get(), PATIENCE_S)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        assert await hung_up(reader)
        writer.transport.abort()
        finish.set()
        assert {status for status, _, _ in await asyncio.gather(*running)} == {200}


async def test_only_the_first_of_pipelined_requests_is_answered() -> None:
    """A connection has one request: bytes after it are not run."""
    async with serving() as port:
        raw = await send(port, b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" * 3)

        assert raw.count(b"HTTP/1.1 200 OK") == 1
        assert b"Connection: close" in raw


async def test_a_peer_that_leaves_early_harms_nobody() -> None:
    """Half a request and a closed connection leave the port serving."""
    async with serving() as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /li")
        writer.close()
        await writer.wait_closed()

        assert (await get(port, "/livez"))[0] == 200


async def test_a_route_that_breaks_answers_without_saying_why() -> None:
    """500 carries no message of the exception, and the port stays up."""
    async with serving(more={"/broken": broken_route}) as port:
        status, _, body = await get(port, "/broken")

        assert (status, body) == (500, b"internal error\n")
        assert (await get(port, "/livez"))[0] == 200


async def test_closing_drops_open_connections_and_frees_the_port() -> None:
    """close() ends although a peer holds its connection open, and may be called twice."""
    server = HttpServer("127.0.0.1", 0, routes={}, patience_s=PATIENCE_S * 10)
    port = await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    await asyncio.wait_for(server.close(), PATIENCE_S)
    await server.close()

    assert await hung_up(reader)
    writer.transport.abort()
    again = HttpServer("127.0.0.1", port, routes={})
    assert await again.start() == port
    await again.close()


async def test_a_taken_port_is_refused() -> None:
    """start() raises rather than share a port with a stale process."""
    async with serving() as port:
        with pytest.raises(OSError, match="address already in use"):
            await HttpServer("127.0.0.1", port, routes={}).start()
