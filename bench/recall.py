"""The costs of search: appends beside an index that follows them, and searches of SEARCHED_MESSAGES messages.

Texts are of made words whose frequencies fall as those of real ones do (Zipf), so that a query has rare words and words
of every third message.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import accumulate, product
from pathlib import Path

from bench.figures import percentile
from bench.load import in_turns
from bench.processes import reindex, sidecar_child
from bench.rpc import BATCH_MESSAGES, SidecarCalls

SEARCHED_MESSAGES = 100_000
CONVERSATIONS = 100
SEARCHES = 100
MESSAGE_WORDS = 40
QUERY_WORDS = 6
MODES = ("words", "meaning", "both")

_SYLLABLES = [a + b for a, b in product("bdfgklmnprstvz", "aeiou")]
_WORDS = ["".join(pair) for pair in product(_SYLLABLES, repeat=2)]
_WEIGHTS = list(accumulate(1 / rank for rank in range(1, len(_WORDS) + 1)))
_EXTRACTIVE = {"summarizer.models": "extractive:"}
_INDEXED = {**_EXTRACTIVE, "recall.index": "both"}


@asynccontextmanager
async def recall(folder: Path, seconds: float) -> AsyncIterator[Callable[[], Awaitable[Mapping[str, float]]]]:
    """One client appends to a sidecar with an index and to one without, in turns; then a full index is searched."""
    chance = random.Random(7)
    sizes = await _filled(folder, chance)
    async with AsyncExitStack() as resources:
        plain, indexed, full = [
            await resources.enter_async_context(
                SidecarCalls.connected(resources.enter_context(sidecar_child(folder, name, settings)).address)
            )
            for name, settings in (("unindexed", _EXTRACTIVE), ("indexed", _INDEXED), ("full", _INDEXED))
        ]
        await full.indexed()

        async def measure() -> Mapping[str, float]:
            appends = await in_turns({"plain": plain.appends(), "indexed": indexed.appends()}, seconds, clients=1)
            values = {
                f"recall.{name}_p{share}": percentile(found, share / 100) * 1e3
                for name, found in appends.items()
                for share in (50, 99)
            }
            await indexed.indexed()
            for mode in MODES:
                latencies = [await full.search_s(_text(chance, QUERY_WORDS), mode) for _ in range(SEARCHES)]
                values |= {f"recall.{mode}_p{share}": percentile(latencies, share / 100) * 1e3 for share in (50, 95)}
            return {**values, **sizes}

        yield measure


async def _filled(folder: Path, chance: random.Random) -> Mapping[str, float]:
    """Have a sidecar `full` take the messages and stop, and their index made, all of it in its file; return the size of
    the texts and of the file, in MiB."""
    texts = 0
    with sidecar_child(folder, "full", {**_EXTRACTIVE, "recall.index": "off"}) as child:
        async with SidecarCalls.connected(child.address) as full:
            for number in range(SEARCHED_MESSAGES // BATCH_MESSAGES):
                contents = [_text(chance, MESSAGE_WORDS) for _ in range(BATCH_MESSAGES)]
                texts += sum(map(len, contents))
                await full.said(f"chat{number % CONVERSATIONS}", number, contents)
    await asyncio.to_thread(reindex, folder, "full", _INDEXED)
    return {"recall.text": texts / 2**20, "recall.index": (folder / "full.db-recall").stat().st_size / 2**20}


def _text(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(_WORDS, cum_weights=_WEIGHTS, k=words))
