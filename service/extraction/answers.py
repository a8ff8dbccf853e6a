"""What was answered, settled or done by what was said later.

An answer is looked for in the next turns of others; where these only put it off, and for what an earlier record left
open, in statements about the same thing. All look-ups are bounded by the passages of a corpus.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from service.extraction.cues import asks, directs, is_courtesy, is_decision, is_deferral, is_done, is_open, is_promise
from service.extraction.passages import Corpus, Passage
from service.extraction.salience import Terms, terms_of

__all__ = ["Talk", "is_answered", "is_carried_open", "is_carried_task", "is_past", "is_settled", "said_by", "talk_of"]

_REPLIES_MAX: Final = 3
"""Turns of others in which a reply is looked for."""

_REPLY_CHARS_MAX: Final = 40
"""A turn so short has no statement of its own and still is a reply: `Yes.`"""

_ANSWERING_SHARE: Final = 1 / 3
_SETTLING_SHARE: Final = 1 / 2
"""The part of its words that a question, or a task, shares with what answers it, or reports it done."""

_SHARED_MIN: Final = 2

_PREFIX: Final = re.compile(r"([^:\n]{1,60}): (?=\S)")
_USER: Final = "user"
_ASSISTANT: Final = "assistant"


@dataclass(frozen=True, slots=True)
class Talk:
    """Who spoke in what order, and what was stated.

    `turns` are the sources in which somebody speaks, oldest first; `replies` those that could answer a question;
    `statements` the passages of turns that neither ask nor put off. `with_model` says that a model takes part.
    """

    speakers: tuple[str, ...]
    turns: tuple[int, ...]
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
        replies=frozenset(stating | directing | short),
        statements=statements,
        with_model=any(passage.by_model for passage in corpus.passages),
    )


def is_answered(question: Passage, talk: Talk) -> bool:
    """Whether somebody else answered. What an earlier text asks counts as answered where anybody spoke after it."""
    if not question.speaker:
        return bool(talk.turns) or is_settled(question, talk)
    first = bisect_right(talk.turns, question.source)
    others: list[int] = []
    for source in talk.turns[first:]:
        if talk.speakers[source] != question.speaker:
            others.append(source)
            if source in talk.replies:
                return True
        if len(others) == _REPLIES_MAX:
            return is_settled(question, talk)
    return False


def is_settled(point: Passage, talk: Talk) -> bool:
    """Whether a later statement is about the same thing: of somebody else for a question, of its end for the rest."""
    return _settled(point.text, point.terms, point.speaker, after=point.source, talk=talk)


def is_past(task: Passage, talk: Talk, *, dated: bool) -> bool:
    """Whether a task is over: reported done, what a model went on after, or a request that a model replied to."""
    if _is_reported(task.terms, after=task.source, talk=talk):
        return True
    if dated:
        return False
    later = talk.turns[bisect_right(talk.turns, task.source) :]
    if task.by_model:
        return any(talk.speakers[source] == task.speaker for source in later)
    return talk.with_model and not is_promise(task.text) and any(source in talk.replies for source in later)


def is_carried_open(line: str, talk: Talk) -> bool:
    """Whether what an earlier record left open is still open after this talk.

    Where two speak, the first who replies to the other has heard the question; among more, the reply must be about it.
    """
    speaker, text = said_by(line)
    if _settled(text, terms_of(text), speaker, after=-1, talk=talk):
        return False
    if not asks(text) or len({name for name in (*talk.speakers, speaker) if name}) > 2:
        return True
    others = [source for source in talk.turns if talk.speakers[source] != speaker][:_REPLIES_MAX]
    return not (speaker and any(source in talk.replies for source in others))


def is_carried_task(line: str, talk: Talk, *, dated: bool) -> bool:
    """Whether a task of an earlier record is still to be done after this talk."""
    speaker, text = said_by(line)
    if _is_reported(terms_of(text), after=-1, talk=talk):
        return False
    at_once = speaker == _ASSISTANT or (speaker == _USER and not is_promise(text))
    return dated or not (at_once and _ASSISTANT in talk.speakers)


def said_by(line: str) -> tuple[str, str]:
    """A line of a record as its speaker, empty where it names none, and what is said."""
    prefix = _PREFIX.match(line)
    return (prefix[1], line[prefix.end() :]) if prefix is not None else ("", line)


def _settled(text: str, terms: Terms, speaker: str, *, after: int, talk: Talk) -> bool:
    asked = asks(text)
    share = _ANSWERING_SHARE if asked else _SETTLING_SHARE
    return any(
        passage.source > after
        and _is_about(passage.terms, terms, share)
        and (passage.speaker != speaker if asked else is_done(passage.text) or is_decision(passage.text))
        for passage in talk.statements
    )


def _is_reported(terms: Terms, *, after: int, talk: Talk) -> bool:
    return any(
        passage.source > after and _is_about(passage.terms, terms, _SETTLING_SHARE) and is_done(passage.text)
        for passage in talk.statements
    )


def _is_about(statement: Terms, point: Terms, share: float) -> bool:
    return len(statement & point) >= max(min(_SHARED_MIN, len(point)), share * len(point)) > 0


def _is_short_reply(text: str) -> bool:
    bare = text.strip()
    return len(bare) <= _REPLY_CHARS_MAX and not asks(bare) and not is_deferral(bare)
