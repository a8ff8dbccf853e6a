"""Finds what users agree to, or turn down, in a reply to a model: `Yes, please.` settles the question that it answers.

A reply is quoted whole, because its end may take back its beginning, and with the question unless it can be read alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from abridged.service.extraction.cues import asks, proposes, stands_alone
from abridged.service.extraction.passages import Corpus, Passage
from abridged.service.extraction.talk import Talk
from abridged.service.text.phrases import Phrase, section_of
from abridged.service.text.sentences import CLIP_CHARS_MAX, terms_of
from abridged.service.text.words import is_spaceless

_REPLY_CHARS_MAX: Final = 160
"""A longer message tells more than a consent."""

_ALONE_CHARS_MIN: Final = 40
"""A shorter reply, such as `Yes, three of them please.`, leans on its question."""

_SPACELESS_CHARS: Final = 3
"""Letters that one character of such a script counts as."""

_LAST_SENTENCES: Final = 2
"""Sentences at the end of a turn that any reply speaks of; an earlier one has a word of its reply."""

_ANSWER: Final = " \u2013 "
"""The mark between a question and the reply to it."""


def agreements(corpus: Corpus, talk: Talk) -> Iterator[Passage]:
    """The replies by which users agree or refuse, oldest first, each with the question if it needs it."""
    for source in talk.turns:
        turn = talk.said.get(source - 1, ())
        if not (turn and turn[-1].by_model) or corpus.speakers[source] == turn[-1].speaker:
            continue
        reply = " ".join(corpus.spoken[source].split())
        asked = _question(turn, reply) if _settles(reply) else None
        if asked is None:
            continue
        said = talk.said.get(source, ())
        if len(said) == 1 and said[0].text == reply and _is_readable(reply):
            yield said[0]
        elif len(asked.text) + len(reply) + len(corpus.speakers[source]) < CLIP_CHARS_MAX - len(_ANSWER):
            yield _together(asked, f"{corpus.speakers[source]}: {reply}", source, corpus.numbers[source])


def question_of(line: str) -> str:
    """The question of a line that quotes it with its reply; empty of others."""
    question, mark, _ = line.partition(_ANSWER)
    return question if mark else ""


def _settles(reply: str) -> bool:
    """Return whether a reply begins by taking something up or turning it down."""
    openings = (section_of(kind).match(reply) for kind in (Phrase.AGREES, Phrase.SAYS_NO))
    return len(reply) <= _REPLY_CHARS_MAX and any(openings) and not asks(reply)


def _question(turn: Sequence[Passage], reply: str) -> Passage | None:
    """The proposal of a model's turn that a reply settles: the last one with a word of it, or the only one if it stands
    at the turn's end. A proposal that names nothing has the sentence before it."""
    proposals = [at for at, passage in enumerate(turn) if proposes(passage.text) and asks(passage.text)]
    terms = terms_of(reply)
    about = [at for at in proposals if turn[at].terms & terms]
    if not about and (len(proposals) != 1 or proposals[0] + _LAST_SENTENCES < len(turn)):
        return None
    at = (about or proposals)[-1]
    asked = turn[at]
    return asked if stands_alone(asked.text) or not at else replace(asked, text=f"{turn[at - 1].text} {asked.text}")


def _is_readable(reply: str) -> bool:
    """Return whether a reply says by itself what it settles."""
    chars = len(reply) * (_SPACELESS_CHARS if is_spaceless(reply) else 1)
    return chars >= _ALONE_CHARS_MIN and stands_alone(reply)


def _together(asked: Passage, reply: str, source: int, number: int) -> Passage:
    return replace(
        asked, text=f"{asked.text}{_ANSWER}{reply}", source=source, numbers=(*asked.numbers, *filter(None, (number,)))
    )
