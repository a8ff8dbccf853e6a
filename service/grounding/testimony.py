"""Finds what a source says nearest to a statement, and tells whether that proves the statement.

The source's own sentences are witnesses. One is near a statement if it has its words and values, or if its
neighbourhood has: its message, the question that it answers, the reply. A second sentence is a witness, too, if it
gives another value to the words of the first, later, or if it adds what the first lacks; and so is the sentence whose
value by trained signs most likely supersedes one of the first (docs/adr/0100).

A statement is proved if it is a whole sentence of a message, word for word, or if it has values and two sentences in a
row have all of them, what it writes with a capital and half of its other words, if no word of its clause stands there
beside another value alone, and if no later sentence gives another value to the same words, or one that is likely to
supersede it. What is denied, or asked, is proved word for word alone, and what only may be proves nothing that is.
Words alone prove nothing: of statements without values that share as many words with their source, more were false than
true (docs/adr/0086). What a message says word for word is only replaced by a sentence with a word of change: like
sentences tell of two things.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, islice, pairwise
from typing import Final, NamedTuple

from abridged.service.domain.message import Role
from abridged.service.domain.record import EVIDENCE_MAX
from abridged.service.domain.standing_values import StandingValues
from abridged.service.grounding.reading import Passage, Sentence, Word, denies, sentence_of, words_in
from abridged.service.grounding.succession import values_said
from abridged.service.text.mentions import mentions
from abridged.service.text.phrases import Phrase, has_phrase, section_of
from abridged.service.text.sentences import is_question, parts_of
from abridged.service.text.words import as_phrased, word_keys

_VALUE_WEIGHT: Final = 8.0
"""The weight of a value, in natural logarithms of rarity like a word's: more than that of any word."""

_BESIDE, _BEFORE, _AFTER = 0.7, 0.75, 0.55
"""Shares to which a sentence has the words of its message, of the message before, of the one after."""

_BY_USER, _LATER = 0.08, 0.1
"""Shares by which a user's sentence is nearer, and the last one of a source: they settle what was said before."""

_OWN_MIN: Final = 0.1
"""Share of a statement that a witness must have itself."""

_ADDS: Final = 0.18
"""Share of a statement that a second witness must add."""

_CLOSE: Final = 0.1
"""The share by which a second may be less near that adds less."""

_ADDS_WITHIN: Final = 6
"""Messages within which it may."""

_PROVED: Final = 0.5
"""Share of a statement's words that the sentences of its values must have."""

_REPLACES: Final = 0.4
"""Share of the words of a value that a later sentence with another must have to be about the same."""

_DOUBTED_FROM: Final = 1.0
"""The log odds from which on a later value leaves a statement of an earlier one without proof: nearly three to one."""

_SUCCEEDS_FROM: Final = -1.5
"""The log odds from which on a later value is quoted beside the one that it may supersede. Of 792 statements by another
hand 49 got such a line: nine have the value that holds, which would have been missing; it cost the others a line."""

_SUCCEEDING_CHARS_MAX: Final = 250_000
"""The newest passages of a longer source are read for later values, which takes seconds: four on a busy machine if each
sentence has four values."""

_STOP: Final = r"[,;\u3001\uff0c\uff1b](?!\d)|:\s"
_WORD: Final = re.compile(r"\w+")
_OPENING: Final = re.compile(r"^\W*\w+[,\u3001\uff0c\u060c]")
_COLONS: Final = (":", "\uff1a")
_LISTED: Final = re.compile(r"[-*\u2022]|\d{1,3}[.)]\s")
_CAPITALIZED: Final = re.compile(r"(?<![^\W_])[^\W\d_]\w*")
_SPEAKERS: Final = (Role.USER, Role.ASSISTANT)
_ACTS: Final = (Phrase.TELLS_PROPOSAL, Phrase.TELLS_REMARK, Phrase.TELLS_WISH)


class Line(NamedTuple):
    """A sentence of a source, and the passage that has it."""

    text: str
    passage: Passage


@dataclass(frozen=True, slots=True)
class Witnessed:
    """The sentences of a source that are about a statement.

    Attributes:
        lines: The witnesses in the order of the source: those that prove the statement, or else up to four that come
            nearest; empty if nothing is near.
        is_proof: True if they prove it.
    """

    lines: tuple[Line, ...] = ()
    is_proof: bool = False

    @property
    def numbers(self) -> tuple[int, ...]:
        """Up to EVIDENCE_MAX messages of the witnesses, ascending."""
        return tuple(sorted({number for line in self.lines for number in line.passage.numbers})[:EVIDENCE_MAX])


@dataclass(frozen=True, slots=True)
class _Said:
    """A statement: its words and values in a row, with their weights."""

    text: str
    words: Sequence[Word]
    values: Sequence[Collection[str]]
    weights: Sequence[float]

    def share(self, parts: Sequence[float]) -> float:
        """The share of a statement that shares of its words and values are."""
        return sum(map(float.__mul__, self.weights, parts)) / sum(self.weights)

    def words_share(self, parts: Sequence[float]) -> float:
        """The share of a statement's words that shares of its words and values are; 0.0 without any word."""
        weights = self.weights[: len(self.words)]
        return sum(map(float.__mul__, weights, parts)) / sum(weights) if weights else 0.0

    def has_values(self, parts: Sequence[float]) -> bool:
        """Return whether every value is there."""
        return all(parts[len(self.words) :])

    @property
    def act(self) -> Phrase | None:
        """The act that it tells of, such as a proposal: one stays true, whatever came of it."""
        return next((act for act in _ACTS if has_phrase(as_phrased(self.text), act)), None)

    def has_names(self, parts: Sequence[float]) -> bool:
        """Return whether every word is there that the statement writes with a capital, which may be a name."""
        names = {word.casefold() for word in _CAPITALIZED.findall(self.text) if word[0].isupper()}
        return all(part for word, part in zip(self.words, parts, strict=False) if word.form in names)

    def has_none(self, parts: Sequence[float]) -> bool:
        """Return whether no value is there."""
        return not any(parts[len(self.words) :])


class _Spot(NamedTuple):
    """A sentence near a statement, the line with a colon that leads up to it, and the shares of the statement's words
    and values that it has."""

    place: int
    nth: int
    passage: Passage
    lead: str
    sentence: Sentence
    parts: Sequence[float]

    @property
    def source(self) -> int:
        return self.passage.source

    def follows(self, before: _Spot) -> bool:
        """Return whether nothing stands between the two, and one message says both or answers the question."""
        is_next = (self.place, self.nth) == (before.place, before.nth + 1) or (
            self.place == before.place + 1 and self.nth == 0
        )
        if self.source == before.source:
            return is_next
        return is_next and self.source == before.source + 1 and is_question(before.sentence.text)


class _Successor(NamedTuple):
    """A value that may supersede another, case folded, with the log odds and the place of its passage."""

    odds: float
    place: int
    value: str


class Witnesses:
    """Finds witnesses in the passages of a source. `rarity` is the weight of a word."""

    def __init__(self, passages: Sequence[Passage], rarity: Callable[[str], float]) -> None:
        self._passages = passages
        self._rarity = rarity
        self._read: dict[int, tuple[tuple[str, Sentence], ...]] = {}

    def testimony(self, statement: str, near: Iterable[int], is_outdated: Callable[[str], bool]) -> Witnessed:
        """Hears the passages `near` a statement, and the one after each.

        A sentence that is outdated is no witness.
        """
        said = self._said(statement)
        places = sorted({at for place in near for at in (place, place + 1) if at < len(self._passages)})
        spots = [spot for place in places for spot in self._spots(place, said)]
        if not spots or not said.weights:
            return Witnessed()
        verbatim = _verbatim(statement, spots)
        proof = verbatim or _proof(said, spots)
        later = _replacing(said, proof, [*filter(_corrects, spots)] if verbatim else spots)
        newer = [] if said.act else self._newer(said, proof, _DOUBTED_FROM)
        is_doubted = is_outdated(statement) or any(_corrects(spot) or not verbatim for spot in newer)
        if proof and later is None and not is_doubted:
            return _witnessed(proof, is_proof=True)
        current = [spot for spot in (*proof, later) if spot and not is_outdated(spot.sentence.text)]
        current = current or _nearest(said, spots, len(self._passages), is_outdated)
        likely = (spot for spot in self._newer(said, current, _SUCCEEDS_FROM) if not is_outdated(spot.sentence.text))
        return _witnessed([*current, *islice(likely, 1)])

    def _newer(self, said: _Said, row: Sequence[_Spot], odds_min: float) -> list[_Spot]:
        """The later sentences whose value may supersede one that the statement and a row have, the likeliest first;
        empty if the row has the likeliest."""
        stated, text = said.text.casefold(), " ".join(spot.sentence.text for spot in row).casefold()
        named = ((spot, mention.text.casefold()) for spot in row for mention in mentions(spot.sentence.text, said=True))
        later = (
            successor
            for spot, key in named
            if key in stated
            for successor in self._successors.get(key, ())
            if successor.odds >= odds_min and self._passages[successor.place].source > spot.source
        )
        ranked = sorted(set(later), reverse=True)
        if ranked and ranked[0].value in text:
            return []
        return [
            spot
            for successor in ranked
            for spot in self._spots(successor.place, said)
            if successor.value in spot.sentence.text.casefold()
        ]

    @cached_property
    def _successors(self) -> Mapping[str, Sequence[_Successor]]:
        """The values that may supersede a value, case folded, by that value."""
        found: dict[str, list[_Successor]] = {}
        spoken = self._spoken()
        texts = ((self._passages[place].numbers[-1], self._passages[place].text) for place in spoken)
        standing = StandingValues()
        for at, _, stated, supersedes in values_said(texts, standing):
            for old, odds in supersedes:
                if odds >= _SUCCEEDS_FROM:
                    found.setdefault(old, []).append(_Successor(odds, spoken[at], stated.key))
        return {old: later for old, later in found.items() if not standing.is_in_family(old)}

    def _spoken(self) -> list[int]:
        """The places of the newest passages that people and models said."""
        said = [at for at, one in enumerate(self._passages) if one.role in _SPEAKERS]
        sizes = accumulate(len(self._passages[at].text) for at in reversed(said))
        return said[len(said) - sum(size <= _SUCCEEDING_CHARS_MAX for size in sizes) :]

    def _said(self, statement: str) -> _Said:
        whole = sentence_of(statement)
        found = {word: word.share * self._rarity(word.key) for word in words_in(whole.rest)}
        values = [value.keys for value in whole.values]
        return _Said(statement, list(found), values, [*found.values(), *(_VALUE_WEIGHT for _ in values)])

    def _spots(self, place: int, said: _Said) -> Iterator[_Spot]:
        if place not in self._read:
            self._read[place] = tuple(_led(parts_of(self._passages[place].text)))
        speaker = word_keys(" ".join(self._passages[place].speakers))
        for nth, (lead, sentence) in enumerate(self._read[place]):
            words = (1.0 if word.key in speaker else sentence.share(word) for word in said.words)
            parts = [*words, *(float(sentence.has(value)) for value in said.values)]
            yield _Spot(place, nth, self._passages[place], lead, sentence, parts)


def _led(texts: Iterable[str]) -> Iterator[tuple[str, Sentence]]:
    """The sentences, each with the line that leads up to it: one that ends with a colon, before it or its list."""
    lead = ""
    for text in texts:
        yield lead, sentence_of(text)
        lead = text if text.endswith(_COLONS) else lead if _LISTED.match(text) else ""


def _witnessed(spots: Iterable[_Spot], *, is_proof: bool = False) -> Witnessed:
    ordered = sorted(spots, key=lambda spot: (spot.place, spot.nth))
    return Witnessed(tuple(Line(spot.sentence.text, spot.passage) for spot in ordered), is_proof)


def _verbatim(statement: str, spots: Sequence[_Spot]) -> list[_Spot]:
    """The sentence that says a statement word for word, with its speaker before it or without; the last of several.

    A part of a sentence proves nothing: the rest may be its condition, or deny it, in any language. Only a word of
    address or of assent may be left out before it.
    """
    prefix, _, rest = statement.partition(": ")
    whole, said = _run(statement), _run(rest)

    def says(spot: _Spot) -> bool:
        text, words = spot.sentence.text, said if prefix in spot.passage.speakers else whole
        is_said = _run(text) == words or (_run(_OPENING.sub("", text)) == words and not _is_doubtful([text]))
        return is_said and not _is_doubtful([spot.lead]) and is_question(text) is is_question(statement)

    return [spot for spot in spots if says(spot)][-1:]


def _proof(said: _Said, spots: Sequence[_Spot]) -> list[_Spot]:
    """The one or two sentences in a row that bind the values of a statement to its words; the last ones if several
    do. They neither deny nor ask, and what only may be proves nothing that is."""
    if not said.values or denies(said.text):
        return []
    is_sure = not _may_be(said.text)
    rows = [[spot] for spot in spots] + [[one, two] for one, two in pairwise(spots) if two.follows(one)]
    binding = [row for row in rows if said.has_values(parts := _joint(row)) and said.words_share(parts) >= _PROVED]
    named = [row for row in binding if said.has_names(_joint(row))]
    plain = [row for row in named if not _asks(said, row) and not _is_doubtful(_texts(row), is_sure=is_sure)]
    if act := said.act:
        actor = Role.ASSISTANT if has_phrase(as_phrased(said.text), Phrase.NAMES_ASSISTANT) else Role.USER
        plain = [row for row in plain if any(_tells(spot, act, actor) for spot in row)]
    stated = _clauses(said.text)
    bound = [row for row in plain if all(_is_bound(clause, row) for clause in stated)]
    best = max(bound, key=lambda row: (said.words_share(_joint(row)), -len(row), row[-1].source), default=[])
    return [] if best and _is_of_another(said, best, spots) else best


def _is_bound(stated: Sentence, row: Sequence[_Spot]) -> bool:
    """Return whether no word of a statement's clause stands in the row beside another value alone: of `the rent is 985
    EUR and the deposit 2,956` neither value is the other's."""
    clauses = [clause for spot in row for clause in _clauses(spot.sentence.text) if clause.values]
    own = [clause for clause in clauses if any(clause.has(value.keys) for value in stated.values)]
    others = [clause for clause in clauses if clause not in own]
    words = words_in(stated.rest) if own and others else ()
    return not any(_have(others, word) and not _have(own, word) for word in words)


def _have(clauses: Iterable[Sentence], word: Word) -> bool:
    return any(clause.share(word) for clause in clauses)


def _clauses(text: str) -> list[Sentence]:
    return [sentence_of(clause) for clause in _clause_ends().split(text)]


@cache
def _clause_ends() -> re.Pattern[str]:
    return re.compile(rf"{_STOP}|{section_of(Phrase.JOINS).pattern}")


def _is_of_another(said: _Said, row: Sequence[_Spot], spots: Iterable[_Spot]) -> bool:
    """Return whether more of the words stand beside another value, in a sentence without those of the statement."""
    own = said.words_share(_joint(row))
    others = (spot for spot in spots if spot.sentence.values and said.has_none(spot.parts))
    return any(said.words_share(spot.parts) > own for spot in others)


def _tells(spot: _Spot, act: Phrase, actor: Role) -> bool:
    """Return whether a speaker tells of the same act: `the user decided` is proved by `we decided` of a user alone."""
    return spot.passage.role is actor and has_phrase(as_phrased(spot.sentence.text), act)


def _asks(said: _Said, row: Sequence[_Spot]) -> bool:
    """Return whether a question has a value of a statement."""
    return any(is_question(spot.sentence.text) and not said.has_none(spot.parts) for spot in row)


def _replacing(said: _Said, row: Sequence[_Spot], spots: Sequence[_Spot]) -> _Spot | None:
    """The later sentence that gives another value to the words of a row, of several the one with most of them."""
    if not any(spot.sentence.values for spot in row):
        return None
    parts = _joint(row)
    own = said.words_share(parts) or 1.0
    later = (
        (said.words_share([*map(min, spot.parts, parts)]) / own, spot)
        for spot in spots
        if spot.source > row[-1].source and spot.sentence.values and said.has_none(spot.parts)
    )
    share, found = max(later, key=lambda one: (one[0], one[1].place), default=(0.0, None))
    return found if share >= _REPLACES else None


def _nearest(said: _Said, spots: Sequence[_Spot], passages: int, is_outdated: Callable[[str], bool]) -> list[_Spot]:
    """The witness that is nearest, and another beside it if there is one."""
    by_source: dict[int, list[float]] = {}
    for spot in spots:
        by_source[spot.source] = [*map(max, by_source.get(spot.source, spot.parts), spot.parts)]
    nothing = [0.0] * len(said.weights)

    def around(spot: _Spot) -> float:
        shares = ((0, _BESIDE), (-1, _BEFORE), (1, _AFTER))
        beside = [[share * part for part in by_source.get(spot.source + at, nothing)] for at, share in shares]
        return said.share([*map(max, spot.parts, *beside)])

    def rank(spot: _Spot) -> float:
        return around(spot) + _BY_USER * (spot.passage.role is Role.USER) + _LATER * spot.place / passages

    near = (spot for spot in spots if said.share(spot.parts) >= _OWN_MIN)
    ranked = sorted(near, key=rank, reverse=True)
    first = next((spot for spot in ranked if not is_outdated(spot.sentence.text)), None)
    if first is None:
        return []
    if second := _replacing(said, [first], spots) or _adding(said, first, spots, is_outdated):
        return [first, second]
    least = rank(first) - _CLOSE
    others = (spot for spot in ranked if spot.source != first.source and spot.parts != first.parts)
    close = (spot for spot in others if rank(spot) >= least and not is_outdated(spot.sentence.text))
    return [first, *islice(close, 1)]


def _adding(said: _Said, first: _Spot, spots: Sequence[_Spot], is_outdated: Callable[[str], bool]) -> _Spot | None:
    """The sentence near the first that has most of what it lacks, if that is enough."""
    near = (spot for spot in spots if abs(spot.source - first.source) <= _ADDS_WITHIN)
    adds = (
        (said.share([max(0.0, b - a) for a, b in zip(first.parts, spot.parts, strict=True)]), spot) for spot in near
    )
    enough = sorted((one for one in adds if one[0] >= _ADDS), key=lambda one: (one[0], one[1].place), reverse=True)
    return next((spot for _, spot in enough if not is_outdated(spot.sentence.text)), None)


def _joint(row: Sequence[_Spot]) -> list[float]:
    return [max(column) for column in zip(*(spot.parts for spot in row), strict=True)]


def _texts(row: Iterable[_Spot]) -> Iterator[str]:
    return (text for spot in row for text in (spot.lead, spot.sentence.text))


def _corrects(spot: _Spot) -> bool:
    return has_phrase(as_phrased(spot.sentence.text), Phrase.CORRECTS)


def _is_doubtful(texts: Iterable[str], *, is_sure: bool = True) -> bool:
    """Return whether a text denies something or, to one who is sure, says what only may be."""
    return any(denies(text) or (is_sure and _may_be(text)) for text in texts)


def _may_be(text: str) -> bool:
    return has_phrase(as_phrased(text), Phrase.IS_UNCERTAIN)


def _run(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))
