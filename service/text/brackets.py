"""Keeps the brackets and quotation marks of a short text in pairs.

The text is the name of a value, the value and what is read with it, cut from a line. A partner that stands near it in
the line comes along; a lone mark at an edge goes, with the words beyond it where others are left.
"""

from __future__ import annotations

import re
from typing import Final

REACH: Final = 24
"""Characters of the line before and after the text in which a partner is looked for."""

_OPENED: Final = {")": "(", "]": "[", "}": "{"}
_OPENING: Final = frozenset(_OPENED.values())
_QUOTES: Final = ('"', "`")
_EMPTY: Final = ("()", "[]", "{}")
_WORD: Final = re.compile(r"[^\W\d_]{2}")
_WORD_BEFORE: Final = re.compile(r"(?:^|(?<=\s))[^\s()]+ ?$")


def in_pairs(name: str, value: str, rest: str, *, before: str, after: str) -> tuple[str, str]:
    """The name and the rest of a value with marks in pairs; `before` and `after` are what the line has around them."""
    if not rest and after.startswith(_EMPTY):
        rest, after = after[:2], after[2:]
    name, before = _with_opening(name, before)
    name, rest, after = _with_closing(name, value, rest, after)
    for quote in _QUOTES:
        name, rest = _quoted(name, rest, quote, before=before, after=after)
    return name, rest


def _with_opening(name: str, before: str) -> tuple[str, str]:
    """The name with what opens its brackets, or without those that nothing opens; and what stands before it."""
    lone = [place for place in _lone(name) if name[place] in _OPENED]
    if not lone:
        return name, before
    opened = [place for place in _lone(before) if before[place] in _OPENING][-len(lone) :]
    if len(opened) == len(lone) and before[opened[0]] == _OPENED[name[lone[-1]]]:
        word = _WORD_BEFORE.search(before, 0, opened[0])
        is_whole = word is not None and (word.start() > 0 or len(before) < REACH)
        place = word.start() if word is not None and is_whole else opened[0]
        return before[place:] + name, before[:place]
    after = name[lone[-1] + 1 :].lstrip(" ,.;:*)]}")
    return (after, "") if _WORD.search(after) else (_without(name, lone), before)


def _with_closing(name: str, value: str, rest: str, after: str) -> tuple[str, str, str]:
    """The name and the rest with what closes their brackets, or without those that nothing opens or closes; and what
    stands behind them."""
    begin = len(name) + len(value)
    whole = name + value + rest
    closing = [place - begin for place in _lone(whole) if place >= begin and whole[place] in _OPENED]
    rest = "".join(mark for at, mark in enumerate(rest) if at not in closing).rstrip()
    whole = name + value + rest
    lone = [place for place in _lone(whole) if whole[place] in _OPENING]
    ends = [place for place in _lone(after) if after[place] in _OPENED]
    if not lone:
        return name, rest, after
    if len(ends) >= len(lone):
        end = ends[len(lone) - 1] + 1
        return name, rest + after[:end], after[end:]
    if lone[-1] >= begin:
        return name, rest[: next(place for place in lone if place >= begin) - begin].rstrip(), ""
    return _without(name, [place for place in lone if place < len(name)]), rest, after


def _quoted(name: str, rest: str, quote: str, *, before: str, after: str) -> tuple[str, str]:
    in_name, in_rest = name.count(quote) % 2, rest.count(quote) % 2
    if in_name and before.endswith(quote):
        return quote + name, rest[: rest.rfind(quote)].rstrip() if in_rest else rest
    if in_name == in_rest:
        return name, rest
    if quote in after and not (in_rest and rest.startswith(quote)):
        return name, rest + after[: after.index(quote) + 1]
    if in_rest:
        return name, rest[: rest.rfind(quote)].rstrip()
    return _without(name, [name.rfind(quote)]), rest


def _lone(text: str) -> list[int]:
    """The places of brackets without a partner: first of those that close, then of those that open."""
    closing: list[int] = []
    opening: list[int] = []
    for place, mark in enumerate(text):
        if mark in _OPENING:
            opening.append(place)
        elif mark in _OPENED:
            if opening and text[opening[-1]] == _OPENED[mark]:
                opening.pop()
            elif not opening:
                closing.append(place)
    return [*closing, *opening]


def _without(text: str, places: list[int]) -> str:
    """The text without the marks at these places, of those alone that stand at the edge of a word."""
    gone = {at for at in places if not (0 < at < len(text) - 1 and text[at - 1].isalnum() and text[at + 1].isalnum())}
    return "".join(mark for at, mark in enumerate(text) if at not in gone)
