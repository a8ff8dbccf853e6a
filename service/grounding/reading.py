"""Reads sentences: which values they have, which other words, and how far they have a word of a statement.

No language is known. A word matches its inflected forms by its beginning, a compound by a part of it, and in scripts
without spaces a pair of characters is a part of a word. A value matches itself in another notation.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from abridged.service.domain.message import Message, Role
from abridged.service.grounding.claims import keys_of
from abridged.service.text.digits import with_ascii_digits
from abridged.service.text.identifiers import Identifier, numerals
from abridged.service.text.phrases import Phrase, has_phrase
from abridged.service.text.scripts import EAST, HANGUL
from abridged.service.text.values import values
from abridged.service.text.words import STEM_CHARS, as_phrased, folded, word_forms, word_keys, word_runs

_FORM_CHARS: Final = 6
"""Characters of a word that a compound must have."""

_COMPOUND, _PART = 0.8, 0.6
"""Shares to which a compound has a word, and to which a word is a compound that it is a part of; chosen by hand."""

_LOOSE: Final = re.compile(r"[\s'\u2019`]+")
_SHAPE: Final = (
    (re.compile(r"\d+(?:[.,\s]\d+)*"), "9"),
    (re.compile(rf"[^\W\d_{EAST}{HANGUL}]+"), "a"),
    (re.compile(r"\s"), ""),
)


@dataclass(frozen=True, slots=True)
class Passage:
    """A few sentences of a source.

    Attributes:
        text: The sentences.
        source: The place of their message in the source, from 0; texts of the previous record come last.
        numbers: The message of the sentences, or those that a statement of the previous record rests on.
        message: The message itself; None for the previous record.
    """

    text: str
    source: int
    numbers: tuple[int, ...]
    message: Message | None

    @property
    def role(self) -> Role | None:
        """The role of the writer; None for the previous record."""
        return self.message.role if self.message else None

    @property
    def speakers(self) -> tuple[str, ...]:
        """The names that may stand before a line of the message: its role, and the writer's."""
        return (self.message.role, self.message.name) if self.message else ()


class Word(NamedTuple):
    """A word of a statement, folded, with the key of its forms and the share of a word that it is."""

    form: str
    key: str
    share: float


class Value(NamedTuple):
    """A value as it is written, with the keys that its notations share."""

    text: str
    keys: frozenset[str]

    @property
    def written(self) -> str:
        """The key of the value as it is written, whatever its spacing and case."""
        return _written(self.text)

    @property
    def shape(self) -> str:
        """The form of the value, which values that may replace one another share, such as `PT45M` and `PT90M`."""
        shape = folded(self.text)
        for pattern, sign in _SHAPE:
            shape = pattern.sub(sign, shape)
        return shape


class Sentence(NamedTuple):
    """A sentence with its values, the keys of its other words, and its text without the values, folded."""

    text: str
    values: tuple[Value, ...]
    keys: frozenset[str]
    rest: str

    def has(self, value: Collection[str]) -> bool:
        """Return whether the sentence has a value that is given by its keys, by itself or within a longer one."""
        if any(not own.keys.isdisjoint(value) for own in self.values):
            return True
        whole = _written(self.text)
        within = (key for key in value if len(key) > 2 and key in whole)
        return any(re.search(rf"(?<![^\W_]){re.escape(key)}(?![^\W_])", whole) for key in within)

    def share(self, word: Word) -> float:
        """The share, 0 to 1, to which the sentence has a word: as it is or inflected, in a compound, or as a part of
        it."""
        if word.key in self.keys:
            return 1.0
        if word.share < 1.0 or len(word.form) < _FORM_CHARS:
            return 0.0
        if word.form[:_FORM_CHARS] in self.rest:
            return _COMPOUND
        starts = range(1, len(word.form) - STEM_CHARS + 1)
        return _PART if any(word.form[i : i + STEM_CHARS] in self.keys for i in starts) else 0.0


def sentence_of(text: str) -> Sentence:
    read = with_ascii_digits(text)
    found: list[Identifier] = [*values(read), *numerals(read)]
    found.sort(key=lambda one: (one.start, -len(one.text)))
    own: list[Value] = []
    rest: list[str] = []
    end = 0
    for one in found:
        if one.start >= end and read.startswith(one.text, one.start):
            own.append(Value(one.text, frozenset({*keys_of(one), _written(one.text)})))
            rest.append(read[end : one.start])
            end = one.end
    plain = folded(" ".join((*rest, read[end:])))
    return Sentence(text, tuple(own), word_keys(plain), plain)


def denies(text: str) -> bool:
    """Return whether a text denies or refuses something."""
    plain = as_phrased(text)
    return has_phrase(plain, Phrase.DENIES) or has_phrase(plain, Phrase.REFUSES)


def words_in(text: str) -> Iterator[Word]:
    """The telling words of a text; in scripts without spaces, each run of characters that is a key."""
    for (form, size), (key, _) in zip(word_forms(text), word_runs(text), strict=True):
        if size:
            yield from (Word(form[i : i + size], form[i : i + size], 1 / size) for i in range(len(form) - size + 1))
        elif not form.isdigit():
            yield Word(form, key, 1.0)


def _written(text: str) -> str:
    return _LOOSE.sub("", folded(text)).strip(".,;:")
