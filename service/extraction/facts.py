"""Makes the lists of an extract: participants, decisions, tasks, open points.

Items of the previous record alternate with new ones, so neither displaces the other; an item is dropped once it was
taken back, done or answered. A reply is looked for in the next turns of others. If these only put it off, and for what
an earlier record left open, it is looked for in statements about the same thing. All look-ups are bounded by the
passages of a corpus.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from abridged.service.domain.record import ACTION_ITEMS_MAX, DECISIONS_MAX, PARTICIPANTS_MAX, UNRESOLVED_MAX, ActionItem
from abridged.service.extraction.cues import (
    asks,
    directs,
    is_action,
    is_courtesy,
    is_decision,
    is_deferral,
    is_done,
    is_open,
    is_promise,
    is_reversal,
    seeks_agreement,
    stands_alone,
)
from abridged.service.extraction.passages import Corpus, Passage, Scored, is_usable, repetition
from abridged.service.extraction.tasks import deadline_of, due_of, owner_of
from abridged.service.text.identifiers import IdentifierKind, identifiers
from abridged.service.text.phrases import Words, words_of
from abridged.service.text.sentences import Terms, terms_of

_RECENT: Final = 0.6
"""Tasks and open points count from this part of the conversation on, or if they have a date."""

_CANDIDATES_MAX: Final = 200
"""Passages that are compared with each other or with later ones; lists hold a tenth of them."""

_SAME_SHARE: Final = 0.6
"""With this share of common words two decisions are about the same thing, and the later one holds."""

_TAKEN_BACK_SHARE: Final = 1 / 3
"""A sentence that takes something back names it more briefly."""

_SAME_TASK_SHARE: Final = 0.75
"""With this share of repeated words it is the same task in other words."""

_VALUES: Final = frozenset(
    {
        *(IdentifierKind.AMOUNT, IdentifierKind.DATE, IdentifierKind.TIME),
        *(IdentifierKind.NUMBER, IdentifierKind.DECIMAL, IdentifierKind.VERSION),
    }
)
"""Kinds of values that a decision sets; other identifiers say what it is about."""

_REPLIES_MAX: Final = 3
"""Turns of others in which to look for a reply."""

_REPLY_CHARS_MAX: Final = 40
"""A turn this short is a reply even without a statement, such as `Yes.`"""

_ANSWERING_SHARE: Final = 1 / 3
_SETTLING_SHARE: Final = 1 / 2
"""The share of its words that a question or task has in common with its answer or report."""

_SHARED_MIN: Final = 2

_PREFIX: Final = re.compile(r"([^:\n]{1,60}): (?=\S)")
_USER: Final = "user"
_ASSISTANT: Final = "assistant"


@dataclass(frozen=True, slots=True)
class Talk:
    """Who spoke in what order, and what was stated.

    Attributes:
        turns: Sources in which somebody speaks, oldest first.
        replies: Turns that could answer a question.
        statements: Passages of turns that neither ask nor put off.
        with_model: Whether a model takes part.
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


def decisions(best: Sequence[Scored], talk: Talk, *, carried: Sequence[str]) -> list[str]:
    """The decisions that still hold, most relevant first."""
    quotable = [scored.passage for scored in best if _is_quotable(scored.passage, talk)]
    # A model's next step settles nothing; what it reports as done may.
    settling = [passage for passage in quotable if not (passage.by_model and is_promise(passage.text))]
    found = [p for p in settling if is_decision(p.text) or is_reversal(p.text)][:_CANDIDATES_MAX]
    standing = [(line, _subject(_said_by(line)[1])) for line in carried]
    for passage in sorted(found, key=lambda passage: passage.place):
        subject = _subject(passage.text)
        back = is_reversal(passage.text)
        left = [item for item in standing if not _replaces(subject, item[1], back=back)]
        if not stands_alone(passage.text):
            # The decision that it takes back no longer holds; the new one cannot be read here.
            standing = left if back else standing
        elif len(left) < len(standing) or is_decision(passage.text):
            standing = [*left, (passage.line, subject)]
    lines = {line for line, _ in standing}
    new = [passage.line for passage in found if passage.line in lines]
    return _by_turns(new, [line for line in carried if line in lines])[:DECISIONS_MAX]


def action_items(
    best: Sequence[Scored], corpus: Corpus, talk: Talk, *, carried: Sequence[ActionItem]
) -> list[ActionItem]:
    """Tasks not done yet, dated ones first; carried ones stay unless a new one says the same."""
    recent = int(len(corpus.speakers) * _RECENT)
    likely = [p for p in (scored.passage for scored in best) if _is_quotable(p, talk) and is_action(p.text)][
        :_CANDIDATES_MAX
    ]
    found: list[tuple[bool, Passage, str]] = []
    for passage in likely:
        due, dated = due_of(passage.text), bool(deadline_of(passage.text))
        if (
            is_decision(passage.text)
            or not stands_alone(passage.text)
            or not (dated or passage.source >= recent)
            or _is_past(passage, talk, dated=dated)
        ):
            continue
        if all(repetition(passage.terms, other.terms) < _SAME_TASK_SHARE for _, other, _ in found):
            found.append((not due, passage, due))
    found.sort(key=lambda item: item[0])
    tasks = [ActionItem(passage.line, owner_of(passage.text, passage.speaker), due) for _, passage, due in found]
    kept = [action for action in carried if _is_carried_task(action.task, talk, dated=bool(action.due))]
    distinct = _distinct([*tasks[: ACTION_ITEMS_MAX // 2], *kept, *tasks[ACTION_ITEMS_MAX // 2 :]])
    return distinct[:ACTION_ITEMS_MAX]


def unresolved(best: Sequence[Scored], corpus: Corpus, talk: Talk, *, carried: Sequence[str]) -> list[str]:
    """Questions without an answer from another speaker, and what was called open late and never settled."""
    recent = int(len(corpus.speakers) * _RECENT)
    quotable = [
        scored.passage for scored in best if _is_quotable(scored.passage, talk) and not is_courtesy(scored.passage.text)
    ]
    asked = [p for p in quotable if _is_open_question(p)][:_CANDIDATES_MAX]
    stated = [passage for passage in quotable if passage.source >= recent and is_open(passage.text)][:_CANDIDATES_MAX]
    still = {passage.place for passage in asked if not _is_answered(passage, talk)}
    still |= {passage.place for passage in stated if not asks(passage.text) and not _is_settled(passage, talk)}
    found = [passage.line for passage in quotable if passage.place in still]
    return _by_turns(found, [line for line in carried if _is_carried_open(line, talk)])[:UNRESOLVED_MAX]


def _is_open_question(passage: Passage) -> bool:
    """Whether it asks for information that an answer could give, and says what about."""
    text = passage.text
    return asks(text) and stands_alone(text) and not (is_action(text) or seeks_agreement(text))


def participants(corpus: Corpus, carried: Sequence[str]) -> list[str]:
    """The speakers, most active first, then carried ones; roles only if there are no names."""
    spoken = Counter(speaker for speaker in corpus.speakers if speaker)
    present = [speaker for speaker, _ in spoken.most_common()]
    known = {name.casefold(): name for name in (*present, *carried) if is_usable(name)}
    return list(known.values())[:PARTICIPANTS_MAX]


def _is_quotable(passage: Passage, talk: Talk) -> bool:
    """Whether a list may quote the passage.

    A fragment says too little, perhaps even the opposite; what an earlier record says is in its own lists.
    """
    return not passage.fragment and (bool(passage.speaker) or not talk.turns)


@dataclass(frozen=True, slots=True)
class _Subject:
    """The matter of a decision: its words, and the identifiers that name things."""

    terms: Terms
    things: frozenset[str]


def _subject(text: str) -> _Subject:
    things = frozenset(found.text.casefold() for found in identifiers(text) if found.kind not in _VALUES)
    return _Subject(terms_of(text) - words_of(Words.DECIDING), things)


def _replaces(new: _Subject, old: _Subject, *, back: bool) -> bool:
    """Whether the later decision replaces the earlier one; `back` if it takes something back."""
    if new.things and old.things and new.things.isdisjoint(old.things):
        return False
    shared = len(new.terms & old.terms)
    if back:
        return shared >= max(1, _TAKEN_BACK_SHARE * len(old.terms))
    return shared >= max(2, _SAME_SHARE * min(len(new.terms), len(old.terms)))


def _distinct(actions: Iterable[ActionItem]) -> list[ActionItem]:
    kept: dict[str, ActionItem] = {}
    for action in actions:
        if is_usable(action.task) and is_usable(f"{action.task} {action.owner} {action.due}"):
            kept.setdefault(action.task.casefold(), action)
    return list(kept.values())


def _by_turns(new: Sequence[str], carried: Sequence[str]) -> list[str]:
    """New and carried lines alternately, each once."""
    turns = [line for pair in zip(new, carried, strict=False) for line in pair]
    rest = [*new[len(carried) :], *carried[len(new) :]]
    lines = {line.casefold(): line for line in (*turns, *rest) if line and is_usable(line)}
    return list(lines.values())


def _is_answered(question: Passage, talk: Talk) -> bool:
    """Whether somebody else answered. A question in an earlier summary counts as answered if anybody spoke after it."""
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
    """Whether a later statement is about the same thing: somebody else's for a question, about its end for the rest."""
    return _settled(point.text, point.terms, point.speaker, after=point.source, talk=talk)


def _is_past(task: Passage, talk: Talk, *, dated: bool) -> bool:
    """Whether a task is over: reported done, followed by a model's next step, or a request that a model replied to."""
    if _is_reported(task.terms, after=task.source, talk=talk):
        return True
    if dated:
        return False
    acted = talk.with_model and "" in talk.speakers[task.source + 1 :]
    if acted and (task.by_model or not is_promise(task.text)):
        return True
    later = talk.turns[bisect_right(talk.turns, task.source) :]
    if task.by_model:
        return any(talk.speakers[source] == task.speaker for source in later)
    return talk.with_model and not is_promise(task.text) and any(source in talk.replies for source in later)


def _is_carried_open(line: str, talk: Talk) -> bool:
    """Whether a point that an earlier record left open still is.

    Between two speakers, the first reply to the other settles it; among more, the reply must be about the question.
    """
    speaker, text = _said_by(line)
    if _settled(text, terms_of(text), speaker, after=-1, talk=talk):
        return False
    if not asks(text) or len({name for name in (*talk.speakers, speaker) if name}) > 2:
        return True
    others = [source for source in talk.turns if talk.speakers[source] != speaker][:_REPLIES_MAX]
    return not (speaker and any(source in talk.replies for source in others))


def _is_carried_task(line: str, talk: Talk, *, dated: bool) -> bool:
    """Whether a task of an earlier record is still to be done."""
    speaker, text = _said_by(line)
    if _is_reported(terms_of(text), after=-1, talk=talk):
        return False
    at_once = speaker == _ASSISTANT or (speaker == _USER and not is_promise(text))
    return dated or not (at_once and _ASSISTANT in talk.speakers)


def _said_by(line: str) -> tuple[str, str]:
    """The speaker of a record's line, empty if it names none, and what is said."""
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
