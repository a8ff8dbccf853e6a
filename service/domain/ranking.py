"""Passages in the order of their worth: what all is about, who says it, when, and what was already taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from service.domain.chat_markup import leftover_markup
from service.domain.checks import echoes_instructions, is_placeholder
from service.domain.passages import Corpus, Passage
from service.domain.salience import RANKED_MAX, centroid_scores, repetition, support_scores
from service.domain.secrets import contains_secret

__all__ = ["Scored", "diverse", "is_usable", "ranked"]

_CHOSEN_MAX: Final = 80
"""More than any record can hold: lines of the summary and key points together."""

_REPEATED: Final = 0.7
"""From this overlap on, a passage says nothing new."""

_REPETITION_WEIGHT: Final = 0.6


@dataclass(frozen=True, slots=True)
class Scored:
    """A passage and its worth among the others."""

    passage: Passage
    score: float


def ranked(corpus: Corpus) -> list[Scored]:
    """Every passage that says something, the best first; the first RANKED_MAX by mutual support as well."""
    central = centroid_scores([passage.terms for passage in corpus.passages])
    last = max(1, len(corpus.speakers) - 1)
    rough = [
        Scored(passage, passage.weight * (score + _place_bonus(passage.source / last)))
        for passage, score in zip(corpus.passages, central, strict=True)
        if _tells(passage) and is_usable(passage.text) and is_usable(passage.line)
    ]
    rough.sort(key=lambda scored: -scored.score)
    head = rough[:RANKED_MAX]
    support = support_scores([scored.passage.terms for scored in head])
    supported = [
        Scored(scored.passage, scored.score + scored.passage.weight * share / 2)
        for scored, share in zip(head, support, strict=True)
    ]
    supported.sort(key=lambda scored: -scored.score)
    return supported + rough[RANKED_MAX:]


def _place_bonus(place: float) -> float:
    """What opens a conversation says what it is about; what ends it says where it stands. `place` is 0..1."""
    return 0.3 * max(1 - 8 * place, place**2)


def _tells(passage: Passage) -> bool:
    """Whether the sentence has more than one word of meaning, or a number."""
    return len(passage.terms) > 1 or any(map(str.isdigit, passage.text))


def is_usable(text: str) -> bool:
    """Whether a record may hold `text`."""
    return not (is_placeholder(text) or leftover_markup(text) or contains_secret(text) or echoes_instructions(text, ""))


def diverse(best: Sequence[Scored], corpus: Corpus, *, skipped: set[str]) -> list[Passage]:
    """Passages by maximal marginal relevance; from each source at most half of its sentences, but always one."""
    left = {source: max(1, count // 2) for source, count in Counter(p.source for p in corpus.passages).items()}
    pool = [scored for scored in best[:RANKED_MAX] if scored.passage.line not in skipped]
    repeated = [0.0] * len(pool)
    chosen: list[Passage] = []
    while pool and len(chosen) < _CHOSEN_MAX:
        index = max(range(len(pool)), key=lambda i: pool[i].score - _REPETITION_WEIGHT * repeated[i])
        passage, redundancy = pool.pop(index).passage, repeated.pop(index)
        if redundancy >= _REPEATED or not left[passage.source]:
            continue
        left[passage.source] -= 1
        chosen.append(passage)
        repeated = [
            max(known, repetition(scored.passage.terms, passage.terms))
            for scored, known in zip(pool, repeated, strict=True)
        ]
    return chosen
