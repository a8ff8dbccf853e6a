"""A linear model over the words of a sentence."""

from __future__ import annotations

from array import array

import pytest

from abridged.service.text.likeness import PLACES, Likeness, likeness_to, place_of_evidence, places_of
from abridged.service.text.standing import Act


def with_weight(places: list[int]) -> Likeness:
    """A model in which the features at these places weigh 10 steps of a tenth."""
    return Likeness(array("b", (10 if at in places else 0 for at in range(PLACES))), 0.1, -2.0)


def test_a_sentence_without_words_has_the_weight_of_every_sentence():
    """No feature speaks for or against."""
    assert with_weight([]).of_words("") == with_weight([]).of_words(" \n") == -2.0


def test_the_words_of_a_sentence_weigh_together_whatever_its_length():
    """The squares of their values add up to 1, so all of them at weight 1 have the root of their number."""
    sentence = "Copy Priya on every mail about freight"
    places = places_of(sentence)

    assert with_weight(places).of_words(sentence) == pytest.approx(-2.0 + len(places) ** 0.5)


def test_evidence_is_weighed_by_its_kind():
    """Each kind has a place of its own."""
    model = with_weight([place_of_evidence("question")])

    assert (model.of_evidence("question"), model.of_evidence("accepted")) == (0.5, 0.0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Keep it under 80 words", "keep it under 120 words"),
        ("Prices gross, always", "prices gross, ALWAYS"),
        ("金额写２位小数", "金额写3位小数"),
    ],
)
def test_numbers_capitals_and_widths_make_no_difference(one, other):
    """A rule is one whatever its figures, and however its writer types."""
    assert places_of(one) == places_of(other)


def test_the_order_of_words_makes_a_difference():
    """Words in a row are features."""
    assert places_of("ask me before you send") != places_of("send me before you ask")


def test_a_script_without_spaces_is_read_by_its_characters():
    """Two sentences share those of their words."""
    assert set(places_of("金额写成人民币")) & set(places_of("以后金额都写成人民币"))


@pytest.mark.parametrize("name", Act)
def test_a_model_is_written_as_it_is_read(name):
    """A file has the step, the bias and a byte for each weight."""
    content = likeness_to(name).to_bytes()

    assert len(content) == PLACES + 8
    assert any(content[8:])
