"""Makes one order of several, by exchanges and by rank. Pure.

A rank says the same in each order and a score does not. A score is the sum of weight * strength / (FUSION_K + rank)
over the orders that have the unit (Cormack, Clarke and Buettcher, Reciprocal Rank Fusion outperforms Condorcet and
individual Rank Learning Methods, SIGIR 2009). The strength of an entry in an order is the evidence for its place: the
first of an order may be there because none is better.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from abridged.service.recall.search import HITS_MAX, Mode

FUSION_K = 10
"""The paper has 60, for orders of a thousand. The first ranks of the shorter orders here tell more; docs/quality.md has
the figures."""

Unit = tuple[int, int]
"""A conversation's number and that of an exchange, or a record's id and 0."""


class Ranked(NamedTuple):
    """An entry in an order. Its `strength` is the share of the order's weight that counts for it, from 0 to 1."""

    entry: int
    score: float
    piece: int | None = None
    similarity: float | None = None
    found_by: Mode = Mode.WORDS
    strength: float = 1.0


def by_unit(order: Iterable[Ranked], units: Mapping[int, Unit]) -> dict[Unit, Ranked]:
    """The best entry of each unit, in the order of these."""
    best: dict[Unit, Ranked] = {}
    for ranked in order:
        if len(best) < HITS_MAX:
            best.setdefault(units[ranked.entry], ranked)
    return best


def fused(orders: Iterable[tuple[Mapping[Unit, Ranked], float]]) -> list[Ranked]:
    """One order from several with their weights, by reciprocal ranks; of equals the newer entry is first."""
    scores: dict[Unit, float] = {}
    shown: dict[Unit, Ranked] = {}
    for order, weight in orders:
        for rank, (unit, ranked) in enumerate(order.items(), start=1):
            scores[unit] = scores.get(unit, 0.0) + weight * ranked.strength / (FUSION_K + rank)
            # Found words show the right passage better than a near piece.
            first = shown.setdefault(unit, ranked)
            if first.similarity is None and ranked.similarity is not None:
                shown[unit] = first._replace(similarity=ranked.similarity, found_by=Mode.BOTH)
    made = [ranked._replace(score=scores[unit]) for unit, ranked in shown.items()]
    return sorted(made, key=lambda ranked: (-ranked.score, -ranked.entry))
