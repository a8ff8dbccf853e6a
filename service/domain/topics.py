"""Finds the places at which a conversation turns to another topic: by the caller's hints, or by its words.

The words decide without hints, as in TextTiling (M. Hearst, "TextTiling: Segmenting Text into Multi-paragraph Subtopic
Passages", Computational Linguistics 23(1), 1997): messages on both sides of a gap are compared, and a gap whose
similarity lies in a valley is a shift. A message takes the place of a token sequence: topics rarely change within one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, pstdev
from typing import Final

from abridged.service.domain.message import Message, Role, sent_content
from abridged.service.text.words import word_keys

CHARS_READ: Final = 2_000
"""Characters read of each message: its subject stands at its beginning, and the work is bounded."""

_BLOCK: Final = 4
"""Messages on each side of a gap: two exchanges. Hearst compares blocks about as long as a paragraph."""

_CUTOFF_DEVIATIONS: Final = 0.5
"""A valley is a shift if it is this many standard deviations deeper than the mean. Hearst's cutoff lies below the mean,
which suits long texts; of a few messages that would make every other gap a shift, and each costs a model call."""

_SIMILARITY_MAX: Final = 0.2
"""Two blocks that share more than that speak of the same, however deep the valley."""

_KEYS_MIN: Final = 4
"""A block with fewer words says nothing about its topic."""


def topic_shifts(messages: Sequence[Message]) -> frozenset[int]:
    """The places in `messages` where another topic begins, never 0; linear in the characters that are read.

    The hints alone decide if any message has one: a shift is where `is_continuation` is false. The words decide
    otherwise: a shift is before a user message whose words differ from those before it.
    """
    if any(m.is_continuation is not None for m in messages):
        return frozenset(i for i, m in enumerate(messages) if i and m.is_continuation is False)
    keys = [_keys(m) for m in messages]
    similar = [_similarity(keys[max(0, i - _BLOCK) : i], keys[i : i + _BLOCK]) for i in range(1, len(keys))]
    if len(similar) < 2:
        return frozenset()
    depths = _depths(similar)
    deep = fmean(depths) + _CUTOFF_DEVIATIONS * pstdev(depths)
    return frozenset(
        i
        for i, (depth, similarity) in enumerate(zip(depths, similar, strict=True), start=1)
        if messages[i].role is Role.USER and depth > deep and similarity <= _SIMILARITY_MAX
    )


def _keys(message: Message) -> frozenset[str]:
    """The words that a message is about; results of tools are about whatever the tool printed."""
    if message.role is Role.TOOL:
        return frozenset()
    return word_keys(sent_content(message)[:CHARS_READ])


def _similarity(before: Sequence[frozenset[str]], after: Sequence[frozenset[str]]) -> float:
    """The cosine of two blocks' words, 0..1, counted by message; 1.0 if one has too few words."""
    one = Counter(key for keys in before for key in keys)
    other = Counter(key for keys in after for key in keys)
    if min(len(one), len(other)) < _KEYS_MIN:
        return 1.0
    shared = sum(count * other[key] for key, count in one.items() if key in other)
    return shared / math.sqrt(sum(n * n for n in one.values()) * sum(n * n for n in other.values()))


def _depths(similar: Sequence[float]) -> list[float]:
    """The depth of each value below the peaks on both sides of it, where the values rise without a break."""
    left = _peaks(similar)
    right = _peaks(similar[::-1])[::-1]
    return [one + other - 2 * value for one, other, value in zip(left, right, similar, strict=True)]


def _peaks(values: Sequence[float]) -> list[float]:
    peaks = list(values[:1])
    for before, value in pairwise(values):
        peaks.append(peaks[-1] if before >= value else value)
    return peaks
