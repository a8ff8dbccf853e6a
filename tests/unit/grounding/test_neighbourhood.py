"""Values that a sentence gives to something far from where the source has them."""

from __future__ import annotations

import pytest

from abridged.service.grounding.neighbourhood import Neighbourhood
from abridged.service.grounding.required import Named
from abridged.service.text.identifiers import numerals

SAID = (
    "The invoice of the roofer is due on 2 April 2027.",
    "Noted, I will remind you of the invoice.",
    *("Tell me about gardens.", "Roses do better near a wall.", "And about books?", "Reading aloud helps children."),
    "Mira joins the team in Leeds as an accountant.",
    "Welcome to her. Does she need a laptop?",
    "Yes, order the laptop for Mira; it costs 1,890 EUR.",
    "Done, the order is confirmed.",
)


def named(*texts: str) -> list[Named]:
    """The texts with their values."""
    return [Named(text, numerals(text)) for text in texts]


@pytest.fixture
def neighbourhood() -> Neighbourhood:
    return Neighbourhood(named(*SAID))


@pytest.mark.parametrize("sentence", ["Mira starts as an accountant on 2 April 2027.", "The roofer is paid 1,890 EUR."])
def test_a_value_of_something_else_is_apart(neighbourhood, sentence):
    """Other messages are about what the sentence is about, and none of them has its value."""
    assert neighbourhood.is_apart(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "The roofer's invoice has to be paid by 2 April 2027.",
        "Mira gets a laptop for 1,890 EUR.",
        "The order of the laptop comes to 1,890 EUR.",
        "Mira joins the team in Leeds.",
        "Mira's phone number is 555-0199.",
        "On 2 April 2027.",
    ],
)
def test_a_value_near_its_words_is_not(neighbourhood, sentence):
    """A sentence without values, one with a value that no message has, and one that says nothing else stay, too."""
    assert not neighbourhood.is_apart(sentence)


def test_a_value_that_another_text_has_is_not_apart():
    """An earlier record may give it to what the sentence speaks of."""
    sentence = "Mira starts as an accountant on 2 April 2027."

    assert not Neighbourhood(named(*SAID), named("Mira starts on 2 April 2027.")).is_apart(sentence)
    assert Neighbourhood(named(*SAID), named("Mira starts in April.")).is_apart(sentence)


def test_no_message_has_any_neighbourhood():
    """A source may be a record alone."""
    assert not Neighbourhood(()).is_apart("Mira starts on 2 April 2027.")
