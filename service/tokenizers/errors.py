"""What can be wrong with a counter's name.

CounterError
├── UnknownCounter     there is no counter of that name
└── TokenizerMissing   the extra that holds the vocabulary is not installed
"""

from __future__ import annotations

__all__ = ["CounterError", "TokenizerMissing", "UnknownCounter"]


class CounterError(Exception):
    """A token counter cannot be had."""


class UnknownCounter(CounterError):
    """There is no counter of that name."""


class TokenizerMissing(CounterError):
    """The extra that holds the vocabulary is not installed."""
