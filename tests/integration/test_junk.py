"""Junk that obeys the schema never becomes a record, in any language, and no message is lost to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import summary_pb2
from tests.support.junk import CHATS, JUNK, Junk, JunkChat
from tests.support.sidecar import Chat, Sidecar, said, script, sidecar

COMPLETED = conversation.SUMMARIZATION_STATE_COMPLETED
FAILED = conversation.SUMMARIZATION_STATE_FAILED

SETTINGS = {
    "policy.repair_attempts": 0,
    "policy.fallback": "never",
    "policy.preserve_recent": 2,
    "policy.min_range_tokens": 1,
    "policy.min_gain": 0.0,
}
"""One draft a pass, and as much of the chat in it as may be."""

TAIL = ("Thank you.", "You are welcome.")
"""Messages that a pass leaves in the window, so that the honest records are of nothing else than its source."""

LET_THROUGH = {
    "min_shared_words": ("one word", "generic", "generic, Japanese", "a table of nothing"),
    "min_grounded_share": ("the right names in another story", "the right names in another story, German"),
    "max_repetition": ("loop across the fields", "list of one item twenty times"),
}
"""Pieces that one floor alone holds back, by the floor; each floor looks at the model's own words."""


COMPLETED_BY_CODE = (
    "the first message of forty alone",
    *("the earlier record unchanged", "the earlier record unchanged, incident", "the earlier record reordered"),
    *("the earlier record unchanged, German", "the earlier record unchanged, Chinese"),
    *("the earlier decisions wiped", "the earlier decisions wiped, German", "the earlier decisions wiped, Chinese"),
    *("the earlier record lost to a loop", "loop in Chinese"),
)
"""Pieces that are true as far as they go: code adds the parts that they omit."""


def answers(junk: Iterable[Junk]) -> list[dict[str, Any]]:
    """The steps of a script: a piece that continues comes after the honest record of its chat."""
    return [
        {"record": record}
        for piece in junk
        for record in ([piece.chat.honest, piece.record] if piece.continues else [piece.record])
    ]


def numbered(texts: Sequence[str], first: int = 1) -> list[Any]:
    return [said(number, text) for number, text in enumerate(texts, start=first)]


async def tried(s: Sidecar, number: int, piece: Junk) -> tuple[Chat, Any]:
    """A chat of its own in which the piece was a pass's draft, and that pass."""
    chat = s.chat(f"c{number}", context_length=200_000)
    await chat.append(*numbered((*piece.chat.first, *TAIL)))
    if piece.continues:
        assert (await chat.summarize()).state == COMPLETED, piece.name
        await chat.append(*numbered(piece.chat.later, first=len(piece.chat.first) + len(TAIL) + 1))
    return chat, await chat.summarize()


async def lost(chat: Chat) -> set[int]:
    """Messages that neither the window nor a record has."""
    window = {m.number for m in (await chat.context()).messages}
    covered = {n for made in await chat.summaries() for r in made.covered for n in range(r.first, r.last + 1)}
    original = await chat.context(view=api.CONTEXT_VIEW_ORIGINAL)
    assert len(original.messages) == chat.count
    return set(range(1, chat.count + 1)) - window - covered


def test_the_corpus_is_worth_the_name():
    """Sixty pieces and more, over several chats and languages, as first records and as later ones."""
    assert len(JUNK) >= 60
    assert len({piece.name for piece in JUNK}) == len(JUNK)
    assert len({piece.chat.name for piece in JUNK}) == len(CHATS) >= 5
    assert sum(piece.continues for piece in JUNK) >= 12


@pytest.mark.parametrize("chat_name", CHATS)
async def test_no_junk_is_committed_and_no_message_is_lost(tmp_path: Path, chat_name: str):
    """The window has, after each attempt, every message that no honest record stands for."""
    junk = [piece for piece in JUNK if piece.chat.name == chat_name]
    async with sidecar(tmp_path, script(tmp_path, *answers(junk)) | SETTINGS) as s:
        committed = []
        for number, piece in enumerate(junk):
            chat, done = await tried(s, number, piece)
            if done.state != FAILED or len(await chat.summaries()) != piece.continues:
                committed.append(piece.name)
            assert await lost(chat) == set(), piece.name

        assert committed == [piece.name for piece in junk if piece.name in COMPLETED_BY_CODE]


@pytest.mark.parametrize("name", COMPLETED_BY_CODE)
async def test_code_adds_what_a_draft_leaves_out(tmp_path: Path, name: str):
    """The record has the lists of the extract, and its narrative where the draft's copies or speaks of too little."""
    (piece,) = (piece for piece in JUNK if piece.name == name)
    records = []
    for folder, models in (("drafted", {}), ("extracted", {"summarizer.models": ["extractive:"]})):
        (tmp_path / folder).mkdir()
        set_up = script(tmp_path / folder, *answers([piece])) | SETTINGS | models
        async with sidecar(tmp_path / folder, set_up) as s:
            chat, _ = await tried(s, 1, piece)
            records.append((await chat.summaries())[-1])
    drafted, extracted = records

    assert drafted.provenance == summary_pb2.PROVENANCE_MODEL
    assert {d.text for d in drafted.context.decisions} >= {d.text for d in extracted.context.decisions}
    assert {p.text for p in drafted.context.unresolved} >= {p.text for p in extracted.context.unresolved}
    assert len(drafted.summary) > len(piece.record["summary"]) / 20


@pytest.mark.parametrize("chat", CHATS.values(), ids=lambda chat: chat.name)
async def test_an_honest_record_of_the_same_chats_is_committed(tmp_path: Path, chat: JunkChat):
    """The floors let honest records through, in each language, first records and later ones."""
    honest = [record for record in (chat.honest, chat.continued) if record]
    async with sidecar(tmp_path, script(tmp_path, *({"record": r} for r in honest)) | SETTINGS) as s:
        talk = s.chat(context_length=200_000)
        await talk.append(*numbered(chat.first))
        done = [await talk.summarize()]
        if chat.continued:
            await talk.append(*numbered(chat.later, first=len(chat.first) + 1))
            done.append(await talk.summarize())

        assert [d.state for d in done] == [COMPLETED] * len(honest)


@pytest.mark.parametrize("floor", LET_THROUGH)
async def test_each_floor_holds_back_what_no_other_does(tmp_path: Path, floor: str):
    """Switched off by its setting, named pieces become records."""
    junk = [piece for piece in JUNK if piece.name in LET_THROUGH[floor]]
    assert len(junk) == len(LET_THROUGH[floor])
    off = {f"policy.{floor}": 0}
    async with sidecar(tmp_path, script(tmp_path, *answers(junk)) | SETTINGS | off) as s:
        done = [(await tried(s, number, piece))[1].state for number, piece in enumerate(junk)]

        assert done == [COMPLETED] * len(junk)


async def test_the_log_says_by_name_why_a_draft_was_refused(tmp_path: Path):
    """The line has the names of checks without content logging, and no word of the draft or the chat."""
    (piece,) = (piece for piece in JUNK if piece.name == "generic")
    async with sidecar(tmp_path, script(tmp_path, *answers([piece])) | SETTINGS) as s:
        await tried(s, 1, piece)
        (line,) = (line for line in s.logs if line["event"] == "pass.failed")

        assert line["reasons"] == ["generic"]
        assert "Marmande" not in s.log_text
