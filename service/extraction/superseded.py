"""Finds the values that a later message supersedes, and lets what it says take the place of what was said before.

A ledger lets a statement supersede one value, the likeliest. An extract leaves out every sentence with a value that a
later one supersedes, if that is more likely than not: what else the sentence says may stand in the ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from abridged.service.domain.ledger_entries import LISTED_MIN, stated_by
from abridged.service.domain.standing_values import StandingValues, odds_of, shape_of, told_by
from abridged.service.extraction.cues import has_value
from abridged.service.extraction.passages import Passage, Scored
from abridged.service.extraction.replaced import superseding
from abridged.service.text.mentions import mentions

_SUPERSEDED_FROM: Final = 0.0
"""The log odds from which on a value counts as superseded."""


def superseded_in(passages: Iterable[Passage]) -> dict[str, int]:
    """The values in sentences of people and models that have a number, and that a later one of another message
    supersedes: case folded, each with that message.

    A value that is named again holds again, and one of a family does unless a phrase of change is said.
    """
    standing, found, changed = StandingValues(), dict[str, int](), set[str]()
    spoken = (passage for passage in passages if passage.speaker and has_value(passage.text))
    for number, said in groupby(spoken, key=lambda passage: passage.numbers[-1]):
        named = [mention for passage in said for mention in mentions(passage.text, said=True)]
        shapes = {mention.text.casefold(): shape_of(mention.text.casefold()) for mention in named}
        times = Counter(shapes.values())
        for key in shapes:
            found.pop(key, None)
            standing.named_again(key, number)
        for mention in named:
            key, words = mention.text.casefold(), mention.words
            is_listed = times[shapes[key]] >= LISTED_MIN
            stated = stated_by(mention, number, told_by(words.sentence), is_listed=is_listed)
            if not words.supposed:
                gone = {old for old, signs in standing.candidates(stated) if odds_of(signs) >= _SUPERSEDED_FROM}
                gone |= {key} if words.dropped else set()
                found |= dict.fromkeys(gone, number)
                changed |= gone if stated.told is not None and stated.told.says else set()
            standing.stands(stated)
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
