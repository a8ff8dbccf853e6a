"""Purges of redactions over a log in memory, into which others write between two steps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from abridged.service.conversations.archive_folder import ArchiveFolder
from abridged.service.conversations.blanks import Blanks
from abridged.service.conversations.purges import Purges
from abridged.service.domain.commands import ConfirmPurge, RedactMessages
from abridged.service.domain.redaction import REDACTED
from tests.unit.conversations.test_conversations import KEY, Bench

SECRET = "the launch code is tangerine"


async def redacted(bench: Bench, *numbers: int) -> int:
    """Redact these messages; the version of the event."""
    state, _ = await bench.conversations.execute(KEY, lambda _: RedactMessages(numbers))
    return state.purge_due


def left(bench: Bench) -> list[int]:
    """The versions of the events that have the secret."""
    return [event.version for event in bench.log.read_stream(KEY) if SECRET.encode() in event.payload]


async def purged(bench: Bench, meanwhile: Callable[[], Awaitable[object]]) -> None:
    """Purge all that is due. `meanwhile` runs once, between blanking and the purge of the files."""
    steps = iter((meanwhile,))

    async def forgotten(_position: int) -> None:
        for step in steps:
            await step()

    purges = Purges(bench.log, bench.conversations, bench.table, Blanks(bench.log, bench.table, ArchiveFolder(None)))
    await purges.start(forgotten)
    await purges.purged(KEY)


async def never_after(reached: asyncio.Event) -> None:
    """Set the event, and do not return."""
    reached.set()
    await asyncio.Event().wait()


async def test_what_is_read_before_the_log_is_blanked_is_redacted():
    """The commit counts, for passes and views of originals too."""
    bench = Bench()
    await bench.append(1, 2, text=SECRET)

    await redacted(bench, 2)

    state = await bench.conversations.state(KEY)
    read = await bench.conversation_log.originals(KEY, state, limit=9)
    assert left(bench) == [2, 3]
    assert [(m.message.content, m.tokens) for m in read] == [(SECRET, read[0].tokens), (REDACTED, 8)]


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_redaction_that_comes_during_a_purge_is_purged_too(is_killed: bool):
    """A caller waits until its own text is gone, even if an earlier process had blanked all others."""
    bench = Bench()
    await bench.append(1, 2, text=SECRET)
    await redacted(bench, 1)
    if is_killed:
        blanked = asyncio.Event()
        purges = Purges(
            bench.log, bench.conversations, bench.table, Blanks(bench.log, bench.table, ArchiveFolder(None))
        )
        await purges.start(lambda _: never_after(blanked))
        await blanked.wait()
        await purges.stop()

    await purged(bench, lambda: redacted(bench, 2))

    assert left(bench) == []
    assert (await bench.conversations.state(KEY)).purge_due == 0


async def test_what_a_slow_process_put_back_is_blanked_again():
    """The slow process had read an event before the other blanked it, wrote it later, and found the purge confirmed."""
    slow = Bench(is_shared=True)
    quick = Bench(is_shared=True, beside=slow)
    await slow.append(1, 2, text=SECRET)
    version = await redacted(slow, 1, 2)
    (stored,) = slow.log.read_stream(KEY, after=1, limit=1)

    async def meanwhile() -> None:
        slow.log.blank(KEY, {2: stored.payload})
        await quick.conversations.execute(KEY, lambda _: ConfirmPurge(version))

    await purged(slow, meanwhile)

    assert left(slow) == []
