"""Awaiting appends: cancellation, errors, one wake-up a group."""

from __future__ import annotations

import asyncio

import pytest

from abridged.eventlog.async_append import AsyncAppender
from abridged.eventlog.errors import WrongExpectedVersion
from abridged.eventlog.log import AppendResult
from abridged.eventlog.memory import MemoryEventLog
from abridged.eventlog.sqlite.log import SqliteEventLog
from tests.support.event_logs import A, Clock, append, event
from tests.support.patience import PATIENCE_S


@pytest.fixture
def log(tmp_path):
    opened = SqliteEventLog.open(tmp_path / "log.db", clock_us=Clock())
    yield opened
    opened.close()


async def test_an_awaited_append_is_on_disk(log):
    """The result comes when the commit is done."""
    result = await AsyncAppender(log).append(append(event(1)))

    assert result.last_version == log.stream_version(A) == 1


async def test_an_append_to_memory_can_be_awaited():
    """A log that commits in the caller's thread is awaited alike."""
    result = await AsyncAppender(MemoryEventLog(clock_us=Clock())).append(append(event(1)))

    assert result.first_position == 1


async def test_an_awaited_append_raises_its_typed_error(log):
    """Refusals reach the awaiter as they are."""
    appender = AsyncAppender(log)
    await appender.append(append(event(1)))

    with pytest.raises(WrongExpectedVersion):
        await appender.append(append(event(2), expected=0))


async def test_a_cancelled_awaiter_does_not_cancel_the_commit(log):
    """A client that goes away leaves its append committed, and its neighbours answered."""
    appender = AsyncAppender(log)
    tasks = [asyncio.create_task(appender.append(append(event(number)))) for number in range(20)]
    await asyncio.sleep(0)

    for task in tasks[::2]:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)

    assert [isinstance(outcome, asyncio.CancelledError) for outcome in ended] == [True, False] * 10
    retried = await asyncio.gather(*(appender.append(append(event(number))) for number in range(20)))
    assert all(result.already_appended for result in retried)
    assert log.head() == 20


async def test_a_commit_is_heard_of_before_its_awaiter_and_after_its_awaiter_has_gone(log):
    """A listener that keeps a state in step with the log misses no commit, whatever becomes of the caller."""
    appender = AsyncAppender(log)
    heard: list[object] = []

    async def told_first(number: int) -> bool:
        result = await appender.post(append(event(number)), on_outcome=heard.append)
        return result in heard

    tasks = [asyncio.create_task(told_first(number)) for number in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)

    assert ended[1::2] == [True] * 10
    await appender.append(append(event(99)))
    assert [r.first_position for r in heard if isinstance(r, AppendResult)] == list(range(1, 21))


async def test_a_refusal_is_heard_of_when_its_awaiter_has_gone(log):
    """A listener that built on an append that was not written must know."""
    appender = AsyncAppender(log)
    heard: list[object] = []
    await appender.append(append(event(1)))

    appender.post(append(event(2), expected=0), on_outcome=heard.append).cancel()
    await appender.append(append(event(3)))

    assert [type(outcome) for outcome in heard] == [WrongExpectedVersion]


async def test_what_a_listener_raises_changes_no_outcome(log):
    """The append's own awaiter and the others of its group hear that it is on disk; the loop hears of the bug."""
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context["exception"]))
    bug = RuntimeError("broken")

    def broken(_result: object) -> None:
        raise bug

    appender = AsyncAppender(log)
    results = await asyncio.wait_for(
        asyncio.gather(*(appender.post(append(event(n)), on_outcome=None if n % 2 else broken) for n in range(20))),
        PATIENCE_S,
    )

    assert [result.first_position for result in results] == list(range(1, 21))
    assert told == [bug] * 10


async def test_many_awaiters_share_wake_ups(log):
    """The loop is woken once a group, not once an append."""
    deliveries: list[int] = []

    class _Counting(AsyncAppender):
        def deliver(self, outcomes) -> None:
            deliveries.append(len(outcomes))
            super().deliver(outcomes)

    appender = _Counting(log)
    await asyncio.gather(*(appender.append(append(event(number))) for number in range(300)))

    assert sum(deliveries) == 300
    assert len(deliveries) < 100


def test_a_loop_that_ended_first_does_not_stop_the_writer(tmp_path):
    """Outcomes for a closed loop are dropped; the log goes on."""
    log = SqliteEventLog.open(tmp_path / "log.db", clock_us=Clock())

    async def leave() -> AsyncAppender:
        return AsyncAppender(log)

    orphan = asyncio.run(leave())
    log.post(append(event(1)), None, orphan)

    assert log.submit(append(event(2))).result().first_position == 2
    log.close()
