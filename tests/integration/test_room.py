"""The worth of room after a pass on real chats in a window of 32,768 tokens; shown with `-rP`."""

from __future__ import annotations

import sys
from statistics import median

from bench.quality.room import BAND, HEADINGS, compared, conversations, row
from bench.quality.runs import Summarizing
from tests.support.shared_data import FILES, shared_file


async def test_a_large_window_is_used_and_knows_more_for_a_third_more_passes():
    """The shared chats as one conversation, after ten passes of the sizes of a small window."""
    *_, joined = conversations(shared_file(FILES[0]).parent, turns=1, facts=1)
    without, within = await compared(joined, Summarizing("extractive"))
    for line in (HEADINGS, row(without), row(within)):
        sys.stdout.write(f"{' | '.join(line)}\n")

    low, high = BAND
    assert low <= median(within.look.fills) <= high
    assert sum(low <= fill <= high for fill in within.look.fills) >= 0.9 * len(within.look.fills)
    assert within.look.passes <= 1.35 * without.look.passes
    assert within.look.known.part >= 1.15 * without.look.known.part
