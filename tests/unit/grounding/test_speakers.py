"""A wish or a proposal belongs to whoever voices it."""

from __future__ import annotations

import pytest

from abridged.service.domain.message import Message, Role
from abridged.service.grounding.speakers import said_by_another
from abridged.service.grounding.support import concordance_of


def another(statement: str, *said: str) -> tuple[int, ...] | None:
    """The first message is a user's, the next the assistant's, and so on."""
    chat = (Message(f"m{n}", Role.USER if n % 2 else Role.ASSISTANT, text) for n, text in enumerate(said, 1))
    index = concordance_of(enumerate(chat, 1))
    return said_by_another(statement, index.support(statement), index)


ENGLISH = ("What now?", "I'd suggest painting the hallway green.", "No, we leave the hallway as it is.", "Fine.")
GERMAN = ("Was nun?", "Ich würde den Flur grün streichen lassen.", "Nein, der Flur bleibt so.", "Gut.")
JAPANESE = ("次です。", "廊下を緑色に塗装するのはいかがでしょう。", "廊下は塗りません。", "承知しました。")
CHINESE = ("然后呢。", "我建议把走廊刷成绿色。", "走廊先不动。", "好的。")


@pytest.mark.parametrize(
    ("said", "statement"),
    [
        (ENGLISH, "The user wants to paint the hallway green."),
        (ENGLISH, "Lena proposed painting the hallway green."),
        (GERMAN, "Der Nutzer möchte den Flur grün streichen lassen."),
        (JAPANESE, "ユーザーは廊下を緑色に塗装したいと言った。"),
        (CHINESE, "店主要求把走廊刷成绿色。"),
    ],
)
def test_a_persons_wish_is_none_that_an_assistant_voiced(said: tuple[str, ...], statement: str):
    """Nobody took it up, whoever the person is."""
    assert another(statement, *said) == (2,)


@pytest.mark.parametrize(
    "statement",
    ["The assistant decided against green walls in the hallway.", "The assistant wants no green walls in the hallway."],
)
def test_an_assistant_decides_nothing_that_a_user_says(statement: str):
    """Although it repeats it."""
    said = ("No green walls in the hallway, please.", "Noted, no green walls in the hallway.")

    assert another(statement, *said) == (1,)


def test_a_proposal_that_a_user_took_up_is_wanted_and_still_anothers_proposal():
    """`The user wants` is true then, `the user proposed` is not."""
    said = ("What now?", "I'd suggest painting the hallway green.", "Yes, go ahead.")

    assert another("The user wants to paint the hallway green.", *said) is None
    assert another("The user proposed painting the hallway green.", *said) == (2,)


@pytest.mark.parametrize(
    ("said", "statement"),
    [
        (ENGLISH, "The assistant suggested painting the hallway green."),
        (("We paint the hallway green.", "Noted."), "The user decided to paint the hallway green."),
        (("Tell me.", "Lena wants to paint the hallway green."), "Lena wants to paint the hallway green."),
        (ENGLISH, "The hallway is painted green."),
        (ENGLISH, "The user wants a new boiler."),
    ],
    ids=["its own", "the user's own", "reported", "of nobody", "of something else"],
)
def test_a_statement_that_names_its_speaker_stands(said: tuple[str, ...], statement: str):
    """One that names nobody stands, too, and so does one that comes close to nothing."""
    assert another(statement, *said) is None
