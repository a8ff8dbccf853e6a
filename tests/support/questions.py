"""Questions about real chats whose answer has left the window, the same in every run.

A third are people's own: those of the meetings, with the messages that answer them. The others are made from messages
of the chats with tools: `what was said about`, then every second telling word of the message's longest line, five at
most and none with a digit, so that no identifier gives the answer away. Messages are taken at even distances.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from abridged.service.text.phrases import Words, words_of
from tests.support.shared_data import shared_chats

COUNT = 100
TAIL_TOKENS = 1_500
"""The tokens that a window of 4,096 keeps verbatim, about: older messages have left it."""

_TOKEN_CHARS = 4
_WORDS_MIN, _WORDS_MAX = 3, 5
_FILES = ("airline_tool_chats.jsonl", "coding_agent_chats.jsonl", "meetings.jsonl")


@dataclass(frozen=True)
class Talk:
    """A chat: its messages' texts in order; the first `left` of them have left the window."""

    name: str
    entries: Sequence[dict[str, Any]]
    left: int


@dataclass(frozen=True)
class Question:
    """A question about a talk, and the numbers of the messages that answer it."""

    talk: str
    text: str
    answers: frozenset[int]


def talks() -> list[Talk]:
    """Every chat of the shared data. Skips the test where it is not there."""
    return [_talk(chat) for name in _FILES for chat in shared_chats(name)]


def questions() -> list[Question]:
    """COUNT questions."""
    asked = list(_of_people())
    made = [question for talk in talks() if not talk.name.startswith("meeting") for question in _made(talk)]
    wanted = COUNT - len(asked)
    step = len(made) / wanted
    return asked + [made[int(place * step)] for place in range(wanted)]


def _talk(chat: dict[str, Any]) -> Talk:
    entries = chat["messages"]
    tokens, left = 0, len(entries)
    while left and tokens < TAIL_TOKENS:
        left -= 1
        tokens += len(entries[left]["content"] or "") // _TOKEN_CHARS
    return Talk(chat["conversation_id"], entries, left)


def _of_people() -> Iterator[Question]:
    for chat in shared_chats("meetings.jsonl"):
        left = _talk(chat).left
        for query in chat["queries"]:
            # Spans count turns from 0.
            turns = {turn + 1 for first, last in query["spans"] for turn in range(int(first), int(last) + 1)}
            if turns and max(turns) <= left:
                yield Question(chat["conversation_id"], query["query"], frozenset(turns))


def _made(talk: Talk) -> Iterator[Question]:
    for number, entry in enumerate(talk.entries[: talk.left], start=1):
        lines = re.split(r"(?<=[.!?])\s|\n", entry["content"] or "")
        words = re.findall(r"[^\W\d_]{4,}", max(lines, key=len))
        telling = [word for word in words if word.casefold() not in words_of(Words.GRAMMAR)][::2][:_WORDS_MAX]
        if entry["role"] in ("user", "assistant") and len(telling) >= _WORDS_MIN:
            yield Question(talk.name, f"what was said about {' '.join(telling)}?", frozenset({number}))
