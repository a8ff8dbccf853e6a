"""The question that a model is asked shrinks after two answers that could not be used, and is tried again later."""

from __future__ import annotations

from abridged.service.summarizer.managed import Managed


def asked(memory: Managed, count: int, *, used: bool) -> str:
    """One letter for each question: `w` for the whole one, `n` for the narrative alone."""
    kinds = ""
    for _ in range(count):
        is_whole = memory.is_whole()
        kinds += "w" if is_whole else "n"
        if is_whole:
            memory.answered(used=used)
    return kinds


def test_a_model_that_manages_is_asked_the_whole_question():
    """Every time."""
    assert asked(Managed(), 20, used=True) == "w" * 20


def test_a_model_that_does_not_manage_is_asked_for_the_narrative_and_tried_again():
    """The full question comes after eight for the narrative; one more miss, and the next eight are small again."""
    assert asked(Managed(), 21, used=False) == "ww" + "n" * 8 + "w" + "n" * 8 + "wn"


def test_one_good_answer_forgets_the_bad_ones():
    """Only misses in a row count."""
    memory = Managed()
    asked(memory, 1, used=False)
    asked(memory, 1, used=True)

    assert asked(memory, 2, used=False) == "ww"
