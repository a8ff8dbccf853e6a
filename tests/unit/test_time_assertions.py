"""The search for time assertions finds each form that was planted, and nothing else."""

from __future__ import annotations

import ast
import textwrap

import pytest

from tests.support.time_assertions import short_waits, time_assertions

PREAMBLE = "import asyncio, subprocess, threading, time\nfrom time import monotonic as now\nimport time as t\n"


def parsed(body: str) -> ast.Module:
    return ast.parse(f"{PREAMBLE}async def test_a_thing_is_quick(x, loop):\n{textwrap.indent(body, '    ')}")


@pytest.mark.parametrize(
    "body",
    [
        "begun = time.perf_counter()\nassert time.perf_counter() - begun < 1.0",
        "begun = now()\ntook = now() - begun\nassert took <= LIMIT_S",
        "begun = t.process_time_ns()\nended = t.process_time_ns()\nassert 0 <= (ended - begun) / 1e9 < 2",
        "until = time.monotonic() + 5\nwhile time.monotonic() < until:\n    pass",
        "until = loop.time() + x\nassert loop.time() < until",
        "begun = asyncio.get_running_loop().time()\nassert 2 > asyncio.get_running_loop().time() - begun",
        "times = []\ntimes.append(now())\nassert max(b - a for a, b in zip(times, times[1:])) < 0.1",
        "x.begun = time.time()\nassert round(time.time() - x.begun, 3) < 0.5",
        "begun, other = now(), now()\nif now() - begun > 3:\n    raise AssertionError",
        "total = 0\nbegun = now()\ntotal += now() - begun\nassert total < 9",
    ],
)
def test_a_planted_time_assertion_is_found(body):
    """Wall or processor time, directly or by way of names, as an assertion or as a bounded loop."""
    assert len(time_assertions(parsed(body))) == 1


@pytest.mark.parametrize(
    "body",
    [
        "small = now() - now()\nlarge = now() - now()\nassert large <= 8.0 * small",
        "before = time.time_ns()\nassert before <= x.time_ns <= time.time_ns()",
        "before = now()\nassert before <= now()",
        "took = x.duration_s\nassert took < 5",
        "clock = time.monotonic\nassert x(clock) < 3",
        "event = x.read(until=time.time() + 60)\nassert event.count < 3",
        "begun = now()\nassert x.count == 3\nx.told(now() - begun)",
    ],
)
def test_other_uses_of_a_clock_are_left_alone(body):
    """Measurements against each other, time stamps between two readings, clocks as arguments."""
    assert time_assertions(parsed(body)) == []


@pytest.mark.parametrize(
    "body",
    [
        "await asyncio.wait_for(x.read(), 5)",
        "await asyncio.wait_for(x.read(), timeout=0.5)",
        "async with asyncio.timeout(4):\n    await x.stop()",
        "subprocess.run(['ls'], timeout=50)",
        "x.process.communicate(timeout=10)",
        "assert x.event.wait(10)",
        "x.thread.join(3.0)",
        "x.future.result(timeout=20)",
    ],
)
def test_a_planted_short_wait_is_found(body):
    """The wait raises, or goes on without its event, after a few seconds."""
    assert len(short_waits(parsed(body))) == 1


@pytest.mark.parametrize(
    "body",
    [
        "await asyncio.wait_for(x.read(), PATIENCE_S)",
        "async with asyncio.timeout(300):\n    await x.stop()",
        "with pytest.raises(TimeoutError):\n    await asyncio.wait_for(x.read(), 0.01)",
        "await asyncio.wait({x}, timeout=0.3)",
        "assert not x.event.wait(0.1)",
        "assert x.future.result(0) == 1",
        "x = ', '.join(['a', 'b'])",
        "await x.stub.GetContext(x.request, timeout=0.4)",
        "await x.chat.talk(14, wait_s=0.5)",
    ],
)
def test_other_waits_are_left_alone(body):
    """Patience by its name, waits whose end is the subject, and calls that only look like one."""
    assert short_waits(parsed(body)) == []
