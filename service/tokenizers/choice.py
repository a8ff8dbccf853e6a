"""Token counters by name, as in settings. Names are stable, because events contain them."""

from __future__ import annotations

from typing import Final

from abridged.service.domain.tokens import TokenCounter
from abridged.service.tokenizers.embedded import VOCABULARIES, EmbeddedCounter
from abridged.service.tokenizers.errors import UnknownCounter
from abridged.service.tokenizers.estimated import EstimatingCounter

_BPE_PREFIX: Final = "bpe:"

COUNTER_NAMES: Final = (EstimatingCounter.name, *(_BPE_PREFIX + vocabulary for vocabulary in VOCABULARIES))


def counter_named(name: str) -> TokenCounter:
    """The counter with that name. Raises UnknownCounter, or TokenizerMissing if its extra is not installed."""
    if name == EstimatingCounter.name:
        return EstimatingCounter()
    vocabulary = name.removeprefix(_BPE_PREFIX)
    if name.startswith(_BPE_PREFIX) and vocabulary in VOCABULARIES:
        return EmbeddedCounter(vocabulary)
    raise UnknownCounter(f"unknown token counter {name!r}; known are {', '.join(COUNTER_NAMES)}")
