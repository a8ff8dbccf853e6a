"""Pairs of sentences by other writers: which value of a line is one that was found."""

from __future__ import annotations

import pytest

from bench.quality.superseding import names


@pytest.mark.parametrize(
    ("key", "value", "is_one"),
    [
        ("12 seiten", "12 Seiten", True),
        ("12", "12 Seiten", True),
        ("montag, 9. juni", "9. Juni", True),
        ("112 seiten", "12 Seiten", False),
        ("40", "8.400 €", False),
        ("400", "8.400 €", False),
        ("friday", "Friday 3 October", False),
    ],
)
def test_a_value_is_named_with_a_word_more_or_less_but_in_no_longer_number(key, value, is_one):
    """Numbers make a value the one that a line has."""
    assert names(key, value) is is_one
