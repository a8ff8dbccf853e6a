"""Tells whether the words of a statement belong to its values in the source: `The deposit is 120 EUR`, which the room
costs.

A value belongs to the words of its neighbourhood: its sentence, the sentences around it, the question that it answers.
Words of a statement that stand beside another value, and not in the neighbourhood of the statement's own, speak against
it, and words of that neighbourhood for it; they weigh by rarity. A value is replaced if a user later says one of the
same shape of the same words. A value that stands everywhere binds nothing, so the work for a statement is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Final, NamedTuple

from abridged.service.domain.message import Role
from abridged.service.grounding.reading import Passage, Sentence, Value, Word, sentence_of, words_in
from abridged.service.text.phrases import Phrase, has_phrase
from abridged.service.text.sentences import parts_of
from abridged.service.text.words import folded, word_keys

PLACES_MAX: Final = 64
"""A value in more passages than this is a subject of the whole conversation, and belongs to nothing else."""

VALUES_MAX: Final = 8
WORDS_MAX: Final = 48
"""The most words of a statement that count: a longer one is a list."""

_VALUE_CHARS_MIN: Final = 2
"""A single digit stands anywhere."""

_WORDS_MIN: Final = 2
"""Words of a statement that a neighbourhood must have."""

_BESIDE, _BEFORE, _AFTER = 0.7, 0.75, 0.55
"""Shares to which a word belongs to a value of another sentence of its passage or message, of the message after its
own, of the one before. Other shares from 0.4 to 0.9 made no difference of more than 0.02."""

_ELSEWHERE: Final = 0.7
"""The same for values that are not the statement's, in its passage and the message after it."""

_GAIN, _OWN, _BIAS = 0.41, 0.39, 0.2
"""Weights of what speaks against a statement and for it, in natural logarithms of rarity, and of doubt. Logistic
regression over the honest statements of bench/written/seen and the same with another value; docs/adr/0054 has its
figures when each language is left out in turn."""

_REPLACED, _CHANGED = 1.1, 0.6
"""The multiples of the weight of a value's words that a later value of its shape must have, alone and beside a word of
change: without one, two values in like sentences are two things."""

_TELLING, _IN_SENTENCE, _NEAR = 0.8, 0.6, 0.5
"""A word with this much of the greatest weight tells what a value belongs to, if this share of it stands beside it. The
value that replaces it must have this share of that word."""


class Bound(NamedTuple):
    """A value of a statement before its source.

    Attributes:
        place: The passage that has the value and most of the statement's words.
        own: Weight of the statement's words in the neighbourhood of the value.
        gain: Weight of those that stand beside another value instead.
        is_replaced: True if a user later gives another value to what the statement speaks of.
    """

    place: int
    own: float
    gain: float
    is_replaced: bool

    @property
    def is_wrong(self) -> bool:
        """True if the statement gives the value to what has another one."""
        return self.is_replaced or _GAIN * self.gain - _OWN * self.own > _BIAS


@dataclass(frozen=True, slots=True)
class _Said:
    """A statement: its values, its telling words with their weights, and how far places have them."""

    values: tuple[Value, ...]
    words: Sequence[Word]
    weights: Sequence[float]
    shares: dict[int, list[list[float]]]

    def weight(self, shares: Iterable[float]) -> float:
        return sum(weight * share for weight, share in zip(self.weights, shares, strict=True))


class Binding:
    """Finds the neighbourhoods of values. `places_of` returns the passages that have one of some keys, `rarity` the
    weight of a word."""

    def __init__(
        self,
        passages: Sequence[Passage],
        places_of: Callable[[Collection[str]], Collection[int]],
        rarity: Callable[[str], float],
    ) -> None:
        self._passages = passages
        self._places_of = places_of
        self._rarity = rarity
        self._read: dict[int, tuple[Sentence, ...]] = {}

    def bound(self, statement: str, near: Sequence[int]) -> Iterator[Bound]:
        """Yields every value of `statement` that has a place in the source, judged beside the values of the passages
        `near` it."""
        whole = sentence_of(statement)
        if not whole.values:
            return
        said = self._said(whole.rest, whole.values)
        known = frozenset(key for value in said.values for key in value.keys)
        elsewhere = [shares for place in near for shares in self._elsewhere(place, said, known)]
        for value in said.values[:VALUES_MAX]:
            places = self._places(value, near)
            around = [(place, shares) for place in places for shares in self._around(place, said, value.keys)]
            if not around:
                continue
            best = max(around, key=lambda found: said.weight(found[1]))
            own = said.weight(best[1])
            widest = [max(column) for column in zip(*(shares for _, shares in around), strict=True)]
            gains = (said.weight(max(0.0, a - b) for a, b in zip(shares, widest, strict=True)) for shares in elsewhere)
            is_replaced = self._is_replaced(value, places[-1], near, said, known, best[1])
            yield Bound(best[0], own, max(gains, default=0.0), is_replaced)

    def nearest(self, statement: str, near: Iterable[int]) -> tuple[int, float] | None:
        """The passage of `near` with most of the statement's words around it, and their share of its weight."""
        said = self._said(folded(statement))
        whole = sum(said.weights)
        found = (
            (place, said.weight(shares) / whole)
            for place in near
            for shares in self._around(place, said)
            if sum(word.share for word, share in zip(said.words, shares, strict=True) if share) >= _WORDS_MIN
        )
        return max(found, key=lambda one: one[1], default=None) if whole else None

    def _said(self, text: str, values: tuple[Value, ...] = ()) -> _Said:
        found = {word: word.share * self._rarity(word.key) for word in words_in(text)}
        words = nlargest(WORDS_MAX, found, key=lambda word: found[word])
        return _Said(values, words, [found[word] for word in words], {})

    def _places(self, value: Value, near: Iterable[int]) -> list[int]:
        """The passages that have a value as it is written, or else in another notation.

        The value's words find them, or those of the statement if it has none. Empty if more than PLACES_MAX may have
        it.
        """
        if len(value.written) < _VALUE_CHARS_MIN:
            return []
        having = [set(self._places_of((key,))) for key in word_keys(value.text)]
        found = {*self._places_of(value.keys), *(set.intersection(*having) if having else near)}
        if len(found) > PLACES_MAX:
            return []
        for keys in (frozenset((value.written,)), value.keys):
            if places := sorted(p for p in found if any(sentence.has(keys) for sentence in self._sentences(p))):
                return places
        return []

    def _is_replaced(
        self, value: Value, last: int, near: Iterable[int], said: _Said, known: frozenset[str], own: Sequence[float]
    ) -> bool:
        """Return whether a user says another value of the same words after the last passage that has this one."""
        weight = said.weight(own)
        weights = [at if share >= _IN_SENTENCE else 0.0 for at, share in zip(said.weights, own, strict=True)]
        telling = [at for at, one in enumerate(weights) if one and one >= _TELLING * max(weights)]
        for place in near:
            passage = self._passages[place]
            if passage.role is not Role.USER or passage.source <= self._passages[last].source:
                continue
            asked = weight * (_CHANGED if has_phrase(folded(passage.text), Phrase.CORRECTS) else _REPLACED)
            for sentence, shares in zip(self._sentences(place), self._around(place, said), strict=True):
                is_like = any(v.shape == value.shape and v.keys.isdisjoint(known) for v in sentence.values)
                if is_like and said.weight(shares) >= asked and all(shares[at] >= _NEAR for at in telling):
                    return True
        return False

    def _around(self, place: int, said: _Said, keys: Collection[str] = ()) -> Iterator[list[float]]:
        """Yield the share of each word in the neighbourhood of each sentence of a passage, or of each that has a
        value."""
        wide = self._beside(place, said, _BESIDE)
        for beside, share in self._neighbours(place):
            for shares in self._shares(beside, said):
                wide = [max(a, share * b) for a, b in zip(wide, shares, strict=True)]
        for sentence, shares in zip(self._sentences(place), self._shares(place, said), strict=True):
            if not keys or sentence.has(keys):
                yield [*map(max, wide, shares)]

    def _elsewhere(self, place: int, said: _Said, known: frozenset[str]) -> Iterator[list[float]]:
        """Yield the share of each word in each sentence of a passage that has a value other than those known."""
        others = [any(v.keys.isdisjoint(known) for v in sentence.values) for sentence in self._sentences(place)]
        if not any(others):
            return
        wide = self._beside(place, said, _ELSEWHERE)
        for beside, share in self._neighbours(place):
            for shares in self._shares(beside, said) if share == _BEFORE else ():
                wide = [max(a, _ELSEWHERE * b) for a, b in zip(wide, shares, strict=True)]
        for is_other, shares in zip(others, self._shares(place, said), strict=True):
            if is_other:
                yield [*map(max, wide, shares)]

    def _neighbours(self, place: int) -> Iterator[tuple[int, float]]:
        """The passages around one, with the share of their words."""
        source = self._passages[place].source
        for beside in (place - 1, place + 1):
            if 0 <= beside < len(self._passages) and (passage := self._passages[beside]).role:
                yield beside, _BESIDE if passage.source == source else _BEFORE if beside < place else _AFTER

    def _beside(self, place: int, said: _Said, share: float) -> list[float]:
        return [share * max(column) for column in zip(*self._shares(place, said), strict=True)]

    def _shares(self, place: int, said: _Said) -> list[list[float]]:
        """The share of each word in each sentence of a passage."""
        if place not in said.shares:
            said.shares[place] = [[sentence.share(word) for word in said.words] for sentence in self._sentences(place)]
        return said.shares[place]

    def _sentences(self, place: int) -> tuple[Sentence, ...]:
        if place not in self._read:
            self._read[place] = tuple(map(sentence_of, parts_of(self._passages[place].text)))
        return self._read[place]
