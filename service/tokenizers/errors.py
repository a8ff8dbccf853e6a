"""Errors about a counter's name.

CounterError
├── UnknownCounter     no counter has that name
└── TokenizerMissing   the extra with the vocabulary is not installed
"""

from __future__ import annotations

__all__ = ["CounterError", "TokenizerMissing", "UnknownCounter"]


class CounterError(Exception):
    """A token counter is not available."""


class UnknownCounter(CounterError):
    """No counter has that name."""


class TokenizerMissing(CounterError):
    """The extra with the vocabulary is not installed."""
