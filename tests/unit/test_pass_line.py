"""The line of passes: namespaces in turn, emergencies first, and a share of the workers for each."""

from __future__ import annotations

import asyncio

import pytest

from eventlog.event import StreamId
from service.summarizer.line import EMERGENCY_HEADSTART_TURNS, PassLine


def key(name: str) -> StreamId:
    """`a1` is conversation a1 of namespace a."""
    return StreamId(name[0], name)


def line_of(*names: str, workers: int = 1, shared: bool = True) -> PassLine:
    line = PassLine(workers=workers, shared=shared)
    for name in names:
        line.put(key(name))
    return line


async def taken(line: PassLine, count: int) -> list[str]:
    """The next ones, each done before the next is taken."""
    names = []
    for _ in range(count):
        found = await line.take()
        assert found is not None
        line.done(found)
        names.append(found.name)
    return names


async def test_namespaces_take_turns_whatever_each_has_waiting():
    """Six thousand of one are one turn of its own at a time."""
    line = line_of(*(f"a{n}" for n in range(6_000)), "b1", "c1", "b2")

    assert await taken(line, 6) == ["a0", "b1", "c1", "a1", "b2", "a2"]


async def test_an_emergency_overtakes_its_own_namespace_and_others():
    """Also one that waited as something else before."""
    line = line_of("a1", "a2", "b1", "b2")
    line.hurry(key("b2"))
    line.hurry(key("b9"))

    assert await taken(line, 4) == ["b2", "a1", "b1", "a2"]


async def test_no_stream_of_emergencies_keeps_another_namespace_out():
    """It gets a turn, if not the first."""
    line = line_of("c1")
    for number in range(50):
        line.put(key(f"a{number}"), urgent=True)
        line.put(key(f"b{number}"), urgent=True)

    assert "c1" in await taken(line, 2 * EMERGENCY_HEADSTART_TURNS)


async def test_a_namespace_has_no_more_workers_than_it_leaves_free():
    """The second of two workers waits for another namespace, or for the first to be done."""
    line = line_of("a1", "a2", workers=2)
    first = await line.take()
    second = asyncio.ensure_future(line.take())
    line.put(key("b1"))

    assert await second == key("b1")
    assert first is not None
    line.done(first)
    assert await line.take() == key("a2")


@pytest.mark.parametrize("names", [("a1", "a2"), ("a1", "b1")])
async def test_where_there_is_one_namespace_it_has_all_workers(names):
    """A share for nobody would be a worker less."""
    line = line_of(*names, workers=2, shared=False)

    assert [await line.take(), await line.take()] == [key(name) for name in names]


async def test_a_conversation_stands_in_line_once_and_can_leave_it():
    """However often its pass is asked for."""
    line = line_of("a1", "a1", "a2", "b1")
    line.discard(key("b1"))

    assert await taken(line, 2) == ["a1", "a2"]
    line.close()
    assert await line.take() is None


async def test_a_closed_line_gives_nothing_out():
    """Workers that wait go home."""
    line = PassLine(workers=1, shared=True)
    waiting = asyncio.ensure_future(line.take())
    line.close()

    assert await waiting is None
