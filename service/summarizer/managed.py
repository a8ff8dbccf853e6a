"""Remembers which question a model manages: the whole record, or the narrative alone.

The memory is of this process and small: how often in a row a model's first answer to the whole question could not be
used. The same answers lead to the same questions.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

_MISSES: Final = 2
"""First answers in a row that could not be used, after which the question shrinks."""

_SMALL_QUESTIONS: Final = 8
"""Questions for the narrative alone before the whole question is tried again."""

MODELS_MAX: Final = 64
"""Models that are remembered; the one asked longest ago is forgotten first."""


class Managed:
    """The memory, by the name of a model."""

    def __init__(self) -> None:
        self._misses: OrderedDict[str, int] = OrderedDict()

    def is_whole(self, model: str) -> bool:
        """Whether to ask `model` the whole question next. Each question for the narrative alone counts."""
        misses = self._misses.get(model, 0)
        if misses < _MISSES:
            return True
        if misses < _MISSES + _SMALL_QUESTIONS:
            self._remember(model, misses + 1)
            return False
        # One more miss, and the next questions are small again.
        self._remember(model, _MISSES - 1)
        return True

    def answered(self, model: str, *, used: bool) -> None:
        """Remember whether a model's first answer to the whole question could be used."""
        self._remember(model, 0 if used else self._misses.get(model, 0) + 1)

    def _remember(self, model: str, misses: int) -> None:
        self._misses[model] = misses
        self._misses.move_to_end(model)
        while len(self._misses) > MODELS_MAX:
            self._misses.popitem(last=False)
