"""Traps for the checks of negations and roles, as data: the original words, a statement that twists them, and an honest
one.

`traps.json` beside this file has them, each in a chat of its own beside messages of others. Traps at even places are
for setting the lists of words (`tune`), those at odd ones for reporting (`held`). The negations under `reported` were
judged wrongly once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from abridged.service.domain.message import Message, Role

_DATA: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("traps.json").read_text(encoding="utf-8"))
_OTHERS: Final = 5


@dataclass(frozen=True)
class Trap:
    """A chat, by message number, and a statement about it; `twisted` says that the chat does not say so."""

    language: str
    messages: tuple[tuple[int, Message], ...]
    statement: str
    twisted: bool


def negations(part: str) -> Iterator[Trap]:
    """Each twice: with the statement that says the opposite, and with one that does not."""
    return _negations(_of_part(_DATA["negation"], part))


def reported() -> Iterator[Trap]:
    """Yield the traps of negations that were judged wrongly once."""
    return _negations(enumerate(_DATA["reported"]))


def _negations(cases: Iterable[tuple[int, Any]]) -> Iterator[Trap]:
    others = [case[1] for case in _DATA["negation"]]
    for place, (language, said, twisted, honest) in cases:
        turns = said.split("\n")
        speakers = (Role.USER, Role.ASSISTANT) if place % 4 < 2 else (Role.ASSISTANT, Role.USER)
        chat = _among_others(place, list(zip(speakers, turns, strict=False)), others)
        yield Trap(language, chat, twisted, twisted=True)
        yield Trap(language, chat, honest, twisted=False)


def roles(part: str) -> Iterator[Trap]:
    """Each twice: where the user does not take the proposal up, and where the user does."""
    cases = _DATA["roles"]
    for place, (language, proposal, refusal, consent, statement) in _of_part(cases, part):
        for reply, twisted in ((refusal, True), (consent, False)):
            turns = [(Role.ASSISTANT, proposal), (Role.USER, reply)]
            chat = _among_others(place, turns, [case[1] for case in _DATA["negation"]])
            yield Trap(language, chat, statement, twisted)


def mixed() -> Iterator[Trap]:
    """Messages that report one thing and propose another, put off: with a decision of the latter, and of the former."""
    for place, (language, said, honest, twisted) in enumerate(_DATA["mixed"]):
        turns = [(Role.ASSISTANT, said), (Role.USER, "Let me think about it.")]
        chat = _among_others(place, turns, [case[1] for case in _DATA["negation"]])
        yield Trap(language, chat, twisted, twisted=True)
        yield Trap(language, chat, honest, twisted=False)


def _of_part(cases: list[Any], part: str) -> Iterator[tuple[int, Any]]:
    return ((place, case) for place, case in enumerate(cases) if place % 2 == (part == "held"))


def _among_others(seed: int, turns: list[tuple[Role, str]], others: list[str]) -> tuple[tuple[int, Message], ...]:
    """The turns in a row, among messages about other things."""
    rng = Random(seed)
    own = {text for _, text in turns}
    around = [
        (rng.choice((Role.USER, Role.ASSISTANT)), text)
        for other in rng.sample(others, k=_OTHERS)
        for text in other.split("\n")[:1]
        if text not in own
    ]
    at = rng.randint(0, len(around))
    entries = [*around[:at], *turns, *around[at:]]
    return tuple((number, Message(f"m{number}", role, text)) for number, (role, text) in enumerate(entries, start=1))
