"""Digits of scripts of the Basic Multilingual Plane as ASCII has them, each in its place.

Arabic, Persian, Hindi, Bengali and others have digits of their own, and Japanese and Chinese texts full-width ones. The
forms of identifiers and of values are written for ASCII alone.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final

_WIDE: Final = 0xFEE0
"""A full-width letter is this far from the plain one."""

_SIGNS: Final = {
    "\uff0e": ".",
    "\uff1a": ":",
    "\uff0d": "-",
    "\u2212": "-",
    "\uff0f": "/",
    "\uff0c": ",",
    "\uff05": "%",
}
_ARABIC: Final = {"\u066a": "%", "\u066b": ".", "\u066c": ","}
_SIGN: Final = re.compile(rf"(?<=[0-9A-Za-z])(?:[{''.join(_SIGNS)}](?=[0-9])|\uff05)")
"""A full-width sign within a number or a code; anywhere else it is punctuation of the sentence."""


def with_ascii_digits(text: str) -> str:
    """The text with ASCII's digits for those of other scripts, and with its letters for full-width ones.

    Every character keeps its place; a text without any is returned itself. Linear in the text.
    """
    if text.isascii() or _others().search(text) is None:
        return text
    return _SIGN.sub(lambda sign: _SIGNS[sign[0]], text.translate(_table()))


@cache
def _table() -> dict[int, str]:
    """The characters to replace: of Unicode's decimal digits (category Nd) those of the Basic Multilingual Plane."""
    digits = {ord(one): str(unicodedata.decimal(one)) for one in map(chr, range(0x80, 0x10000)) if one.isdecimal()}
    letters = {ord(letter) + _WIDE: letter for letter in map(chr, range(ord("A"), ord("z") + 1)) if letter.isalpha()}
    signs = {ord(sign): plain for sign, plain in _ARABIC.items()}
    return digits | letters | signs


@cache
def _others() -> re.Pattern[str]:
    return re.compile(f"[{''.join(map(chr, _table()))}]")
