"""Weighs how much a sentence looks like those that do one thing: a linear model over its words and characters.

A list of phrases knows the forms that its author thought of. A model has weighed the words of thousands of sentences of
eight languages (`bench/written/sentences` and `bench/written/seen/values`, by `scripts/gen-weights`).

The weights lie in one table at the hashes of the features, after Weinberger et al., "Feature Hashing for Large Scale
Multitask Learning" (2009): the table needs no vocabulary, and few of a sentence's features share a place with others.
"""

from __future__ import annotations

import math
import re
import struct
import unicodedata
import zlib
from array import array
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Final

PLACES: Final = 1 << 16
"""Weights of a table; a byte each."""

EVIDENCE_VALUE: Final = 0.5
"""The value of one kind of evidence; the squares of the values of all words add up to 1."""

_WIDE: Final = "\u0e00-\u0e7f\u2e80-\U0010ffff"
"""Thai, and all from the radicals of Chinese on: scripts without spaces, and Hangul."""

_TOKEN: Final = re.compile(rf"\d+(?:[.,:/-]\d+)*|(?:(?=[{_WIDE}])[^\W\d_])+|(?:(?![{_WIDE}])[^\W\d_])+|[^\w\s]")
_IS_WIDE: Final = re.compile(f"[{_WIDE}]")
_STEM_CHARS: Final = 5
_ENDING_CHARS: Final = 3
_WIDE_CHARS_MAX: Final = 4
_HEAD: Final = struct.Struct("<ff")


class Likeness:
    """A trained model: a table of weights, how much one step of them is, and the weight of every sentence."""

    def __init__(self, weights: array[int], step: float, bias: float) -> None:
        self._weights, self._step, self._bias = weights, step, bias

    def of_words(self, places: Sequence[int]) -> float:
        """The log odds by the words of a sentence alone, which are at these places."""
        total = sum(map(self._weights.__getitem__, places))
        return self._bias + self._step * total * value_of_word(len(places))

    def of_evidence(self, kind: str) -> float:
        """The log odds that a kind of evidence adds to those of the words."""
        return float(self._step * self._weights[place_of_evidence(kind)] * EVIDENCE_VALUE)

    def to_bytes(self) -> bytes:
        """The model as a file has it."""
        return _HEAD.pack(self._step, self._bias) + self._weights.tobytes()


@cache
def likeness_to(name: str) -> Likeness:
    """The model in `NAME.weights`, read once."""
    content = files(__package__).joinpath(f"{name}.weights").read_bytes()
    return Likeness(array("b", content[_HEAD.size :]), *_HEAD.unpack_from(content))


def places_of(sentence: str) -> list[int]:
    """The places of a sentence's words, without those of its evidence; each once, ascending. Linear in the sentence."""
    return sorted({_place(feature) for feature in _features(sentence)})


def value_of_word(count: int) -> float:
    """The value of each of `count` words, 1 or more: a long sentence has no more weight than a short one."""
    return 1 / math.sqrt(count)


def place_of_evidence(kind: str) -> int:
    """The place of a kind of evidence."""
    return _place(f"[{kind}]")


def _place(feature: str) -> int:
    return zlib.crc32(feature.encode("utf-8", "surrogatepass")) % PLACES


def _features(sentence: str) -> Iterator[str]:
    """The words, their beginnings and endings, and up to three in a row; of scripts without spaces, up to four
    characters. Numbers tell nothing."""
    tokens: list[str] = _TOKEN.findall(unicodedata.normalize("NFKC", sentence).lower())
    row = ["^"]
    for at, token in enumerate(tokens):
        if token[0].isdigit():
            continue
        if _IS_WIDE.match(token):
            row.append("w")
            run = token if at else f"^{token}"
            for chars in range(1, _WIDE_CHARS_MAX + 1):
                yield from (run[start : start + chars] for start in range(len(run) - chars + 1))
        else:
            row.append(token[:_STEM_CHARS])
            yield f"={token}"
            yield f"<{token[:_STEM_CHARS]}"
            yield f">{token[-_ENDING_CHARS:]}"
    row.append("$")
    yield from _neighbours(row)


def _neighbours(row: list[str]) -> Iterator[str]:
    for at, token in enumerate(row[:-1]):
        following = row[at + 1 : at + 3]
        yield f"{token} {following[0]}"
        if len(following) > 1:
            yield f"{token}_{following[1]}"
            yield f"{token} {following[0]} {following[1]}"
