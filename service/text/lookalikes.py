"""Reads a text as a person does: characters that look like ASCII as ASCII, invisible ones left out.

A model reads a full-width bracket, a Cyrillic letter or a word with a zero-width space in it much as the plain form, so
whatever looks for marks in a text of others must look at the text as it is read. The text itself stays as it is, apart
from what is found: identifiers and languages that use such characters lose nothing.

Sources: NFKC (Unicode Standard Annex 15), and from Unicode Technical Standard 39 the confusables of ASCII letters and
of the characters that marks are made of. Sequences that look like one character (`rn` like `m`) are not folded.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

LINE_ENDS: Final = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
"""Characters that end a line for at least one reader."""

_INVISIBLE: Final = "\x00"
"""Stands for a character that is not read, which no pattern looks for."""

_LETTERS: Final = {
    "a": "\u0251\u03b1\u0430\u0391\u0410\u13aa",
    "b": "\u0184\u042c\u0392\u0412\u15af\u13cf",
    "c": "\u03f2\u0441\u1d04\u03f9\u0421\u13df\u2ca4\u2ca5",
    "d": "\u0501\u146f\u13e7\u13a0\u217e",
    "e": "\u0435\u04bd\u212e\u0395\u0415\u13ac\uab32",
    "f": "\u0192\u03dc\u0584\u1e9d\ua799\uab35",
    "g": "\u0261\u0581\u1d83\u050c\u13c0\u13f3",
    "h": "\u04bb\u0570\u0397\u041d\u13bb\u13c2",
    "i": "\u0131\u0269\u026a\u03b9\u0456\u0406\u04c0\u04cf\u0399\u13a5\u2c92",
    "j": "\u03f3\u0458\u0408\u13ab\u037f",
    "k": "\u03ba\u043a\u039a\u041a\u13e6\u2c94",
    "l": "\u029f\u05c0\u13de\u216c\u2113",
    "m": "\u043c\u039c\u041c\u13b7\u2c98",
    "n": "\u0578\u057c\u039d\u2c9a",
    "o": "\u03bf\u03c3\u043e\u0585\u05e1\u0665\u06f5\u039f\u041e\u0555\u2c9e\u2c9f",
    "p": "\u03c1\u0440\u03a1\u0420\u13e2\u2ca2\u2ca3",
    "q": "\u051b\u0563\u0566\u051a",
    "r": "\u0433\u1d26\u2c85\u13a1\u13d2",
    "s": "\u0455\u0405\u054f\u13d5\u13da\u01bd",
    "t": "\u03c4\u0442\u03a4\u0422\u13a2\u1d1b\u2ca6",
    "u": "\u028b\u03c5\u057d\u1d1c\u054d\u144c",
    "v": "\u03bd\u0475\u05d8\u0474\u13d9\u1d20",
    "w": "\u026f\u0461\u051d\u0561\u051c\u13b3\u1d21",
    "x": "\u0445\u03c7\u03a7\u0425\u2caa\u1541",
    "y": "\u0443\u0423\u04af\u04ae\u03a5\u03b3\u028f\u13a9\u2ca8",
    "z": "\u1d22\u0396\u13c3",
}

_SIGNS: Final = {
    "<": "\u02c2\u2039\u276e\u1438\u16b2\u27e8\u2329\u3008\u276c\u2770\U0001d236",
    ">": "\u02c3\u203a\u276f\u1433\u27e9\u232a\u3009\u276d\u2771\U0001d237",
    "[": "\u2772\u3014",
    "]": "\u2773\u3015",
    "|": "\u01c0\u2223\u23d0\u2502\u2503\u2758\uffe8\u00a6",
    "/": "\u2044\u2041\u2215\u2571\u27cb\u29f8\u3033",
    "_": "\u2017\u2581\u07fa",
    ":": "\u0589\u05c3\u02d0\u0703\u2236\ua789\ufe30",
    "#": "\u2317\u22d5",
    '"': "\u201c\u201d\u201e\u201f\u2033\u02ba\u02dd\u275d\u275e",
    "\n": LINE_ENDS[1:],
}

_COMPATIBLE: Final = (
    (0x00A0, 0x0250),  # no-break space, Latin with marks, superscripts
    (0x1D2C, 0x1DC0),  # raised and lowered letters
    (0x1E00, 0x1F00),  # Latin with more marks
    (0x2000, 0x2190),  # spaces, letter-like symbols, Roman numerals
    (0x2460, 0x2500),  # enclosed letters
    (0x2C7C, 0x2C7E),
    (0xFE10, 0xFE20),  # vertical forms
    (0xFE30, 0xFE70),  # small forms
    (0xFF01, 0xFFEF),  # full width
    (0x1D400, 0x1D800),  # mathematical letters
    (0x1F110, 0x1F190),  # letters in squares
)
"""Blocks whose characters NFKC may fold to one of ASCII."""

_UNSEEN: Final = (
    (0x00AD, 0x00AE),  # soft hyphen
    (0x0300, 0x0370),  # combining marks
    (0x034F, 0x0350),
    (0x061C, 0x061D),
    (0x115F, 0x1161),
    (0x17B4, 0x17B6),
    (0x180B, 0x1810),
    (0x200B, 0x2010),  # zero width, direction marks
    (0x202A, 0x202F),  # direction embeddings and overrides
    (0x2060, 0x2070),  # word joiner, isolates
    (0x20D0, 0x20F1),
    (0x3164, 0x3165),
    (0xFE00, 0xFE10),  # variation selectors
    (0xFE20, 0xFE30),
    (0xFEFF, 0xFF00),
    (0xFFA0, 0xFFA1),
    (0xFFF9, 0xFFFC),
    (0xE0100, 0xE01F0),
)
"""Blocks of characters that are not seen by themselves."""

_TAGS: Final = (0xE0000, 0xE0080)
"""Invisible copies of ASCII, which models read as ASCII."""


def _folded() -> dict[int, str]:
    table: dict[int, str] = {}
    for first, end in _COMPATIBLE:
        for code in range(first, end):
            # Of a letter with a mark, the letter.
            plain = unicodedata.normalize("NFKD", chr(code))
            if plain[0].isascii() and all(unicodedata.combining(c) for c in plain[1:]):
                table[code] = plain[0]
    for group in (_LETTERS, _SIGNS):
        table |= {ord(c): ascii_char for ascii_char, alike in group.items() for c in alike}
    for first, end in _UNSEEN:
        table |= dict.fromkeys(range(first, end), _INVISIBLE)
    table |= {code: chr(code - _TAGS[0]) if code - _TAGS[0] >= 0x20 else _INVISIBLE for code in range(*_TAGS)}
    # Control characters are not seen either; what looks for marks finds white space where there is some.
    table |= {code: _INVISIBLE for code in (*range(0x09), *range(0x0E, 0x1C), 0x1F, *range(0x7F, 0xA0)) if code != 0x85}
    return table


_FOLDED: Final = _folded()
_PLAIN: Final = re.compile(r"[\t\n -~]*")


class Reading(NamedTuple):
    """A text as it is read; `places[i]` is where character `i` stands in the text, and the last one is its length."""

    text: str
    places: Sequence[int]


def reading(text: str) -> Reading:
    """`text` as it is read, in linear time."""
    if _PLAIN.fullmatch(text):
        return Reading(text, range(len(text) + 1))
    folded = text.translate(_FOLDED)
    if _INVISIBLE not in folded:
        return Reading(folded, range(len(text) + 1))
    places = [place for place, char in enumerate(folded) if char != _INVISIBLE]
    return Reading(folded.replace(_INVISIBLE, ""), [*places, len(text)])


def replaced(text: str, pattern: re.Pattern[str], by: str | Callable[[re.Match[str]], str]) -> str:
    """`text` with `by`, or what it returns, in place of all that `pattern` finds in its reading."""
    read = reading(text)
    parts: list[str] = []
    end = 0
    for found in pattern.finditer(read.text):
        first, last = found.span()
        parts += (text[end : read.places[first]], by if isinstance(by, str) else by(found))
        end = read.places[last - 1] + 1 if last > first else read.places[first]
    return "".join((*parts, text[end:])) if parts else text
