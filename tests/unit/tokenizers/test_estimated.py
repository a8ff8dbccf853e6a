"""The estimate is near a real vocabulary, leans high, and never depends on anything but the text."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abridged.service.domain.tokens import TokenSource
from abridged.service.tokenizers import estimated
from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.growth import grows_linearly

ESTIMATE = EstimatingCounter()

SAMPLES = json.loads((Path(__file__).parent / "samples.json").read_text(encoding="utf-8"))
"""Short texts of every script class, each with its count of the o200k vocabulary."""


def errors() -> dict[str, float]:
    return {name: ESTIMATE.count(sample["text"]) / sample["o200k"] - 1 for name, sample in SAMPLES.items()}


def test_an_estimate_says_that_it_is_one() -> None:
    """The source of a count is visible."""
    assert (ESTIMATE.name, ESTIMATE.source_for("gpt-4o")) == ("estimate", TokenSource.ESTIMATE)


def test_the_median_error_on_english_code_and_data_is_at_most_a_tenth() -> None:
    """Without calibration the estimate is good enough to trigger on."""
    ascii_errors = [abs(error) for name, error in errors().items() if SAMPLES[name]["text"].isascii()]

    assert statistics.median(ascii_errors) <= 0.10


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_no_script_class_is_far_off(name: str) -> None:
    """Too low by a tenth at most, too high by two fifths at most, even in one short text of common words."""
    assert -0.10 <= errors()[name] <= 0.40


def test_the_estimate_leans_high() -> None:
    """A count too high costs an early pass; too low costs an overflow."""
    assert statistics.median(errors().values()) >= 0


def test_the_empty_text_has_no_tokens() -> None:
    """Nothing counts as nothing."""
    assert ESTIMATE.count("") == 0


@given(st.lists(st.sampled_from("aZ0 \n.;éдא中🎉"), max_size=60), st.integers(1, 20))
def test_a_count_is_what_the_table_of_weights_says(characters: list[str], repeated: int) -> None:
    """Pairs are looked up at once, and the sum is still that of counting every pattern of the table by itself."""
    text = "".join(character * (repeated if place % 3 == 0 else 1) for place, character in enumerate(characters)) + "a"
    weights = estimated._ASCII_WEIGHTS + (() if text.isascii() else estimated._SCRIPT_WEIGHTS)
    classes = b" " + estimated._classes(text)

    hundredths = sum(weight * classes.count(pattern) for pattern, weight in weights)

    assert ESTIMATE.count(text) == max(1, -(-hundredths * estimated._SAFETY_PERCENT // 10_000))


@given(st.text(st.characters(), min_size=1, max_size=200))
def test_any_text_counts_at_least_one_and_at_most_four_a_character(text: str) -> None:
    """No text is free, none is absurd: a token is at least one byte of UTF-8."""
    assert 1 <= ESTIMATE.count(text) <= 4 * len(text)


@given(st.text(max_size=60), st.text(max_size=60))
def test_a_longer_text_never_counts_less(first: str, second: str) -> None:
    """Appending text never lowers the count by more than the rounding of one token."""
    assert ESTIMATE.count(first + second) >= ESTIMATE.count(first) - 1


@pytest.mark.parametrize("text", ["hello there, ", "Straße ", "世界", "🎉 ok "])
def test_a_large_text_is_counted_in_linear_time(text: str) -> None:
    """A megabyte of any script costs about four times what a quarter of it costs."""
    assert grows_linearly(ESTIMATE.count, lambda size: text * (size // len(text)), size=1_000_000)
