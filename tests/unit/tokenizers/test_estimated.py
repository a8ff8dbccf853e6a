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

COUNTED = json.loads((Path(__file__).parents[2] / "golden/token_counts.json").read_text(encoding="utf-8"))
"""Counts of the same texts by older vocabularies."""


def errors() -> dict[str, float]:
    return {name: ESTIMATE.count(sample["text"]) / sample["o200k"] - 1 for name, sample in SAMPLES.items()}


def test_an_estimate_says_that_it_is_one() -> None:
    """The source of a count is visible."""
    assert (ESTIMATE.name, ESTIMATE.source_for("gpt-4o")) == ("estimate:o200k", TokenSource.ESTIMATE)


def test_the_median_error_on_english_code_and_data_is_at_most_a_tenth() -> None:
    """The estimate without calibration is good enough to trigger on."""
    ascii_errors = [abs(error) for name, error in errors().items() if SAMPLES[name]["text"].isascii()]

    assert statistics.median(ascii_errors) <= 0.10


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_no_script_class_is_far_off(name: str) -> None:
    """Too low by a fifth at most, too high by two fifths at most, even in one short text of common words."""
    assert -0.20 <= errors()[name] <= 0.40


def test_the_estimate_leans_high() -> None:
    """A count too high costs an early pass; too low costs an overflow."""
    assert statistics.median(errors().values()) >= 0


def test_the_empty_text_has_no_tokens() -> None:
    """An empty text counts as nothing."""
    assert ESTIMATE.count("") == 0


@pytest.mark.parametrize("vocabulary", ["llama2", "smollm2"])
def test_a_models_name_says_which_vocabulary_is_estimated(vocabulary: str) -> None:
    """An older vocabulary has up to four tokens for one of a newer vocabulary."""
    estimate = ESTIMATE.of(f"ollama:{vocabulary}:1b")
    errors = [estimate.count(SAMPLES[name]["text"]) / real - 1 for name, real in COUNTED[vocabulary].items()]

    assert abs(statistics.median(errors)) <= 0.06
    assert min(errors) >= -0.20


@given(st.lists(st.sampled_from("aZ0 \n.;éдא中ああ🎉"), max_size=60), st.integers(1, 20))
def test_a_count_is_what_the_tables_say(characters: list[str], repeated: int) -> None:
    """Pairs are looked up at once, and the sum is still that of looking up one pair after the other."""
    text = "".join(character * (repeated if place % 3 == 0 else 1) for place, character in enumerate(characters)) + "a"
    tables = estimated._tables()
    classes = tables.space + tables.classes(text)

    hundredths = sum(
        weights.table[way.before[front] | way.after[behind]]
        for way, weights in zip(tables.passes, tables.weights["o200k"], strict=True)
        for front, behind in zip(classes, classes[way.distance :], strict=False)
    )

    most = len(text) if text.isascii() else 4 * len(text)
    assert ESTIMATE.count(text) == max(1, min(-(-hundredths // 100), most), estimated._fewest(text))


@pytest.mark.parametrize("vocabulary", estimated.estimated_vocabularies())
@pytest.mark.parametrize(
    ("text", "characters"), [(" $", 8), (":a", 8), ("\u0420", 8), ("s", 8), ("ع", 8), ("}", 64), (" ", 64)]
)
def test_no_long_text_counts_as_next_to_nothing(vocabulary: str, text: str, characters: int) -> None:
    """Pairs that weigh nothing count, too: no text that was read for the weights has them in a row."""
    assert EstimatingCounter(vocabulary).count(text * 64_000) >= 64_000 * len(text) // characters - 1


@given(st.text(st.characters(), max_size=50))
def test_a_unit_has_the_class_of_its_character(text: str) -> None:
    """No neighbour changes it: choosing by whole texts is choosing one by one."""
    tables = estimated._tables()

    assert tables.classes("é" + text) == b"".join(
        tables.classes("é" + one)[1:] if one.isascii() else tables.classes(one) for one in "é" + text
    )


@given(st.text(st.characters(), min_size=1, max_size=200))
def test_any_text_counts_at_least_one_and_at_most_four_a_character(text: str) -> None:
    """No text is free, none is absurd: a token is at least one byte of UTF-8."""
    assert 1 <= ESTIMATE.count(text) <= 4 * len(text)


@pytest.mark.parametrize("vocabulary", estimated.estimated_vocabularies())
def test_a_character_of_ascii_counts_one_at_most(vocabulary: str) -> None:
    """A run of a letter has pairs that the weights were never fitted to."""
    assert EstimatingCounter(vocabulary).count("x" * 1_000) <= 1_000


@given(st.text(max_size=60), st.text(max_size=60))
def test_a_longer_text_never_counts_less(first: str, second: str) -> None:
    """Appending text never lowers the count by more than the rounding of one token."""
    assert ESTIMATE.count(first + second) >= ESTIMATE.count(first) - 1


@pytest.mark.parametrize("text", ["hello there, ", "Straße ", "世界", "🎉 ok "])
def test_a_large_text_is_counted_in_linear_time(text: str) -> None:
    """A megabyte of any script costs about four times the cost of a quarter of it."""
    assert grows_linearly(ESTIMATE.count, lambda size: text * (size // len(text)), size=1_000_000)


@given(st.lists(st.text(st.sampled_from("aZ0 \n.;éд中🎉"), max_size=40).map(lambda text: text * 99), max_size=12))
def test_texts_that_are_counted_together_count_as_one_by_one(texts: list[str]) -> None:
    """No pair joins the end of a text and the beginning of the next, in a group or between two."""
    assert ESTIMATE.counts(texts) == [ESTIMATE.count(text) for text in texts]
