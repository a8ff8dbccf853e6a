"""Whether a draft carries over the previous record's decisions and open points.

A decision is carried if half of its words occur anywhere in the draft. An open point may have been answered in other
words, so it is enough if the draft mentions the matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from service.domain.record import SummaryRecord
from service.text.words import known_share

_DECISION_TOLD: Final = 0.5
_MATTER_TOLD: Final = 0.2
"""Words of a point that a draft must contain to carry it."""

_POINTS_MIN: Final = 2
"""A single point may have become irrelevant; two that vanish together were lost."""


@dataclass(frozen=True, slots=True)
class Carried:
    """`told` of `total` points of one kind, named by `what`."""

    what: str
    told: int
    total: int

    def falls_below(self, share: float) -> bool:
        """Whether less than `share` of the points is carried."""
        return self.total >= _POINTS_MIN and self.told < share * self.total


def carried_from(previous: SummaryRecord, keys: frozenset[str]) -> tuple[Carried, ...]:
    """Which of `previous`'s decisions and open points a draft with the words `keys` carries."""
    context = previous.context
    tasks = tuple(f"{item.task} {item.owner} {item.due}" for item in context.action_items)
    decisions, open_points = context.decisions, (*context.unresolved, *tasks)
    found = (
        _carried("decisions", decisions, keys, _DECISION_TOLD),
        _carried("open points and action items", open_points, keys, _MATTER_TOLD),
    )
    if all(points.total < _POINTS_MIN for points in found):
        return (_carried("decisions and open points", (*decisions, *open_points), keys, _MATTER_TOLD),)
    return found


def _carried(what: str, points: Sequence[str], keys: frozenset[str], share: float) -> Carried:
    told = sum(known_share(point, keys).share >= share for point in points)
    return Carried(what, told, len(points))
