"""Tells a value that a sentence gives to something far from where the source has it.

Nothing binds a value to its name in a sentence that a model told in its own words. But whoever said the value said what
it is of, there or a few messages away: where hardly any of the sentence's words stand near the value, and most of
them stand elsewhere, the value is of something else.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final

from abridged.service.grounding.required import Named
from abridged.service.text.identifiers import Identifier, numerals
from abridged.service.text.sentences import Terms, terms_of

_NEAR_SHARE: Final = 0.25
"""Least share of what the best place of a sentence has of its words, for a place that has its values. Of statements by
other writers that may be read, a third of those with another's value are below it, and no honest one that is not taken
out for something else."""

_REACH: Final = 4
"""Messages before and after one that may say what its values are of."""

_BESIDE_WEIGHT: Final = 0.5
"""Weight of a word in these, where one in the message itself weighs 1."""


class Neighbourhood:
    """The words and values of messages, in their order, and the values of what is read `beside` them, such as an
    earlier record. Reads the words when it is first asked."""

    def __init__(self, messages: Sequence[Named], beside: Sequence[Named] = ()) -> None:
        self._messages = messages
        self._beside = beside

    def is_apart(self, sentence: str) -> bool:
        """Return whether no message that has the sentence's values is about what the rest of the sentence is about.
        False for a sentence without values, for values that no message has, and for those of texts beside them. Time
        goes with the messages."""
        values = _values(numerals(sentence))
        if not values.isdisjoint(self._known_beside):
            return False
        holders = [at for at, said in enumerate(self._messages) if values <= _values(said.found)] if values else []
        if not holders:
            return False
        words = terms_of(_without(sentence, values))
        best = max(self._weight(at, words) for at in range(len(self._messages)))
        return max(self._weight(at, words) for at in holders) < _NEAR_SHARE * best

    @cached_property
    def _known_beside(self) -> frozenset[str]:
        return frozenset[str]().union(*(_values(text.found) for text in self._beside))

    @cached_property
    def _terms(self) -> list[Terms]:
        return [terms_of(said.text) for said in self._messages]

    @cached_property
    def _times(self) -> Counter[str]:
        return Counter(term for terms in self._terms for term in terms)

    def _weight(self, at: int, words: Terms) -> float:
        here = self._terms[at] & words
        beside = frozenset[str]().union(*self._terms[max(0, at - _REACH) : at + _REACH + 1]) & words - here
        return math.fsum(map(self._rarity, here)) + _BESIDE_WEIGHT * math.fsum(map(self._rarity, beside))

    def _rarity(self, word: str) -> float:
        return math.log((len(self._terms) + 1) / (self._times[word] + 0.5))


def _values(found: Iterable[Identifier]) -> frozenset[str]:
    return frozenset(one.text.casefold() for one in found)


def _without(sentence: str, values: frozenset[str]) -> str:
    text = sentence.casefold()
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, " ")
    return text
