"""Dividing what is too long for one call: how many calls a length needs, and where a text may be cut."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

__all__ = ["CALLS_MAX", "MERGE_FAN_IN", "calls_needed", "cut_text", "grouped"]

MERGE_FAN_IN = 6
"""Partial summaries that one merging call takes: at the largest summary cap they fit into the smallest input limit."""

CALLS_MAX = 256
"""The most calls that one pass may make, whatever its length."""

_CHARS_PER_TOKEN_MIN = 1


def calls_needed(tokens: int, *, chunk_tokens: int) -> int:
    """Model calls for `tokens` of input: one for each chunk, then the merges, level by level."""
    parts = max(1, math.ceil(tokens / chunk_tokens))
    calls = parts
    while parts > 1:
        parts = math.ceil(parts / MERGE_FAN_IN)
        calls += parts
    return calls


def grouped(sizes: Sequence[int], *, limit: int) -> list[tuple[int, int]]:
    """Consecutive items in groups of at most `limit`, as (start, end); an item over the limit is a group of its own."""
    groups: list[tuple[int, int]] = []
    start = total = 0
    for i, size in enumerate(sizes):
        if i > start and total + size > limit:
            groups.append((start, i))
            start, total = i, 0
        total += size
    if len(sizes) > start:
        groups.append((start, len(sizes)))
    return groups


def cut_text(text: str, *, limit: int, count: Callable[[str], int]) -> list[str]:
    """`text` in pieces of at most `limit` tokens each, cut at paragraphs, else lines, else sentences, else anywhere.

    The pieces joined are the text: nothing is dropped.
    """
    if count(text) <= limit:
        return [text]
    for separator in ("\n\n", "\n", ". ", " "):
        parts = _split_keeping(text, separator)
        if len(parts) > 1:
            pieces = [piece for part in parts for piece in _cut_further(part, separator, limit, count)]
            return _joined(pieces, limit, count)
    half = len(text) // 2
    if half < _CHARS_PER_TOKEN_MIN:
        return [text]
    return cut_text(text[:half], limit=limit, count=count) + cut_text(text[half:], limit=limit, count=count)


def _split_keeping(text: str, separator: str) -> list[str]:
    parts = text.split(separator)
    return [part + separator for part in parts[:-1] if part or separator] + ([parts[-1]] if parts[-1] else [])


def _cut_further(part: str, separator: str, limit: int, count: Callable[[str], int]) -> list[str]:
    """A part that is still too long, without looking for the separator that ends it again."""
    if count(part) <= limit:
        return [part]
    body = part.removesuffix(separator)
    if body == part or not body:
        half = max(1, len(part) // 2)
        return [part] if len(part) < 2 else [
            *_cut_further(part[:half], separator, limit, count),
            *_cut_further(part[half:], separator, limit, count),
        ]
    pieces = cut_text(body, limit=limit, count=count)
    return [*pieces[:-1], pieces[-1] + separator]


def _joined(pieces: list[str], limit: int, count: Callable[[str], int]) -> list[str]:
    """Neighbouring pieces put together again as long as they fit."""
    groups = grouped([count(piece) for piece in pieces], limit=limit)
    return ["".join(pieces[start:end]) for start, end in groups]
