"""How much each sentence says of what its whole text is about, and how much two sentences say the same.

A term counts by how many sentences hold it, damped where nearly all do. A sentence scores by the terms it shares with
the whole (centroid), then, among a bounded number of the best, by how well the other good ones support it (TextRank:
Mihalcea and Tarau, 2004, with the overlap measure over term sets). Only basic arithmetic: the same everywhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

__all__ = ["RANKED_MAX", "Terms", "centroid_scores", "overlap", "repetition", "support_scores", "terms_of"]

Terms = frozenset[str]

RANKED_MAX: Final = 240
"""TextRank compares each sentence with each: this many take a few hundredths of a second."""

_ROUNDS: Final = 12
_DAMPING: Final = 0.85
_LENGTH_PRIOR_TERMS: Final = 6
"""Keeps a two-word sentence of frequent words from beating one that says something."""

_TERMS_MIN: Final = 5
"""Below it a line is a fragment, a label with its value."""

_TERM: Final = re.compile(r"[^\W\d_][^\W_]{1,40}")
_SPACELESS: Final = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff]")

_STOPWORD_LINES: Final = """
about after again all also am an and any are as at be because been before being but by can could did do does doing
don down each even every few for from get go going good got had has have he her here hers him his how if in into is
it its just know let like ll made make many may me mean might mine more most much must my need no nor not now of off
ok okay on once one only or other our out over own please quite re really right said same say see she should sir so
some still such sure take than thank thanks that the their them then there these they thing things think this those
through to too under until up us ve very want was way we well were what when where which while who why will with
would yeah yes yet you your hello hi
der die das und ist nicht ich wir sie ein eine mit auf für von zu den dem es auch wie aber
le la les un une des et est pas je nous vous il elle que qui dans pour sur avec mais ce au aux du
el los las una es no que con por para pero yo nosotros se su al lo
не на что мы он она они это как но по за из от же бы
"""
_STOPWORDS: Final = frozenset(_STOPWORD_LINES.split())


def terms_of(sentence: str) -> Terms:
    """The words of `sentence` that carry meaning; of scripts without spaces, the pairs of characters."""
    terms: set[str] = set()
    for word in _TERM.findall(sentence.casefold()):
        if _SPACELESS.search(word):
            terms.update(word[i : i + 2] for i in range(len(word) - 1))
        elif word not in _STOPWORDS:
            terms.add(word)
    return frozenset(terms)


def centroid_scores(sentences: Sequence[Terms]) -> list[float]:
    """For each sentence its share in what all are about, 0..1; linear in the number of terms."""
    spread = Counter(term for terms in sentences for term in terms)
    total = len(sentences)
    weights = {term: count * (total - count / 2) / total for term, count in spread.items()}
    raw = [
        sum(weights[term] for term in terms) / (len(terms) + _LENGTH_PRIOR_TERMS) * min(1, len(terms) / _TERMS_MIN)
        for terms in sentences
    ]
    return _scaled(raw)


def support_scores(sentences: Sequence[Terms]) -> list[float]:
    """TextRank of at most RANKED_MAX sentences, 0..1."""
    assert len(sentences) <= RANKED_MAX
    links = [[overlap(one, other) if one is not other else 0.0 for other in sentences] for one in sentences]
    sums = [sum(row) for row in links]
    shares = [[link / total if total else 0.0 for link in row] for row, total in zip(links, sums, strict=True)]
    scores = [1.0] * len(sentences)
    incoming = list(zip(*shares, strict=True))
    for _ in range(_ROUNDS):
        scores = [
            1 - _DAMPING + _DAMPING * sum(share * score for share, score in zip(column, scores, strict=True))
            for column in incoming
        ]
    return _scaled(scores)


def overlap(one: Terms, other: Terms) -> float:
    """How much of the shorter sentence the other repeats, 0..1; short ones count less."""
    shorter = min(len(one), len(other))
    return len(one & other) / (shorter + 1) if shorter else 0.0


def repetition(candidate: Terms, taken: Terms) -> float:
    """How much of the candidate was said already, 0..1."""
    return len(candidate & taken) / len(candidate) if candidate else 1.0


def _scaled(scores: list[float]) -> list[float]:
    highest = max(scores, default=0.0)
    return [score / highest for score in scores] if highest > 0 else scores
