"""Makes the lists of an extract but its open points: participants, decisions, tasks.

Items of the previous record alternate with new ones, so neither displaces the other; an item is dropped once it was
taken back or done. All look-ups are bounded by the passages of a corpus.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from abridged.service.domain.record import ACTION_ITEMS_MAX, DECISIONS_MAX, PARTICIPANTS_MAX, ActionItem
from abridged.service.extraction.agreements import question_of
from abridged.service.extraction.cues import (
    is_action,
    is_decision,
    is_done,
    is_promise,
    is_reversal,
    stands_alone,
    taken_back,
)
from abridged.service.extraction.passages import Corpus, Passage, Scored, is_usable, repetition
from abridged.service.extraction.talk import SETTLING_SHARE, Talk, by_turns, is_about, is_quotable, said_by
from abridged.service.extraction.tasks import deadline_of, due_of, owner_of
from abridged.service.text.identifiers import IdentifierKind, identifiers
from abridged.service.text.phrases import Words, words_of
from abridged.service.text.sentences import Terms, terms_of

_RECENT: Final = 0.6
"""Tasks count from this part of the conversation on, or if they have a date."""

_CANDIDATES_MAX: Final = 200
"""Passages that are compared with each other or with later ones; lists hold a tenth of them."""

_SAME_SHARE: Final = 0.6
"""The share of common words with which two decisions are about the same thing, and the later one holds."""

_TAKEN_BACK_SHARE: Final = 1 / 3
"""A sentence that takes something back names it more briefly."""

_SAME_TASK_SHARE: Final = 0.75
"""The share of repeated words with which a task is the same one in other words."""

_NAMING_MIN: Final = 2
"""Words with which a clause names what it takes back."""

_VALUES: Final = frozenset(
    {
        *(IdentifierKind.AMOUNT, IdentifierKind.DATE, IdentifierKind.TIME),
        *(IdentifierKind.NUMBER, IdentifierKind.DECIMAL, IdentifierKind.VERSION),
    }
)
"""Kinds of values that a decision sets; other identifiers say what it is about."""

_USER: Final = "user"
_ASSISTANT: Final = "assistant"


def decisions(best: Sequence[Scored], talk: Talk, agreed: Sequence[Passage], *, carried: Sequence[str]) -> list[str]:
    """The decisions that still hold, most relevant first, by turns with those that users `agreed` to and with the
    carried ones, newest first."""
    quotable = [scored.passage for scored in best if is_quotable(scored.passage, talk)]
    # A model's next step settles nothing; what it reports as done may.
    settling = [passage for passage in quotable if not (passage.by_model and is_promise(passage.text))]
    agreed = agreed[: -_CANDIDATES_MAX - 1 : -1]
    sources = {passage.source for passage in agreed}
    said = [p for p in settling if (is_decision(p.text) or is_reversal(p.text)) and p.source not in sources]
    standing = [(line, _subject(said_by(line)[1])) for line in carried]
    for passage in sorted((*said[:_CANDIDATES_MAX], *agreed), key=lambda passage: passage.place):
        subject = _subject(passage.text)
        if passage.source in sources:
            # A refused proposal leaves the decision that it was to change; another reply to it has the last word.
            question = question_of(passage.line)
            left = [item for item in standing if not question or question_of(item[0]) != question]
            standing = [*left, (passage.line, subject)]
            continue
        back = _back(passage.text, subject) if is_reversal(passage.text) else frozenset()
        left = [item for item in standing if not _replaces(subject, item[1], back=back)]
        if not stands_alone(passage.text):
            # The decision that it takes back no longer holds; the new one cannot be read here.
            standing = left if back else standing
        elif len(left) < len(standing) or is_decision(passage.text):
            standing = [*left, (passage.line, subject)]
    lines = {line for line, _ in standing}
    new = by_turns(*([passage.line for passage in part if passage.line in lines] for part in (said, agreed)))
    return by_turns(new, [line for line in reversed(carried) if line in lines])[:DECISIONS_MAX]


def action_items(
    best: Sequence[Scored], corpus: Corpus, talk: Talk, *, carried: Sequence[ActionItem]
) -> list[ActionItem]:
    """Tasks not done yet, dated ones first; carried ones stay unless a new one says the same."""
    recent = int(len(corpus.speakers) * _RECENT)
    likely = [p for p in (scored.passage for scored in best) if is_quotable(p, talk) and is_action(p.text)][
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


def participants(corpus: Corpus, carried: Sequence[str]) -> list[str]:
    """The speakers, most active first, then carried ones; roles only if there are no names."""
    spoken = Counter(speaker for speaker in corpus.speakers if speaker)
    present = [speaker for speaker, _ in spoken.most_common()]
    known = {name.casefold(): name for name in (*present, *carried) if is_usable(name)}
    return list(known.values())[:PARTICIPANTS_MAX]


@dataclass(frozen=True, slots=True)
class _Subject:
    """The matter of a decision: its words, and the identifiers that name things."""

    terms: Terms
    things: frozenset[str]


def _subject(text: str) -> _Subject:
    things = frozenset(found.text.casefold() for found in identifiers(text) if found.kind not in _VALUES)
    return _Subject(terms_of(text) - words_of(Words.DECIDING), things)


def _replaces(new: _Subject, old: _Subject, *, back: Terms) -> bool:
    """Return whether the later decision replaces the earlier one; `back` are the words of what it takes back."""
    if new.things and old.things and new.things.isdisjoint(old.things):
        return False
    if len(back & old.terms) >= max(1, _TAKEN_BACK_SHARE * len(old.terms)):
        return True
    return len(new.terms & old.terms) >= max(2, _SAME_SHARE * min(len(new.terms), len(old.terms)))


def _back(text: str, subject: _Subject) -> Terms:
    """The words of what a decision takes back: those of its clauses that do, or all if these name nothing."""
    terms = _subject(taken_back(text)).terms
    return terms if len(terms) >= _NAMING_MIN else subject.terms


def _distinct(actions: Iterable[ActionItem]) -> list[ActionItem]:
    kept: dict[str, ActionItem] = {}
    for action in actions:
        if is_usable(action.task) and is_usable(f"{action.task} {action.owner} {action.due}"):
            kept.setdefault(action.task.casefold(), action)
    return list(kept.values())


def _is_past(task: Passage, talk: Talk, *, dated: bool) -> bool:
    """Return whether a task is over: reported done, followed by a model's next step, or a request that a model replied
    to."""
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


def _is_carried_task(line: str, talk: Talk, *, dated: bool) -> bool:
    """Return whether a task of an earlier record is still to be done."""
    speaker, text = said_by(line)
    if _is_reported(terms_of(text), after=-1, talk=talk):
        return False
    at_once = speaker == _ASSISTANT or (speaker == _USER and not is_promise(text))
    return dated or not (at_once and _ASSISTANT in talk.speakers)


def _is_reported(terms: Terms, *, after: int, talk: Talk) -> bool:
    return any(
        passage.source > after and is_about(passage.terms, terms, SETTLING_SHARE) and is_done(passage.text)
        for passage in talk.statements
    )
