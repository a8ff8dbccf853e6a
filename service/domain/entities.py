"""The names worth carrying in a record: identifiers and recurring proper names, ranked.

Repetition and recency decide, and what the previous record carried keeps its place for a while: half of the places are
kept for carried names, so that an early technical term outlives a burst of new ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from service.domain.identifiers import IdentifierKind, identifiers

__all__ = ["ENTITY_CHARS_MAX", "ranked_entities"]

ENTITY_CHARS_MAX: Final = 200
_NUMBER_CHARS_MIN: Final = 5
"""Shorter plain numbers are quantities that mean nothing without their sentence."""

_REPEATS_MAX: Final = 5

_KIND_WEIGHTS: Final = {
    IdentifierKind.URL: 0.8,
    IdentifierKind.EMAIL: 1.0,
    IdentifierKind.UUID: 1.0,
    IdentifierKind.HASH: 0.8,
    IdentifierKind.PATH: 1.0,
    IdentifierKind.FILE: 1.0,
    IdentifierKind.TICKET: 1.2,
    IdentifierKind.VERSION: 0.8,
    IdentifierKind.CODE: 1.2,
    IdentifierKind.SYMBOL: 0.7,
    IdentifierKind.AMOUNT: 0.7,
    IdentifierKind.DATE: 0.7,
    IdentifierKind.PHONE: 1.0,
    IdentifierKind.NUMBER: 0.3,
}
"""What is worth a place, and how much; times are missing because they are not."""

_NAME_WEIGHT: Final = 0.5
_NAME: Final = re.compile(r"(?<=[a-z,;:] )[A-Z][\w-]{2,30}(?: [A-Z][\w-]{1,30}){0,2}")
_NAME_REPEATS_MIN: Final = 2

_CARRIED_FIRST: Final = 3.0
_CARRIED_LAST: Final = 1.0
_MENTION: Final = 1.0


def ranked_entities(
    texts: Sequence[str], *, carried: Sequence[str], spoken: Iterable[str], count_max: int
) -> tuple[str, ...]:
    """At most `count_max` names, the most telling first.

    `texts` are all texts, oldest first; `spoken` those of people and models, in which capitalized words are names;
    `carried` the names of the previous record in their order.
    """
    scores = _identifier_scores(texts)
    for name, score in _name_scores(spoken).items():
        scores.setdefault(name, score)
    mentioned = {name.casefold() for name in scores}
    kept = _carried_scores(carried, mentioned)
    for name in kept:
        scores.pop(name, None)
    old = sorted(kept, key=lambda name: -kept[name])[: max(count_max // 2, count_max - len(scores))]
    new = sorted(scores, key=lambda name: -scores[name])[: count_max - len(old)]
    both = {**{name: kept[name] for name in old}, **{name: scores[name] for name in new}}
    return tuple(sorted(both, key=lambda name: -both[name]))


def _identifier_scores(texts: Sequence[str]) -> dict[str, float]:
    counts: dict[str, int] = {}
    scores: dict[str, float] = {}
    for position, text in enumerate(texts, start=1):
        recency = position / len(texts)
        for found in identifiers(text):
            weight = _KIND_WEIGHTS.get(found.kind)
            if weight is None or len(found.text) > ENTITY_CHARS_MAX:
                continue
            if found.kind is IdentifierKind.NUMBER and len(found.text) < _NUMBER_CHARS_MIN:
                continue
            counts[found.text] = counts.get(found.text, 0) + 1
            scores[found.text] = weight + recency + min(counts[found.text], _REPEATS_MAX) / 2
    return scores


def _name_scores(spoken: Iterable[str]) -> dict[str, float]:
    counts: dict[str, int] = {}
    for text in spoken:
        for match in _NAME.finditer(text):
            counts[match[0]] = counts.get(match[0], 0) + 1
    return {
        name: _NAME_WEIGHT + min(count, _REPEATS_MAX) / 2
        for name, count in counts.items()
        if count >= _NAME_REPEATS_MIN
    }


def _carried_scores(carried: Sequence[str], mentioned: set[str]) -> dict[str, float]:
    """Scores that keep the carried order; being mentioned again lifts a name."""
    step = (_CARRIED_FIRST - _CARRIED_LAST) / max(1, len(carried))
    return {
        name: _CARRIED_FIRST - step * place + _MENTION * (name.casefold() in mentioned)
        for place, name in enumerate(dict.fromkeys(carried))
    }
