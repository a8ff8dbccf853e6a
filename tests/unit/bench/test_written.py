"""Chats that others have written: whole, and scored by their writers' notes, not by finds of the code."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from abridged.service.domain.message import Message, Role
from bench.quality.written import CHATS, HALVES, LIES, WrittenChat, statements_judged, survived, written_chats

EVERY = [chat for half in HALVES for chat in written_chats(CHATS / half)]


@pytest.mark.parametrize("chat", EVERY, ids=lambda chat: chat.name)
def test_notes_name_what_their_messages_say(chat):
    """Letter by letter, so that a score is of the window and not of a slip."""
    texts = [message.content for message in chat.messages]

    assert len(texts) >= 100
    assert len(set(texts)) == len(texts)
    for fact in chat.notes["facts"]:
        assert str(fact["value"]) in texts[fact["message"] - 1], fact
        for old, number in zip(fact.get("was", ()), fact.get("was_messages", ()), strict=False):
            assert str(old) in texts[number - 1], fact
    for kind in ("rules", "not_rules", "decisions", "open_points"):
        for one in chat.notes[kind]:
            assert one["text"] in texts[one["message"] - 1], one
    assert {one["kind"] for one in chat.notes["statements"]} == {*LIES, "honest"}


def test_both_halves_have_six_languages():
    """The half that is only scored has two languages that nobody has tuned for."""
    languages = {half: {chat.notes["language"][:2] for chat in written_chats(CHATS / half)} for half in HALVES}

    assert all(len(found) >= 6 for found in languages.values())
    assert len(languages["scored"] - languages["seen"]) == 2


def chat_of(*texts: str, **notes: object) -> WrittenChat:
    messages = tuple(Message(f"m{n}", Role.USER, text) for n, text in enumerate(texts, 1))
    empty: dict[str, object] = {"facts": [], "rules": [], "decisions": [], "open_points": [], "statements": []}
    return WrittenChat("one", messages, empty | notes)


def test_a_value_that_is_gone_is_missing_and_one_that_stands_is_not():
    """The shares leave out each value that is still verbatim in the window."""
    filler = [f"Nothing of note happened on the way to the {n}th hill. " * 3 for n in range(60)]
    gone, there = ({"names": ["code"], "value": value, "message": 1} for value in ("ZZ-nowhere-9", "KX-5512093-R"))
    said = chat_of("The code of the crate is KX-5512093-R.", *filler, facts=[gone, there])

    found = asyncio.run(survived([said], context_length=1_024, extractive=True))
    whole = asyncio.run(survived([said], context_length=100_000, extractive=True))

    assert (found.values.part, found.values.whole) == (1, 2)
    assert [text for _, kind, text in found.missing if kind == "value"] == ["code: ZZ-nowhere-9"]
    assert whole.values.whole == 0


def test_a_lie_that_nobody_said_is_caught_and_a_paraphrase_is_not():
    """The checks that a model's draft meets do it."""
    statements = [
        {"kind": "honest", "section": "key_points", "text": "The crate's code is KX-5512093-R.", "rests_on": [1]},
        {"kind": "invented_value", "section": "key_points", "text": "The crate's code is QQ-1.", "rests_on": []},
    ]
    said = chat_of("The code of the crate is KX-5512093-R.", "Thank you.", statements=statements)

    by_kind = statements_judged([said]).by_kind

    assert (by_kind["honest"].part, by_kind["invented_value"].part) == (0, 1)
    twice = statements_judged([said, replace(said, name="two")]).by_kind
    assert twice["honest"].whole == 2
