"""How much a text repeats itself, as models do that have lost the thread.

It counts runs of words, and of characters in scripts without spaces, so it finds loops in any language. The measure is
the share of the text that repeats earlier text: a list whose lines open alike repeats a little, a loop nearly
everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_RUN: Final = 4
"""Units of a run: nobody says four words twice in the same order by chance."""

_UNITS_MIN: Final = 12
"""A shorter text has no room for a loop."""

_UNIT: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]|\\w+|[^\\w\\s]"
)


def repetition(texts: Iterable[str]) -> float:
    """Share of the runs of `texts` that occurred in them before, 0..1; 0.0 if they are too short to tell."""
    seen: set[tuple[str, ...]] = set()
    again = total = units_total = 0
    for text in texts:
        units = _UNIT.findall(text.casefold())
        units_total += len(units)
        # A short text is one run: a list of one item twenty times is a loop too.
        size = min(_RUN, len(units))
        for i in range(len(units) - size + 1 if units else 0):
            run = tuple(units[i : i + size])
            again += run in seen
            seen.add(run)
            total += 1
    return again / total if units_total >= _UNITS_MIN else 0.0
