"""Estimates tokens from the characters alone, without a vocabulary.

Every UTF-16 unit becomes one byte, its class: a letter, a punctuation mark, or a script. Pairs of classes, next to each
other or one apart, have weights, and an estimate is their sum: how a text is spelled tells its language, and how many
tokens its words take. All work is done by `bytes` and `int` operations over the whole text: linear for any text, and in
integers, hence the same on every machine.

Every vocabulary has weights of its own, because one may need four tokens where another needs one; a model's name says
which vocabulary it has. `estimates.json` has classes and weights; docs/adr/0091 says how they were fitted, and how far
they are off.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from zlib import adler32

from abridged.service.domain.tokens import TokenCounter, TokenSource
from abridged.service.tokenizers.vocabularies import vocabulary_of

_HUNDREDTHS: Final = 100

_TOKENS_A_CHARACTER: Final = 4
"""The most that a character may take, one token for each of its bytes; one of ASCII has a single byte."""

_CHARACTERS_A_TOKEN: Final = 8
"""Few texts have more of them for each token, but for runs of one that is no letter."""

_RUN_A_TOKEN: Final = 64

_GROUP_CHARACTERS: Final = 16_384
"""Characters that are looked up at once: more take as long each, and memory."""

_SUM_MAX: Final = 65_519
"""The most that weights may add up to without Adler-32, which begins with one, reaching its modulus, 65,521."""

DEFAULT_VOCABULARY: Final = "o200k"
"""The vocabulary of a model whose name says nothing: newer vocabularies resemble it."""


class EstimatingCounter:
    """Counts by the weights of a vocabulary. The same text always gets the same count."""

    def __init__(self, vocabulary: str = DEFAULT_VOCABULARY) -> None:
        self.name = f"estimate:{vocabulary}"
        self._weights = _tables().weights[vocabulary]

    def source_for(self, _model: str) -> TokenSource:
        return TokenSource.ESTIMATE

    def of(self, model: str) -> TokenCounter:
        """Return the estimate for the model's own vocabulary; an unknown model has the default one."""
        return _counter(vocabulary_of(model) or DEFAULT_VOCABULARY)

    def count(self, text: str) -> int:
        """Estimated tokens in `text`; at least 1 unless it is empty."""
        tables = _tables()
        classes = tables.space + tables.classes(text)
        hundredths = 0
        for way, weights in zip(tables.passes, self._weights, strict=True):
            hundredths += _sum_of(_weights_of_pairs(way, weights, classes), weights)
        return _tokens(text, hundredths)

    def counts(self, texts: Sequence[str]) -> list[int]:
        """Estimated tokens in each text; the pairs of several are looked up at once."""
        if len(texts) == 1:
            return [self.count(texts[0])]
        return [tokens for group in _groups(texts) for tokens in self._counts(group)]

    def _counts(self, texts: Sequence[str]) -> list[int]:
        tables = _tables()
        classes = [tables.space + tables.classes(text) for text in texts]
        hundredths = [0] * len(texts)
        joined = b"".join(classes)
        for way, weights in zip(tables.passes, self._weights, strict=True):
            found, at = _weights_of_pairs(way, weights, joined), 0
            for place, own in enumerate(classes):
                end = at + len(own)
                # Without the pairs whose second unit is another text's.
                hundredths[place] += _sum_of(found[at : max(at, end - way.distance)], weights)
                at = end
        return list(map(_tokens, texts, hundredths))


def _groups(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """The texts in groups of about _GROUP_CHARACTERS, or of one."""
    began = characters = 0
    for place, text in enumerate(texts):
        characters += len(text)
        if characters > _GROUP_CHARACTERS and place > began:
            yield texts[began:place]
            began, characters = place, len(text)
    if began < len(texts):
        yield texts[began:]


def _tokens(text: str, hundredths: int) -> int:
    """The tokens in a text whose pairs weigh so much."""
    tokens = min(-(-hundredths // _HUNDREDTHS), len(text) if text.isascii() else _TOKENS_A_CHARACTER * len(text))
    if not text or tokens * _CHARACTERS_A_TOKEN >= len(text):
        return tokens
    return max(1, tokens, _fewest(text))


def _fewest(text: str) -> int:
    """The fewest tokens that a text of these characters can be: pairs that no ordinary text has may weigh nothing."""
    told_apart = sum(one != other or one.isalnum() for one, other in pairwise(text))
    return told_apart // _CHARACTERS_A_TOKEN + (len(text) - told_apart) // _RUN_A_TOKEN


def estimated_vocabularies() -> tuple[str, ...]:
    """The vocabularies that have weights."""
    return tuple(_tables().weights)


@cache
def _counter(vocabulary: str) -> EstimatingCounter:
    return EstimatingCounter(vocabulary)


class _Pass(NamedTuple):
    """One way to look at pairs of units: their `distance`, and the group of each class as the first and the second.

    `before` has its 16 groups in the upper half of a byte, so that one `or` makes a pair of both.
    """

    distance: int
    before: bytes
    after: bytes


class _Weights(NamedTuple):
    """The weight of each pair, and how many pairs can be added up at once, whatever they weigh."""

    table: bytes
    summed: int

    @classmethod
    def of(cls, table: bytes) -> Self:
        return cls(table, _SUM_MAX // max(1, *table))


class _Tables(NamedTuple):
    """The content of `estimates.json`. A class is a byte.

    Attributes:
        space: The class of a space, which stands in front of every text.
        pages: Classes by the low byte of a unit, for each high byte whose letters are told apart.
        blocks: Classes by the high byte of a unit; zero where there is a page.
        halved: For each high byte, 1 if the second half of its block has the next class.
    """

    space: bytes
    pages: Mapping[int, bytes]
    blocks: bytes
    halved: bytes
    passes: tuple[_Pass, ...]
    weights: Mapping[str, tuple[_Weights, ...]]

    @classmethod
    def of(cls, read: Mapping[str, Any]) -> Self:
        """The tables of the file's JSON."""
        pages = {int(high): bytes(classes) for high, classes in read["pages"].items()}
        return cls(
            space=pages[0][ord(" ") : ord(" ") + 1],
            pages=pages,
            blocks=bytes(0 if high in pages else letter for high, letter in enumerate(read["blocks"])),
            halved=bytes(high in read["halved"] for high in range(256)),
            passes=tuple(
                _Pass(way["distance"], bytes(group << 4 for group in way["before"]), bytes(way["after"]))
                for way in read["passes"]
            ),
            weights={
                name: tuple(_Weights.of(bytes(table)) for table in tables) for name, tables in read["weights"].items()
            },
        )

    def classes(self, text: str) -> bytes:
        """One class for each UTF-16 unit of `text`."""
        if text.isascii():
            return text.encode("ascii").translate(self.pages[0])
        units = text.encode("utf-16-be", "surrogatepass")
        high, low = units[0::2], units[1::2]
        # `and` and `or` over long integers choose between byte strings for every unit: no loop in Python.
        chosen = int.from_bytes(high.translate(self.blocks))
        halved = high.translate(self.halved)
        if any(halved):
            chosen += int.from_bytes(halved) & int.from_bytes(low.translate(_UPPER_HALF))
        for page, classes in self.pages.items():
            if page in high:
                chosen |= int.from_bytes(low.translate(classes)) & int.from_bytes(high.translate(_IS[page]))
        return chosen.to_bytes(len(high))


_UPPER_HALF: Final = bytes(128) + b"\x01" * 128
_IS: Final = tuple(bytes(255 * (high == byte) for byte in range(256)) for high in range(256))
"""A mask for each high byte: a table that has 255 for that byte alone."""


@cache
def _tables() -> _Tables:
    return _Tables.of(json.loads(Path(__file__).with_name("estimates.json").read_text(encoding="ascii")))


def _weights_of_pairs(way: _Pass, weights: _Weights, classes: bytes) -> bytes:
    """The weight of the pair that begins with each unit, at the distance of `way`."""
    pairs = int.from_bytes(classes[: -way.distance].translate(way.before)) | int.from_bytes(
        classes[way.distance :].translate(way.after)
    )
    return pairs.to_bytes(max(0, len(classes) - way.distance)).translate(weights.table)


def _sum_of(found: bytes, weights: _Weights) -> int:
    """The sum of weights that were found, in hundredths of a token."""
    if len(found) <= weights.summed:
        return _sum_of_bytes(found)
    return sum(_sum_of_bytes(found[at : at + weights.summed]) for at in range(0, len(found), weights.summed))


def _sum_of_bytes(weights: bytes) -> int:
    """The sum of the weights, at most _SUM_MAX: the low half of Adler-32 minus one (RFC 1950), ten times as fast as
    `sum`."""
    return (adler32(weights) & 0xFFFF) - 1
