"""Gathers the speakers in their order, and what they stated: by this an extract knows what is answered, done and
settled."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from abridged.service.extraction.cues import (
    asks,
    directs,
    is_courtesy,
    is_decision,
    is_deferral,
    is_done,
    is_open,
)
from abridged.service.extraction.passages import Corpus, Passage, is_usable
from abridged.service.text.sentences import Terms

_REPLY_CHARS_MAX: Final = 40
"""A turn this short is a reply even without a statement, such as `Yes.`"""

_ANSWERING_SHARE: Final = 1 / 3
SETTLING_SHARE: Final = 1 / 2
"""The share of its words that a question or task has in common with its answer or report."""

_SHARED_MIN: Final = 2

_PREFIX: Final = re.compile(r"([^:\n]{1,60}): (?=\S)")


@dataclass(frozen=True, slots=True)
class Talk:
    """The speakers in their order, and what they stated.

    Attributes:
        speakers: The speaker of each source; empty for earlier summaries and tools.
        turns: Sources in which somebody speaks, oldest first.
        said: The sentences of each turn.
        replies: Turns that could answer a question.
        statements: Passages of turns that neither ask nor put off.
        with_model: True if a model takes part.
    """

    speakers: tuple[str, ...]
    turns: tuple[int, ...]
    said: Mapping[int, tuple[Passage, ...]]
    replies: frozenset[int]
    statements: tuple[Passage, ...]
    with_model: bool


def talk_of(corpus: Corpus) -> Talk:
    """The talk of a corpus."""
    turns = tuple(source for source, speaker in enumerate(corpus.speakers) if speaker and corpus.spoken[source].strip())
    spoken = [passage for passage in corpus.passages if passage.speaker]
    statements = tuple(
        passage for passage in spoken if not (asks(passage.text) or is_deferral(passage.text) or is_open(passage.text))
    )
    stating = {passage.source for passage in statements if not is_courtesy(passage.text)}
    directing = {passage.source for passage in spoken if directs(passage.text)}
    short = {source for source in turns if _is_short_reply(corpus.spoken[source])}
    return Talk(
        speakers=corpus.speakers,
        turns=turns,
        said={source: tuple(listed) for source, listed in groupby(spoken, lambda passage: passage.source)},
        replies=frozenset(stating | directing | short),
        statements=statements,
        with_model=any(passage.by_model for passage in corpus.passages),
    )


def is_quotable(passage: Passage, talk: Talk) -> bool:
    """Return whether a list may quote the passage.

    A fragment says too little, perhaps even the opposite; what an earlier record says is in its own lists.
    """
    return not passage.fragment and (bool(passage.speaker) or not talk.turns)


def by_turns(new: Sequence[str], carried: Sequence[str]) -> list[str]:
    """New and carried lines alternately, each once."""
    turns = [line for pair in zip(new, carried, strict=False) for line in pair]
    rest = [*new[len(carried) :], *carried[len(new) :]]
    lines = {line.casefold(): line for line in (*turns, *rest) if line and is_usable(line)}
    return list(lines.values())


def said_by(line: str) -> tuple[str, str]:
    """The speaker of a record's line, empty if it names none, and what is said."""
    prefix = _PREFIX.match(line)
    return (prefix[1], line[prefix.end() :]) if prefix is not None else ("", line)


def is_settled(text: str, terms: Terms, speaker: str, *, after: int, talk: Talk) -> bool:
    """Return whether a later statement is about the same thing: somebody else's for a question, about its end for the
    rest."""
    asked = asks(text)
    share = _ANSWERING_SHARE if asked else SETTLING_SHARE
    return any(
        passage.source > after
        and is_about(passage.terms, terms, share)
        and (passage.speaker != speaker if asked else is_done(passage.text) or is_decision(passage.text))
        for passage in talk.statements
    )


def is_about(statement: Terms, point: Terms, share: float) -> bool:
    """Return whether a statement has this share of the words of a point, and at least two of them."""
    return len(statement & point) >= max(min(_SHARED_MIN, len(point)), share * len(point)) > 0


def _is_short_reply(text: str) -> bool:
    bare = text.strip()
    return len(bare) <= _REPLY_CHARS_MAX and not asks(bare) and not is_deferral(bare)
