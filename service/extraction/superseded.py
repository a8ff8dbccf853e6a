"""Finds the values that a later message supersedes, and lets what it says take the place of what was said before.

A ledger lets a statement supersede one value, the likeliest. An extract leaves out every sentence with a value that a
later one supersedes, if that is more likely than not: what else the sentence says may stand in the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from abridged.service.domain.standing_values import StandingValues
from abridged.service.extraction.cues import has_value
from abridged.service.extraction.passages import Passage, Scored
from abridged.service.extraction.replaced import superseding
from abridged.service.grounding.succession import values_said

_LEFT_OUT_FROM: Final = 0.0
"""The log odds from which on a value counts as superseded. A ledger takes the likeliest alone and has a lower bar."""


def superseded_in(passages: Iterable[Passage]) -> dict[str, int]:
    """The values in sentences of people and models that have a number, and that a later one of another message
    supersedes: case folded, each with that message.

    A value that is named again holds again, and one of a family does unless a phrase of change is said.
    """
    standing, found, changed = StandingValues(), dict[str, int](), set[str]()
    spoken = ((one.numbers[-1], one.text) for one in passages if one.speaker and has_value(one.text))
    for _, mention, stated, supersedes in values_said(spoken, standing):
        if found.get(stated.key, stated.number) != stated.number:
            del found[stated.key]
        gone = {old for old, odds in supersedes if odds >= _LEFT_OUT_FROM}
        if mention.words.dropped and not mention.words.supposed:
            gone.add(stated.key)
        found |= dict.fromkeys(gone, stated.number)
        changed |= gone if stated.told is not None and stated.told.says else set()
    return {key: number for key, number in found.items() if key in changed or not standing.is_in_family(key)}


def succeeded(best: Sequence[Scored], superseded: Mapping[str, int]) -> list[Scored]:
    """The passages without those whose value a later message supersedes, best first.

    What that message says with a value is worth as much as the passage in whose place it stands.
    """
    gone = {one.passage.place: by for one in best if (by := _superseding(one.passage, superseded))}
    worth: dict[int, float] = {}
    for one in best:
        if one.passage.place in gone:
            worth.setdefault(gone[one.passage.place], one.score)
    left = (_worth(one, worth) for one in best if one.passage.place not in gone)
    return sorted(left, key=lambda one: -one.score)


def _superseding(passage: Passage, superseded: Mapping[str, int]) -> int:
    return superseding(passage.text, superseded, said=passage.numbers[-1] if passage.numbers else 0)


def _worth(one: Scored, worth: Mapping[int, float]) -> Scored:
    number = one.passage.numbers[-1] if one.passage.numbers and has_value(one.passage.text) else 0
    return replace(one, score=max(one.score, worth.get(number, 0.0)))
