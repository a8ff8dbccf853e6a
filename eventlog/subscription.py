"""The one loop for catching up and staying live.

The loop reads pages from storage after its cursor; at the head it waits for a wake-up or a timer and reads again. Pages
come from this one source, so there are neither gaps nor repeats. A page is read only when the consumer asks for more:
nothing is buffered, nobody is dropped, and no read stays open while a consumer is slow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.eventlog.log import EVERYTHING, PAGE_EVENTS_MAX, EventFilter, EventLog

CHECKPOINT_EVENTS = 4_000
"""Events that may fail to match before a consumer gets a checkpoint."""

BATCH_BYTES_MAX = 128 << 10
"""Payload of a batch, unless it is one larger event: what a consumer that takes nothing keeps in memory."""

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Batch(Generic[E]):
    """The next events. A consumer that resumes after `cursor` misses nothing and sees nothing twice."""

    events: tuple[E, ...]
    cursor: int
    head: int


ReadPage = Callable[[int], Awaitable[Batch[E]]]
"""Reads what follows a cursor, without events at the head. Cursor and head are positions, or versions of one stream."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A place to resume from: nothing up to `cursor` matched."""

    cursor: int
    head: int


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """A read at the head returned nothing: everything after this is live."""

    cursor: int
    head: int


@dataclass(frozen=True, slots=True)
class FellBehind:
    """More than a page has arrived since the last read: catching up again."""

    cursor: int
    head: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign that the reader is alive and has reached this cursor: nothing has matched for a while."""

    cursor: int
    head: int


Item = Batch[E] | Checkpoint | CaughtUp | FellBehind | Heartbeat


@dataclass(frozen=True, slots=True)
class Timing:
    """`poll_s` bounds the delay after a lost wake-up; `heartbeat_s` is the silence before a heartbeat."""

    poll_s: float = 5.0
    heartbeat_s: float = 5.0


DEFAULT_TIMING = Timing()


class WakeUp(Protocol):
    """Signals that there may be something to read. The signal carries no data, so losing one only adds latency."""

    def mark(self) -> int:
        """Take a mark before a read, so that a wake-up during the read is not missed."""
        ...

    async def wait(self, mark: int, *, timeout_s: float) -> None:
        """Return after a wake-up since `mark`, or after `timeout_s`."""
        ...


class CommitWakeUp:
    """A wake-up for any number of readers on the running loop: one call into the loop per commit that one waits for.

    Whoever commits counts before it looks for readers, and a reader is there before it looks at the count, so that one
    of the two always sees the other.
    """

    def __init__(self, log: EventLog) -> None:
        self._loop = asyncio.get_running_loop()
        self._count = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self._stop = log.on_commit(self._committed)

    def mark(self) -> int:
        return self._count

    async def wait(self, mark: int, *, timeout_s: float) -> None:
        waiter = self._loop.create_future()
        self._waiting.add(waiter)
        timer = self._loop.call_later(timeout_s, _end, waiter)
        try:
            if self._count == mark:
                await waiter
        finally:
            timer.cancel()
            self._waiting.discard(waiter)

    def close(self) -> None:
        """Stop listening; readers fall back to their timers."""
        self._stop()

    def _committed(self, _head: int) -> None:
        self._count += 1
        if not self._waiting:
            return
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:  # the loop was closed before the log: nobody is left to wake
            return

    def _wake(self) -> None:
        for waiter in self._waiting:
            _end(waiter)
        self._waiting.clear()


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def subscribe(
    read: ReadPage[E], wake_up: WakeUp, *, after: int, clock: Callable[[], float], timing: Timing = DEFAULT_TIMING
) -> AsyncGenerator[Item[E], None]:
    """Everything after the cursor `after`, then everything new, for as long as the consumer iterates."""
    cursor = reported = after
    live = False
    silent_since = clock()
    while True:
        mark = wake_up.mark()
        page = await read(cursor)
        assert page.cursor >= cursor, "a page never moves the cursor back"
        cursor = page.cursor
        if live and page.head - cursor > PAGE_EVENTS_MAX:
            live = False
            yield FellBehind(cursor, page.head)
        if page.events:
            reported = cursor
            yield page
            silent_since = clock()
        elif cursor - reported >= CHECKPOINT_EVENTS:
            reported = cursor
            yield Checkpoint(cursor, page.head)
            silent_since = clock()
        if cursor < page.head or (page.events and not live):
            continue
        if not live:
            live = True
            reported = cursor
            yield CaughtUp(cursor, page.head)
            silent_since = clock()
        silent_s = clock() - silent_since
        if silent_s >= timing.heartbeat_s:
            reported = cursor
            yield Heartbeat(cursor, page.head)
            silent_since, silent_s = clock(), 0.0
        await wake_up.wait(mark, timeout_s=min(timing.poll_s, timing.heartbeat_s - silent_s))


def log_pages(log: EventLog, executor: Executor, *, matching: EventFilter = EVERYTHING) -> ReadPage[RecordedEvent]:
    """Pages of the whole log by position, of at most BATCH_BYTES_MAX, read on `executor`."""

    def page(after: int) -> Batch[RecordedEvent]:
        found = log.scan(after=after, matching=matching, bytes_max=BATCH_BYTES_MAX)
        return Batch(found.events, found.cursor, found.head)

    return _read_on(executor, page)


def stream_pages(
    log: EventLog,
    executor: Executor,
    *,
    stream: StreamId,
    encoded: Callable[[RecordedEvent], E],
    limit: int = PAGE_EVENTS_MAX,
) -> ReadPage[E]:
    """Pages of one stream by version, of at most BATCH_BYTES_MAX, read and `encoded` on `executor`.

    A consumer that waits for its client then keeps an event only in the form that it sends.
    """

    def page(after: int) -> Batch[E]:
        head = log.stream_version(stream)
        if head <= after:
            return Batch((), after, max(head, after))
        events = log.read_stream(stream, after=after, limit=limit, bytes_max=BATCH_BYTES_MAX)
        cursor = events[-1].version if events else after
        return Batch(tuple(map(encoded, events)), cursor, max(head, cursor))

    return _read_on(executor, page)


def _read_on(executor: Executor, page: Callable[[int], Batch[E]]) -> ReadPage[E]:
    loop = asyncio.get_running_loop()

    async def read(after: int) -> Batch[E]:
        return await loop.run_in_executor(executor, page, after)

    return read
