"""Answers to requests for secrets: only what people and models say to each other is one."""

from __future__ import annotations

import pytest

from abridged.service.domain.events import MessageAppended
from abridged.service.domain.message import Message, Role
from abridged.service.domain.tokens import TokenSource
from abridged.service.domain.told_answers import numbers_before_answers, without_answer
from abridged.service.text.secrets import MASK


def appended(number: int, role: Role, text: str) -> MessageAppended:
    return MessageAppended(number, Message(f"m{number}", role, text), 9, TokenSource.ESTIMATE)


@pytest.mark.parametrize(
    ("asking", "answering", "is_masked"),
    [
        (Role.ASSISTANT, Role.USER, True),
        (Role.USER, Role.ASSISTANT, True),
        (Role.USER, Role.USER, True),
        (Role.TOOL, Role.USER, False),
        (Role.ASSISTANT, Role.TOOL, False),
    ],
)
def test_a_secret_is_told_by_a_person_or_a_model_to_the_other(asking, answering, is_masked):
    """Tools neither ask nor answer."""
    answer = appended(2, answering, "8842")

    masked = without_answer(answer, appended(1, asking, "What's the PIN?"))

    assert masked.message.content == (MASK if is_masked else "8842")
    assert masked._replace(message=answer.message) == answer


def test_a_message_without_one_before_it_stays():
    """Nobody has asked for it."""
    answer = appended(1, Role.USER, "8842")

    assert without_answer(answer, None) is answer


def test_only_what_may_be_a_secret_needs_the_message_before_it():
    """The first message has none, and a sentence says itself what it is about."""
    said = ["8842", "What's the PIN?", "It's 8842.", "Thanks.", "The importer reads 8842 orders a day."]

    numbers = numbers_before_answers([appended(n, Role.USER, text) for n, text in enumerate(said, start=1)])

    assert list(numbers) == [2]
