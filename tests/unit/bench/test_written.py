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


def test_lies_are_caught_and_honest_statements_stand_are_quoted_or_are_lost():
    """The checks that a model's draft meets do it; the old value is told neither in the lie's words nor in others."""
    told = [
        ("honest", "The crate's code is KX-5512093-R.", 3),
        ("honest", "Somebody named Ann carries the crate.", 4),
        ("honest", "Operas bore everybody.", 1),
        ("invented_value", "The crate's code is QQ-1.", 3),
        ("old_value", "The code of the crate is KX-5500000-R.", 1),
        ("inverted", "Ann does not carry it.", 4),
    ]
    statements = [{"kind": kind, "section": "key_points", "text": text, "rests_on": [n]} for kind, text, n in told]
    fact = {"names": ["code"], "value": "KX-5512093-R", "message": 3, "was": ["KX-5500000-R"]}
    code = "The code of the crate is {}."
    said = chat_of(
        code.format("KX-5500000-R"), "Thank you.", code.format("KX-5512093-R"), "Ann carries it.",
        facts=[fact], statements=statements,
    )  # fmt: skip

    found = statements_judged([said])

    assert {kind: (share.part, share.whole) for kind, share in found.caught.items()} == {
        "invented_value": (1, 1), "old_value": (1, 1), "inverted": (1, 1),
    }  # fmt: skip
    assert (found.word_for_word.part, found.quoted.part, found.lost.part, found.lost.whole) == (1, 1, 1, 3)
    assert statements_judged([said, replace(said, name="two")]).lost.whole == 6
