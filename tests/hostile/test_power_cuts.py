"""Power cuts: acknowledged messages are there, whatever the disk makes of bytes that were not flushed.

A real sidecar writes to a disk that is recorded, and its log is opened as it would lie there after cuts anywhere in the
record. Each guard has a control: the same record on a disk without it, where acknowledged messages are lost.
"""

from __future__ import annotations

import json
import signal
import sys

import pytest

from tests.support.power_cut import left_alone_at_start
from tests.support.recorded_disk import Fault, Kind
from tests.support.recorded_sidecar import bad_images, cuts, lives, recorded, until_flushed

ACKED_A_LIFE = 12
"""Messages that each process acknowledges at least before something happens to it."""

LARGE_MESSAGES = 45
"""More than fit in a write-ahead log before SQLite copies it into the file."""

EXIT_CODES = {Fault.FLUSHES_FAIL: 1, Fault.KILLED_IN_FLUSH: -signal.SIGKILL}


async def test_a_power_cut_loses_nothing():
    """The short form of the run below."""
    await power_cuts(images=60, seed=21)


@pytest.mark.hostile
@pytest.mark.timeout(900)
async def test_two_thousand_power_cuts_lose_nothing(capsys):
    """Anywhere in the lives of three processes: the first, one after a kill, one after an orderly end."""
    figures = await power_cuts(images=2_000, seed=22)

    with capsys.disabled():
        sys.stdout.write(f"\n{json.dumps(figures)}\n")


@pytest.mark.hostile
@pytest.mark.timeout(900)
async def test_power_cuts_around_a_checkpoint_lose_nothing():
    """While a running process copies its write-ahead log into the file, and begins it anew."""
    async with recorded(writing=2, seed=23) as r:
        await r.live(acked=ACKED_A_LIFE)
        await r.append_large(LARGE_MESSAGES)
        await r.ledger.more(ACKED_A_LIFE)
        await r.sidecar.kill()
        steps = r.steps()
    copying = [at for at, step in enumerate(steps) if step.kind is Kind.WRITE and step.name == "log.db"]
    anew = [
        at for at, step in enumerate(steps) if step.kind is Kind.WRITE and step.name != "log.db" and not step.offset
    ]
    around = (copying[len(copying) // 2], anew[-1]), (anew[-1], len(steps))

    assert bad_images(cuts(steps, around, count=100, seed=23), r.ledger) == []


@pytest.mark.parametrize("fault", EXIT_CODES)
async def test_a_restart_makes_durable_what_it_finds(fault):
    """Bytes that an earlier process wrote and could not flush are acknowledged once the next one has flushed them."""
    await restarts(fault, lived=2, images=60, seed=24)


@pytest.mark.hostile
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", EXIT_CODES)
async def test_every_restart_makes_durable_what_it_finds(fault, capsys):
    """Six processes that end so, one after the other."""
    figures = await restarts(fault, lived=6, images=500, seed=25)

    with capsys.disabled():
        sys.stdout.write(f"\n{json.dumps(figures)}\n")


async def power_cuts(*, images: int, seed: int) -> dict[str, int]:
    """Cut the power of processes that end as they should, and by a kill; answers how much that was."""
    async with recorded(writing=2, seed=seed) as r:
        await r.live(acked=ACKED_A_LIFE)
        await r.sidecar.kill()
        await r.live(acked=ACKED_A_LIFE)
        assert await r.sidecar.stop() == 0
        await r.live(acked=ACKED_A_LIFE)
        assert await r.sidecar.stop() == 0
        steps = r.steps()

    assert bad_images(cuts(steps, lives(steps), count=images, seed=seed), r.ledger) == []
    # The control: a disk that says it has flushed, and has not.
    control = images // 10
    lost = bad_images(cuts(steps, lives(steps), count=control, seed=seed, ignored_flushes=True), r.ledger)
    assert len(lost) > control / 4
    return {"images": images, "acked": len(r.ledger.acked), "steps": len(steps), "control": control, "lost": len(lost)}


async def restarts(fault: Fault, *, lived: int, images: int, seed: int) -> dict[str, int]:
    """Let processes meet `fault` one after the other, then one live; cut the power anywhere."""
    async with recorded(writing=1, seed=seed) as r:
        for _ in range(lived):
            await r.live(acked=ACKED_A_LIFE)
            r.trace.lay(fault)
            assert await r.sidecar.ended() == EXIT_CODES[fault], r.sidecar.errors()
        await r.live(acked=ACKED_A_LIFE)
        await r.sidecar.kill()
        steps = r.steps()

    spans = lives(steps) + until_flushed(steps)
    assert bad_images(cuts(steps, spans, count=images, seed=seed), r.ledger) == []
    # The control: a log that serves what it finds before it is flushed.
    without = list(left_alone_at_start(steps))
    spans = lives(without) + until_flushed(without)
    lost = bad_images(cuts(without, spans, count=images, seed=seed), r.ledger)
    assert lost
    return {"images": images, "acked": len(r.ledger.acked), "steps": len(steps), "control": images, "lost": len(lost)}
