"""The identifiers that a reader of a summary could still need, out of all in the source.

A raw tool result has hundreds of tokens that nobody will ask for. Needed is what is repeated, recent and discussed; not
what a newer value of the same thing has replaced, nor what only one tool result names. The best of the rest count,
within a budget that a record has room for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from abridged.service.domain.ledger import KIND_WEIGHTS
from abridged.service.text.identifiers import IDENTIFIER_CHARS_MAX, NUMBER_CHARS_MIN, VALUES, Identifier, IdentifierKind
from abridged.service.text.words import word_runs

REQUIRED_MAX: Final = 30
REQUIRED_CHARS_MAX: Final = 600
"""Together about a quarter of a default record."""

_LABEL_CHARS: Final = 60
_LABEL_WORDS: Final = 2
_CLAUSE: Final = re.compile(r"[.;!?\n]\s")
REPEATS_MAX: Final = 5
"""Further repeats make an identifier no more needed."""


@dataclass(frozen=True, slots=True)
class Named:
    """The identifiers of one text of the source. `raw` marks a tool's output, which nobody said."""

    text: str
    found: Sequence[Identifier]
    raw: bool = False


@dataclass(slots=True)
class _Mentions:
    first: Identifier
    labels: set[tuple[str, ...]] = field(default_factory=set)
    count: int = 0
    last: int = 0
    spoken: bool = False


def required_identifiers(source: Sequence[Named]) -> tuple[Identifier, ...]:
    """The identifiers of `source`, oldest text first, that a record should keep; most needed first."""
    mentioned: dict[str, _Mentions] = {}
    newest: dict[tuple[str, ...], tuple[int, str]] = {}
    for place, named in enumerate(source):
        for found in named.found:
            if not is_worth_naming(found):
                continue
            key = found.text.casefold()
            mentions = mentioned.setdefault(key, _Mentions(found))
            mentions.count += 1
            mentions.last = place
            mentions.spoken = mentions.spoken or not named.raw
            if found.kind in VALUES and not named.raw and (label := _label(named.text, found)):
                mentions.labels.add(label)
                newest[label] = (place, key)
    needed = [m for key, m in mentioned.items() if (m.spoken or m.count > 1) and not _is_superseded(key, m, newest)]
    needed.sort(key=lambda mentions: -_score(mentions, len(source)))
    return _within_budget(m.first for m in needed)


def is_worth_naming(found: Identifier) -> bool:
    """Return whether an identifier is of a kind, and of a length, that a record has a place for."""
    if found.kind not in KIND_WEIGHTS or len(found.text) > IDENTIFIER_CHARS_MAX:
        return False
    return found.kind is not IdentifierKind.NUMBER or len(found.text) >= NUMBER_CHARS_MIN


def _label(text: str, found: Identifier) -> tuple[str, ...]:
    """The text's name for the value: its kind and the words before it; empty without any."""
    before = _CLAUSE.split(text[max(0, found.start - _LABEL_CHARS) : found.start])[-1]
    # The first word may be the rest of a longer one that the cut went through.
    words = [run for run, _ in word_runs(before if len(before) < _LABEL_CHARS else before.partition(" ")[2])]
    return (found.kind.value, *words[-_LABEL_WORDS:]) if words else ()


def _is_superseded(key: str, mentions: _Mentions, newest: Mapping[tuple[str, ...], tuple[int, str]]) -> bool:
    """Return whether a later text gave the same thing another value, and this one was not mentioned again."""
    return any(place > mentions.last and value != key for place, value in (newest[label] for label in mentions.labels))


def _score(mentions: _Mentions, texts: int) -> float:
    recency = (mentions.last + 1) / texts
    return KIND_WEIGHTS[mentions.first.kind] + recency + min(mentions.count, REPEATS_MAX) / 2 + mentions.spoken


def _within_budget(ranked: Iterable[Identifier]) -> tuple[Identifier, ...]:
    kept: list[Identifier] = []
    chars = 0
    for found in ranked:
        chars += len(found.text)
        if len(kept) == REQUIRED_MAX or chars > REQUIRED_CHARS_MAX:
            break
        kept.append(found)
    return tuple(kept)
