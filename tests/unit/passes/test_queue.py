"""The queue of passes: namespaces in turn, emergencies first, and a share of the workers for each."""

from __future__ import annotations

import asyncio

import pytest

from abridged.eventlog.event import StreamId
from abridged.service.passes.queue import EMERGENCY_HEADSTART_TURNS, Backlog, PassQueue


def key(name: str) -> StreamId:
    """`a1` is conversation a1 of namespace a."""
    return StreamId(name[0], name)


def line_of(*names: str, workers: int = 1, multi_tenant: bool = True) -> PassQueue:
    queue = PassQueue(workers=workers, multi_tenant=multi_tenant)
    for name in names:
        queue.put(key(name))
    return queue


async def taken(queue: PassQueue, count: int) -> list[str]:
    """The next ones, each done before the next is taken."""
    names = []
    for _ in range(count):
        found = await queue.take()
        assert found is not None
        queue.done(found)
        names.append(found.name)
    return names


async def test_namespaces_take_turns_whatever_each_has_waiting():
    """Six thousand of one are one turn of its own at a time."""
    queue = line_of(*(f"a{n}" for n in range(6_000)), "b1", "c1", "b2")

    assert await taken(queue, 6) == ["a0", "b1", "c1", "a1", "b2", "a2"]


async def test_an_emergency_overtakes_its_own_namespace_and_others():
    """The emergency may have waited as something else before."""
    queue = line_of("a1", "a2", "b1", "b2")
    queue.hurry(key("b2"))
    queue.hurry(key("b9"))

    assert await taken(queue, 4) == ["b2", "a1", "b1", "a2"]


async def test_no_stream_of_emergencies_keeps_another_namespace_out():
    """The other namespace gets a turn, if not the first."""
    queue = line_of("c1")
    for number in range(50):
        queue.put(key(f"a{number}"), urgent=True)
        queue.put(key(f"b{number}"), urgent=True)

    assert "c1" in await taken(queue, 2 * EMERGENCY_HEADSTART_TURNS)


async def test_a_namespace_has_no_more_workers_than_it_leaves_free():
    """The second of two workers waits for another namespace, or for the first to be done."""
    queue = line_of("a1", "a2", workers=2)
    first = await queue.take()
    second = asyncio.ensure_future(queue.take())
    queue.put(key("b1"))

    assert await second == key("b1")
    assert first is not None
    queue.done(first)
    assert await queue.take() == key("a2")


@pytest.mark.parametrize("names", [("a1", "a2"), ("a1", "b1")])
async def test_where_there_is_one_namespace_it_has_all_workers(names):
    """A share for nobody would be a worker less."""
    queue = line_of(*names, workers=2, multi_tenant=False)

    assert [await queue.take(), await queue.take()] == [key(name) for name in names]


async def test_a_conversation_is_queued_once_and_can_leave():
    """However often its pass is asked for."""
    queue = line_of("a1", "a1", "a2", "b1")
    queue.discard(key("b1"))

    assert await taken(queue, 2) == ["a1", "a2"]
    queue.close()
    assert await queue.take() is None


async def test_an_urgent_conversation_stays_urgent_and_is_queued_once():
    """A second trigger of the conversation that is no emergency neither delays nor doubles it."""
    queue = line_of("a1", "b1")
    queue.put(key("b1"), urgent=True)
    queue.put(key("b1"))
    queue.put(key("b2"))

    assert await taken(queue, 3) == ["b1", "a1", "b2"]


def test_a_pass_that_ends_twice_is_counted_once():
    """A namespace's count of pending passes is exact, or WaitIdle would return early."""
    backlog = Backlog()
    backlog.add(key("a1"), 1)
    backlog.add(key("a2"), 2)
    backlog.remove(key("a1"))
    backlog.remove(key("a1"))

    assert (len(backlog), backlog.of_namespace("a"), backlog.oldest_us) == (1, 1, 2)


async def test_a_closed_line_gives_nothing_out():
    """Workers that wait go home."""
    queue = PassQueue(workers=1, multi_tenant=True)
    waiting = asyncio.ensure_future(queue.take())
    queue.close()

    assert await waiting is None
