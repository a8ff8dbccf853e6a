"""One model server over HTTP: connections, places for calls, clocks, breaker. The host knows no model and no wire
format.

Invariant: every failure raises a `ModelError`, and a call that ends early, cancelled or timed out, closes its
connection, which tells the server to stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from abridged.service.left_out import HTTPX_COMMAND, left_out
from abridged.service.models.breaker import BreakerState, CircuitBreaker
from abridged.service.models.deadline import Deadline, DeadlineOver
from abridged.service.models.http.address import ServerAddress
from abridged.service.models.http.errors import (
    AnswerEncoded,
    AnswerInvalid,
    CircuitOpen,
    FirstByteLate,
    HostRefused,
    QueueFull,
    classify_transport,
    retry_after_s,
)
from abridged.service.models.http.fields import OBJECT_BYTES_MAX, NotAnObject, read_object
from abridged.service.models.http.lines import LineSplitter, StreamedAnswer
from abridged.service.models.http.settings import HostSettings
from abridged.service.models.model import ModelError, ModelUnavailable, OnProgress

if TYPE_CHECKING:
    import httpx

OnBreaker = Callable[[str, BreakerState], None]
"""Called with the host's label and its breaker's new state."""

OnAsked = Callable[[ServerAddress], None]
"""Called with the host's address when a call asks for a place there, in the caller's own context."""

Classify = Callable[[str, str, int, bytes, float | None], ModelError]
"""The error for a host's label, a model, a status other than 200, a body that may be cut off, and Retry-After in
seconds."""

WRITE_S = 30.0
PROBE_CONNECTIONS = 4
STREAM_S_MAX = 3_600.0
"""The longest answer, from its first byte. The request's own limit and the stall clock end it sooner, unless the host
is broken."""

ERROR_BYTES_MAX = 65_536

# A compressed answer would bypass the size limits: none is requested, and none is accepted.
_NO_ENCODING = "identity"
_HEADERS = {"accept-encoding": _NO_ENCODING, "content-type": "application/json", "user-agent": "abridged"}


@dataclass(slots=True)
class Place:
    """A call's place at a host.

    Attributes:
        waited: True if the call had to wait for it.
        prefill_s: Seconds that the host should take to read the prompt; None if unknown.
        kept_s: Seconds that the place stays taken after the call, for the prompt that the host is still reading.
    """

    waited: bool = False
    prefill_s: float | None = None
    kept_s: float = 0.0

    def keep_for_abandoned(self, waited_s: float, *, kept_s_max: float) -> None:
        """Keep the place of a call that ends before the first byte, for the rest of `prefill_s`.

        The place is kept for as long again as the call has waited if that is unknown or has passed, but never longer
        than `kept_s_max`.
        """
        rest_s = (self.prefill_s or 0.0) - waited_s
        self.kept_s = min(kept_s_max, rest_s if rest_s > 0 else waited_s)


class ModelHost:
    """A server and this process's calls to it. All models of the process share it. `classify` knows its errors."""

    def __init__(
        self,
        address: ServerAddress,
        settings: HostSettings,
        *,
        classify: Classify,
        clock: Callable[[], float],
        on_breaker: OnBreaker,
        on_asked: OnAsked = lambda _address: None,
    ) -> None:
        self.label = address.label
        self._settings = settings
        self._classify = classify
        self._clock = clock
        self.breaker = CircuitBreaker(
            settings.breaker, clock=clock, on_change=lambda state: on_breaker(address.label, state)
        )
        self._places = asyncio.Semaphore(settings.calls_max)
        self._in_flight = 0
        self._kept: set[asyncio.TimerHandle] = set()
        token = {"authorization": f"Bearer {settings.bearer_token}"} if settings.bearer_token else {}
        # Encoded here: a token that no header takes ends the start, not the first call.
        self._headers = {name.encode(): value.encode("ascii") for name, value in (_HEADERS | token).items()}
        self._client: httpx.AsyncClient | None = None
        self._opening = asyncio.Lock()
        self._address = address
        self._on_asked = on_asked

    @property
    def in_flight(self) -> int:
        """Running calls, calls that wait for a place, and places kept for abandoned prompts."""
        return self._in_flight

    @property
    def reads_abandoned_prompt(self) -> bool:
        """True if the host is probably still reading an abandoned prompt."""
        return bool(self._kept)

    def check_circuit(self) -> None:
        """Raise CircuitOpen if the breaker does not allow a call now."""
        wait_s = self.breaker.refusal_s()
        if wait_s is not None:
            raise CircuitOpen(f"{self.label}: failed repeatedly, not asked for {wait_s:.0f} s", retry_after_s=wait_s)

    @asynccontextmanager
    async def place(self, deadline: Deadline) -> AsyncIterator[Place]:
        """Hold one of the host's places; waits in our own queue, because a server's may be unbounded.

        The deadline pauses while the call waits. Raises QueueFull.
        """
        self._on_asked(self._address)
        if self._in_flight >= self._settings.calls_max + self._settings.queue_max:
            raise QueueFull(f"{self.label}: {self._settings.queue_max} calls are already waiting")
        self._in_flight += 1
        place = Place(waited=self._places.locked())
        try:
            with deadline.paused():
                await self._places.acquire()
        except BaseException:
            self._in_flight -= 1
            raise
        try:
            yield place
        finally:
            self._give_back(place)

    async def get(self, path: str, deadline: Deadline) -> dict[str, Any]:
        """GET a JSON object within `probe_s`. Raises ModelError."""
        return await self._json("GET", path, b"", model="", seconds=self._settings.probe_s, deadline=deadline)

    async def post(self, path: str, body: bytes, *, model: str, seconds: float, deadline: Deadline) -> dict[str, Any]:
        """POST `body` and return a JSON object within `seconds`. Raises ModelError."""
        return await self._json("POST", path, body, model=model, seconds=seconds, deadline=deadline)

    async def post_bytes(
        self, path: str, body: bytes, *, model: str, seconds: float, deadline: Deadline, bytes_max: int
    ) -> bytes:
        """POST `body` and return the response's bytes within `seconds`, one more than `bytes_max` if it is longer.

        Raises ModelError.
        """
        return await self._bytes(
            "POST", path, body, model=model, seconds=seconds, deadline=deadline, bytes_max=bytes_max
        )

    async def stream(
        self,
        path: str,
        body: bytes,
        answer: StreamedAnswer,
        *,
        model: str,
        place: Place,
        deadline: Deadline,
        on_progress: OnProgress,
    ) -> None:
        """POST `body` and fill `answer` line by line, under the first-byte clock and then the stall clock.

        The deadline applies up to the first line that says anything. The stall clock, the answer's own limits and
        STREAM_S_MAX bound the answer from there. Both clocks wait for lines that say anything: bytes that drip, and
        lines that only show that a server is still there, neither end the one nor set the other back. Raises
        ModelError.
        """
        async with aclosing(self._lines(path, body, model=model)) as lines:
            more = await self._first(lines, answer, place, deadline)
            patience = Deadline(STREAM_S_MAX, clock=self._clock)
            while more:
                on_progress(answer.chars)
                if answer.done:
                    break
                async with patience.limit(self._settings.stall_s, self.label, "stalled: no further line"):
                    more = await _told(lines, answer)

    async def close(self) -> None:
        """Close all connections. May be called twice."""
        for handle in self._kept:
            handle.cancel()
        if self._client is not None:
            await self._client.aclose()

    async def _opened(self) -> httpx.AsyncClient:
        async with self._opening:
            if self._client is None:
                # In a thread: the library and certificates take tens of milliseconds to load.
                self._client = await asyncio.to_thread(self._open)
            return self._client

    def _open(self) -> httpx.AsyncClient:
        with left_out(HTTPX_COMMAND):
            import httpx
        from abridged.service.models.http.small_reads import SmallReads

        settings, address = self._settings, self._address
        return httpx.AsyncClient(
            base_url=address.url,
            headers=self._headers,
            # We time reads ourselves: httpx has one timeout for headers and body, and models need two.
            timeout=httpx.Timeout(connect=settings.connect_s, read=None, write=WRITE_S, pool=settings.connect_s),
            transport=SmallReads(
                encrypted=address.url.startswith("https:"), connections_max=settings.calls_max + PROBE_CONNECTIONS
            ),
            trust_env=False,
            follow_redirects=False,
        )

    async def _first(
        self, lines: AsyncGenerator[bytes, None], answer: StreamedAnswer, place: Place, deadline: Deadline
    ) -> bool:
        first_byte_s = self._settings.first_byte_s
        began = self._clock()
        try:
            async with deadline.limit(first_byte_s, self.label, "no first byte", error=FirstByteLate):
                return await _told(lines, answer)
        except (asyncio.CancelledError, FirstByteLate, DeadlineOver):
            self._keep_for_abandoned(place, self._clock() - began)
            raise

    def _keep_for_abandoned(self, place: Place, waited_s: float) -> None:
        """A call ends before the first byte. A server that goes on reading its prompt has the place kept."""

    def _give_back(self, place: Place) -> None:
        if place.kept_s <= 0:
            self._places.release()
            self._in_flight -= 1
            return

        def over() -> None:
            self._kept.discard(handle)
            self._places.release()
            self._in_flight -= 1

        handle = asyncio.get_running_loop().call_later(place.kept_s, over)
        self._kept.add(handle)

    async def _json(
        self, method: str, path: str, body: bytes, *, model: str, seconds: float, deadline: Deadline
    ) -> dict[str, Any]:
        text = await self._bytes(
            method, path, body, model=model, seconds=seconds, deadline=deadline, bytes_max=OBJECT_BYTES_MAX
        )
        try:
            return read_object(text)
        except NotAnObject as error:
            raise AnswerInvalid(f"{self.label}: the answer to {path} {error}") from error

    async def _bytes(
        self, method: str, path: str, body: bytes, *, model: str, seconds: float, deadline: Deadline, bytes_max: int
    ) -> bytes:
        async with (
            deadline.limit(seconds, self.label, f"no answer to {path}"),
            self._response(method, path, body, model=model) as response,
        ):
            return await _read(response, bytes_max + 1)

    async def _lines(self, path: str, body: bytes, *, model: str) -> AsyncGenerator[bytes, None]:
        splitter = LineSplitter(self.label)
        async with self._response("POST", path, body, model=model) as response:
            async for data in response.aiter_raw():
                for line in splitter.feed(data):
                    yield line
                # One chunk per turn of the loop, even if several arrived together.
                await asyncio.sleep(0)
            if rest := splitter.end():
                yield rest

    @asynccontextmanager
    async def _response(self, method: str, path: str, body: bytes, *, model: str) -> AsyncIterator[httpx.Response]:
        """A response with status 200, closed on exit. The only place that translates HTTP and transport errors."""
        client = await self._opened()
        import httpx

        try:
            async with client.stream(method, path, content=body) as response:
                is_encoded = response.headers.get("content-encoding", _NO_ENCODING).strip().lower() != _NO_ENCODING
                if response.status_code != HTTPStatus.OK:
                    text = b"" if is_encoded else await _read(response, ERROR_BYTES_MAX)
                    raise self._classify(self.label, model, response.status_code, text, retry_after_s(response.headers))
                if is_encoded:
                    raise AnswerEncoded(f"{self.label}: the answer is compressed, which was not requested")
                yield response
        except httpx.HTTPError as error:
            raise classify_transport(self.label, error) from error


@contextmanager
def reporting_to(breaker: CircuitBreaker) -> Iterator[None]:
    """Report the body's outcome to the breaker; an end without one, such as a cancellation, leaves it unchanged."""
    settle = breaker.abandoned
    breaker.began()
    try:
        yield
        settle = breaker.succeeded
    except DeadlineOver:
        raise
    except (ModelUnavailable, HostRefused):
        settle = breaker.failed
        raise
    except ModelError:
        settle = breaker.succeeded
        raise
    finally:
        settle()


async def _told(lines: AsyncGenerator[bytes, None], answer: StreamedAnswer) -> bool:
    """Add lines to the answer up to the next one that says anything; return False at their end."""
    while (line := await anext(lines, None)) is not None:
        # One line per turn of the loop, even if several arrived together.
        await asyncio.sleep(0)
        if answer.add(line):
            return True
    return False


async def _read(response: httpx.Response, bytes_max: int) -> bytes:
    """The body, cut off at `bytes_max`."""
    read = bytearray()
    async for data in response.aiter_raw():
        read += data
        if len(read) >= bytes_max:
            break
        await asyncio.sleep(0)
    del read[bytes_max:]
    return bytes(read)
