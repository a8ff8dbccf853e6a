"""Resident memory of a sidecar while messages are appended to many conversations, beside the bounds of its caches.

Extraction keeps the windows small. Half of the appends return the window, and one of twenty goes to a conversation that
ended long ago, as users come back.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Final

from bench.processes import sidecar_child
from bench.rpc import SidecarCalls

MESSAGES: Final = 100_000
STEP: Final = 5_000
CLIENTS: Final = 24
CONVERSATION_MESSAGES: Final = 20
CONTEXT_LENGTH: Final = 2_048
BATCHES: Final = (1, 1, 2, 4)
CONTENT_CHARS: Final = (100, 1_600)
BACK_SHARE: Final = 0.05
CONTEXT_SHARE: Final = 0.5

HEADINGS = ("messages", "resident, MiB", "since the row before, MiB")

_SENTENCES = (
    "We moved billing-api to db-07.example.com because src/app/migrate_{0}.py failed with error E{0} in the night; the "
    "owner of OPS-{0} agreed to wait. We decided to keep the import until the backup has been checked on Thursday. Who "
    "restarts worker-{0}? Everything else stays as it is. "
)
"""Each message names identifiers of its own, which fill the ledgers."""


async def rows(folder: Path, *, progress: Callable[[str], None], messages: int = MESSAGES) -> list[tuple[str, ...]]:
    """A row for every STEP messages, and one for the growth over the last third of them."""
    with sidecar_child(folder, "memory", {"summarizer.models": "extractive:"}) as child:
        async with SidecarCalls.connected(child.address) as sidecar:
            found = [(0, child.resident_mib())]
            async for done in _appended(sidecar, messages):
                if done >= min(STEP * len(found), messages):
                    found.append((done, child.resident_mib()))
                    progress(f"{done:,} messages: {found[-1][1]:.0f} MiB")
    listed = [
        (f"{done:,}", f"{mib:.0f}", f"{mib - before:+.1f}")
        for (_, before), (done, mib) in itertools.pairwise([found[0], *found])
    ]
    return [*listed, ("the last third", f"{found[-1][1]:.0f}", f"{growth_share(found):+.1%}")]


def growth_share(found: list[tuple[int, float]]) -> float:
    """Return the part by which memory grew over the last third; `found` has numbers of messages and MiB."""
    third = next(mib for done, mib in found if done >= found[-1][0] * 2 // 3)
    return found[-1][1] / third - 1


async def _appended(sidecar: SidecarCalls, messages: int) -> AsyncIterator[int]:
    """Append `messages` messages; yield the number of finished ones after each call."""
    done: asyncio.Queue[int] = asyncio.Queue()
    left = iter(range(messages))
    names = itertools.count()
    ended: list[str] = []

    async def client(place: int) -> None:
        random = Random(place)
        for name in map("memory-{}".format, names):
            filled = 0
            while filled < CONVERSATION_MESSAGES:
                taken = list(itertools.islice(left, random.choice(BATCHES)))
                if not taken:
                    return
                back = ended and random.random() < BACK_SHARE
                target = random.choice(ended) if back else name
                contents = [_content(random) for _ in taken]
                with_context = random.random() < CONTEXT_SHARE
                await sidecar.talked(
                    target, taken[0], contents, context_length=CONTEXT_LENGTH, with_context=with_context
                )
                filled += 0 if back else len(taken)
                done.put_nowait(len(taken))
            ended.append(name)

    async with asyncio.TaskGroup() as clients:
        for place in range(CLIENTS):
            clients.create_task(client(place))
        total = 0
        while total < messages:
            total += await done.get()
            yield total


def _content(random: Random) -> str:
    text = _SENTENCES.format(random.randrange(1_000_000)) * random.choice((1, 1, 2, 4))
    return text[: random.randrange(*CONTENT_CHARS)]
