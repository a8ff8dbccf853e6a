"""Ends of a text that are a loop, and texts of people, models and tools, which have none."""

from __future__ import annotations

import pytest

from abridged.service.text.loops import CHARS_MIN, PERIOD_MAX, TIMES, WINDOW_CHARS, loop_period
from tests.support.shared_data import FILES, loaded, shared_chats

SENTENCE = "The importer reads the table of orders at four. "


@pytest.mark.parametrize("period", [1, 2, 49, 50, 51, 300, PERIOD_MAX])
def test_a_loop_is_the_same_characters_often_enough(period):
    """Four times, and 200 characters; one character less of either is no loop yet."""
    phrase = "".join(chr(0x4E00 + n) for n in range(period))
    enough = max(CHARS_MIN, TIMES * period)
    text = (phrase * enough)[-enough:]

    assert loop_period(f"So it was. {text}"[-WINDOW_CHARS:]) == period
    assert loop_period(f"So it was. {text[1:]}") == 0


@pytest.mark.parametrize("after", ["!", '"}', " And so on."])
def test_a_repetition_that_has_ended_is_no_loop(after):
    """A model that goes on with something else has found the way out."""
    assert loop_period(SENTENCE * 9) == len(SENTENCE)
    assert loop_period(SENTENCE * 9 + after) == 0


@pytest.mark.parametrize("text", ["", "a", SENTENCE, "".join(f"{n}. {SENTENCE}" for n in range(50)), "=" * 79 + "\n"])
def test_lists_and_lines_are_none(text):
    """A text that counts up is no repetition, and a line of marks is short."""
    assert loop_period(text) == 0


@pytest.mark.parametrize("name", FILES)
def test_no_text_of_real_chats_is_ended_as_a_loop(name):
    """However far it has been written."""
    for chat in shared_chats(name):
        for entry in chat["messages"]:
            message = loaded(entry)
            for text in (message.content, *(call.arguments for call in message.tool_calls)):
                ends = range(CHARS_MIN, len(text) + 1)
                assert not any(loop_period(text[max(0, end - WINDOW_CHARS) : end]) for end in ends)
