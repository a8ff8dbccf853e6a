"""Finds the messages that a statement rests on by its words, numbers and identifiers, without asking a model.

A source is cut into passages, and an index says which of them have a word. A statement's words weigh more the fewer
passages have them; numbers and identifiers weigh most. The messages whose passages have most of that weight support the
statement, if together they have enough of it and every one of its identifiers. The index takes time linear in the
source, and a statement time linear in the passages that share a telling word with it.

The statements of the previous record take part with the messages that they rest on, so what a record repeats keeps its
evidence. The sentences of its narrative take part, too.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice, pairwise
from math import log
from typing import Any, Final, TypeVar

from abridged.service.domain.message import Message
from abridged.service.domain.record import EVIDENCE_MAX, SummaryRecord, narrative_of, statements_of
from abridged.service.grounding.claims import day_key, keys_of, texts_of
from abridged.service.grounding.reading import Passage
from abridged.service.grounding.testimony import Witnessed, Witnesses
from abridged.service.text.identifiers import IdentifierKind, numerals
from abridged.service.text.sentences import parts_of
from abridged.service.text.words import word_runs

PASSAGES_MAX: Final = 40_000
"""A longer source is cut into longer passages, so that an index stays bounded."""

_PASSAGE_CHARS: Final = 240
"""Two or three sentences: a statement is made of sentences that stand together."""

_SUPPORTED: Final = 0.56
"""Share of a statement's weight that its messages must have."""

_ANCHORED: Final = 0.4
"""Share of a statement's weight that one of them must have by itself: a statement is no mosaic."""

_ADDS: Final = 0.18
"""Share of a statement's weight that a further message must add."""

_ADDS_WORDS: Final = 3
_NEAR: Final = 6
"""A further message has _ADDS_WORDS words of a statement, an identifier counting for two, or is within _NEAR messages
of the first."""

_IDENTIFIER_WEIGHT: Final = 2.0
"""The weight of an identifier, as a multiple of a word's."""

_UNKNOWN_WEIGHT: Final = 0.8
"""The weight of a word that the source does not have, as a multiple of its rarest word's: often another word for the
same."""

_COMMON_SHARE: Final = 0.25
_COMMON_MIN: Final = 60
"""A word in a larger share of the passages, and in at least _COMMON_MIN, says nothing about which of them is meant."""

_HEARD_MAX: Final = 8
_STRETCHES_MAX: Final = 16
"""Stretches of the source whose sentences may be witnesses of a statement."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Passages in a row that have this share of a statement's weight, 0 to 1."""

    passages: tuple[Passage, ...]
    share: float


@dataclass(frozen=True, slots=True)
class Support:
    """The messages that a statement rests on.

    Attributes:
        numbers: Up to EVIDENCE_MAX messages, ascending; empty without any.
        supported: True if messages or the previous record say it.
        heard: The stretches that come closest to the statement, at most one of each message, best first.
    """

    numbers: tuple[int, ...] = ()
    supported: bool = False
    heard: tuple[Heard, ...] = ()


@dataclass(frozen=True, slots=True)
class _Term:
    """A word or an identifier of a statement: any of its keys will do."""

    keys: frozenset[str]
    share: float
    named: bool = False


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A stretch of one message, with the bits of the terms that it has."""

    source: int
    places: tuple[int, ...]
    mask: int


_Judged = TypeVar("_Judged")


class Concordance:
    """An index of a source's messages by word. `passages` are in the order of the source, the previous record last."""

    def __init__(self, passages: Sequence[Passage], postings: dict[str, array[int]]) -> None:
        self.passages = passages
        self._postings = postings
        self._common = max(_COMMON_MIN, int(len(passages) * _COMMON_SHARE))
        self._witnesses = Witnesses(passages, self._rarity)
        self._found: dict[tuple[Callable[..., Any], str], Any] = {}
        self._starts: dict[int, int] = {}
        for place, passage in enumerate(passages):
            self._starts.setdefault(passage.source, place)

    @property
    def is_empty(self) -> bool:
        """True if there is nothing that a statement could rest on."""
        return not self.passages

    def after(self, passage: Passage) -> Passage | None:
        """The first passage of the next message; None after the last."""
        start = self._starts.get(passage.source + 1)
        found = None if start is None else self.passages[start]
        return found if found is None or found.role else None

    def support(self, statement: str) -> Support:
        """Finds the messages that `statement` rests on."""
        terms, weights = self._weighed(statement)
        whole = sum(weights)
        if not whole:
            return self._word_for_word(statement)
        named = sum(1 << bit for bit, term in enumerate(terms) if term.named and self._spread(term))
        weigh = _weigher(weights)
        candidates = self._candidates(terms, weigh)
        heard = tuple(
            Heard(tuple(self.passages[place] for place in found.places), weigh(found.mask) / whole)
            for found in nlargest(
                _HEARD_MAX, candidates, key=lambda found: (weigh(found.mask), *self._closeness(found))
            )
        )
        chosen, covered = self._chosen(candidates, whole, weigh, named)
        if not chosen or weigh(covered) < _SUPPORTED * whole or named & ~covered:
            return Support(heard=heard)
        if self._names_another(statement, terms, covered) and not self._is_in_another_script(statement, chosen[0]):
            return Support(heard=heard)
        return Support(self._numbers(found.places[0] for found in chosen), supported=True, heard=heard)

    def once(self, judge: Callable[[str, Concordance], _Judged], statement: str) -> _Judged:
        """Return what `judge` finds about a statement before this source, and call it once for each statement."""
        asked = (judge, statement)
        if asked not in self._found:
            self._found[asked] = judge(statement, self)
        found: _Judged = self._found[asked]
        return found

    def testimony(self, statement: str, is_outdated: Callable[[str], bool] = lambda _: False) -> Witnessed:
        """Finds what comes nearest to `statement`, and tells whether it proves it. A sentence that is outdated is no
        witness."""
        weigh = _weigher((weighed := self._weighed(statement))[1])
        nearest = nlargest(_STRETCHES_MAX, self._candidates(weighed[0], weigh), key=lambda found: weigh(found.mask))
        near = [place for found in nearest for place in found.places] or self._saying(statement)
        return self._witnesses.testimony(statement, near, is_outdated)

    def _weighed(self, statement: str) -> tuple[list[_Term], list[float]]:
        """The terms of a statement that tell which passage is meant, with their weights."""
        terms = [term for term in _terms_of(statement) if term.named or self._spread(term) <= self._common]
        return terms, [self._weight(term) for term in terms]

    def _chosen(
        self, candidates: list[_Candidate], whole: float, weigh: Callable[[int], float], named: int
    ) -> tuple[list[_Candidate], int]:
        """The messages that together have most of a statement, best first, and the bits of the terms that they have."""
        chosen: list[_Candidate] = []
        covered = 0
        while len(chosen) < EVIDENCE_MAX and candidates:
            best = max(
                candidates,
                key=lambda found: (weigh(found.mask & ~covered), self._names_messages(found), *self._closeness(found)),
            )
            if weigh(best.mask & ~covered) < whole * (_ADDS if chosen else _ANCHORED):
                break
            chosen.append(best)
            covered |= best.mask
            first = chosen[0]
            candidates = [found for found in candidates if _may_add(found, first, found.mask & ~covered, named)]
        return chosen, covered

    def _numbers(self, places: Iterable[int]) -> tuple[int, ...]:
        numbers = dict.fromkeys(number for place in places for number in self.passages[place].numbers)
        return tuple(sorted(list(numbers)[:EVIDENCE_MAX]))

    def _word_for_word(self, statement: str) -> Support:
        """Finds the messages that have the text of a statement of common words."""
        numbers = {number for place in self._saying(statement) for number in self.passages[place].numbers}
        return Support(tuple(sorted(numbers)[:EVIDENCE_MAX]), supported=bool(numbers))

    def _saying(self, statement: str) -> list[int]:
        """The first passages that have the text of a statement, without the speaker before it."""
        text = statement.partition(": ")[2] or statement
        places = (at for at, one in enumerate(self.passages) if one.numbers and " " in text and text in one.text)
        return list(islice(places, EVIDENCE_MAX))

    def _names_messages(self, found: _Candidate) -> bool:
        """Return whether the candidate has messages: the narrative of the previous record has none, nor do its
        statements without evidence."""
        return bool(self.passages[found.places[0]].numbers)

    def _closeness(self, found: _Candidate) -> tuple[int, int]:
        """Ranks messages that have the same words of a statement: the shortest first, then the oldest."""
        return -sum(len(self.passages[place].text) for place in found.places), -found.source

    def _names_another(self, statement: str, terms: Sequence[_Term], covered: int) -> bool:
        """Return whether two words in a row name something of the source that the chosen messages do not."""
        missing = {next(iter(term.keys)) for bit, term in enumerate(terms) if not covered >> bit & 1 and not term.named}
        words = [run for run, size in word_runs(statement) if not size]
        for pair in pairwise(words):
            if missing.issuperset(pair) and pair[0] != pair[1]:
                both = set(self._postings.get(pair[0], ())).intersection(self._postings.get(pair[1], ()))
                if any(pair in pairwise(run for run, _ in word_runs(self.passages[place].text)) for place in both):
                    return True
        return False

    def _is_in_another_script(self, statement: str, found: _Candidate) -> bool:
        """Return whether the passage has words in a script without spaces, which those of a statement with spaces may
        be."""
        text = "".join(self.passages[place].text for place in found.places)
        return any(size for _, size in word_runs(text)) and not any(size for _, size in word_runs(statement))

    def _rarity(self, key: str) -> float:
        return self._weight(_Term(frozenset((key,)), 1.0))

    def _spread(self, term: _Term) -> int:
        return max(len(self._postings.get(key, ())) for key in term.keys)

    def _weight(self, term: _Term) -> float:
        spread = self._spread(term)
        rarity = log(1 + len(self.passages) / (spread or 1)) * (1.0 if spread else _UNKNOWN_WEIGHT)
        return rarity * term.share * (_IDENTIFIER_WEIGHT if term.named else 1.0)

    def _candidates(self, terms: Sequence[_Term], weigh: Callable[[int], float]) -> list[_Candidate]:
        """The two passages in a row, for each message, that have most of the terms."""
        masks: dict[int, int] = {}
        for bit, term in enumerate(terms):
            for key in term.keys:
                for place in self._postings.get(key, ()):
                    masks[place] = masks.get(place, 0) | 1 << bit
        best: dict[int, _Candidate] = {}
        for place, mask in masks.items():
            source = self.passages[place].source
            places: tuple[int, ...] = (place,)
            after = masks.get(place + 1, 0)
            if after & ~mask and self.passages[place + 1].source == source:
                mask, places = mask | after, (place, place + 1)
            known = best.get(source)
            if known is None or weigh(mask) > weigh(known.mask):
                best[source] = _Candidate(source, places, mask)
        return list(best.values())


def _may_add(found: _Candidate, first: _Candidate, adds: int, named: int) -> bool:
    """Return whether a message may support a statement beside the first: one nearby, where `it` may mean the same, or
    one that has more of the statement than its subject or a number."""
    words = adds.bit_count() + bool(adds & named)
    return abs(found.source - first.source) <= _NEAR or words >= _ADDS_WORDS


def concordance_of(messages: Iterable[tuple[int, Message]], previous: SummaryRecord | None = None) -> Concordance:
    """Indexes these numbered messages, and the record before them."""
    said = [(_said(message), (number,), message) for number, message in messages]
    earlier = [*statements_of(previous), *narrative_of(previous)] if previous else []
    chars = sum(len(text) for text, _, _ in said) // PASSAGES_MAX
    passages: list[Passage] = []
    postings: dict[str, array[int]] = {}
    for source, (text, numbers, message) in enumerate([*said, *((text, numbers, None) for text, numbers in earlier)]):
        speaker = keys_in(message.name) if message and message.name else set()
        for part in _parts(text, max(_PASSAGE_CHARS, chars)):
            for key in keys_in(part) | speaker:
                postings.setdefault(key, array("I")).append(len(passages))
            passages.append(Passage(part, source, numbers, message))
    return Concordance(passages, postings)


def _said(message: Message) -> str:
    """The text of a message and of its tool calls, without the speaker's name."""
    content, _, *calls = texts_of(message)
    return "\n".join((content, *calls))


def _parts(text: str, chars_max: int) -> Iterator[str]:
    """The text in stretches of whole sentences, of about `chars_max` at most."""
    held = ""
    for sentence in parts_of(text):
        if held and len(held) + len(sentence) > chars_max:
            yield held
            held = ""
        # By place: to cut off what is read would copy the rest each time.
        start = 0
        while len(sentence) - start > 2 * chars_max:
            limit = start + chars_max
            end = max(sentence.rfind(" ", start, limit), sentence.rfind(",", start, limit)) + 1 or limit
            yield sentence[start:end]
            start = end
        rest = sentence[start:]
        held = f"{held}\n{rest}" if held else rest
    if held.strip():
        yield held


def keys_in(text: str) -> set[str]:
    """The keys of a text's words and identifiers; of a date also without its year, as people often write it."""
    keys: set[str] = set()
    for found in numerals(text):
        keys |= keys_of(found)
        if found.kind is IdentifierKind.DATE:
            keys.add(day_key(found))
    for run, size in word_runs(text):
        keys.update((run[i : i + size] for i in range(len(run) - size + 1)) if size else (run,))
    return keys


def _terms_of(text: str) -> list[_Term]:
    """The words and identifiers of a text, each once."""
    terms = {_Term(frozenset(keys_of(found)), 1.0, named=True): None for found in numerals(text)}
    for run, size in word_runs(text):
        if size:
            terms |= {_Term(frozenset((run[i : i + size],)), 1 / size): None for i in range(len(run) - size + 1)}
        elif not run.isdigit():
            terms[_Term(frozenset((run,)), 1.0)] = None
    return list(terms)


def _weigher(weights: Sequence[float]) -> Callable[[int], float]:
    """Returns the weight of the terms whose bits are set."""
    known: dict[int, float] = {0: 0.0}

    def weigh(mask: int) -> float:
        if mask not in known:
            lowest = mask & -mask
            known[mask] = weigh(mask ^ lowest) + weights[lowest.bit_length() - 1]
        return known[mask]

    return weigh
