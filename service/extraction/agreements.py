"""Finds what users agree to, or turn down, in a reply to a model: `Yes, please.` settles the question that it answers.

A reply that cannot be read alone is quoted with the question.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from abridged.service.extraction.cues import asks, proposes, stands_alone
from abridged.service.extraction.passages import Passage
from abridged.service.extraction.talk import Talk
from abridged.service.text.phrases import Phrase, section_of
from abridged.service.text.sentences import CLIP_CHARS_MAX
from abridged.service.text.words import is_spaceless

_REPLY_CHARS_MAX: Final = 160
"""A longer sentence tells more than a consent."""

_ALONE_CHARS_MIN: Final = 40
"""A shorter reply, such as `Yes, three of them please.`, leans on its question."""

_SPACELESS_CHARS: Final = 3
"""Letters that a character says of a script without spaces."""

_LAST_SENTENCES: Final = 2
"""Sentences at the end of a turn that any reply speaks of; an earlier one has a word of its reply."""


def agreements(talk: Talk) -> Iterator[Passage]:
    """The replies by which users agree or refuse, oldest first, each with the question if it needs it."""
    for source, said in talk.said.items():
        reply = said[0]
        if not reply.by_model and _settles(reply.text):
            settled = _settled(_turn_before(source, talk), reply)
            if settled is not None:
                yield settled


def _settles(reply: str) -> bool:
    """Return whether a reply begins by taking something up or turning it down."""
    openings = (section_of(kind).match(reply) for kind in (Phrase.AGREES, Phrase.SAYS_NO))
    return len(reply) <= _REPLY_CHARS_MAX and any(openings) and not asks(reply)


def _turn_before(source: int, talk: Talk) -> Sequence[Passage]:
    """The sentences of the turn before that of `source` if a model has it; empty otherwise."""
    at = bisect_left(talk.turns, source)
    before = talk.said.get(talk.turns[at - 1], ()) if at else ()
    return before if before and before[-1].by_model else ()


def _settled(turn: Sequence[Passage], reply: Passage) -> Passage | None:
    """The reply to a model's turn as it can be read; None if the turn proposed nothing that it settles."""
    for at in reversed(range(len(turn))):
        asked = turn[at]
        if not (proposes(asked.text) and asks(asked.text)):
            continue
        if at + _LAST_SENTENCES >= len(turn) or asked.terms & reply.terms:
            if _is_readable(reply.text):
                return reply
            alone = stands_alone(asked.text) or not at
            return _together(asked if alone else replace(asked, text=f"{turn[at - 1].text} {asked.text}"), reply)
    return None


def _is_readable(reply: str) -> bool:
    """Return whether a reply says by itself what it settles."""
    chars = len(reply) * (_SPACELESS_CHARS if is_spaceless(reply) else 1)
    return chars >= _ALONE_CHARS_MIN and stands_alone(reply)


def _together(asked: Passage, reply: Passage) -> Passage | None:
    text = f"{asked.text} \u2013 {reply.speaker}: {reply.text}"
    if len(text) > CLIP_CHARS_MAX:
        return None
    return replace(
        asked,
        text=text,
        source=reply.source,
        place=reply.place,
        terms=asked.terms | reply.terms,
        numbers=(*asked.numbers, *reply.numbers),
    )
