"""The words of a text that say what it is about, as keys that forms of one word share; any script, linear in the text.

A key is the beginning of a word in scripts with spaces, so that `cancelled` and `cancellation` match. Each short run of
characters is a key in scripts without spaces, because no dictionary says where a word ends. Words that occur in any
text are not keys: those of grammar, and those that only talk about conversations.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from abridged.service.text.digits import with_ascii_digits
from abridged.service.text.phrases import Phrase, Words, section_of, words_of
from abridged.service.text.scripts import EAST, HANGUL, HIRAGANA, LETTERS, RARE, SOUTHEAST

STEM_CHARS: Final = 5
"""Leading characters of a longer word that are compared."""

_IDEOGRAPH_CHARS: Final = 2
_LETTER_CHARS: Final = 4
"""Characters of one key in scripts without spaces: of Chinese, Japanese and Korean; of Thai, Lao, Burmese and Khmer."""

_SPACED: Final = (
    f"(?:[^\\W_{SOUTHEAST}{EAST}{HANGUL}{RARE}]"
    # Vowel signs are marks to Unicode, but without them Indian and Semitic words fall to pieces.
    "|[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff])+"
)
_LETTERED: Final = "[\u0e00-\u0e4e\u0e80-\u0ece\u1000-\u1049\u1780-\u17d3]+"
_IDEOGRAPHIC: Final = f"[{LETTERS}{HANGUL}]+"
_RUN: Final = re.compile(f"(?P<spaced>{_SPACED})|(?P<lettered>{_LETTERED})|(?P<ideographic>{_IDEOGRAPHIC})")
_GRAMMAR: Final = re.compile(f"[{HIRAGANA}]+")
_SPACELESS: Final = re.compile(f"[{EAST}]")


def _stem(word: str) -> str:
    if len(word) > STEM_CHARS:
        return word[:STEM_CHARS]
    return word[:-1] if len(word) > 3 and word.endswith("s") else word


@dataclass(frozen=True, slots=True)
class Known:
    """The known part of a text: `known` of `total` words; scripts without spaces count by length."""

    known: float
    total: float

    @property
    def share(self) -> float:
        """The share of known words; 1.0 for a text without words."""
        return self.known / self.total if self.total else 1.0


def word_keys(text: str) -> frozenset[str]:
    """The keys of every word of `text`."""
    found: set[str] = set()
    for run, size in word_runs(text):
        if size:
            found.update(run[i : i + size] for i in range(max(1, len(run) - size + 1)))
        else:
            found.add(run)
    return frozenset(found)


def known_share(text: str, keys: frozenset[str]) -> Known:
    """Counts the distinct words of `text` that are among `keys`."""
    words: set[str] = set()
    runs: set[tuple[str, int]] = set()
    for run, size in word_runs(text):
        if size:
            runs.add((run, size))
        else:
            words.add(run)
    known, total = float(len(words & keys)), float(len(words))
    for run, size in runs:
        known += _covered(run, size, keys) / size
        total += len(run) / size
    return Known(known, total)


def word_runs(text: str) -> Iterator[tuple[str, int]]:
    """Each word's key with 0, and each run of a script without spaces with the length of its keys; in order."""
    for run, size in word_forms(text):
        yield (run if size else _stem(run)), size


def word_forms(text: str) -> Iterator[tuple[str, int]]:
    """The words of `word_runs` as they are written, folded."""
    empty = _empty_words()
    for run, size in script_runs(section_of(Phrase.TALKS).sub(" ", folded(text))):
        if not size:
            if len(run) > 1 and run not in empty:
                yield run, 0
        elif size == _LETTER_CHARS:
            if len(run) >= _LETTER_CHARS:
                yield run, _LETTER_CHARS
        elif len(run) >= _IDEOGRAPH_CHARS:
            for part in _GRAMMAR.split(run):
                if len(part) >= _IDEOGRAPH_CHARS:
                    yield part, _IDEOGRAPH_CHARS


@cache
def _empty_words() -> frozenset[str]:
    """Words of any text, and of any summary. A source about a conversation still has other words."""
    return words_of(Words.GRAMMAR) | words_of(Words.TALK)


def folded(text: str) -> str:
    """The text with one form for each letter, whatever its case or width."""
    return unicodedata.normalize("NFKC", with_ascii_digits(text)).casefold()


def as_phrased(text: str) -> str:
    """The folded text as phrases are written."""
    return straight(folded(text))


def straight(text: str) -> str:
    """The text with straight apostrophes, as phrases have them."""
    return text.replace("\u2019", "'")


def is_spaceless(word: str) -> bool:
    """Return whether a word or key begins in a script of ideographs, where no space ends a word."""
    return _SPACELESS.match(word) is not None


def script_runs(text: str) -> Iterator[tuple[str, int]]:
    """Each word of a folded text with 0, and each run of a script without spaces with the length of its keys."""
    for match in _RUN.finditer(text):
        yield match[0], 0 if match["spaced"] else _LETTER_CHARS if match["lettered"] else _IDEOGRAPH_CHARS


def _covered(run: str, size: int, keys: frozenset[str]) -> int:
    """The number of characters of `run` that lie in a key."""
    covered = end = 0
    for i in range(len(run) - size + 1):
        if run[i : i + size] in keys:
            covered += i + size - max(end, i)
            end = i + size
    return covered
