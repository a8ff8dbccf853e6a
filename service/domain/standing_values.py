"""The values that still hold, and which of them a newer value supersedes.

Nobody says `the batch cap, formerly 6,144 rows, is 4,096 rows`; people say `let's make the batch cap 4,096`. The module
therefore weighs the signs that two values are of one thing: words that both have around them and few other values have,
a shape that they share, and a sentence that reads as if it gave a thing another value. All weights are trained on pairs
of values by writers who had not seen the code (docs/adr/0088).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Set
from typing import Final, NamedTuple

from abridged.service.text.identifiers import MONTHS, IdentifierKind
from abridged.service.text.likeness import Likeness, likeness_to, places_of
from abridged.service.text.phrases import Phrase, has_phrase
from abridged.service.text.sentences import without_quotations
from abridged.service.text.signs import weighing
from abridged.service.text.words import is_spaceless

SUPERSEDED_FROM: Final = -0.5
"""The log odds from which on a value supersedes another. Half of the pairs of the training only look like a change; in
chats fewer values do, so that more of what is found is right."""

SAME_WORDS_FROM: Final = -0.9
"""The log odds if both are of one kind and in one unit, and one has all of its words in common with the other: `the
deposit is 500 EUR`, `the deposit is 600 EUR now`."""

SUPERSEDES: Final = "supersedes"
"""The name of the weights of a sentence that gives a thing another value."""

_PART_WEIGHT: Final = 0.5
"""Factor of a key of a script without spaces: two of them make a word."""

_WORDS_MAX: Final = 4.0
_ODDS_MAX: Final = 3.0
"""Bounds of two signs: no single sign decides."""

_LETTERS_MIN: Final = 2
"""Letters from which on two values have a unit or a name in common."""

_UNITED: Final = frozenset({IdentifierKind.AMOUNT, IdentifierKind.NUMBER})
"""Kinds of which a value in one unit rarely supersedes one in another: `5 °C` no `40 kg`."""

_FOLLOWED_MAX: Final = 16
"""Values that one word, or one shape, is followed to: the newest. A word of as many names none of them."""

_FAMILY_MIN: Final = 3
"""Values of one pattern with words in common that make a family, each of a thing of its own."""

_NUMBER: Final = re.compile(r"[0-9][0-9.,:]*")
_PART: Final = re.compile(r"(?:(?<!\w)[-\u2212])?[0-9][0-9.,:]*(?<![.,:])|[^\W\d_]+|[$\u20ac\u00a3\u00a5\u20b9%\u00b0]")
_DATE_PART: Final = re.compile(r"[0-9]+|[^\W\d_]{3,}")
_MONTH_CHARS: Final = 3
_DATE_NUMBERS: Final = 3
_DAY_DIGITS: Final = 2
_ITEM: Final = re.compile(r"\s{0,8}(?:[-*\u2022\u2013]|[0-9]{1,2}[.)])\s")
"""The beginning of an item of a list."""

_LETTER: Final = re.compile(r"[^\W\d_]+")
_SPACES: Final = re.compile(r"\s+")
_COUNTED: Final = re.compile(r"(.*?)([0-9]{1,9})", re.ASCII | re.DOTALL)


class Told(NamedTuple):
    """The signs in a sentence that it gives a thing another value: the log odds by its words, and 1.0 for a phrase of
    change."""

    change: float
    says: float


class Stated(NamedTuple):
    """A value as a message states it.

    Attributes:
        key: The value, case folded.
        kind: Its kind.
        about: The keys of the words near it.
        named: The ones of these that name it.
        number: The message.
        told: The signs in its sentence; None where nobody said one, so that it supersedes nothing.
        is_listed: True if it is one of several of its shape there, as in a list of offers, or of data.
    """

    key: str
    kind: IdentifierKind
    about: frozenset[str]
    named: frozenset[str]
    number: int
    told: Told | None = None
    is_listed: bool = False


class Signs(NamedTuple):
    """The signs that a value supersedes another, each with the weight of that name in `supersedes.json`."""

    words: float
    share: float
    named: float
    kind: float
    shape: float
    letters: float
    units: float
    prefix: float
    length: float
    rare: float
    change: float
    says: float
    change_of_words: float
    change_of_letters: float
    change_of_prefix: float


class _Form(NamedTuple):
    """A value with 9 for each number, this with A for each word, and its letters alone."""

    pattern: str
    shape: str
    letters: str


class _Standing:
    __slots__ = ("about", "first", "form", "is_listed", "kind", "named", "number")

    def __init__(self, kind: IdentifierKind, form: _Form, first: int) -> None:
        self.kind, self.form = kind, form
        self.about: set[str] = set()
        self.named: set[str] = set()
        self.first = self.number = first
        self.is_listed = False


class StandingValues:
    """The values that hold, by what they look like and by the words around them. Each takes time by its words alone."""

    def __init__(self) -> None:
        self._values: dict[str, _Standing] = {}
        self._by_word: dict[str, dict[str, None]] = defaultdict(dict)
        self._by_shape: dict[str, dict[str, None]] = defaultdict(dict)

    def stands(self, one: Stated) -> None:
        """A value holds from this message on."""
        known = self._values.get(one.key)
        if known is None:
            known = self._values[one.key] = _Standing(one.kind, _form_of(one.key), one.number)
        known.number, known.is_listed = one.number, one.is_listed
        for word in one.about - known.about:
            _follow(self._by_word[word], one.key)
        known.about |= one.about
        known.named |= one.named
        _follow(self._by_shape[known.form.shape], one.key)

    def named_again(self, key: str, number: int) -> None:
        """Message `number` names this value, too: no other value of that message supersedes it."""
        if key in self._values:
            self._values[key].number = number

    def is_in_family(self, key: str) -> bool:
        """Return whether this value holds beside a family of others, each of a thing of its own."""
        known = self._values.get(key)
        return known is not None and len(self._family(key, known.about, known.form)) >= _FAMILY_MIN

    def _family(self, key: str, about: Set[str], form: _Form) -> list[str]:
        """The other values that hold, differ from one in their numbers alone, and share a word with it."""
        alike = ((other, self._values[other]) for other in self._by_shape.get(form.shape, ()) if other != key)
        return [other for other, one in alike if one.form.pattern == form.pattern and not one.about.isdisjoint(about)]

    def falls(self, key: str) -> None:
        """A value holds no longer."""
        known = self._values.pop(key, None)
        if known is not None:
            for word in known.about:
                self._by_word[word].pop(key, None)
            self._by_shape[known.form.shape].pop(key, None)

    def superseded_by(self, one: Stated) -> str:
        """The value of an earlier message that this one most likely supersedes; empty if none is likely to be."""
        best, most = "", SAME_WORDS_FROM
        for key, signs in self.candidates(one):
            odds, has_same_words = odds_of(signs), signs.share == signs.kind == 1 and not signs.units
            if odds >= most and (has_same_words or odds >= SUPERSEDED_FROM):
                best, most = key, odds
        return best

    def candidates(self, one: Stated) -> Iterator[tuple[str, Signs]]:
        """The values that share a word or the shape with this one, each with the signs that this one supersedes it.

        A value in a list supersedes no other and gives way to no other. A value gives way neither to itself in another
        form nor to a value that was known before it was last named; to one with which it shares no word, only in a
        sentence that speaks for a change. Without a phrase of change, a value supersedes no other if it counts up from
        one that shares a word with it, `Turn 3`, `Turn 4`, or has a family of such others that differ in their numbers
        alone: of one thing they would have superseded each other.
        """
        if one.told is None or one.is_listed:
            return
        form = _form_of(one.key)
        alike = self._by_shape.get(form.shape, {})
        shared: dict[str, float] = dict.fromkeys(alike, 0.0)
        # In one order, so that equal evidence always names the same value.
        for word in sorted(one.about):
            followed = [key for key in self._by_word.get(word, ()) if key != one.key]
            if 0 < len(followed) < _FOLLOWED_MAX:
                telling = (_PART_WEIGHT if is_spaceless(word) else 1.0) * len(followed) ** -0.5
                for key in followed:
                    shared[key] = shared.get(key, 0.0) + telling
        family = self._family(one.key, one.about, form)
        if not one.told.says and (len(family) >= _FAMILY_MIN or any(_counts_up(key, one.key) for key in family)):
            return
        rare, since = 1 / (1 + len(alike)), one.number
        if one.key in self._values and not one.told.says:
            since = self._values[one.key].first
        for key, words in shared.items():
            known = self._values[key]
            if known.number >= since:
                continue
            is_unrelated = not words and not one.told.says and one.told.change <= 0
            if not (known.is_listed or is_unrelated or _is_one(known.kind, key, one)):
                yield key, _signs(one, one.told, form, key, known, min(words, _WORDS_MAX), rare)


def odds_of(signs: Signs) -> float:
    """The log odds that a value supersedes another, by these signs."""
    return weighing(SUPERSEDES, Signs._fields).of(signs)


def told_by(sentence: str, model: Likeness | None = None) -> Told | None:
    """The signs in a sentence, by this model or by the one that the whole training has made; None for an item of a list
    without a phrase of change, which describes a thing and changes none."""
    says = has_phrase(sentence, Phrase.CORRECTS)
    if not says and _ITEM.match(sentence):
        return None
    places = places_of(without_quotations(sentence))
    odds = (model or likeness_to(SUPERSEDES)).of_words(places) if places else 0.0
    return Told(max(-_ODDS_MAX, min(odds, _ODDS_MAX)), float(says))


def shape_of(key: str) -> str:
    """The looks of a value, whatever its numbers and words are."""
    return _form_of(key).shape


def _signs(new: Stated, told: Told, form: _Form, key: str, old: _Standing, words: float, rare: float) -> Signs:
    fewest = max(1, min(len(new.about), len(old.about)))
    letters = float(old.form.pattern == form.pattern and len(form.letters) >= _LETTERS_MIN)
    prefix = _prefix(key, new.key) / max(len(key), len(new.key))
    have_units = new.kind in _UNITED and "" not in (form.letters, old.form.letters)
    return Signs(
        words=words,
        share=len(new.about & old.about) / fewest,
        named=float(not new.named.isdisjoint(old.named)),
        kind=float(old.kind is new.kind),
        shape=float(old.form.shape == form.shape),
        letters=letters,
        units=float(have_units and form.letters != old.form.letters),
        prefix=prefix,
        length=float(len(key) == len(new.key)),
        rare=rare,
        change=told.change,
        says=told.says,
        change_of_words=told.change * words,
        change_of_letters=told.change * letters,
        change_of_prefix=told.change * prefix,
    )


def _is_one(kind: IdentifierKind, known: str, new: Stated) -> bool:
    """Return whether two forms may be of one value, of which one says more: `May 17` and `2024-05-17`, `8 AM` and
    `8am`."""
    if kind is new.kind is IdentifierKind.DATE:
        return _is_one_date(known, new.key)
    one, other = Counter(_PART.findall(known)), Counter(_PART.findall(new.key))
    return one <= other or other <= one


def _is_one_date(known: str, new: str) -> bool:
    """Return whether one of two dates says no more than the other; a month by its name is no other number than its own,
    as far as that is known."""
    (one, words), (other, more) = _date_parts(known), _date_parts(new)
    if words and more:
        return bool(words & more) and (Counter(one) <= Counter(other) or Counter(other) <= Counter(one))
    if not words and not more:
        shorter, longer = sorted((one, other), key=len)
        ways = (shorter, shorter[::-1]) if len(longer) > len(shorter) else (shorter,)
        return any(longer[at : at + len(shorter)] in ways for at in range(len(longer) - len(shorter) + 1))
    named, plain = (one, other) if words else (other, one)
    months = {str(MONTHS[word]) for word in words | more if word in MONTHS}
    return Counter(named) <= Counter(plain) and (not months or not months.isdisjoint(plain))


def _date_parts(key: str) -> tuple[list[str], frozenset[str]]:
    """The numbers of a date without leading zeros, a year at the end before the others, and the beginnings of its
    words, of which one may be a month."""
    parts = [part.lstrip("0") or part for part in _DATE_PART.findall(key)]
    words = frozenset(part[:_MONTH_CHARS] for part in parts if not part.isdigit())
    numbers = [part for part in parts if part.isdigit()]
    is_year_last = len(numbers) == _DATE_NUMBERS and len(numbers[-1]) > _DAY_DIGITS
    return numbers[::-1] if is_year_last else numbers, words


def _counts_up(before: str, after: str) -> bool:
    """Return whether a value is the other one with the next number at its end."""
    one, other = _COUNTED.fullmatch(before), _COUNTED.fullmatch(after)
    return one is not None and other is not None and one[1] == other[1] and int(other[2]) - int(one[2]) == 1


def _follow(followed: dict[str, None], key: str) -> None:
    """Follow a word, or a shape, to the newest values that have it."""
    followed.pop(key, None)
    followed[key] = None
    if len(followed) > _FOLLOWED_MAX:
        del followed[next(iter(followed))]


def _form_of(key: str) -> _Form:
    pattern = _NUMBER.sub("9", key)
    return _Form(pattern, _SPACES.sub("", _LETTER.sub("A", pattern)), "".join(_LETTER.findall(pattern)))


def _prefix(one: str, other: str) -> int:
    """The number of characters with which both begin."""
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))
