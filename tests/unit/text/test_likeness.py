"""A linear model over the words of a sentence."""

from __future__ import annotations

import math
from array import array
from importlib.resources import files

import pytest

from abridged.service.text.likeness import PLACES, Likeness, likeness_to, place_of_evidence, places_of
from abridged.service.text.standing import DOUBT_MAX, RULE_FROM, Act, doubt_of, evidence_in, words_of_writer

SENTENCES = (
    "Never run the migrations yourself, print the command.",
    "Bitte nenn mir in jeder Antwort alle Beträge in Franken.",
    "You can run them again.",
    "Do you always answer in English?",
    "以后每次发报价之前都要先问我。",
    "Moja siostra zawsze zapomina kluczy.",
    "Add the new price to the table and send it to Tom.",
)


def with_weight(places: list[int]) -> Likeness:
    """A model in which the features at these places weigh 10 steps of a tenth."""
    return Likeness(array("b", (10 if at in places else 0 for at in range(PLACES))), 0.1, -2.0)


def test_the_words_of_a_sentence_weigh_together_whatever_its_length():
    """The squares of their values add up to 1, so all of them at weight 1 have the root of their number."""
    sentence = "Copy Priya on every mail about freight"
    places = places_of(sentence)

    assert with_weight(places).of_words(places) == pytest.approx(-2.0 + len(places) ** 0.5)


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


@pytest.mark.parametrize("text", ["以后PDF文件都发给我", "PDF文件以后都发给我", "今後PDFで送って", "ต่อไปส่งเป็นPDFเสมอ"])
def test_a_script_without_spaces_is_read_by_its_characters_beside_words(text):
    """Wherever a word of another script stands, it is one of its own."""
    assert set(places_of("PDF")) & set(places_of(text)) - set(places_of("送"))
    assert len(places_of(text)) > len(text)


def test_half_of_a_pair_is_read_as_any_character():
    """Texts that no encoding can write come from clients, too."""
    assert places_of("Always answer in English \ud83d please")


@pytest.mark.parametrize("act", Act)
def test_a_model_is_written_as_it_is_read(act):
    """A file has the step, the bias and a byte for each weight."""
    content = likeness_to(act).to_bytes()

    assert content == files("abridged.service.text").joinpath(f"{act}.weights").read_bytes()
    assert len(content) == PLACES + 8


@pytest.mark.parametrize("text", SENTENCES)
def test_evidence_is_given_up_only_where_it_cannot_change_the_verdict(text):
    """The verdict, and the doubt, are those of the whole weight, as in the training."""
    own = words_of_writer(text)
    model = likeness_to(Act.LAYS_DOWN)
    whole = model.of_words(places_of(own)) + sum(map(model.of_evidence, evidence_in(own)))

    doubt, lacking = doubt_of(own, places_of(own)), max(0.0, RULE_FROM - whole)
    assert (doubt == 0) is (whole >= RULE_FROM)
    assert doubt == (pytest.approx(lacking, abs=0.01) if lacking <= DOUBT_MAX else math.inf)
