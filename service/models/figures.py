"""Figures that a model's answers teach: the tokens of its prompts, and the time it takes to read them.

Both figures lean high, because both guard a limit: a higher value applies at once, lower ones pull the figure down
slowly. No figure is kept across restarts.
"""

from __future__ import annotations

FALL = 0.1
"""Weight of a lower value: after seven of them the figure has fallen half of the way."""

FACTOR_MIN = 0.5
FACTOR_MAX = 8.0
"""Thai and digits are estimated at a quarter to a third of their tokens; twice that exceeds any script measured."""

COUNTED_MIN = 64
"""Counted tokens below which the chat template's own text dominates the prompt's."""


class RecentHigh:
    """A decaying maximum of recent values; None before the first."""

    def __init__(self) -> None:
        self.value: float | None = None

    def see(self, value: float) -> None:
        if self.value is None or value >= self.value:
            self.value = value
        else:
            self.value += FALL * (value - self.value)

    def see_at_least(self, value: float) -> None:
        """Add a value of which only the lower bound is known."""
        if self.value is None or value > self.value:
            self.value = value


class TokenFactor:
    """The model's tokens per token of our own count, learned from whole prompts."""

    def __init__(self) -> None:
        self._factor = RecentHigh()

    @property
    def value(self) -> float:
        """The factor, from FACTOR_MIN to FACTOR_MAX; 1.0 before the first prompt."""
        learned = self._factor.value
        return 1.0 if learned is None else min(FACTOR_MAX, max(FACTOR_MIN, learned))

    def learn(self, *, counted: int, tokens: int) -> None:
        """Learn from a prompt of `counted` tokens by our own count and `tokens` by the model's."""
        if counted >= COUNTED_MIN:
            self._factor.see(min(FACTOR_MAX, tokens / counted))

    def learn_at_least(self, *, counted: int, tokens: int) -> None:
        """Learn as `learn` does, from a prompt that may have more than `tokens`."""
        if counted >= COUNTED_MIN and tokens / counted > self.value:
            self._factor.see_at_least(min(FACTOR_MAX, tokens / counted))
