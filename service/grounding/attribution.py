"""Tells whether a statement gives a value of its source to another name: `Anna's booking is ZFA04Y`, which is Boris's.

A value belongs to the names of the sentences that have it. A statement is refused its support only if these are all
other names than its own, and its own name has another value of the same kind, in the same words, or is nowhere in the
source although a sentence with the value has all other words of the statement. A pronoun, and a value beside no name,
therefore refuse nothing; nor does a message that is no prose, such as JSON: all of it may belong together.

Names are words that a source writes with a capital in the middle of a sentence or as its subject, and never without.
Scripts without capitals have no names here, nor have languages that write all nouns with one, such as German.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

from abridged.service.grounding.claims import keys_of
from abridged.service.text.identifiers import Identifier, IdentifierKind, numerals
from abridged.service.text.phrases import Words, words_of
from abridged.service.text.sentences import parts_of
from abridged.service.text.words import word_keys

PASSAGES_MAX: Final = 64
"""A name or value in more passages than this is a subject of the whole conversation, and belongs to nothing else."""

_AFTER_ARTICLE: Final = re.compile(r"\b(?:[Dd](?:er|ie|as|en|em|es)|[Ee]in(?:e[nmr]?)?|im|zu[mr]) ([^\W\d_])")
"""The first letter of what follows a German article: a capital, unless an adjective comes between."""

_WORD: Final = re.compile(r"[^\W\d_]{2,}")
_STRUCTURED: Final = re.compile(r"[{\[]\s*[\"'{\[]|^\s*\||\t", re.MULTILINE)
"""JSON or a table, which has no sentences."""

_PassagesOf = Callable[[Collection[str]], Sequence[str] | None]


class _Sentence(NamedTuple):
    """A sentence: its words, those that are names, its identifiers, the keys of its other words; and what the sentence
    before it has of words and of kinds of identifiers."""

    words: frozenset[str]
    names: frozenset[str]
    values: tuple[Identifier, ...]
    keys: frozenset[str]
    before: frozenset[str]
    before_kinds: frozenset[IdentifierKind]


class Attribution:
    """Says to which names the values of a source belong.

    `passages_of` returns the passages that have one of some keys, or None if there are more than `PASSAGES_MAX`.
    """

    def __init__(self, passages: Iterable[str], passages_of: _PassagesOf) -> None:
        capital: set[str] = set()
        small: set[str] = set()
        nouns: list[bool] = []
        for text in passages:
            nouns += (letter.isupper() for letter in _AFTER_ARTICLE.findall(text))
            capital.update(_capitals(text))
            small.update(word for word in _WORD.findall(text) if word.islower())
        self._nouns_have_capitals = 2 * sum(nouns) > len(nouns)
        self._names = frozenset(capital) - small
        self._passages_of = passages_of
        self._sentences: dict[str, tuple[_Sentence, ...]] = {}

    def is_wrong(self, statement: str) -> bool:
        """Return whether a value of `statement` belongs to other names of the source than it says."""
        if self._nouns_have_capitals:
            return False
        written = frozenset(_capitals(_without(numerals(statement), statement)))
        unknown = frozenset(name for name in written - self._names if self._passages_of(word_keys(name)) == [])
        said = _sentence(statement, unknown or self._names)
        if not said.names:
            return False
        return any(self._is_misplaced(value, said, is_unknown=bool(unknown)) for value in said.values)

    def _is_misplaced(self, value: Identifier, said: _Sentence, *, is_unknown: bool) -> bool:
        keys = keys_of(value)
        having = [sentence for sentence in self._sentences_with(keys) if _has(sentence, keys)]
        if not having or any(_may_be_theirs(sentence, value.kind, said) for sentence in having):
            return False
        if is_unknown:
            return bool(said.keys) and any(said.keys <= sentence.keys for sentence in having)
        about = said.keys.union(*(sentence.keys for sentence in having))
        return any(
            sentence.names & said.names and about & sentence.keys and _has_other(sentence, value.kind, said)
            for name in said.names
            for sentence in self._sentences_with(word_keys(name))
        )

    def _sentences_with(self, keys: Collection[str]) -> Iterator[_Sentence]:
        for passage in self._passages_of(keys) or ():
            if passage not in self._sentences:
                self._sentences[passage] = tuple(_sentences(passage, self._names))
            yield from self._sentences[passage]


def _capitals(text: str) -> Iterator[str]:
    """The words, folded, that are names if the source never writes them without a capital."""
    grammar = words_of(Words.GRAMMAR)
    for word in _named().findall(text):
        if word[0].isupper() and not word.isupper() and (folded := word.casefold()) not in grammar:
            yield folded


@cache
def _named() -> re.Pattern[str]:
    """Finds words that are names if they have a capital: not one that a sentence begins with, unless it is the subject.

    The pattern looks for one at its first letter alone: from every letter of a long word, the time would grow with its
    square.
    """
    return re.compile(
        r"(?<![^\W\d_])(?:(?<=[\w,)] )[^\W\d_]{2,}"
        r"|[^\W\d_]{2,}(?= ?[\u4e00-\u9fff])"
        rf"|[^\W\d_]{{2,}}(?=(?:['\u2019]s)? (?:{'|'.join(sorted(words_of(Words.GRAMMAR)))})\b)"
        r"|[^\W\d_]{2,}(?=['\u2019]s ))"
    )


def _may_be_theirs(sentence: _Sentence, kind: IdentifierKind, said: _Sentence) -> bool:
    """Return whether a sentence that has a value of this kind may be about a name of the statement: it names no other,
    or this one too, or the sentence before does and has no such value of its own."""
    near = sentence.words if kind in sentence.before_kinds else sentence.words | sentence.before
    return not sentence.names - said.words or bool(said.names & near)


def _has(sentence: _Sentence, keys: Collection[str]) -> bool:
    return any(not keys_of(value).isdisjoint(keys) for value in sentence.values)


def _has_other(sentence: _Sentence, kind: IdentifierKind, said: _Sentence) -> bool:
    """Return whether a sentence has a value of the kind that the statement has not."""
    known = frozenset(key for value in said.values for key in keys_of(value))
    return any(value.kind is kind and keys_of(value).isdisjoint(known) for value in sentence.values)


def _sentences(passage: str, names: frozenset[str]) -> Iterator[_Sentence]:
    before: _Sentence | None = None
    for text in (passage,) if _STRUCTURED.search(passage) else parts_of(passage):
        before = _sentence(text, names, before)
        yield before


def _without(values: Iterable[Identifier], text: str) -> str:
    for value in values:
        text = text.replace(value.text, " ")
    return text


def _sentence(text: str, names: frozenset[str], before: _Sentence | None = None) -> _Sentence:
    values = numerals(text)
    written = _WORD.findall(_without(values, text))
    own = frozenset(word.casefold() for word in written if word[0].isupper()) & names
    rest = " ".join(word for word in written if word.casefold() not in own)
    return _Sentence(
        frozenset(word.casefold() for word in written),
        own,
        values,
        word_keys(rest),
        before.words if before else frozenset(),
        frozenset(value.kind for value in before.values) if before else frozenset(),
    )
