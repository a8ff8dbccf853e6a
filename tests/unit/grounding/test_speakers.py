"""A wish or a proposal belongs to the person who voices it."""

from __future__ import annotations

import pytest

from abridged.service.domain.message import Message, Role
from abridged.service.domain.record import RecordContext
from abridged.service.extraction.extract import Extract
from abridged.service.grounding.speakers import said_by_another
from abridged.service.grounding.support import concordance_of
from tests.support.extracts import record_of


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
    [
        "Later the assistant suggested painting the hallway green.",
        "First, the assistant proposed painting the hallway green.",
        "On Tuesday the assistant recommended painting the hallway green.",
        "Painting the hallway green was proposed by the assistant.",
        "Später schlug der Assistent vor: painting the hallway green.",
        "Al final propuso el asistente: painting the hallway green.",
        "L'idée proposée par l'assistant: painting the hallway green.",
    ],
)
def test_an_assistants_own_proposal_stands_whatever_is_said_before(statement: str):
    """The adverb may come first, and the assistant after the verb."""
    assert another(statement, *ENGLISH) is None


REFUND = ("My flight of May 20 is late.", "The refund for the late flight has been booked to your card.", "Thanks.")


@pytest.mark.parametrize(
    ("said", "statement"),
    [
        (REFUND, "The user requested a refund for the late flight."),
        (ENGLISH, "Would you like painting the hallway green?"),
        (ENGLISH, "The user has been asked to consider painting the hallway green."),
        (ENGLISH, "The message suggests painting the hallway green."),
    ],
)
def test_who_is_served_asked_or_no_person_voices_nothing(said: tuple[str, ...], statement: str):
    """An assistant who does as it was asked repeats the wish; a question, a passive and a thing claim no act."""
    assert another(statement, *said) is None


def test_a_line_of_the_record_before_keeps_its_speaker():
    """The quoted line lies before the source, where other people say like words."""
    line = "user: I suggest painting the hallway green."
    previous = record_of(Extract(f"From the messages:\n{line}", (), RecordContext()))
    reply = Message("m1", Role.ASSISTANT, "Painting the hallway green takes two days.")
    index, alone = concordance_of([(9, reply)], previous), concordance_of([(9, reply)])

    assert said_by_another(line, index.support(line), index) is None
    assert said_by_another(line, alone.support(line), alone) == (9,)


@pytest.mark.parametrize(
    "statement",
    [
        "Lena's assistant suggested painting the hallway green.",
        "The dental assistant suggested painting the hallway green.",
        "My assistant suggested painting the hallway green.",
        "The user suggested to the assistant painting the hallway green.",
    ],
)
def test_the_assistant_of_somebody_is_not_the_assistant(statement: str):
    """Nor is the one that somebody speaks to."""
    assert another(statement, *ENGLISH) == (2,)


@pytest.mark.parametrize(
    ("said", "statement"),
    [
        (ENGLISH, "It was suggested to paint the hallway green."),
        (ENGLISH, "Suggested: painting the hallway green."),
        (GERMAN, "Es wurde vorgeschlagen, den Flur grün streichen zu lassen."),
        (CHINESE, "有人建议把走廊刷成绿色。"),
    ],
)
def test_an_impersonal_sentence_names_no_speaker(said: tuple[str, ...], statement: str):
    """The sentence may be of any voice."""
    assert another(statement, *said) is None


NOTICED = ("The changer has forty pockets, not thirty.", "Noted, the changer has forty pockets.")
REMARKED = ("次です。", "アプリの版を上げましょうか。", "まだです。")


@pytest.mark.parametrize(
    ("said", "statement", "number"),
    [
        (NOTICED, "The assistant noticed that the changer has forty pockets.", 1),
        (NOTICED, "Gord pointed out that the changer has forty pockets.", None),
        (REMARKED, "この機会にアプリの版を上げようと利用者が持ちかけた。", 2),
        (REMARKED, "アプリの版を上げようと言い出したのは利用者だ。", 2),
        (REMARKED, "アプリの版を上げようと言い出したのはアシスタントだ。", None),
    ],
)
def test_a_remark_belongs_to_whoever_makes_it_first(said: tuple[str, ...], statement: str, number: int | None):
    """The speaker may stand right before the verb in Japanese, or after it."""
    assert another(statement, *said) == (number and (number,))


def test_what_a_tool_says_is_no_remark_of_another():
    """The assistant only repeats it, and without the tool it would be its own."""
    tool, told = "pockets of the changer: 40, expected 30", "The changer has forty pockets, not the thirty expected."
    statement = "The check warned that the pockets of the changer were not as expected."

    def judged(*roles: tuple[Role, str]) -> tuple[int, ...] | None:
        index = concordance_of(enumerate((Message("m", role, text) for role, text in roles), 1))
        return said_by_another(statement, index.support(statement), index)

    assert judged((Role.TOOL, tool), (Role.ASSISTANT, told)) is None
    assert judged((Role.USER, "Good morning."), (Role.ASSISTANT, told)) == (2,)


def test_a_speaker_is_looked_for_at_the_beginning():
    """A name further on is that of another, as in a list of those who were there."""
    present = "Lena, who came with the tenants of the upper floors and the assistant, proposed"

    assert another(f"{present} painting the hallway green.", *ENGLISH) == (2,)


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


def test_a_quotation_is_of_its_own_speaker():
    """Somebody else may say nearly the same before; a role that did not say it is another speaker."""
    said = ("I want to continue now to the `next_cypher` function.", "We want to continue now to the next function.")

    assert another("assistant: We want to continue now to the next function.", *said) is None
    assert another("assistant: I want to continue now to the `next_cypher` function.", *said) == (1,)
