"""Instruments of what chat models read: how often their prompts were rewritten, and how much came from a cache."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from observability.facts import RewriteCause

__all__ = ["PromptInstruments"]


class PromptInstruments:
    """Eight series."""

    def __init__(self, registry: CollectorRegistry) -> None:
        rewrites = Counter(
            "abridged_window_rewrites",
            "How often did a window change elsewhere than at its end, and why?",
            ("cause",),
            registry=registry,
        )
        self._rewrites = {cause: rewrites.labels(cause.value) for cause in RewriteCause}
        tokens = Counter(
            "abridged_prompt_tokens",
            "How many prompt tokens were reported, with (hit) and without (miss) coming from the provider's cache?",
            ("cache",),
            registry=registry,
        )
        self._hit, self._miss = tokens.labels("hit"), tokens.labels("miss")

    def rewritten(self, cause: RewriteCause) -> None:
        """Count a rewritten window."""
        self._rewrites[cause].inc()

    def reported(self, prompt_tokens: int, cached_tokens: int) -> None:
        """Count a prompt and how many of its tokens came from a cache."""
        self._hit.inc(cached_tokens)
        self._miss.inc(prompt_tokens - cached_tokens)
