"""Passages in the order of their worth: what all is about, who says it, when, and what was already taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from service.domain.checks.chat_markup import leftover_markup
from service.domain.checks.draft import echoes_instructions, is_placeholder
from service.domain.checks.secrets import contains_secret
from service.extraction.cues import asks, is_courtesy, is_wish
from service.extraction.passages import Corpus, Passage
from service.extraction.salience import RANKED_MAX, centroid_scores, repetition, support_scores

__all__ = ["Scored", "diverse", "is_usable", "ranked"]

_CHOSEN_MAX: Final = 80
"""More than any record can hold: lines of the summary and key points together."""

_REPEATED: Final = 0.7
"""From this overlap on, a passage says nothing new."""

_REPETITION_WEIGHT: Final = 0.6

_LEAD_BONUS: Final = 0.2
_WISH_BONUS: Final = 0.2

_QUOTES_MIN: Final = 3
"""What one source may give when the places are shared among all sources alike; a long one among few gives more."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A passage and its worth among the others."""

    passage: Passage
    score: float


def ranked(corpus: Corpus) -> list[Scored]:
    """Every passage that says something, the best first; the first RANKED_MAX by mutual support as well.

    Of equal ones only the last: what somebody repeats in every message is not what all is about.
    """
    distinct = tuple({passage.line: passage for passage in corpus.passages}.values())
    central = centroid_scores([passage.terms for passage in distinct])
    last = max(1, len(corpus.speakers) - 1)
    rough = [
        Scored(passage, passage.weight * (score + _place_bonus(passage.source / last) + _own_bonus(passage)))
        for passage, score in zip(distinct, central, strict=True)
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


def _own_bonus(passage: Passage) -> float:
    """What opens a message says what the message is about; what somebody wants is what the talk is for."""
    wish = _WISH_BONUS if is_wish(passage.text) and not passage.by_model else 0.0
    return _LEAD_BONUS / (1 + passage.nth) + wish


def _tells(passage: Passage) -> bool:
    """Whether the sentence has more than one word of meaning, or a number."""
    return len(passage.terms) > 1 or any(map(str.isdigit, passage.text))


def _is_telling(passage: Passage) -> bool:
    return not (passage.fragment or asks(passage.text) or is_courtesy(passage.text))


def is_usable(text: str) -> bool:
    """Whether a record may hold `text`."""
    return not (is_placeholder(text) or leftover_markup(text) or contains_secret(text) or echoes_instructions(text, ""))


def diverse(best: Sequence[Scored], corpus: Corpus, *, skipped: set[str]) -> list[Passage]:
    """Passages by maximal marginal relevance; from each source at most half of its sentences, but always one.

    Questions, courtesies and fragments only where there is nothing else: what was asked and answered is in the answer,
    and what is open has its list.
    """
    share = max(_QUOTES_MIN, _CHOSEN_MAX // max(1, len(corpus.speakers)))
    counts = Counter(passage.source for passage in corpus.passages)
    left = {
        source: min(share if corpus.speakers[source] else count, max(1, count // 2)) for source, count in counts.items()
    }
    telling = [scored for scored in best if _is_telling(scored.passage)] or best
    pool = [scored for scored in telling[:RANKED_MAX] if scored.passage.line not in skipped]
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
