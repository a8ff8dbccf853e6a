"""A process that indexes a log and stands still in the middle: python -m tests.support.indexing_process LOG INDEX RESTS

The process prints a line when it has rested RESTS times, and then rests until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from abridged.eventlog.sqlite.log import SqliteEventLog
from abridged.service.recall.embedders import WordLlamaEmbedder
from abridged.service.recall.projection import Pace, Projection


async def index(log_path: Path, path: Path, rests: int) -> None:
    """Index until the rest after which nothing comes."""
    log = SqliteEventLog.open(log_path, clock_us=lambda: time.time_ns() // 1_000)
    left = rests

    async def rest(_seconds: float) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            sys.stdout.write("resting\n")
            sys.stdout.flush()
            await asyncio.Event().wait()

    projection = Projection(log, path, WordLlamaEmbedder(64), pace=Pace(0.0, 0.0), sleep=rest)
    projection.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(index(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
