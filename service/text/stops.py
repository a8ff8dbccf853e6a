"""Stops that end no sentence: after abbreviations of several languages, ordinals, and labels in addresses.

Only a stop before a capital, a digit or another letter without case is in doubt; the rest ends no sentence anyway.
"""

from __future__ import annotations

import re
from typing import Final

from abridged.service.text.phrases import Words, words_of

CONTEXT_CHARS: Final = 24
"""Characters that are read before a stop and after it."""

GERMAN_MONTH: Final = r"(?:Jan|Feb|M\u00e4r|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)[a-z]{0,6}\b"

_LAST_WORD: Final = re.compile(r"([^\s(\[\"'\u201e\u201c\u00ab]+)\.$")
_INITIAL: Final = re.compile(r"[^\W\d_](?:[.-]{1,2}[^\W\d_])*")
_NEXT_WORD: Final = re.compile(r"[^\W\d_]+")
_NUMBER: Final = re.compile(r"\d|[IVXLC]+\b")

_DATED: Final = re.compile(r"(?:^|[\s(])\d{1,2}\.$")
_DATE: Final = re.compile(rf"{GERMAN_MONTH}|\d{{1,2}}\.(?:\s|$)|(?:19|20)\d\d\b")
_ORDINAL: Final = re.compile(
    r"(?:^|[\s(])(?:a[mb]|im|zu[mr]|vom|beim|bis|seit|de[rmns]|die|das|diese[rmns]?|jede[rmns]?"
    r"|(?:ihr|sein|uns|euer|mein|dein)e?[rmns]?|e?in(?:e[rmns]?)?|und|oder|nach|vor)\s+(?:\d{1,3}|[IVXLC]{1,6})\.$",
    re.IGNORECASE,
)
"""A number that an article or a preposition of German makes an ordinal."""

_PLACED: Final = re.compile(r",\s\d{1,2}\.$")
_CODE: Final = re.compile(r"[A-Z]{2,3}\b(?!['\u2019])")
"""A number that a comma sets off, and a code behind it, as in an address: `WE 14, 3. OG`."""

_LABELLED: Final = re.compile(r",\s[A-Z\u00c0-\u00dc][^\W\d_]{1,3}\.$")
_LABEL_OF: Final = re.compile(r"[A-Z]{0,2}\d")
"""A short word that a comma sets off, and a number or a code behind it: `Rack 7, Pos. C4`."""

_UNIT: Final = re.compile(r"\d\s?[^\W\d_A-Z]\.$")
_LETTER: Final = re.compile(r"[^\W\d_]\.")
"""A number with a unit of one letter, at the end of a sentence, unless another letter with a stop goes on."""

_STOP: Final = re.compile(r"\.(?=\s[^\s])")


def is_inside(before: str, after: str) -> bool:
    """Return whether the stop at the end of `before` belongs to an abbreviation or an ordinal, and `after` goes on."""
    found = _LAST_WORD.search(before)
    if found is None:
        return False
    word = found[1].casefold()
    if word in words_of(Words.BEFORE_NAMES):
        return True
    if (word in words_of(Words.BEFORE_NUMBERS) or word.endswith("str")) and _NUMBER.match(after):
        return True
    opens = _opens_sentence(after)
    if word in words_of(Words.ABBREVIATIONS):
        return not opens
    if _DATED.search(before) and _DATE.match(after):
        return True
    if _ORDINAL.search(before):
        return not opens
    if _PLACED.search(before) and (code := _CODE.match(after)) is not None:
        return not opens and code[0].casefold() not in words_of(Words.SMALL_TALK)
    if _UNIT.search(before) and not _LETTER.match(after):
        return False
    if _LABELLED.search(before) and _LABEL_OF.match(after):
        return True
    # English has a word of one capital that ends sentences: `So do I.`
    return _INITIAL.fullmatch(found[1]) is not None and found[1] != "I"


def without_inner_stops(text: str) -> str:
    """The text with a letter in place of each stop that ends no sentence, as long as the text."""
    kept: list[str] = []
    at = 0
    for stop in _STOP.finditer(text):
        begin, end = stop.start() - CONTEXT_CHARS + 1, stop.end() + 1
        if is_inside(text[max(0, begin) : stop.end()], text[end : end + CONTEXT_CHARS]):
            kept += (text[at : stop.start()], "x")
            at = stop.end()
    return "".join((*kept, text[at:]))


def _opens_sentence(after: str) -> bool:
    word = _NEXT_WORD.match(after)
    return word is not None and word[0].casefold() in words_of(Words.OPENINGS)
