"""Processor time of an attacked process and its children, as the kernel measures it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

LOOK_S = 0.5
IDLE_TICKS_MAX = 2
"""The most hundredths of a second, the kernel's unit, that an idle process uses in one look: a clock that rounds up."""


async def idle_after_s(pid: int) -> float:
    """Return for how many seconds process `pid` and its children work on before they do nothing for LOOK_S."""
    begun = time.monotonic()
    while True:
        looked, before = time.monotonic(), _ticks(pid)
        await asyncio.sleep(LOOK_S)
        if _ticks(pid) - before <= IDLE_TICKS_MAX:
            return looked - begun


def _ticks(pid: int) -> int:
    """Return the ticks that the process and its children, living and ended, have used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task").glob("*/children")
    return sum(map(int, fields[11:15])) + sum(_ticks(int(c)) for of in children for c in of.read_text().split())
