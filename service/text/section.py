"""Searches a text for any of hundreds of expressions, without case.

CPython tries the branches of `a|b|c` one after the other at every place of a text, each by a call where it ignores
case. A `Section` asks first whether there is any match, of branches that are put together by the character they begin
with and sought in lower case: most places of a text are left after a look at their character. Few texts have a phrase
of a section, and only they are searched by the expression itself, which says where and by which branch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Final

_ALIKE: Final = dict(
    zip(
        "\u0130\u0131\u017f\u00b5\u03a3\u03c2\u1fbe\u1fd3\u1fe3\u03d0\u03f5\u03d1\u03f4\u03f0\u03d6\u03f1\u03d5"
        "\u1c80\u1c81\u1c82\u1c83\u1c84\u1c85\u1c86\u1c87\u1c88\u1e9b\ufb06",
        "iis\u03bc\u03c3\u03c3\u03b9\u0390\u03b0\u03b2\u03b5\u03b8\u03b8\u03ba\u03c0\u03c1\u03c6"
        "\u0432\u0434\u043e\u0441\u0442\u0442\u044a\u0463\ua64b\u1e61\ufb05",
        strict=True,
    )
)
"""The letters that `re.IGNORECASE` takes for others than `str.lower` makes of them, with those others; but for U+0345,
which is no letter. In lower case U+0130 would be two characters, and U+03A3 one that its neighbours decide."""

_UNLIKE: Final = re.compile(f"[{''.join(_ALIKE)}]")
_SET: Final = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_CHARACTERS: Final = re.compile(r"[^\\.^$[(){}|?*+]|\[[^\]^\\-][^\]\\-]*-?\]")
"""A character that stands for itself, or a set of some."""

_NO_WORD: Final = re.compile(r"[^\w[\]]")
_QUANTIFIERS: Final = ("?", "*", "+", "{")
_ESCAPED: Final = re.compile(r"\\.")
_AS_WRITTEN: Final = re.compile(r"\(\?[a-zA-Z-]|\\[0-9NUux]")
"""Flags of a group, and characters by name or number, which may be capitals."""


class Section:
    """The lines of a section, searched as the expression `line|line|…` is without case, and as exactly."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.pattern: Final = "|".join(lines) or "(?!)"
        as_written = [line for line in lines if _is_as_written(line)]
        openings: dict[tuple[str, str], dict[str, None]] = {}
        for line in lines:
            for place, character, rest in () if line in as_written else _openings(f"(?:{line})"):
                openings.setdefault((place, character), {})[rest] = None
        # Most texts have no letter of some scripts, so that a search for openings of these alone is over at once.
        searches: dict[tuple[bool, bool], list[str]] = {}
        for (place, character), rests in openings.items():
            branch = f"{place}{character}(?:{'|'.join(rests)})"
            searches.setdefault((bool(character), character.isascii()), []).append(branch)
        self._in_lower: Final = [re.compile("|".join(branches)) for branches in searches.values()]
        self._as_written: Final = re.compile("|".join(as_written), re.IGNORECASE) if as_written else None

    def is_in(self, text: str) -> bool:
        """Return whether the text has a phrase of the section."""
        lower = in_lower(text)
        for branches in self._in_lower:
            if branches.search(lower) is not None:
                return True
        return self._as_written is not None and self._as_written.search(text) is not None

    def spans(self, text: str) -> list[tuple[int, int]]:
        """The start and the end of each phrase, in order. Where several begin at one place, only one may be given."""
        lower = in_lower(text)
        searches = [branches.finditer(lower) for branches in self._in_lower]
        if self._as_written is not None:
            searches.append(self._as_written.finditer(text))
        return sorted(match.span() for matches in searches for match in matches)

    def search(self, text: str) -> re.Match[str] | None:
        return self._whole.search(text) if self.is_in(text) else None

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        return self._whole.finditer(text) if self.is_in(text) else iter(())

    def sub(self, replacement: str | Callable[[re.Match[str]], str], text: str) -> str:
        return self._whole.sub(replacement, text) if self.is_in(text) else text

    def split(self, text: str, maxsplit: int = 0) -> list[str]:
        return self._whole.split(text, maxsplit) if self.is_in(text) else [text]

    def match(self, text: str) -> re.Match[str] | None:
        return self._whole.match(text)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        return self._whole.fullmatch(text)

    @cached_property
    def _whole(self) -> re.Pattern[str]:
        return re.compile(self.pattern, re.IGNORECASE)


def in_lower(text: str) -> str:
    """The text with one letter for all that `re.IGNORECASE` takes for each other; as long as the text."""
    return (text if text.isascii() else _UNLIKE.sub(lambda letter: _ALIKE[letter[0]], text)).lower()


def _is_as_written(line: str) -> bool:
    """Return whether a line may match else where a text is in lower case: by capitals, or by flags of its own."""
    bare = _ESCAPED.sub("", line)
    return bare != in_lower(bare) or _AS_WRITTEN.search(line) is not None


def _openings(branch: str, behind: tuple[str, ...] = ()) -> Iterator[tuple[str, str, str]]:
    """Branches that together match where a branch does, as place, opening and rest.

    The opening is a character with which every match begins, with what has to stand before it; empty if no few
    characters are known. The place is then `^`, or what the rest stands `behind`: boundaries, or looks behind.
    """
    first, rest = branch[: _end(branch, 0)], branch[_end(branch, 0) :]
    if first == r"\b" or first.startswith(("(?<!", "(?<=")):
        yield from _openings(rest, (*behind, first))
        return
    if rest.startswith("?") and rest[1:2] not in ("?", "+"):
        rest = rest[1:]
        yield from _openings(rest, behind)
    if rest.startswith(_QUANTIFIERS):
        yield "".join(behind), "", first + rest
    elif first == "^" and not behind:
        yield "^", "", rest
    elif first.startswith("(") and (first[1] != "?" or first[2] == ":"):
        for inner in _branches(first[3 if first[1] == "?" else 1 : -1]):
            yield from _openings(inner + rest, behind)
    elif _CHARACTERS.fullmatch(first) and not (r"\b" in behind and _NO_WORD.search(first)):
        for one in map(re.escape, first[1:-1] or first):
            looks = (rf"(?<!\w{one})" if look == r"\b" else f"{look[:4]}(?:{look[4:-1]}){one})" for look in behind)
            yield "", "".join((one, *looks)), rest
    else:
        yield "".join(behind), "", first + rest


def _branches(expression: str) -> list[str]:
    """The parts of an expression between the `|` that stand outside its groups."""
    branches, begin, at = [], 0, 0
    while at < len(expression):
        if expression[at] == "|":
            branches.append(expression[begin:at])
            begin = at + 1
        at = _end(expression, at)
    return [*branches, expression[begin:]]


def _end(expression: str, at: int) -> int:
    """The end of the character, escape, set or group that begins at a place."""
    if expression.startswith("\\", at):
        return at + 2
    if (characters := _SET.match(expression, at)) is not None:
        return characters.end()
    if expression.startswith("(", at):
        at += 1
        while expression[at] != ")":
            at = _end(expression, at)
    return at + 1
