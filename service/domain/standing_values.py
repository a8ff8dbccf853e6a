"""The values that still hold, and which of them a newer value supersedes.

Nobody says `the batch cap, formerly 6,144 rows, is 4,096 rows`; people say `let's make the batch cap 4,096`. The module
therefore weighs the signs that two values are of one thing: words that both have around them and few other values have,
a form that they share, and a sentence that speaks of a change. The weights were fitted to the 82 replaced values of
`bench/written/seen`: they find 35 of these, and take 5 of the 216 values that hold for replaced.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

from abridged.service.text.identifiers import IdentifierKind
from abridged.service.text.words import is_spaceless

SUPERSEDED_FROM: Final = 2.5
"""The evidence from which on a value supersedes another."""

_SAME_LETTERS: Final = 1.5
"""Evidence of two values that differ in their digits alone, if they have at least _LETTERS_MIN letters."""

_WORDS_MAX: Final = 2.0
"""Most evidence of the words and letters that two values share, before their forms are looked at."""

_LETTERS_WEIGHT: Final = 3.0
_FORM_WEIGHT: Final = 2.0
_KIND_WEIGHT: Final = 0.7
"""Factors of two values that differ in their digits alone, that have one form, and that are of one kind."""

_CHANGE_WEIGHT: Final = 1.3
"""Factor of a sentence that speaks of a change."""

_PART_WEIGHT: Final = 0.5
"""Factor of a key of a script without spaces: two of them make a word."""

_LETTERS_MIN: Final = 3
_UNIT_LETTERS_MIN: Final = 2
"""Letters that two values have in common as names do, and as units of measure do."""

MEASURED: Final = frozenset({IdentifierKind.AMOUNT, IdentifierKind.DATE, IdentifierKind.NUMBER})
"""Kinds whose letters are units, which name nothing."""

_UNITED: Final = frozenset({IdentifierKind.AMOUNT, IdentifierKind.NUMBER})
"""Kinds of which a value in one unit supersedes none in another: `5 °C` no `40 kg`."""

_FOLLOWED_MAX: Final = 16
"""Values that one word is followed to: one that more values have around them names none of them."""

_NUMBER: Final = re.compile(r"[0-9][0-9.,:]*")
_LETTER: Final = re.compile(r"[^\W\d_]+")
_SPACES: Final = re.compile(r"\s+")


class StandingValues:
    """The values that hold, by what they look like and by the words around them. Each takes time by its words alone."""

    def __init__(self) -> None:
        self._forms: dict[str, tuple[IdentifierKind, str, str]] = {}
        self._numbers: dict[str, int] = {}
        self._words: dict[str, set[str]] = {}
        self._by_word: dict[tuple[IdentifierKind, str], dict[str, None]] = defaultdict(dict)
        self._by_letters: dict[tuple[IdentifierKind, str], dict[str, None]] = defaultdict(dict)

    def stands(self, key: str, kind: IdentifierKind, about: frozenset[str], number: int) -> None:
        """A value holds: message `number` says so, with these words around it."""
        letters = _NUMBER.sub("9", key)
        self._forms.setdefault(key, (kind, letters, _SPACES.sub("", _LETTER.sub("A", letters))))
        self._numbers[key] = number
        known = self._words.setdefault(key, set())
        for word in about - known:
            known.add(word)
            followed = self._by_word[kind, word]
            followed[key] = None
            if len(followed) > _FOLLOWED_MAX:
                del followed[next(iter(followed))]
        if kind not in MEASURED and _letters(letters) >= _LETTERS_MIN:
            alike = self._by_letters[kind, letters]
            alike.pop(key, None)
            alike[key] = None
            if len(alike) > _FOLLOWED_MAX:
                del alike[next(iter(alike))]

    def falls(self, key: str) -> None:
        """A value holds no longer."""
        if key not in self._forms:
            return
        kind, letters, _ = self._forms.pop(key)
        del self._numbers[key]
        for word in self._words.pop(key):
            self._by_word[kind, word].pop(key, None)
        self._by_letters[kind, letters].pop(key, None)

    def superseded_by(
        self, key: str, kind: IdentifierKind, about: frozenset[str], number: int, *, changes: bool
    ) -> str:
        """The value of an earlier message that this one most likely supersedes; empty if none is likely to be."""
        letters = _NUMBER.sub("9", key)
        form = _SPACES.sub("", _LETTER.sub("A", letters))
        evidence: dict[str, float] = dict.fromkeys(self._by_letters.get((kind, letters), ()), _SAME_LETTERS)
        for word in about:
            followed = [one for one in self._by_word.get((kind, word), ()) if one != key]
            if 0 < len(followed) < _FOLLOWED_MAX:
                telling = (_PART_WEIGHT if is_spaceless(word) else 1.0) * len(followed) ** -0.5
                for one in followed:
                    evidence[one] = evidence.get(one, 0.0) + telling
        best, most = "", SUPERSEDED_FROM
        for one, words in evidence.items():
            if one == key or self._numbers[one] >= number:
                continue
            _, its_letters, its_form = self._forms[one]
            if kind in _UNITED and _units(letters) and _units(its_letters) not in ("", _units(letters)):
                continue
            is_same = its_letters == letters and _letters(letters) >= _UNIT_LETTERS_MIN
            alike = _LETTERS_WEIGHT if is_same else _FORM_WEIGHT if its_form == form else _KIND_WEIGHT
            weight = min(words, _WORDS_MAX) * alike * (_CHANGE_WEIGHT if changes else 1.0)
            if weight >= most:
                best, most = one, weight
        return best


def _units(letters: str) -> str:
    """The letters of a measured value, whatever stands between them."""
    return "".join(_LETTER.findall(letters))


def _letters(text: str) -> int:
    return len(_units(text))
