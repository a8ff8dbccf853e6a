"""BEAM, a public benchmark of long chats: whether searches find the messages that its questions rest on.

Each chat is a folder with `chat.json` and `probing_questions/probing_questions.json`, which names the source messages
of each question. Fetch the benchmark before you measure: this repository has no part of it.

A source is found if it is in one of the first hits, which are exchanges. An answer stands in a text if each of its
values does: its numbers and its words with a capital inside a sentence, of those that its sources have and its question
has not. The measure asks no judge, and every run counts the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

SEEN_MAX: Final = 10
"""Chats of 100K tokens with these numbers were read by whoever wrote the code. The others are only scored."""

SEEN_FOLDER: Final = "100K"
SCORED, SEEN = HALVES = ("only scored", "seen")

_UPDATE: Final = "knowledge_update"
_VALUE: Final = re.compile(r"(?<![\w.])\$?\d[\w.,:/%-]*(?!\w|\))|(?<=[\w,;] )[A-Z][\w.+-]*\w")
_ANSWERS: Final = ("answer", "ideal_answer", "ideal_summary")


@dataclass(frozen=True, slots=True)
class BeamQuestion:
    """A question of a chat.

    Attributes:
        category: BEAM's name of its kind.
        text: The question.
        sources: The numbers of the messages that it rests on; none if the chat has no answer.
        values: The values of its answer; empty where it has none that can be looked for.
        rule: The standing instruction that it tests; empty for most.
    """

    category: str
    text: str
    sources: frozenset[int]
    values: tuple[str, ...]
    rule: str

    def has_newest_first(self, order: Iterable[Container[int]]) -> bool | None:
        """Return whether the newest of the messages that update a fact is in one of the order before the oldest; None
        for a question of something else."""
        if self.category != _UPDATE or len(self.sources) == 1:
            return None
        newest, oldest = max(self.sources), min(self.sources)
        told = next((found for found in order if newest in found or oldest in found), ())
        return newest in told and oldest not in told


@dataclass(frozen=True, slots=True)
class BeamChat:
    """A chat: its messages as role and text, the first with number 1, and its questions."""

    name: str
    half: str
    messages: Sequence[tuple[str, str]]
    questions: Sequence[BeamQuestion]

    @property
    def conversation(self) -> str:
        """The conversation's id in a sidecar."""
        return f"beam-{self.name}"


def beam_chats(folder: Path) -> Iterator[BeamChat]:
    """The chats of a folder such as BEAM's `chats/100K`, by their numbers."""
    numbered = (path for path in folder.iterdir() if path.name.isdecimal())
    for path in sorted(numbered, key=lambda path: int(path.name)):
        batches = json.loads((path / "chat.json").read_text("utf-8"))
        said = [message for batch in batches for turn in batch["turns"] for message in turn]
        messages = [(str(one["role"]), str(one["content"])) for one in said]
        numbers = {one["id"]: number for number, one in enumerate(said, 1)}
        asked = json.loads((path / "probing_questions" / "probing_questions.json").read_text("utf-8"))
        questions = [
            _question(category, one, messages, numbers) for category, listed in asked.items() for one in listed
        ]
        is_seen = folder.name == SEEN_FOLDER and int(path.name) <= SEEN_MAX
        yield BeamChat(path.name, SEEN if is_seen else SCORED, messages, questions)


def _question(
    category: str, asked: dict[str, Any], messages: Sequence[tuple[str, str]], numbers: dict[int, int]
) -> BeamQuestion:
    sources = frozenset(numbers[one] for one in _ids(asked.get("source_chat_ids")) if one in numbers)
    answer = next((str(asked[name]) for name in _ANSWERS if name in asked), "")
    text, question = "\n".join(messages[number - 1][1] for number in sorted(sources)), str(asked["question"])
    told = told_values(answer, question, text)
    return BeamQuestion(category, question, sources, told, str(asked.get("instruction_being_tested", "")))


def told_values(answer: str, question: str, text: str) -> tuple[str, ...]:
    """The values of an answer that its sources' text has, and the question has not."""
    values = dict.fromkeys(found[0].rstrip(".,:/-") for found in _VALUE.finditer(answer))
    return tuple(value for value in values if value and not _has(question, value) and _has(text, value))


def _ids(named: object) -> Iterator[int]:
    """The ids in what BEAM names as sources: a list, nested or not, or lists by their part in the question."""
    if isinstance(named, int):
        yield named
    elif isinstance(named, dict | list):
        for one in named.values() if isinstance(named, dict) else named:
            yield from _ids(one)


def stands(values: Iterable[str], text: str) -> bool:
    """Return whether the text has all of the values."""
    return all(_has(text, value) for value in values)


def _has(text: str, value: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(value)}(?!\w)", text) is not None
