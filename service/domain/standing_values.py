"""The values that still hold, and which of them a newer value supersedes.

Nobody says `the batch cap, formerly 6,144 rows, is 4,096 rows`; people say `let's make the batch cap 4,096`. The module
therefore weighs the signs that two values are of one thing: words that both have around them and few other values have,
a form that they share, and a sentence that reads as if it gave a thing another value. All weights are trained on pairs
of values by writers who had not seen the code (docs/adr/0088).
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from operator import mul
from typing import Final, NamedTuple

from abridged.service.text.identifiers import IdentifierKind
from abridged.service.text.likeness import Likeness, likeness_to, places_of
from abridged.service.text.phrases import Phrase, has_phrase
from abridged.service.text.sentences import without_quotations
from abridged.service.text.words import is_spaceless

SUPERSEDED_FROM: Final = 0.3
"""The log odds from which on a value supersedes another. Among the pairs of the training twice as many only look like a
change as in chats, so the share that is right is higher there."""

SUPERSEDES: Final = "supersedes"
"""The name of the weights of a sentence that gives a thing another value."""

_PART_WEIGHT: Final = 0.5
"""Factor of a key of a script without spaces: two of them make a word."""

_WORDS_MAX: Final = 4.0
_ODDS_MAX: Final = 3.0
"""Bounds of two signs: no single sign decides."""

_UNIT_LETTERS_MIN: Final = 2
"""Letters that two values have in common as units of measure do, and as names do."""

MEASURED: Final = frozenset({IdentifierKind.AMOUNT, IdentifierKind.DATE, IdentifierKind.NUMBER})
"""Kinds whose letters are units, which name nothing."""

_UNITED: Final = frozenset({IdentifierKind.AMOUNT, IdentifierKind.NUMBER})
"""Kinds of which a value in one unit rarely supersedes one in another: `5 °C` no `40 kg`."""

_FOLLOWED_MAX: Final = 16
"""Values that one word is followed to, and one form: one that more values have names none of them."""

_NUMBER: Final = re.compile(r"[0-9][0-9.,:]*")
_LETTER: Final = re.compile(r"[^\W\d_]+")
_SPACES: Final = re.compile(r"\s+")
_COUNTED: Final = re.compile(r"(.*?)([0-9]{1,9})", re.ASCII | re.DOTALL)


class Stated(NamedTuple):
    """A value as a message states it.

    Attributes:
        key: The value, case folded.
        kind: Its kind.
        about: The keys of the words near it.
        named: The ones of these that name it.
        number: The message.
        sentence: The sentence; empty where nobody said one, so that it supersedes nothing.
        is_listed: True if it is one of several of its form there, as in a list of offers.
    """

    key: str
    kind: IdentifierKind
    about: frozenset[str]
    named: frozenset[str]
    number: int
    sentence: str = ""
    is_listed: bool = False


class Signs(NamedTuple):
    """The signs that a value supersedes another, each with the weight of that name in `supersedes.json`."""

    words: float
    share: float
    named: float
    kind: float
    form: float
    letters: float
    units: float
    prefix: float
    rare: float
    counts: float
    change: float
    says: float
    change_of_words: float
    change_of_letters: float
    change_of_prefix: float


class _Form(NamedTuple):
    """A value's looks: its letters with 9 for each number, these with A for each word, and the letters alone."""

    letters: str
    form: str
    units: str


class _Told(NamedTuple):
    """The signs of a sentence: its odds of a change, and whether it says so."""

    change: float
    says: float


class _Standing:
    __slots__ = ("about", "form", "is_listed", "kind", "named", "number")

    def __init__(self, kind: IdentifierKind, form: _Form) -> None:
        self.kind, self.form = kind, form
        self.about: set[str] = set()
        self.named: set[str] = set()
        self.number = 0
        self.is_listed = False


def change_odds(sentence: str) -> float:
    """The log odds by which a sentence reads as if it gave a thing another value; 0 for none."""
    return odds_of_change(likeness_to(SUPERSEDES), sentence)


def odds_of_change(model: Likeness, sentence: str) -> float:
    """The same by any model."""
    places = places_of(without_quotations(sentence))
    return model.of_words(places) if places else 0.0


class StandingValues:
    """The values that hold, by what they look like and by the words around them. Each takes time by its words alone."""

    def __init__(self) -> None:
        self._values: dict[str, _Standing] = {}
        self._by_word: dict[str, dict[str, None]] = defaultdict(dict)
        self._by_form: dict[str, dict[str, None]] = defaultdict(dict)
        self._read, self._told = "", _Told(0.0, 0.0)

    def stands(self, one: Stated) -> None:
        """A value holds from this message on."""
        known = self._values.get(one.key)
        if known is None:
            known = self._values[one.key] = _Standing(one.kind, _form_of(one.key))
        known.number, known.is_listed = one.number, one.is_listed
        for word in one.about - known.about:
            _follow(self._by_word[word], one.key)
        known.about |= one.about
        known.named |= one.named
        _follow(self._by_form[known.form.form], one.key)

    def falls(self, key: str) -> None:
        """A value holds no longer."""
        known = self._values.pop(key, None)
        if known is not None:
            for word in known.about:
                self._by_word[word].pop(key, None)
            self._by_form[known.form.form].pop(key, None)

    def superseded_by(self, one: Stated) -> str:
        """The value of an earlier message that this one most likely supersedes; empty if none is likely to be."""
        bias, weights = _weights()
        best, most = "", SUPERSEDED_FROM - bias
        for key, signs in self.candidates(one):
            odds = sum(map(mul, signs, weights))
            if odds >= most:
                best, most = key, odds
        return best

    def candidates(self, one: Stated, odds_of: Callable[[str], float] = change_odds) -> Iterator[tuple[str, Signs]]:
        """The values of earlier messages that share a word or the form with this one, each with the signs that this one
        supersedes it; a value in a list supersedes none, nor does a list's value give way."""
        if one.is_listed or not one.sentence:
            return
        form = _form_of(one.key)
        alike = self._by_form.get(form.form, {})
        shared: dict[str, float] = dict.fromkeys(alike, 0.0)
        # In one order, so that equal evidence always names the same value.
        for word in sorted(one.about):
            followed = [key for key in self._by_word.get(word, ()) if key != one.key]
            if 0 < len(followed) < _FOLLOWED_MAX:
                telling = (_PART_WEIGHT if is_spaceless(word) else 1.0) * len(followed) ** -0.5
                for key in followed:
                    shared[key] = shared.get(key, 0.0) + telling
        if not shared:
            return
        rare = 1 / (1 + len(alike))
        if self._read != one.sentence:
            odds, says = odds_of(one.sentence), has_phrase(one.sentence, Phrase.CORRECTS)
            self._read, self._told = one.sentence, _Told(max(-_ODDS_MAX, min(odds, _ODDS_MAX)), float(says))
        for key, words in shared.items():
            known = self._values[key]
            if key != one.key and known.number < one.number and not known.is_listed:
                yield key, _signs(one, form, key, known, min(words, _WORDS_MAX), rare, self._told)


def form_of(key: str) -> str:
    """The looks of a value, whatever its numbers and words are."""
    return _form_of(key).form


def counts_up(before: str, after: str) -> bool:
    """Return whether a value is the other one with the next number at its end."""
    one, other = _COUNTED.fullmatch(before), _COUNTED.fullmatch(after)
    return one is not None and other is not None and one[1] == other[1] and int(other[2]) - int(one[2]) == 1


def _signs(new: Stated, form: _Form, key: str, old: _Standing, words: float, rare: float, told: _Told) -> Signs:
    fewest = max(1, min(len(new.about), len(old.about)))
    letters = float(old.form.letters == form.letters and len(form.units) >= _UNIT_LETTERS_MIN)
    prefix = _prefix(key, new.key) / max(len(key), len(new.key))
    return Signs(
        words=words,
        share=len(new.about & old.about) / fewest,
        named=float(not new.named.isdisjoint(old.named)),
        kind=float(old.kind is new.kind),
        form=float(old.form.form == form.form),
        letters=letters,
        units=float(new.kind in _UNITED and "" not in (form.units, old.form.units) and form.units != old.form.units),
        prefix=prefix,
        rare=rare,
        counts=float(counts_up(key, new.key)),
        change=told.change,
        says=told.says,
        change_of_words=told.change * words,
        change_of_letters=told.change * letters,
        change_of_prefix=told.change * prefix,
    )


@cache
def _weights() -> tuple[float, tuple[float, ...]]:
    """The bias, and the weights of the signs in their order."""
    read = json.loads(files("abridged.service.text").joinpath("supersedes.json").read_text(encoding="utf-8"))
    return read["bias"], tuple(read[sign] for sign in Signs._fields)


def _follow(followed: dict[str, None], key: str) -> None:
    """Follow a word, or a form, to the newest values that have it."""
    followed.pop(key, None)
    followed[key] = None
    if len(followed) > _FOLLOWED_MAX:
        del followed[next(iter(followed))]


def _form_of(key: str) -> _Form:
    letters = _NUMBER.sub("9", key)
    return _Form(letters, _SPACES.sub("", _LETTER.sub("A", letters)), "".join(_LETTER.findall(letters)))


def _prefix(one: str, other: str) -> int:
    """The number of characters with which both begin."""
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))
