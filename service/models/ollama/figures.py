"""What the answers of a model teach about it: how many tokens its prompts really have, and how long they take.

Both figures lean to the high side, because both guard a limit: a higher value is believed at once, lower ones pull the
figure down slowly. Nothing is kept over a restart.
"""

from __future__ import annotations

__all__ = ["RecentHigh", "TokenFactor"]

FALL = 0.1
"""Weight of a lower value: after seven of them the figure has come half of the way down."""

FACTOR_MIN = 0.5
FACTOR_MAX = 8.0
"""Thai and digits are estimated at a quarter to a third of what they are; twice that is beyond any script measured."""

COUNTED_MIN = 64
"""Below this many counted tokens the chat template's own text outweighs the prompt's."""


class RecentHigh:
    """The highest of the values of late. None before the first."""

    def __init__(self) -> None:
        self.value: float | None = None

    def see(self, value: float) -> None:
        """Take in one more value."""
        if self.value is None or value >= self.value:
            self.value = value
        else:
            self.value += FALL * (value - self.value)

    def see_at_least(self, value: float) -> None:
        """Take in a value of which only the lower bound is known."""
        if self.value is None or value > self.value:
            self.value = value


class TokenFactor:
    """Tokens of the model for one of our own count, learned from whole prompts."""

    def __init__(self) -> None:
        self._factor = RecentHigh()

    @property
    def value(self) -> float:
        """The factor, within its bounds; 1.0 before the first lesson."""
        learned = self._factor.value
        return 1.0 if learned is None else min(FACTOR_MAX, max(FACTOR_MIN, learned))

    def learn(self, *, counted: int, tokens: int) -> None:
        """A prompt of `counted` tokens by our own count has `tokens` of the model's."""
        if counted >= COUNTED_MIN:
            self._factor.see(min(FACTOR_MAX, tokens / counted))

    def learn_at_least(self, *, counted: int, tokens: int) -> None:
        """As `learn`, where the prompt may have more tokens than those."""
        if counted >= COUNTED_MIN and tokens / counted > self.value:
            self._factor.see_at_least(min(FACTOR_MAX, tokens / counted))
