"""Tells the standing rule that a sentence ends, by laying it down anew or by taking it back.

A sentence that takes a rule back says neither which rule, nor always that it does: "bullets are fine again" ends
"never use bullet points". The module therefore weighs the signs: the words that the rule and the sentence share, and
how much the sentence reads like one that ends a rule. All weights are trained on pairs of a rule and a later message by
writers who had not seen the code (docs/adr/0094).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from abridged.service.text.identifiers import VALUES, IdentifierKind, identifiers
from abridged.service.text.likeness import Likeness, likeness_to, places_of
from abridged.service.text.phrases import Phrase, Words, has_phrase, words_of
from abridged.service.text.signs import weighing
from abridged.service.text.standing import Act, Statement, odds_of, words_of_writer
from abridged.service.text.words import is_spaceless

ENDS: Final = "ends"
"""The name of the weights of a message that ends a rule, and of those of the signs."""

LIFTED_FROM: Final = 0.1
"""The log odds from which a sentence takes a rule back."""

_LIFTS_MIN: Final = -2.0
"""The least log odds of a sentence to take back any rule: one that repeats a rule's words may remind of it."""

_SHARED_MIN: Final = 2
"""Stems in common of a rule and a sentence that takes it back."""

_ANEW_SHARE: Final = 0.75
_ANEW_MIN: Final = 3
"""Words, and their share of the shorter rule, that two rules have in common of which the newer one stands."""

_PART_WEIGHT: Final = 0.5
"""Factor of a stem of a script without spaces: two of them make a word."""

_WORDS_MAX: Final = 4.0
_ODDS_MAX: Final = 4.0
"""Bounds of the signs: no single one decides."""


_VALUES: Final = VALUES | {IdentifierKind.TIME, IdentifierKind.DECIMAL}

_NUMBERED: Final = re.compile(r"(?<![\w.])([^\W\d_]{3,})[ -](\d{1,6})(?![\w.,:%/-]*\d)(?: ([^\W\d_]+))?")
_NAME: Final = re.compile(
    r"(?:(?<=[\w,;] )|(?<= [A-Z][a-z]\. )|(?<= [A-Z][a-z]{2}\. ))[A-Z\u00c0-\u00de\u0410-\u042f][^\W\d_]{2,}"
)

_WORD: Final = re.compile(r"[^\W\d_]+")

_TEXTS_KEPT: Final = 1_024


class Models(NamedTuple):
    """The models of a sentence: that it ends the rule that it speaks of, and that it takes one back."""

    ends: Likeness
    lifts: Likeness


class EndingSigns(NamedTuple):
    """The signs that a sentence takes a rule back, each with the weight of that name in `ends.json`.

    Attributes:
        ends: The log odds of the sentence, with the one before it, to end the rule that it speaks of.
        lifts: The log odds of the sentence, among all sentences, to take a rule back.
        words: The stems that both have, each divided by the number of rules that have it.
        share: The share of the rule's stems that these are.
        own_share: The share of the stems of the sentence, with the one before it, that they are.
        best: 1.0 if no other rule has more of them.
        ends_of_share: The first of the signs, times `share`.
    """

    ends: float
    lifts: float
    words: float
    share: float
    own_share: float
    best: float
    ends_of_share: float


def renewed_rule(said: Statement, rules: Sequence[frozenset[str]]) -> int | None:
    """The place of the rule that a statement lays down anew, which may be a rule itself; None for none. `rules` are the
    words of those before it, oldest first."""
    best, place = 0, None
    for at, words in enumerate(rules):
        shared = len(words & said.around)
        anew = max(_ANEW_MIN, _ANEW_SHARE * min(len(words), len(said.words)))
        if words and words == said.words:
            return at
        if shared >= max(best, anew) and not _are_of_two_things(words, said.words):
            best, place = shared, at
    return place


def lifted_rule(said: Statement, rules: Sequence[frozenset[str]]) -> int | None:
    """The place of the rule that a statement takes back; None for none. `rules` are the words of those before it.

    A statement that says, with the sentence after it, that the rest stays makes an exception and takes nothing back.
    """
    model = weighing(ENDS, EndingSigns._fields)
    odds = {at: model.of(signs) for at, signs in candidates(said, rules, _models(), least=_LIFTS_MIN)}
    likeliest = max(odds, key=lambda at: odds[at], default=None)
    if likeliest is None or odds[likeliest] < LIFTED_FROM:
        return None
    return None if has_phrase(f"{said.own} {words_of_writer(said.after)}", Phrase.KEEPS_REST) else likeliest


def names_another(text: str, rule: str) -> bool:
    """Return whether a text and a rule that forbids something both name things, such as paths, addresses and numbered
    things, and share none: a second prohibition lets the first one stand. What to use has one value at a time."""
    if not has_phrase(rule, Phrase.PROHIBITS):
        return False
    things, others = _things_of(text), _things_of(rule)
    return bool(things and others) and things.isdisjoint(others)


def names_somebody_else(text: str, rule: str) -> bool:
    """Return whether a text and a rule both have names, and share none: who permits something for one person
    does not permit it for another. Capitals inside a sentence show them, which some languages give to every noun."""
    names, others = _NAME.findall(text), _NAME.findall(rule)
    return bool(names and others) and not (_has_any(names, rule) or _has_any(others, text))


def _has_any(names: Sequence[str], text: str) -> bool:
    words = {word.casefold() for word in _WORD.findall(text)}
    return any(name.casefold() in words for name in names)


@lru_cache(_TEXTS_KEPT)
def _things_of(text: str) -> frozenset[str]:
    """The identifiers of a text that have letters and are no values, and the numbers behind a noun: of customer 58, not
    of 60 words, and not of Node 18, which has one version at a time."""
    grammar = words_of(Words.GRAMMAR)
    found = (one.text.casefold() for one in identifiers(text) if one.kind not in _VALUES)
    named = {one for one in found if any(map(str.isalpha, one))}
    for noun, number, after in _NUMBERED.findall(text):
        if noun.islower() and noun not in grammar and (not after or after.casefold() in grammar):
            named.add(number)
    return frozenset(named)


def candidates(
    said: Statement, rules: Sequence[frozenset[str]], models: Models, *, least: float = -math.inf
) -> Iterator[tuple[int, EndingSigns]]:
    """The places of the rules that share two stems with a statement, or one if that speaks of a rule as such, with the
    signs that it takes each back; none if the log odds that it takes any rule back are below `least`."""
    lifts = odds_of(models.lifts, said.own, said.places, least) if rules else -math.inf
    if lifts < least:
        return
    fewest = 1 if has_phrase(said.own, Phrase.ANNOUNCES_RULE) else _SHARED_MIN
    shared = {at: common for at, words in enumerate(rules) if len(common := words & said.around) >= fewest}
    if not shared:
        return
    both = words_of_writer(f"{said.before} {said.text}".strip())
    ends = _bounded(odds_of(models.ends, both, places_of(both), -math.inf))
    times = Counter(stem for stems in shared.values() for stem in stems)
    words = {at: min(_WORDS_MAX, math.fsum(_weight(s) / times[s] for s in stems)) for at, stems in shared.items()}
    most, own = max(words.values()), _total(said.around)
    for at, stems in shared.items():
        both_have = _total(stems)
        share, is_best = both_have / _total(rules[at]), float(words[at] == most)
        yield at, EndingSigns(ends, _bounded(lifts), words[at], share, both_have / own, is_best, ends * share)


def _bounded(odds: float) -> float:
    return max(-_ODDS_MAX, min(_ODDS_MAX, odds))


def _total(stems: frozenset[str]) -> float:
    return math.fsum(map(_weight, stems))


def _weight(stem: str) -> float:
    return _PART_WEIGHT if is_spaceless(stem) else 1.0


def _are_of_two_things(one: frozenset[str], other: frozenset[str]) -> bool:
    """Return whether each of two rules names something that the other does not: staging and production, not 60 and
    80."""
    return all(any(not stem.isdigit() for stem in left) for left in (one - other, other - one))


def _models() -> Models:
    return Models(likeness_to(ENDS), likeness_to(Act.LIFTS))
