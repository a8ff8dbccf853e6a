"""The lists of an extract: who takes part, what was settled, what is to be done, what is open.

What the previous record lists stays beside what is new, by turns, so that neither crowds the other out; it leaves when
it was taken back, done or answered since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from service.domain.checks.identifiers import IdentifierKind, identifiers
from service.domain.record import ACTION_ITEMS_MAX, DECISIONS_MAX, PARTICIPANTS_MAX, UNRESOLVED_MAX, ActionItem
from service.extraction.answers import Talk, is_answered, is_carried_open, is_carried_task, is_past, is_settled, said_by
from service.extraction.cues import (
    asks,
    due_of,
    is_action,
    is_courtesy,
    is_decision,
    is_open,
    is_promise,
    is_reversal,
    owner_of,
)
from service.extraction.passages import Corpus, Passage
from service.extraction.ranking import Scored, is_usable
from service.extraction.salience import Terms, repetition, terms_of

__all__ = ["action_items", "decisions", "participants", "unresolved"]

_RECENT: Final = 0.6
"""Tasks and open points count from this part of the conversation on, or where they carry a date."""

_CANDIDATES_MAX: Final = 200
"""So many passages are compared with each other or with all that follows; the lists hold a tenth of them."""

_SAME_SHARE: Final = 0.6
"""From this share of common words on, two decisions are about the same thing, and the later one holds."""

_TAKEN_BACK_SHARE: Final = 1 / 3
"""A sentence that takes something back names it more shortly."""

_SAME_TASK_SHARE: Final = 0.75
"""From this share of repeated words on, it is the same task in other words."""

_DECIDING_LINES: Final = """
actually agreed ahead all back both change changed decided decision final instead keep longer mind plan prefer proceed
rather successfully together use using
"""
_DECIDING: Final = frozenset(_DECIDING_LINES.split())
"""Words by which something is settled, not what it is about."""

_VALUES: Final = frozenset(
    {
        *(IdentifierKind.AMOUNT, IdentifierKind.DATE, IdentifierKind.TIME),
        *(IdentifierKind.NUMBER, IdentifierKind.DECIMAL, IdentifierKind.VERSION),
    }
)
"""What a decision sets; other identifiers say what it is about."""


def decisions(best: Sequence[Scored], talk: Talk, *, carried: Sequence[str]) -> list[str]:
    """What was settled and holds, the most telling first."""
    told = [scored.passage for scored in best if _is_told(scored.passage, talk)]
    # A model that says what it does next settles nothing; what it reports as done may.
    settling = [passage for passage in told if not (passage.by_model and is_promise(passage.text))]
    found = [p for p in settling if is_decision(p.text) or is_reversal(p.text)][:_CANDIDATES_MAX]
    standing = [(line, _subject(said_by(line)[1])) for line in carried]
    for passage in sorted(found, key=lambda passage: passage.place):
        subject = _subject(passage.text)
        back = is_reversal(passage.text)
        left = [item for item in standing if not _replaces(subject, item[1], back=back)]
        if len(left) < len(standing) or is_decision(passage.text):
            standing = [*left, (passage.line, subject)]
    lines = {line for line, _ in standing}
    new = [passage.line for passage in found if passage.line in lines]
    return _by_turns(new, [line for line in carried if line in lines])[:DECISIONS_MAX]


def action_items(
    best: Sequence[Scored], corpus: Corpus, talk: Talk, *, carried: Sequence[ActionItem]
) -> list[ActionItem]:
    """Tasks that are not done yet, dated ones first; carried ones stay unless a new one says the same."""
    recent = int(len(corpus.speakers) * _RECENT)
    likely = [p for p in (scored.passage for scored in best) if _is_told(p, talk) and is_action(p.text)][
        :_CANDIDATES_MAX
    ]
    found: list[tuple[bool, Passage, str]] = []
    for passage in likely:
        due = due_of(passage.text)
        if (
            is_decision(passage.text)
            or not (due or passage.source >= recent)
            or is_past(passage, talk, dated=bool(due))
        ):
            continue
        if all(repetition(passage.terms, other.terms) < _SAME_TASK_SHARE for _, other, _ in found):
            found.append((not due, passage, due))
    found.sort(key=lambda item: item[0])
    tasks = [ActionItem(passage.line, owner_of(passage.text, passage.speaker), due) for _, passage, due in found]
    kept = [action for action in carried if is_carried_task(action.task, talk, dated=bool(action.due))]
    distinct = _distinct([*tasks[: ACTION_ITEMS_MAX // 2], *kept, *tasks[ACTION_ITEMS_MAX // 2 :]])
    return distinct[:ACTION_ITEMS_MAX]


def unresolved(best: Sequence[Scored], corpus: Corpus, talk: Talk, *, carried: Sequence[str]) -> list[str]:
    """Questions that nobody else answered, and what is called open late in the conversation and was not settled."""
    recent = int(len(corpus.speakers) * _RECENT)
    told = [
        scored.passage for scored in best if _is_told(scored.passage, talk) and not is_courtesy(scored.passage.text)
    ]
    asked = [p for p in told if asks(p.text) and len(p.terms) > 1 and not is_action(p.text)][:_CANDIDATES_MAX]
    stated = [passage for passage in told if passage.source >= recent and is_open(passage.text)][:_CANDIDATES_MAX]
    still = {passage.place for passage in asked if not is_answered(passage, talk)}
    still |= {passage.place for passage in stated if not asks(passage.text) and not is_settled(passage, talk)}
    found = [passage.line for passage in told if passage.place in still]
    return _by_turns(found, [line for line in carried if is_carried_open(line, talk)])[:UNRESOLVED_MAX]


def participants(corpus: Corpus, carried: Sequence[str]) -> list[str]:
    """Who speaks most first, carried ones after; roles are no names where there are names."""
    spoken = Counter(speaker for speaker in corpus.speakers if speaker)
    present = [speaker for speaker, _ in spoken.most_common()]
    known = {name.casefold(): name for name in (*present, *carried) if is_usable(name)}
    return list(known.values())[:PARTICIPANTS_MAX]


def _is_told(passage: Passage, talk: Talk) -> bool:
    """Whether a list may quote the passage.

    Half a sentence says too little, and perhaps the opposite; what an earlier record says stands in its own lists.
    """
    return not passage.fragment and (bool(passage.speaker) or not talk.turns)


@dataclass(frozen=True, slots=True)
class _Subject:
    """What a decision is about: its words, and the identifiers that name things."""

    terms: Terms
    things: frozenset[str]


def _subject(text: str) -> _Subject:
    things = frozenset(found.text.casefold() for found in identifiers(text) if found.kind not in _VALUES)
    return _Subject(terms_of(text) - _DECIDING, things)


def _replaces(new: _Subject, old: _Subject, *, back: bool) -> bool:
    """Whether the later decision takes the place of the earlier one; `back` says that it takes something back."""
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
    """New lines and carried ones by turns, none twice."""
    turns = [line for pair in zip(new, carried, strict=False) for line in pair]
    rest = [*new[len(carried) :], *carried[len(new) :]]
    lines = {line.casefold(): line for line in (*turns, *rest) if line and is_usable(line)}
    return list(lines.values())
