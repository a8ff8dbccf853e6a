"""Finds the names of many that a text names: whole names, whatever their case, and not the beginnings of longer ones.

A name is looked up where its first word stands, by its length, so the work is linear in the names and in the text. A
name may stand between any two characters in scripts without spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from abridged.service.text.scripts import EAST, FULL_WIDTH, HANGUL, RARE, SOUTHEAST

_UNSPACED: Final = f"{SOUTHEAST}{EAST}{HANGUL}{FULL_WIDTH}{RARE}"
_WORD: Final = re.compile(rf"[^\W_{_UNSPACED}]+|[{_UNSPACED}]")
_IN_WORD: Final = re.compile(rf"[^\W{_UNSPACED}]")
_JOINING: Final = frozenset("-_/@#")
"""Characters that make a name longer wherever they stand beside it."""

_BETWEEN: Final = frozenset(".,:'\u2019")
"""Characters that make a name longer between two of its own: they end sentences, too."""

_PATH_MARKS: Final = frozenset("/.")


class Names:
    """Names, case folded, by their first words."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = frozenset(keys)
        self._places: dict[str, set[tuple[int, int]]] = {}
        self._unworded: set[str] = set()
        for key in self._keys:
            word = _WORD.search(key)
            if word is None:
                self._unworded.add(key)
            else:
                self._places.setdefault(word[0], set()).add((word.start(), len(key)))

    def of(self, texts: Iterable[str]) -> frozenset[str]:
        """The names that one of the texts names."""
        found: set[str] = set()
        for text in texts:
            self._find(text.casefold(), found)
        return frozenset(found)

    def _find(self, text: str, found: set[str]) -> None:
        found.update(key for key in self._unworded if key in text)
        for word in _WORD.finditer(text):
            for lead, length in self._places.get(word[0], ()):
                start = word.start() - lead
                key = text[start : start + length] if start >= 0 else ""
                if key in self._keys and key not in found and is_whole(text, start, start + length):
                    found.add(key)


def is_whole(text: str, start: int, end: int) -> bool:
    """Return whether the name at a place of the text is all that is written there, and no part of a longer name.

    A path or a file is named by a longer path, too.
    """
    is_path = not _PATH_MARKS.isdisjoint(text[start:end])
    return not (_goes_on(text, start, -1, is_path=is_path) or _goes_on(text, end - 1, 1, is_path=is_path))


def _goes_on(text: str, edge: int, step: int, *, is_path: bool) -> bool:
    """Return whether the name whose outermost character is at `edge` goes on in this direction."""
    beside = _at(text, edge + step)
    if beside in _JOINING:
        return not (is_path and beside == "/")
    if not _IN_WORD.match(_at(text, edge)):
        return False
    if _IN_WORD.match(beside):
        return True
    further = _at(text, edge + 2 * step)
    if beside == ".":
        return _IN_WORD.match(further) is not None
    return beside in _BETWEEN and text[edge].isdigit() and further.isdigit()


def _at(text: str, place: int) -> str:
    return text[place] if 0 <= place < len(text) else ""
