"""Finds the open points of an extract: questions and undecided matters that nobody settled later.

A point is open because somebody left it so: the speaker in the same breath (`I'd have to ask the bank`), whoever
replies (`I can't tell, I put it on the list`), or the speaker after the reply (`it can wait`). A question to which
nobody replied is open, too. Words that leave a matter open are data, by language; that somebody asks shows by a
question mark in any script. All look-ups are bounded by the passages of a corpus.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from abridged.service.domain.record import UNRESOLVED_MAX
from abridged.service.extraction.cues import (
    asks,
    asks_for_details,
    asks_indirectly,
    is_action,
    is_courtesy,
    is_deferral,
    is_open,
    leaves_open,
    leaves_rest_open,
    proposes,
    seeks_agreement,
    stands_alone,
    takes_down,
)
from abridged.service.extraction.passages import Passage, Scored
from abridged.service.extraction.talk import Talk, by_turns, is_about, is_quotable, is_settled, said_by
from abridged.service.text.sentences import Terms, is_question, terms_of

_CANDIDATES_MAX: Final = 200
"""Passages that are compared with later ones; a list holds a tenth of them."""

_RECENT: Final = 0.6
"""A statement that something is open counts from this part of the conversation on, if nobody asks or leaves it so."""

_REPLIES_MAX: Final = 3
"""Turns of others in which to look for a reply."""

_BREATH: Final = 2
"""Sentences after a point in which its speaker may leave it open."""

_OPENING_CHARS: Final = 30
"""A first sentence this short, such as `Good question.`, only opens a reply."""

_DEFERRING_SENTENCES: Final = 4
"""A model's reply of more sentences leaves a point open with its first two, or not at all; people hedge."""

_CLOSING_SHARE: Final = 0.75
_CLOSING_TERMS_MIN: Final = 3
"""Share of a point's words, and how many of them, with which a later statement closes what somebody left open."""

_SHORTER_SHARE: Final = 0.5
"""Share of the words of a model's longest proposal up to which another one of its message says no more."""

_TERMS_MIN: Final = 2

_NUMBER: Final = re.compile(r"\d+")


def unresolved(
    best: Sequence[Scored], talk: Talk, *, carried: Sequence[str], just_asked: Collection[str] = ()
) -> list[str]:
    """The open points that still are, those first that somebody left open, the newest first.

    `just_asked` are those of `carried` that were said last, so that their reply may be the first one here.
    """
    spoken = [scored.passage for scored in best if is_quotable(scored.passage, talk)]
    quotable = [p for p in spoken if not is_courtesy(p.text) or (asks_indirectly(p.text) and not asks(p.text))]
    left = {passage: until for passage in quotable if (until := _left_open_until(passage, talk)) is not None}
    by_people = {point: until for point, until in left.items() if not point.by_model}
    replies = {source for until in by_people.values() for source in until}
    asking = {point.source for point in by_people}
    # A model's reply speaks of the point before it, and people take up a model's question by asking it again.
    points = [
        point
        for point, until in left.items()
        if not (point.by_model and (point.source in replies or (asks(point.text) and not asking.isdisjoint(until))))
    ]
    points = _without_shorter(points)
    points.sort(key=lambda point: (point.by_model + (point.by_model and asks(point.text)), -point.place))
    taken = {source for point in points for source in (point.source, *left[point])} | replies
    others = [p for p in quotable if p not in left and (p.source not in taken or asks(p.text))]
    still = [line for line in carried if _is_carried_open(line, talk, just_asked=line in just_asked)]
    found = [passage.line for passage in points[:_CANDIDATES_MAX]]
    return by_turns([*found, *_unanswered(others, talk)], still)[:UNRESOLVED_MAX]


def _without_shorter(points: Sequence[Passage]) -> list[Passage]:
    """The points without a model's proposals that its longest one in the message covers: one reply puts off both."""
    proposals = [point for point in points if point.by_model and not asks(point.text)]
    longest: dict[int, int] = {}
    for point in proposals:
        longest[point.source] = max(longest.get(point.source, 0), len(point.terms))
    shorter = {point for point in proposals if len(point.terms) <= _SHORTER_SHARE * longest[point.source]}
    return [point for point in points if point not in shorter]


def _left_open_until(point: Passage, talk: Talk) -> tuple[int, ...] | None:
    """The turns after that of `point` by which somebody left it open; None if it is no open point."""
    if not _may_be_open(point) or point.source not in talk.said:
        return None
    others, back = _replies(point, talk)
    after = [passage for passage in talk.said[point.source] if passage.place > point.place]
    in_a_breath = any(leaves_open(passage.text) and not asks(passage.text) for passage in after[:_BREATH])
    reply = talk.said[others[0]] if others else ()
    if _gives_answer(reply, point) and not in_a_breath:
        return None
    if asks(point.text) and not point.by_model:
        until = _left_by(others, back, talk)
        is_left = in_a_breath or bool(until) or _leaves_itself_open(point.text)
    else:
        until = (*others[:1], *back)
        is_left = _is_left_at_once(point, reply, len(after), in_a_breath=in_a_breath)
    if not is_left or _is_closed(point.terms, after=max((point.source, *until)), talk=talk):
        return None
    return until


def _may_be_open(passage: Passage) -> bool:
    """Return whether a passage names a matter that words of its own or of a reply may leave open."""
    text = passage.text
    if len(passage.terms) < _TERMS_MIN or seeks_agreement(text) or (passage.by_model and asks_for_details(text)):
        return False
    return asks(text) or asks_indirectly(text) or (passage.by_model and proposes(text) and stands_alone(text))


def _leaves_itself_open(text: str) -> bool:
    """Return whether a statement has both a matter and that it is open, such as `whether it is covered, nobody
    knows`."""
    return leaves_open(text) and asks_indirectly(text) and not is_question(text)


def _is_left_at_once(point: Passage, reply: Sequence[Passage], after: int, *, in_a_breath: bool) -> bool:
    """Return whether a statement, or a question of a model, is left open: by itself, or by the first sentences of the
    reply.

    Nobody can say what more sentences of the reply are about: a model asks and proposes much.
    """
    text = point.text
    if _leaves_itself_open(text) or (in_a_breath and asks_indirectly(text) and not asks(text)):
        return True
    heard = _first_heard(reply)
    if after >= _BREATH or not (point.by_model or asks_indirectly(text)):
        return False
    return any(_puts_off(one, text) for one in heard)


def _puts_off(reply: str, point: str) -> bool:
    """Return whether a sentence of a reply leaves a point open, and neither asks nor begins with the answer.

    A next step answers most questions, but not whether something is still open.
    """
    puts_off = leaves_open(reply) or (leaves_open(point) and is_deferral(reply))
    return puts_off and not (leaves_rest_open(reply) or asks(reply))


def _gives_answer(reply: Sequence[Passage], question: Passage) -> bool:
    """Return whether a reply begins by answering a question, with a number or in its words, whatever is left open after
    that."""
    asked = set(_NUMBER.findall(question.text))
    for text in _first_heard(reply) if asks(question.text) else ():
        if leaves_open(text) or asks(text):
            return False
        if not asked.issuperset(_NUMBER.findall(text)) or is_about(terms_of(text), question.terms, _CLOSING_SHARE):
            return True
    return False


def _left_by(others: Sequence[int], back: tuple[int, ...], talk: Talk) -> tuple[int, ...]:
    """The replies to a question, if they leave it open; with the turn in which its speaker does, if that is so."""
    if back:
        return (*others, *back)
    left = [source for source in others if _leaves_open(source, talk)]
    answered = bool(others) and others[-1] in talk.replies and others[-1] not in left
    return tuple(others) if left and not answered else ()


def _replies(point: Passage, talk: Talk) -> tuple[list[int], tuple[int, ...]]:
    """The turns of others before the speaker of a point speaks again, and that turn if it leaves the point open."""
    others: list[int] = []
    for source in talk.turns[bisect_right(talk.turns, point.source) :]:
        if source not in talk.said:
            continue
        if talk.speakers[source] == point.speaker:
            if others:
                return others, ((source,) if leaves_open(talk.said[source][0].text) else ())
        elif len(others) < _REPLIES_MAX:
            others.append(source)
    return others, ()


def _leaves_open(source: int, talk: Talk) -> bool:
    """Return whether a reply leaves open what it replies to. A model that takes something down after its first sentence
    notes the answer."""
    passages = talk.said[source]
    if not passages[0].by_model:
        return any(map(leaves_open, _first_heard(passages)))
    heard = passages if len(passages) <= _DEFERRING_SENTENCES else passages[:_BREATH]
    return takes_down(passages[0].text) or any(leaves_open(passage.text) for passage in heard)


def _first_heard(reply: Sequence[Passage]) -> list[str]:
    """The first sentence of a reply, with the next one if it only opens it."""
    is_opening = bool(reply) and len(reply[0].text) <= _OPENING_CHARS
    return [passage.text for passage in reply[: 1 + is_opening]]


def _is_closed(terms: Terms, *, after: int, talk: Talk) -> bool:
    """Return whether a statement after this source has most of a point's words."""
    enough = max(min(_CLOSING_TERMS_MIN, len(terms)), _CLOSING_SHARE * len(terms))
    return any(
        passage.source > after and len(passage.terms & terms) >= enough and not leaves_open(passage.text)
        for passage in talk.statements
    )


def _unanswered(quotable: Sequence[Passage], talk: Talk) -> Iterator[str]:
    """Questions without an answer from another speaker, and what was called open late and never settled."""
    recent = int(len(talk.speakers) * _RECENT)
    asked = [p for p in quotable if _is_open_question(p)][:_CANDIDATES_MAX]
    stated = [p for p in quotable if p.source >= recent and is_open(p.text) and stands_alone(p.text)][:_CANDIDATES_MAX]
    still = {passage.place for passage in asked if not _is_answered(passage, talk)}
    still |= {passage.place for passage in stated if not asks(passage.text) and not _is_settled(passage, talk)}
    yield from (passage.line for passage in quotable if passage.place in still)


def _is_open_question(passage: Passage) -> bool:
    """Return whether a passage asks for information that an answer could give, and says what about."""
    text = passage.text
    return asks(text) and stands_alone(text) and not (is_action(text) or seeks_agreement(text))


def _is_answered(question: Passage, talk: Talk) -> bool:
    """Return whether somebody else answered. A question in an earlier summary counts as answered if anybody spoke after
    it."""
    if not question.speaker:
        return bool(talk.turns) or _is_settled(question, talk)
    first = bisect_right(talk.turns, question.source)
    others: list[int] = []
    for source in talk.turns[first:]:
        if talk.speakers[source] != question.speaker:
            others.append(source)
            if source in talk.replies:
                return True
        if len(others) == _REPLIES_MAX:
            return _is_settled(question, talk)
    return False


def _is_settled(point: Passage, talk: Talk) -> bool:
    return is_settled(point.text, point.terms, point.speaker, after=point.source, talk=talk)


def _is_carried_open(line: str, talk: Talk, *, just_asked: bool) -> bool:
    """Return whether a point that an earlier record left open still is.

    The first reply to the other settles a point that was just asked, if there are two speakers; among more, the reply
    must be about it.
    """
    speaker, text = said_by(line)
    if not just_asked:
        return not _is_closed(terms_of(text), after=-1, talk=talk)
    if is_settled(text, terms_of(text), speaker, after=-1, talk=talk):
        return False
    if not asks(text) or len({name for name in (*talk.speakers, speaker) if name}) > 2:
        return True
    others = [source for source in talk.turns if talk.speakers[source] != speaker][:_REPLIES_MAX]
    return not (speaker and any(source in talk.replies and not _leaves_open(source, talk) for source in others))
