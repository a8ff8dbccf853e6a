"""Estimates tokens from the characters alone, for any model and without a vocabulary.

Every character becomes one byte, its class: lower and upper letters, digits, spaces, line ends, punctuation, and one
class per group of scripts. Byte-pair vocabularies split where the class changes and, inside a run, after a number
of characters; so the estimate is a weighted count of class pairs and short runs. All work is done by `bytes` and `int`
operations over the whole text: linear for any text, and in integers, hence the same on every machine.

The weights are a least-squares fit to o200k and cl100k over prose in 36 languages, code, JSON, logs, tables and
identifiers; docs/adr/0007 has the method and the errors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from zlib import adler32

from abridged.service.domain.tokens import TokenCounter, TokenSource

_HUNDREDTHS: Final = 100

_SAFETY_PERCENT: Final = 103
"""A count too low overflows the window, a count too high costs an early pass: lean to the high side."""

_ASCII_WEIGHTS: Final[tuple[tuple[bytes, int], ...]] = (
    (b" a", 87),
    (b" A", 60),
    (b".a", 140),
    (b".A", 117),
    (b"0a", 184),
    (b"0A", 96),
    (b"\na", 148),
    (b"\nA", 50),
    (b"aA", 126),
    (b"AA", 25),
    (b"Aa", 87),
    (b"aaaa", 13),
    (b"a" * 16, 513),
    (b"aa", 6),
    (b" 0", 179),
    (b".0", 85),
    (b"a0", 10),
    (b"A0", 92),
    (b"\n0", 97),
    (b"000", 90),
    (b"..", 40),
    (b" .", 83),
    (b"A.", 40),
    (b"0.", 106),
    (b"\n.", 105),
    (b"  ", 3),
    (b"a\n", 48),
    (b"\n\n", 24),
    (b"\n ", 102),
)
"""Hundredths of a token for each occurrence: a lower, A upper, 0 digit, `.` punctuation, space, line end."""

_SCRIPT_WEIGHTS: Final[tuple[tuple[bytes, int], ...]] = (
    (b"e", 112),
    (b"v", 37),
    (b"g", 42),
    (b"c", 14),
    (b" c", 113),
    (b"h", 28),
    (b" h", 90),
    (b"r", 19),
    (b" r", 87),
    (b"i", 40),
    (b"t", 42),
    (b"x", 40),
    (b"s", 62),
    (b"z", 80),
    (b"k", 72),
    (b"o", 69),
    (b" o", 13),
    (b"m", 211),
)
"""The same beyond ASCII; the letters are those of _BLOCKS."""

_BLOCKS: Final[tuple[tuple[int, int, bytes], ...]] = (
    (0x01, 0x02, b"e"),  # Latin with marks
    (0x03, 0x03, b"g"),  # Greek
    (0x04, 0x04, b"c"),  # Cyrillic
    (0x05, 0x05, b"h"),  # Hebrew, Armenian
    (0x06, 0x08, b"r"),  # Arabic, Syriac
    (0x09, 0x0D, b"i"),  # Indic
    (0x0E, 0x0E, b"t"),  # Thai, Lao
    (0x1E, 0x1E, b"v"),  # Vietnamese
    (0x20, 0x2B, b"s"),  # punctuation, arrows, boxes, symbols
    (0x2E, 0x2F, b"z"),  # radicals
    (0x30, 0x33, b"k"),  # kana, bopomofo
    (0x34, 0x9F, b"z"),  # Han
    (0xAC, 0xD7, b"o"),  # Hangul
    (0xD8, 0xDB, b"m"),  # first half of an astral character: emoji, rare Han
    (0xDC, 0xDF, b"_"),  # its second half, worth nothing more
    (0xF9, 0xFA, b"z"),  # compatibility Han
    (0xFE, 0xFE, b"s"),  # variation selectors
    (0xFF, 0xFF, b"k"),  # full-width forms
)
"""Class of a character by the high byte of its UTF-16 code unit; missing ones are `x`, other scripts."""


def _low_classes() -> bytes:
    """Class of each code point below 0x100."""
    table = bytearray(b"." * 128 + b"s" * 64 + b"e" * 64)
    _fill(table, range(ord("a"), ord("z") + 1), b"a")
    _fill(table, range(ord("A"), ord("Z") + 1), b"A")
    _fill(table, range(ord("0"), ord("9") + 1), b"0")
    _fill(table, (0x09, 0x20, 0xA0), b" ")
    _fill(table, (0x0A, 0x0D), b"\n")
    return bytes(table)


def _high_classes() -> bytes:
    """Class of each high byte; zero for the block of _low_classes."""
    table = bytearray(b"\x00" + b"x" * 255)
    for first, last, letter in _BLOCKS:
        _fill(table, range(first, last + 1), letter)
    return bytes(table)


def _fill(table: bytearray, codes: Iterable[int], letter: bytes) -> None:
    for code in codes:
        table[code] = letter[0]


def _codes() -> bytes:
    """Number of each ASCII class, from 1; zero for every other class."""
    table = bytearray(256)
    for number, letter in enumerate(b"aA0 \n.", start=1):
        table[letter] = number
    return bytes(table)


def _pair_weights() -> bytes:
    """Weight of each pair of different classes, at the byte that _hundredths_of_pairs computes for it."""
    table = bytearray(256)
    for pattern, weight in _ASCII_WEIGHTS:
        if len(set(pattern)) > 1:
            before, after = pattern
            table[_CODES[after] << _CODE_BITS | _CODES[before]] = weight
    return bytes(table)


_CODE_BITS: Final = 3
_CODES: Final = _codes()
_RUN_WEIGHTS: Final = tuple((pattern, weight) for pattern, weight in _ASCII_WEIGHTS if len(set(pattern)) == 1)
_PAIR_WEIGHTS: Final = _pair_weights()
_SUMMED_BYTES: Final = 65_520 // max(_PAIR_WEIGHTS)
"""Weights that add up without reaching Adler-32's modulus, 65,521, whatever their values."""
_LOW_CLASSES: Final = _low_classes()
_HIGH_CLASSES: Final = _high_classes()
_IN_LOW_BLOCK: Final = b"\xff" + b"\x00" * 255


class EstimatingCounter:
    """Counts by weights of character classes. The same text always gets the same count."""

    name = "estimate"

    def source_for(self, _model: str) -> TokenSource:
        return TokenSource.ESTIMATE

    def of(self, _model: str) -> TokenCounter:
        return self

    def count(self, text: str) -> int:
        """Estimated tokens in `text`; at least 1 unless it is empty."""
        if not text:
            return 0
        classes = b" " + _classes(text)
        weights = _RUN_WEIGHTS if text.isascii() else _RUN_WEIGHTS + _SCRIPT_WEIGHTS
        occurrences = classes.count
        hundredths = _hundredths_of_pairs(classes) + sum([weight * occurrences(pattern) for pattern, weight in weights])
        return max(1, -(-hundredths * _SAFETY_PERCENT // (_HUNDREDTHS * _HUNDREDTHS)))


def _hundredths_of_pairs(classes: bytes) -> int:
    """The weight of all pairs of different classes, looked up at once, because such pairs never overlap.

    The classes' codes form one long number; combined with itself shifted by a byte and a code, it has a pair in every
    byte: `a`, `A` are 01, 02, and 0102 | 0102 << 11 is 08 11 02, whose middle byte is `aA` (02 << 3 | 01).
    """
    number = int.from_bytes(classes.translate(_CODES))
    pairs = number << (8 + _CODE_BITS) | number
    weights = pairs.to_bytes(len(classes) + 1).translate(_PAIR_WEIGHTS)
    if len(weights) <= _SUMMED_BYTES:
        return _sum_of_bytes(weights)
    return sum(_sum_of_bytes(weights[at : at + _SUMMED_BYTES]) for at in range(0, len(weights), _SUMMED_BYTES))


def _sum_of_bytes(weights: bytes) -> int:
    """Their sum: the low half of Adler-32 minus one (RFC 1950), ten times as fast as `sum`."""
    return (adler32(weights) & 0xFFFF) - 1


def _classes(text: str) -> bytes:
    """One class byte per UTF-16 code unit of `text`."""
    if text.isascii():
        return text.encode("ascii").translate(_LOW_CLASSES)
    units = text.encode("utf-16-be", "surrogatepass")
    high, low = units[0::2], units[1::2]
    # One `and` and one `or` over long integers choose between two byte strings per unit: no loop in Python.
    chosen = int.from_bytes(high.translate(_HIGH_CLASSES)) | (
        int.from_bytes(low.translate(_LOW_CLASSES)) & int.from_bytes(high.translate(_IN_LOW_BLOCK))
    )
    return chosen.to_bytes(len(high))
