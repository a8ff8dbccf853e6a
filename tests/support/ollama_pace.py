"""Speed of the fake: seconds of prefill and of generation, at full scale or at a fraction of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """The speed of a server; 0 means at once.

    A prompt of which nothing is cached takes `prefill_s`, however long it is, and its tokens at `prefill_tokens_per_s`
    come on top. A cached prefix takes its share off both.
    """

    prefill_s: float = 0.0
    prefill_tokens_per_s: float = 0.0
    tokens_per_s: float = 0.0

    def scaled(self, scale: float) -> Pace:
        """The same server with every second lasting `scale` seconds: 0.01 makes it a hundred times as fast."""
        return Pace(self.prefill_s * scale, self.prefill_tokens_per_s / scale, self.tokens_per_s / scale)

    def prefill_of(self, tokens: int, *, cached: int) -> float:
        """Seconds to evaluate a prompt of `tokens`, the first `cached` of which are known."""
        fresh = tokens - cached
        by_token = fresh / self.prefill_tokens_per_s if self.prefill_tokens_per_s else 0.0
        return self.prefill_s * fresh / max(1, tokens) + by_token

    @property
    def token_s(self) -> float:
        """Seconds between two tokens of an answer."""
        return 1 / self.tokens_per_s if self.tokens_per_s else 0.0


AT_ONCE = Pace()
