"""Long inputs: nothing is lost, every piece fits, the work is linear and the number of calls known."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abridged.service.domain.chunks import (
    calls_needed,
    cut_text,
    grouped,
    output_tokens_max,
    part_tokens_max,
)
from abridged.service.tokenizers.estimated import EstimatingCounter

ESTIMATE = EstimatingCounter().count
COUNTED_TIMES_MAX = 4
"""The most times that a character is counted: in the whole, in its piece, and in pieces that were too dense."""
LONG_TEXTS = {
    "one word": "x" * 1_000_000,
    "spaces": " " * 1_000_000,
    "line ends": "\n" * 1_000_000,
    "words": "word " * 200_000,
    "paragraphs": ("some words here. " * 20 + "\n\n") * 2_900,
    "sentence ends": ". " * 500_000,
    "dense": "\N{GRINNING FACE}" * 250_000,
    "thin, then dense": "a" * 500_000 + "\N{CJK UNIFIED IDEOGRAPH-6F22}" * 160_000,
}


@given(st.text(alphabet=st.sampled_from("ab. \n\N{GRINNING FACE}"), max_size=400), st.integers(1, 40))
def test_pieces_joined_are_the_text_and_every_piece_fits(text, limit):
    """Only a single character may be over the limit."""
    pieces = cut_text(text, limit=limit, count=ESTIMATE)

    assert "".join(pieces) == text
    assert all(ESTIMATE(piece) <= limit or len(piece) == 1 for piece in pieces)
    assert all(pieces) or pieces == [""]


@pytest.mark.parametrize("name", LONG_TEXTS)
def test_a_megabyte_is_cut_with_linear_work_into_few_pieces(name):
    """The text may be made of anything; each piece is a model call, so they are nearly full."""
    text, limit = LONG_TEXTS[name], 8_000
    counted_chars = 0

    def count(part: str) -> int:
        nonlocal counted_chars
        counted_chars += len(part)
        return ESTIMATE(part)

    pieces = cut_text(text, limit=limit, count=count)

    assert "".join(pieces) == text
    assert max(map(ESTIMATE, pieces)) <= limit
    assert len(pieces) <= 1.3 * sum(map(ESTIMATE, pieces)) / limit + 1
    assert counted_chars <= COUNTED_TIMES_MAX * len(text)


def test_what_fits_is_not_cut():
    """One call for a short text."""
    assert cut_text("short", limit=10, count=len) == ["short"]
    assert cut_text("", limit=10, count=len) == [""]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("aaaaa\n\nbb\nb. b b", ["aaaaa\n\n", "bb\nb. b b"]),
        ("aaaaaa\nbb. b b", ["aaaaaa\n", "bb. b b"]),
        ("aaaaa. bbb bb", ["aaaaa. ", "bbb bb"]),
        ("aaaaaa bbbbbbb", ["aaaaaa ", "bbbbbbb"]),
        ("aaaaaaaaaabbbb", ["aaaaaaaaaa", "bbbb"]),
    ],
)
def test_a_text_is_cut_at_the_best_place_there_is(text, pieces):
    """Paragraph, line, sentence, word, and anywhere only when there is none of these."""
    assert cut_text(text, limit=10, count=len) == pieces


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 100))
def test_groups_are_consecutive_and_within_the_limit(sizes, limit):
    """The groups leave nothing out and take nothing twice; only an item that is too large itself is over the limit."""
    groups = grouped(sizes, limit=limit)

    assert [i for start, end in groups for i in range(start, end)] == list(range(len(sizes)))
    assert all(sum(sizes[start:end]) <= limit or end - start == 1 for start, end in groups)
    assert all(sum(sizes[a:d]) > limit for (a, _), (_, d) in pairwise(groups))


@pytest.mark.parametrize(
    ("tokens", "calls"),
    [(0, 1), (1, 1), (8_000, 1), (8_001, 3), (48_000, 7), (64_000, 9), (64_001, 9 + 1 + 2), (288_000, 36 + 5 + 1)],
)
def test_calls_are_chunks_and_their_merges_level_by_level(tokens, calls):
    """A chunk holds eight partial summaries of a thousand tokens: nine of them take two merges and one more."""
    assert calls_needed(tokens, chunk_tokens=8_000, summary_tokens=1_000) == calls


def test_partial_summaries_are_so_small_that_merging_comes_to_an_end():
    """Three parts still become one in a window hardly larger than a summary."""
    assert part_tokens_max(1_000, chunk_tokens=900) == 300
    assert calls_needed(2_700, chunk_tokens=900, summary_tokens=1_000) == 3 + 1


@pytest.mark.parametrize(
    ("asked", "factor", "tokens"),
    [(484, 1.0, 726), (484, 2.0, 1_452), (484, 0.7, 726), (32, 1.0, 160), (256, 1.0, 384)],
)
def test_an_answer_may_be_half_as_long_again_as_asked(asked, factor, tokens):
    """The model's tokens count, of which there may be more than ours; the JSON of a short answer has its room."""
    assert output_tokens_max(asked, token_factor=factor) == tokens
