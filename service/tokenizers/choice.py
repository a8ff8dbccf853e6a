"""Token counters by name: `estimate` or `bpe`, with the vocabulary. Names are stable, because events contain them."""

from __future__ import annotations

from abridged.service.domain.tokens import TokenCounter
from abridged.service.tokenizers.embedded import VOCABULARIES, EmbeddedCounter
from abridged.service.tokenizers.errors import UnknownCounter
from abridged.service.tokenizers.estimated import EstimatingCounter, estimated_vocabularies


def counter_names() -> tuple[str, ...]:
    """The names of all counters."""
    return (
        *(f"estimate:{vocabulary}" for vocabulary in estimated_vocabularies()),
        *(f"bpe:{vocabulary}" for vocabulary in VOCABULARIES),
    )


def counter_named(name: str) -> TokenCounter:
    """The counter with that name. Raises UnknownCounter, or TokenizerMissing if its extra is not installed."""
    if name not in (names := counter_names()):
        raise UnknownCounter(f"unknown token counter {name!r}; known are {', '.join(names)}")
    kind, _, vocabulary = name.partition(":")
    return EstimatingCounter(vocabulary) if kind == "estimate" else EmbeddedCounter(vocabulary)
