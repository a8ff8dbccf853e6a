"""Dividing what is too long for one call: how many calls a length needs, and where to cut a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

ANSWER_SHARE_MAX = 1.5
"""The number of times that an answer may be longer than asked: one that is longer rarely comes to an end, and its
writing takes longer than everything else of a pass."""

FRAME_TOKENS = 128
"""Room for the JSON around the shortest summaries."""

WRITTEN_TOKENS_MIN = 128
"""The smallest summary to ask for, however small the model's window."""

SOURCE_SHARE = 0.9
"""Share of the room left for a source; the rest makes up for errors in the estimate of a prompt."""

MERGED_AT_ONCE_MIN = 3
"""Fewest partial summaries of a merging call, so that each level has clearly fewer of them."""

_SEPARATORS = ("\n\n", "\n", ". ", " ")
"""Places to cut, best first."""


def output_tokens_max(summary_tokens: int, *, token_factor: float = 1.0) -> int:
    """Most tokens that a model may write for a summary of this size by our count, `token_factor` of its own for one of
    ours."""
    tokens = max(ANSWER_SHARE_MAX * summary_tokens, summary_tokens + FRAME_TOKENS)
    return math.ceil(tokens * max(1.0, token_factor))


def writable_tokens(summary_tokens: int, *, window_tokens: int) -> int:
    """The size of summary to ask for: the wanted one, or less if a small window needs the room for the source."""
    return min(summary_tokens, max(WRITTEN_TOKENS_MIN, window_tokens // 8))


def source_room(window_tokens: int, *, fixed_tokens: int, summary_tokens: int) -> int:
    """Tokens of source that one call holds beside the fixed part of its prompt and the answer.

    The result is not positive if the window is too small for any.
    """
    return int((window_tokens - fixed_tokens - output_tokens_max(summary_tokens)) * SOURCE_SHARE)


def part_tokens_max(summary_tokens: int, *, chunk_tokens: int) -> int:
    """Most tokens of a part's summary, so that a merging call holds several."""
    return max(1, min(summary_tokens, chunk_tokens // MERGED_AT_ONCE_MIN))


def calls_needed(tokens: int, *, chunk_tokens: int, summary_tokens: int) -> int:
    """Model calls for `tokens` of input: one per chunk, then the merges, level by level.

    `summary_tokens` is the size of a partial summary; a merging call takes as many as a chunk holds.
    """
    parts = max(1, math.ceil(tokens / chunk_tokens))
    calls = parts
    merged_at_once = chunk_tokens // part_tokens_max(summary_tokens, chunk_tokens=chunk_tokens)
    while parts > 1:
        parts = math.ceil(parts / max(2, merged_at_once))
        calls += parts
    return calls


def grouped(sizes: Sequence[int], *, limit: int) -> list[tuple[int, int]]:
    """Consecutive items in groups of at most `limit`, as (start, end); an item over the limit is a group by itself."""
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
    """`text` in parts of at most `limit` tokens, cut at paragraphs, else lines, else sentences, else anywhere.

    The parts join to the text: nothing is dropped. A single character over the limit is a part by itself. Every part
    but the last is about as long as allowed, because each costs a model call.
    """
    tokens = count(text)
    if tokens <= limit:
        return [text]
    chars_per_part = max(1, len(text) * limit // tokens)
    parts: list[str] = []
    start = 0
    while start < len(text):
        end, tokens = _end_of_part(text, start, chars_per_part, limit=limit, count=count)
        parts.append(text[start:end])
        # A long thin stretch has more characters in a part than the whole has on the average.
        chars_per_part = max(chars_per_part, _proportion(end - start, limit / max(1, tokens)))
        start = end
    return parts


def _end_of_part(text: str, start: int, chars: int, *, limit: int, count: Callable[[str], int]) -> tuple[int, int]:
    """Return the end of the part from `start`, after about `chars` characters or fewer where tokens are dense, and its
    tokens."""
    while True:
        end = min(len(text), start + chars)
        if end < len(text):
            end = _boundary(text, start, end)
        tokens = count(text[start:end])
        if end - start <= 1 or tokens <= limit:
            return end, tokens
        chars = max(1, _proportion(end - start, min(1, limit / tokens)))


def _proportion(chars: int, times: float) -> int:
    """Return slightly less than the characters times `times`, so that an even text is not cut twice."""
    return int(chars * times * 0.95)


def _boundary(text: str, start: int, end: int) -> int:
    """The last good place to cut in the second half of `start` to `end`."""
    middle = start + (end - start) // 2
    for separator in _SEPARATORS:
        at = text.rfind(separator, middle, end)
        if at >= 0:
            return at + len(separator)
    return end
