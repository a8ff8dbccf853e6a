"""Sentences have the words of statements in other forms, and values in other notations."""

from __future__ import annotations

import pytest

from abridged.service.grounding.reading import sentence_of, words_in


@pytest.mark.parametrize(
    ("word", "text", "share"),
    [
        ("Kaution", "Die Kautionen sind fällig.", 1.0),
        ("Schlüssel", "Der Haustürschlüssel fehlt.", 0.8),
        ("Gaszählernummer", "Die Nummer fehlt.", 0.6),
        ("reservations", "The reservation stands.", 1.0),
        ("Kaution", "Die Miete ist fällig.", 0.0),
        ("Tür", "Der Haustürschlüssel fehlt.", 0.0),
        ("水箱", "净水箱漏水。", 1.0),
    ],
)
def test_a_sentence_has_a_word_in_another_form(word: str, text: str, share: float):
    """Inflected, in a compound, as a part of one; short words are in many others."""
    (found,) = words_in(word)

    assert sentence_of(text).share(found) == share


@pytest.mark.parametrize(
    ("value", "text", "has"),
    [
        ("2.460,00 €", "Die Kaution ist 2.460,00€ hoch.", True),
        ("1,200 USD", "It costs $1200.", True),
        ("6630 HTB", "Matrícula 6630HTB.", True),
        ("0x2C00", "The limit is 0x2C001.", False),
        ("12 EUR", "It costs 120 EUR.", False),
    ],
)
def test_a_sentence_has_a_value_in_another_notation(value: str, text: str, has: bool):
    """Other spacing and signs, and never within a longer number."""
    (found,) = sentence_of(value).values

    assert sentence_of(text).has(found.keys) is has


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        ("PT45M", "PT90M", True),
        ("2.460,00 €", "1.180,50 €", True),
        ("47名", "52名", True),
        ("47名", "12月", False),
        ("PT45M", "45 MiB", False),
    ],
)
def test_values_that_may_replace_one_another_have_one_shape(first: str, second: str, alike: bool):
    """Digits and letters are alike; units of scripts without spaces are not."""
    (one,), (other,) = sentence_of(first).values, sentence_of(second).values

    assert (one.shape == other.shape) is alike
