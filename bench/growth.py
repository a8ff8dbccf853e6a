"""Processor time of the ledger and of evidence on hostile texts by their size, which it must not outgrow.

Each text comes in messages of the largest size that a sidecar takes by default, or in one of a megabyte.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from abridged.service.domain.message import Message, Role
from abridged.service.grounding.support import concordance_of
from abridged.service.text.mentions import mentions
from bench.rpc import CONTENT

MEGABYTE: Final = 1_000_000
SIZES: Final = (MEGABYTE, 10 * MEGABYTE)
MESSAGE_CHARS: Final = 250_000
STATEMENTS: Final = (CONTENT, "The user decided to move A-1 to db-07.example.com at 12.5.", "1,1. A-1 x@y ./a")

TEXTS: Final[Mapping[str, str]] = {
    "prose": f"{CONTENT} ",
    "near-identifiers": "A-1 aB_ 1.2. ./a x@ y:// 555-55 $ 1 May ",
    "near-identifiers without a blank": "a.b/c-1_d:e@",
    "near-numbers": "1,1.1-1:1 ",
    "open brackets": "{[(<\"'",
}
"""The motif that each text repeats."""

HEADINGS = (
    "text",
    "messages",
    *(f"{what}, {size // MEGABYTE} MB" for what in ("ledger", "evidence") for size in SIZES),
)


def rows(*, sizes: Sequence[int] = SIZES) -> list[tuple[str, ...]]:
    """A row for each text; times as seconds of this thread, those of larger sizes with their ratio to the first."""
    found: list[tuple[str, ...]] = []
    for name, motif in TEXTS.items():
        found.append((name, f"{MESSAGE_CHARS:,} characters", *_cells(motif, MESSAGE_CHARS, sizes)))
    longest = "near-identifiers without a blank"
    found.append((longest, f"{MEGABYTE:,} characters", *_cells(TEXTS[longest], MEGABYTE, sizes)))
    return found


def _cells(motif: str, message_chars: int, sizes: Sequence[int]) -> list[str]:
    cells: list[str] = []
    for work in (_ledger, _evidence):
        took_s = [_took_s(work, _texts(motif, size, message_chars)) for size in sizes]
        cells += [f"{took_s[0]:.2f} s", *(f"{s:.2f} s ({s / took_s[0]:.1f} x)" for s in took_s[1:])]
    return cells


def _texts(motif: str, size: int, message_chars: int) -> list[str]:
    chars = min(message_chars, size)
    return [(motif * (chars // len(motif) + 1))[:chars]] * (size // chars)


def _took_s(work: Callable[[Sequence[str]], None], texts: Sequence[str]) -> float:
    began = time.thread_time()
    work(texts)
    return time.thread_time() - began


def _ledger(texts: Sequence[str]) -> None:
    for text in texts:
        deque(mentions(text), maxlen=0)


def _evidence(texts: Sequence[str]) -> None:
    said = concordance_of((number, Message(f"m{number}", Role.USER, text)) for number, text in enumerate(texts, 1))
    for statement in STATEMENTS:
        said.support(statement)
