"""The decisions that a receipt accounts for, as messages say them."""

from __future__ import annotations

import pytest

from abridged.service.domain.message import Message, Role
from abridged.service.extraction.decided import SPOKEN_CHARS_MAX, decided_in
from tests.support.chats import appended

SETTLED = "We decided to ship the importer on Friday."


def found(role: Role, content: str) -> list[str]:
    message = appended(1, message=Message("m1", role, content, tool_call_id="c" if role is Role.TOOL else ""))
    return [one.text for one in decided_in([message])]


def test_each_sentence_that_settles_something_is_one():
    """People and models settle things, in any of the languages that have phrases for it."""
    assert found(Role.USER, f"Thanks for the summary. {SETTLED} What about the rest?") == [SETTLED]
    assert found(Role.ASSISTANT, SETTLED) == [SETTLED]
    assert found(Role.USER, "Wir haben uns entschieden, am Freitag mit dem Importer zu starten.")


@pytest.mark.parametrize(
    "said",
    [
        "Before we dig: decision, we roll the worker back to v2.14.2 now.",
        "Decision \u2013 we start the importer on Friday.",
        "Entscheidung, wir nehmen am Freitag den Importer.",
        "Décision - on démarre l'importeur vendredi.",
    ],
)
def test_a_sentence_that_is_labelled_as_a_decision_is_one(said: str):
    """A comma or a dash sets the label apart as a colon does; to speak of a decision settles nothing."""
    assert found(Role.USER, said) == [said]
    assert found(Role.USER, "Their decision, as far as we know, is expected in May.") == []
    assert found(Role.USER, "The problem: decision, approval and payment take weeks.") == []


def test_a_models_next_step_settles_nothing():
    """A person's may."""
    assert found(Role.ASSISTANT, "I'll go with the nightly importer and start it on Friday.") == []


def test_data_and_documents_are_not_read():
    """Nobody said them; they take the longest to read."""
    assert found(Role.TOOL, SETTLED) == []
    assert found(Role.USER, f'{{"text": "{SETTLED}"}}') == []
    assert found(Role.USER, SETTLED + " And so on." * (SPOKEN_CHARS_MAX // 10)) == []
    assert found(Role.USER, SETTLED + " And so on." * 100) == [SETTLED]
