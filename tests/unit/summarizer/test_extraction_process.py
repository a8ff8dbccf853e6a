"""Texts are extracted in a process of their own, which gives up a text that nobody waits for any more."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from abridged.service.domain.events import ErrorClass
from abridged.service.domain.policy import Policy
from abridged.service.summarizer.extraction_process import ExtractionProcess
from abridged.service.summarizer.summarizer import PassFailed
from abridged.service.summarizer.texts import TextTask
from tests.support.patience import PATIENCE_S

SHORT = TextTask("We decided to use PostgreSQL for the importer. " * 20, 0, Policy())
LONG = TextTask("The importer reads table orders every night. " * 20_000, 0, Policy())


@pytest.fixture
async def extracted() -> AsyncIterator[ExtractionProcess]:
    process = ExtractionProcess("estimate:o200k", deadline_s=PATIENCE_S)
    yield process
    await process.close()


async def test_a_text_that_is_taken_back_is_worked_on_no_more(extracted):
    """The process lives on: it has spent less on the text than half of its cost, and answers the next one."""
    await extracted(SHORT)
    pid = extracted.pid
    begun = _spent(pid)
    await extracted(LONG)
    costs = _spent(pid) - begun

    before = _spent(pid)
    unwanted = asyncio.create_task(extracted(LONG))
    await _works(pid, before)
    unwanted.cancel()
    with pytest.raises(asyncio.CancelledError):
        await unwanted

    made = await extracted(SHORT)
    assert "PostgreSQL" in made.text
    assert extracted.pid == pid
    assert _spent(pid) - before < costs / 2


async def test_a_text_that_is_taken_back_before_its_turn_delays_nobody(extracted):
    """Texts wait in the order in which they came."""
    first, second, third = (asyncio.create_task(extracted(task)) for task in (SHORT, LONG, SHORT))
    await first
    second.cancel()

    assert "PostgreSQL" in (await third).text


async def test_a_process_that_dies_fails_its_text_alone(extracted):
    """The next text has a new one."""
    await extracted(SHORT)
    pid = extracted.pid
    unlucky = asyncio.create_task(extracted(LONG))
    spent = _spent(pid)
    await _works(pid, spent)
    os.kill(pid, signal.SIGKILL)

    with pytest.raises(PassFailed) as failed:
        await unlucky
    assert (failed.value.error_class, failed.value.retryable) == (ErrorClass.TRANSPORT, True)
    assert "PostgreSQL" in (await extracted(SHORT)).text
    assert extracted.pid != pid


async def test_a_text_that_takes_too_long_is_taken_back():
    """The extraction fails as a model does that does not answer in time."""
    extracted = ExtractionProcess("estimate:o200k", deadline_s=0)
    with pytest.raises(PassFailed) as failed:
        await extracted(LONG)
    await extracted.close()

    assert (failed.value.error_class, failed.value.retryable) == (ErrorClass.TRANSPORT, True)
    assert "deadline" in failed.value.cause


async def test_a_closed_process_is_gone(extracted):
    """The process leaves nothing that would work on."""
    await extracted(SHORT)
    pid = extracted.pid

    await extracted.close()

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def _works(pid: int, spent: int) -> None:
    """Return when the process has worked on its text."""
    async with asyncio.timeout(PATIENCE_S):
        while _spent(pid) <= spent:
            await asyncio.to_thread(os.sched_yield)


def _spent(pid: int) -> int:
    """The processor time that a process has used, in ticks of the clock."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
