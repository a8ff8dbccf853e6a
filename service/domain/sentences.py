"""Text into sentences of any script, and sentences into lines of a bounded length; linear in the text.

Code blocks hold no sentences, and what ends in a colon only announces one. A text without punctuation is cut at white
space, so no sentence is unbounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["CLIP_CHARS_MAX", "clipped", "sentences"]

CLIP_CHARS_MAX: Final = 240

_SENTENCE_CHARS_MAX: Final = 400
_SENTENCE_CHARS_MIN: Final = 8

_ELLIPSIS: Final = "\u2026"
_FENCE: Final = "```"

_END: Final = re.compile(
    r"(?<=[.!?\u2026\u061f\u0964])[\"'\u201d\u2019)\]]{0,3}\s+(?=[^\sa-z])|(?<=[\u3002\uff01\uff1f])"
)
_ABBREVIATED: Final = re.compile(r"(?:^|[\s(])(?:[A-Z]|[Mm]rs?|[Mm]s|[Dd]r|[Pp]rof|[Ss]t|[Nn]o|[Vv]s|e\.g|i\.e|etc)\.$")
_LIST_MARK: Final = re.compile(r"^(?:[-*+\u2022>#|]{1,6}\s+|\d{1,3}[.)]\s+)+")
_SPACES: Final = re.compile(r"\s+")


def sentences(text: str) -> Iterator[str]:
    """The sentences of `text` outside code blocks, in order, each on one line and at most 400 characters long."""
    for prose in text.split(_FENCE)[::2]:
        for line in prose.splitlines():
            yield from _of_line(_LIST_MARK.sub("", line.strip()))


def clipped(sentence: str, chars_max: int = CLIP_CHARS_MAX) -> str:
    """`sentence`, cut between words when it is longer than `chars_max`; words and numbers are never cut in two.

    A single word longer than that leaves nothing.
    """
    if len(sentence) <= chars_max:
        return sentence
    end = _boundary(sentence, chars_max - 1)
    return sentence[:end].rstrip(" ,;:-(") + _ELLIPSIS if end else ""


def _of_line(line: str) -> Iterator[str]:
    held = ""
    for part in _END.split(line):
        held = f"{held} {part}" if held else part
        if _ABBREVIATED.search(held[-8:]):
            continue
        yield from _bounded(held)
        held = ""
    yield from _bounded(held)


def _bounded(sentence: str) -> Iterator[str]:
    rest = _SPACES.sub(" ", sentence.replace("**", "")).strip()
    if rest.endswith(":"):
        return
    while len(rest) > _SENTENCE_CHARS_MAX:
        end = _boundary(rest, _SENTENCE_CHARS_MAX)
        if end:
            yield rest[:end].rstrip()
        else:
            # No sentence has such a word; half of it would be an identifier that nobody wrote.
            end = rest.find(" ")
        rest = rest[end:].lstrip() if end > 0 else ""
    if len(rest) >= _SENTENCE_CHARS_MIN or (rest and not rest.isascii()):
        yield rest


def _boundary(text: str, end: int) -> int:
    """The last place up to `end` that splits no word: a space, or between characters of a script without spaces."""
    space = text.rfind(" ", 0, end + 1)
    for place in range(end, max(space, 0), -1):
        if not (_is_wordlike(text[place - 1]) and _is_wordlike(text[place])):
            return place
    return max(space, 0)


def _is_wordlike(character: str) -> bool:
    """Whether the character may be part of a word, number or identifier that spaces delimit."""
    return not character.isspace() and character < "\u2e80"
