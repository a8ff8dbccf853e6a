"""Tells a value that a sentence gives to something far from where the source has it.

Nothing binds a value to its name in a sentence that a model told in its own words. But whoever said the value said what
it is of, there or a few messages away: where hardly any of the sentence's words stand near the value, and most of
them stand elsewhere, the value is of something else.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Final

from abridged.service.domain.message import Message
from abridged.service.grounding.claims import texts_of
from abridged.service.text.identifiers import numerals
from abridged.service.text.sentences import Terms, terms_of

_NEAR_SHARE: Final = 0.25
"""Least share of what the best place of a sentence has of its words, for a place that has its values. Of statements by
other writers that may be read, a third of those with another's value are below it, and no honest one that is not taken
out for something else."""

_BESIDE_WEIGHT: Final = 0.5
_REACH: Final = 4
"""Weight of a word in one of so many messages before or after."""


class Neighbourhood:
    """The words and values of messages, in their order, and the values of what is read `beside` them, such as an
    earlier record. Reads them when it is first asked."""

    def __init__(self, messages: Sequence[Message], beside: Collection[str] = ()) -> None:
        self._messages = messages
        self._beside = beside

    def is_apart(self, sentence: str) -> bool:
        """Return whether no message that has the sentence's values is about what the rest of the sentence is about.
        False for a sentence without values, for values that no message has, and for those of texts beside them. Time
        goes with the messages."""
        values = _values_of(sentence)
        if not values.isdisjoint(self._known_beside):
            return False
        holders = [at for at, said in enumerate(self._values) if values <= said] if values else []
        if not holders:
            return False
        words = terms_of(_without(sentence, values))
        best = max(self._weight(at, words) for at in range(len(self._messages)))
        return max(self._weight(at, words) for at in holders) < _NEAR_SHARE * best

    @cached_property
    def _known_beside(self) -> frozenset[str]:
        return frozenset[str]().union(*map(_values_of, self._beside))

    @cached_property
    def _texts(self) -> list[str]:
        return [" ".join(texts_of(message)) for message in self._messages]

    @cached_property
    def _values(self) -> list[frozenset[str]]:
        return [_values_of(text) for text in self._texts]

    @cached_property
    def _terms(self) -> list[Terms]:
        return [terms_of(text) for text in self._texts]

    @cached_property
    def _times(self) -> Counter[str]:
        return Counter(term for terms in self._terms for term in terms)

    def _weight(self, at: int, words: Terms) -> float:
        here = self._terms[at] & words
        beside = frozenset[str]().union(*self._terms[max(0, at - _REACH) : at + _REACH + 1]) & words - here
        return math.fsum(map(self._rarity, here)) + _BESIDE_WEIGHT * math.fsum(map(self._rarity, beside))

    def _rarity(self, word: str) -> float:
        return math.log((len(self._terms) + 1) / (self._times[word] + 0.5))


def _values_of(text: str) -> frozenset[str]:
    return frozenset(found.text.casefold() for found in numerals(text))


def _without(sentence: str, values: frozenset[str]) -> str:
    text = sentence.casefold()
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, " ")
    return text
