"""Errors about a counter's name.

CounterError
├── UnknownCounter      no counter has that name
├── TokenizerMissing    the extra with the vocabulary is not installed
├── VocabularyUnknown   a model's own tokenizer cannot be had: its vocabulary is of no known kind, or not readable
└── VocabularyAway      nor now, because its server does not answer
"""

from __future__ import annotations


class CounterError(Exception):
    """A token counter is not available."""


class UnknownCounter(CounterError):
    """No counter has that name."""


class TokenizerMissing(CounterError):
    """The extra with the vocabulary is not installed."""


class VocabularyUnknown(CounterError):
    """A model's own tokenizer cannot be had; the message says why, in our own words."""


class VocabularyAway(CounterError):
    """A model's vocabulary cannot be read now."""
