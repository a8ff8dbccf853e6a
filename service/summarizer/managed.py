"""Remembers which question a summarizer's models manage: the whole record, or the narrative alone.

The memory is of this process, and one number: how often in a row a first answer to the whole question could not be
used. The same answers lead to the same questions. A list of models has one memory, because who of them answers is known
only afterwards.
"""

from __future__ import annotations

from typing import Final

_MISSES: Final = 2
"""First answers in a row that could not be used, after which the question shrinks."""

_SMALL_QUESTIONS: Final = 8
"""Questions for the narrative alone before the whole question is tried again."""


class Managed:
    """The memory of one summarizer."""

    def __init__(self) -> None:
        self._misses = 0

    def is_whole(self) -> bool:
        """Return whether to ask the whole question next. Each question for the narrative alone counts."""
        if self._misses < _MISSES:
            return True
        if self._misses < _MISSES + _SMALL_QUESTIONS:
            self._misses += 1
            return False
        # One more miss, and the next questions are small again.
        self._misses = _MISSES - 1
        return True

    def answered(self, *, used: bool) -> None:
        """Remember whether a first answer to the whole question could be used."""
        self._misses = 0 if used else self._misses + 1
