"""The read loop: catching up, staying live, falling behind, being silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from typing import Any

import pytest

from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.eventlog.log import EVERYTHING, PAGE_EVENTS_MAX, EventFilter
from abridged.eventlog.memory import MemoryEventLog
from abridged.eventlog.subscription import (
    BATCH_BYTES_MAX,
    CHECKPOINT_EVENTS,
    Batch,
    CaughtUp,
    Checkpoint,
    CommitWakeUp,
    FellBehind,
    Heartbeat,
    Item,
    Timing,
    log_pages,
    stream_pages,
    subscribe,
)
from tests.support.event_logs import OTHER, A, B, Clock, append, event
from tests.support.patience import PATIENCE_S

TIMING = Timing(poll_s=2.0, heartbeat_s=5.0)


class _World:
    """A log, a clock, and events of the reader's waits: each wait takes the next step and its timeout."""

    def __init__(self, steps: Iterable[object] = ()) -> None:
        self.log = MemoryEventLog(clock_us=Clock())
        self.now = 0.0
        self.steps = iter(steps)
        self.waits: list[float] = []
        self.reads = 0

    def mark(self) -> int:
        return 0

    async def wait(self, mark: int, *, timeout_s: float) -> None:
        self.waits.append(timeout_s)
        step = next(self.steps, None)
        self.now += timeout_s if step is None else 0.0
        if callable(step):
            step()

    async def read(self, after: int, matching: EventFilter = EVERYTHING) -> Batch[RecordedEvent]:
        self.reads += 1
        page = self.log.scan(after=after, matching=matching)
        return Batch(page.events, page.cursor, page.head)

    def clock(self) -> float:
        return self.now

    def add(self, *numbers: int) -> None:
        self.log.submit(append(*(event(number) for number in numbers))).result()

    def items(self, after: int = 0, read=None) -> AsyncGenerator[Item[Any], None]:
        return subscribe(read or self.read, self, after=after, clock=self.clock, timing=TIMING)


async def _take(items: AsyncGenerator[Item[Any], None], count: int) -> list[Item[Any]]:
    taken = [await anext(items) for _ in range(count)]
    await items.aclose()
    return taken


def _itself(recorded: RecordedEvent) -> RecordedEvent:
    return recorded


def _shape(item: Item[Any]) -> tuple[object, ...]:
    if isinstance(item, Batch):
        return (Batch, [recorded.position for recorded in item.events], item.cursor)
    return (type(item), item.cursor, item.head)


async def test_a_subscription_catches_up_and_then_says_so():
    """Caught up means that a read at the head returned nothing."""
    world = _World()
    world.add(1, 2, 3)

    items = await _take(world.items(), 2)

    assert [_shape(item) for item in items] == [(Batch, [1, 2, 3], 3), (CaughtUp, 3, 3)]
    assert world.reads == 2


async def test_an_empty_log_is_caught_up_at_once():
    """An empty log has nothing to catch up with."""
    (item,) = await _take(_World().items(), 1)

    assert _shape(item) == (CaughtUp, 0, 0)


async def test_a_subscription_resumes_after_its_cursor():
    """A reconnect brings no gap and no repetition."""
    world = _World()
    world.add(1, 2, 3)

    items = await _take(world.items(after=2), 2)

    assert [_shape(item) for item in items] == [(Batch, [3], 3), (CaughtUp, 3, 3)]


async def test_what_comes_while_waiting_is_delivered_live():
    """A wake-up leads to a read, and caught up is said once."""
    world = _World()
    world.steps = iter([lambda: world.add(1), lambda: world.add(2, 3)])

    items = await _take(world.items(), 3)

    assert [_shape(item) for item in items] == [(CaughtUp, 0, 0), (Batch, [1], 1), (Batch, [2, 3], 3)]


async def test_a_lost_wake_up_costs_a_timer_and_nothing_else():
    """The timer alone delivers everything."""
    world = _World()
    items = world.items()
    await anext(items)
    world.add(1)

    item = await anext(items)

    assert _shape(item) == (Batch, [1], 1)
    assert world.now == TIMING.poll_s
    await items.aclose()


async def test_silence_is_broken_by_heartbeats_with_the_head():
    """The consumer hears where the reader stands after heartbeat_s without an event."""
    world = _World()

    items = await _take(world.items(), 3)

    assert [_shape(item) for item in items] == [(CaughtUp, 0, 0), (Heartbeat, 0, 0), (Heartbeat, 0, 0)]
    assert world.now == 2 * TIMING.heartbeat_s
    assert world.waits == [2.0, 2.0, 1.0] * 2


async def test_an_event_postpones_the_heartbeat():
    """A heartbeat is for silence only."""
    world = _World()
    world.steps = iter([None, None, lambda: world.add(1)])

    items = await _take(world.items(), 3)

    assert [type(item) for item in items] == [CaughtUp, Batch, Heartbeat]
    assert world.now == 4.0 + TIMING.heartbeat_s


async def test_batches_are_bounded():
    """A page is at most 500 events, whatever there is."""
    world = _World()
    world.add(*range(1_000))
    world.add(*range(1_000, 1_200))

    items = await _take(world.items(), 4)

    assert [len(item.events) for item in items[:3] if isinstance(item, Batch)] == [500, 500, 200]
    assert _shape(items[3]) == (CaughtUp, 1_200, 1_200)


async def test_a_consumer_that_leaves_the_head_is_told():
    """Fell behind, the missing pages, caught up: nobody is dropped and nothing is skipped."""
    world = _World()
    world.steps = iter([lambda: world.add(*range(2 * PAGE_EVENTS_MAX + 100))])

    items = await _take(world.items(), 6)

    assert [type(item) for item in items] == [CaughtUp, FellBehind, Batch, Batch, Batch, CaughtUp]
    positions = [recorded.position for item in items if isinstance(item, Batch) for recorded in item.events]
    assert positions == list(range(1, 2 * PAGE_EVENTS_MAX + 101))


async def test_a_page_behind_is_still_live():
    """Small bursts do not flip the marks."""
    world = _World()
    world.steps = iter([lambda: world.add(*range(PAGE_EVENTS_MAX + 1))])

    items = await _take(world.items(), 3)

    assert [type(item) for item in items] == [CaughtUp, Batch, Batch]


async def test_nothing_is_read_ahead_of_the_consumer():
    """Back-pressure: a page is read when it is asked for."""
    world = _World()
    world.add(*range(1_500))
    items = world.items()

    await anext(items)

    assert world.reads == 1
    await items.aclose()


async def test_a_filter_that_matches_nothing_still_advances():
    """Checkpoints let a consumer of rare events resume near the head."""
    world = _World()
    for first in range(0, 2 * CHECKPOINT_EVENTS, 1_000):
        world.add(*range(first, first + 1_000))

    async def read(after: int) -> Batch[RecordedEvent]:
        return await world.read(after, EventFilter(types=frozenset({"never"})))

    items = await _take(world.items(read=read), 3)

    head = 2 * CHECKPOINT_EVENTS
    assert [_shape(item) for item in items] == [
        (Checkpoint, CHECKPOINT_EVENTS, head),
        (Checkpoint, head, head),
        (CaughtUp, head, head),
    ]


async def test_live_events_that_do_not_match_are_told_with_the_heartbeat():
    """A few strangers are no reason to speak; the cursor comes with the next sign of life."""
    world = _World()
    world.steps = iter([lambda: world.add(1), lambda: world.add(2)])

    async def read(after: int) -> Batch[RecordedEvent]:
        return await world.read(after, EventFilter(namespace="other"))

    items = await _take(world.items(read=read), 2)

    assert [_shape(item) for item in items] == [(CaughtUp, 0, 0), (Heartbeat, 2, 2)]


@pytest.fixture
def executor():
    with ThreadPoolExecutor(1) as pool:
        yield pool


async def _positions(items: AsyncGenerator[Item[Any], None], count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        item = await anext(items)
        if isinstance(item, Batch):
            found.extend(recorded.position for recorded in item.events)
    await items.aclose()
    return found


async def test_a_commit_wakes_every_reader(executor):
    """Readers of one log share one wake-up, and a commit during a read is not slept through."""
    log = MemoryEventLog(clock_us=Clock())
    wake_up = CommitWakeUp(log)
    slow = Timing(poll_s=3_600.0, heartbeat_s=3_600.0)
    loop = asyncio.get_running_loop()
    readers = [
        asyncio.create_task(
            _positions(subscribe(log_pages(log, executor), wake_up, after=0, clock=loop.time, timing=slow), 50)
        )
        for _ in range(5)
    ]

    for number in range(50):
        await asyncio.to_thread(log.submit, append(event(number)))

    assert await asyncio.wait_for(asyncio.gather(*readers), PATIENCE_S) == [list(range(1, 51))] * 5
    wake_up.close()


async def test_a_wait_ends_at_once_when_a_commit_came_since_the_mark():
    """The mark makes the gap between reading and waiting harmless."""
    log = MemoryEventLog(clock_us=Clock())
    wake_up = CommitWakeUp(log)
    mark = wake_up.mark()

    log.submit(append(event(1))).result()
    await asyncio.sleep(0)

    await asyncio.wait_for(wake_up.wait(mark, timeout_s=3_600.0), PATIENCE_S)
    assert wake_up.mark() != mark


async def test_a_wait_without_a_commit_ends_with_its_timer():
    """A wake-up that never comes costs its timeout."""
    wake_up = CommitWakeUp(MemoryEventLog(clock_us=Clock()))

    await asyncio.wait_for(wake_up.wait(wake_up.mark(), timeout_s=0.01), PATIENCE_S)


class _CountingLoop(asyncio.SelectorEventLoop):
    """A loop that counts the calls from other threads."""

    calls = 0

    def call_soon_threadsafe(self, *args: Any, **options: Any) -> Any:  # type: ignore[override]  # of type variables
        self.calls += 1
        return super().call_soon_threadsafe(*args, **options)


def test_a_commit_that_nobody_waits_for_does_not_disturb_the_loop():
    """An append pays for a wake-up only while a reader sleeps."""
    log = MemoryEventLog(clock_us=Clock())

    async def calls(*, waits: bool) -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _CountingLoop)
        wake_up = CommitWakeUp(log)
        waiting = asyncio.create_task(wake_up.wait(wake_up.mark(), timeout_s=3_600.0)) if waits else None
        await asyncio.sleep(0)
        before = loop.calls
        log.submit(append(event(1 + waits))).result()
        made = loop.calls - before
        if waiting is not None:
            await asyncio.wait_for(waiting, PATIENCE_S)
        wake_up.close()
        return made

    with asyncio.Runner(loop_factory=_CountingLoop) as runner:
        assert [runner.run(calls(waits=waits)) for waits in (False, True)] == [0, 1]


def test_a_commit_after_the_loop_has_ended_wakes_nobody():
    """A log outlives the loops that listened to it."""
    log = MemoryEventLog(clock_us=Clock())

    async def listen() -> CommitWakeUp:
        return CommitWakeUp(log)

    asyncio.run(listen())

    assert log.submit(append(event(1))).result().first_position == 1


@pytest.mark.parametrize("limit", [1, 2, 500])
async def test_one_stream_is_read_by_its_versions(executor, limit):
    """A stream's cursor is its version; other streams do not show."""
    log = MemoryEventLog(clock_us=Clock())
    for number in range(9):
        log.submit(append(event(number), to=(A, B, OTHER)[number % 3])).result()

    items = subscribe(
        stream_pages(log, executor, stream=B, encoded=attrgetter("version"), limit=limit),
        _World(),
        after=1,
        clock=lambda: 0.0,
        timing=TIMING,
    )
    taken: list[Item[int]] = []
    while not taken or not isinstance(taken[-1], CaughtUp):
        taken.append(await anext(items))
    await items.aclose()

    assert [version for item in taken if isinstance(item, Batch) for version in item.events] == [2, 3]
    assert taken[-1] == CaughtUp(3, 3)


async def test_a_stream_that_does_not_exist_yet_is_waited_for(executor):
    """Watching may begin before the first event."""
    read = stream_pages(MemoryEventLog(clock_us=Clock()), executor, stream=StreamId("default", "new"), encoded=id)

    assert await read(0) == Batch((), 0, 0)


@pytest.mark.parametrize("of_stream", [True, False])
async def test_a_batch_keeps_little_of_what_its_consumer_does_not_take(executor, of_stream):
    """Many large events are many batches, none is lost or read twice, and one larger than a batch comes alone."""
    log = MemoryEventLog(clock_us=Clock())
    sizes = [10, *[BATCH_BYTES_MAX // 3] * 20, 3 * BATCH_BYTES_MAX, *[10] * 30]
    for number, size in enumerate(sizes, start=1):
        log.submit(append(event(number, b"x" * size))).result()
    read = stream_pages(log, executor, stream=A, encoded=_itself) if of_stream else log_pages(log, executor)

    batches, cursor = [], 0
    while (page := await read(cursor)).events:
        batches.append([len(recorded.payload) for recorded in page.events])
        assert page.events[-1].position == page.cursor
        cursor = page.cursor

    assert [size for batch in batches for size in batch] == sizes
    assert all(sum(batch) <= BATCH_BYTES_MAX or len(batch) == 1 for batch in batches)
    assert page.head == len(sizes)
