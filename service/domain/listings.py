"""The lists of an extract: who takes part, what was settled, what is to be done, what is open.

What the previous record lists stays beside what is new, by turns, so that neither crowds the other out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from service.domain.cues import due_of, is_action, is_decision, is_open, is_question, owner_of
from service.domain.passages import Corpus, Passage
from service.domain.ranking import Scored, is_usable
from service.domain.record import ACTION_ITEMS_MAX, DECISIONS_MAX, PARTICIPANTS_MAX, UNRESOLVED_MAX, ActionItem

__all__ = ["action_items", "decisions", "participants", "unresolved"]

_RECENT: Final = 0.6
"""Tasks and open points count from this part of the conversation on, or where they carry a date."""


def decisions(best: Sequence[Scored], carried: Sequence[str]) -> list[str]:
    """What was settled, the most telling first."""
    found = [scored.passage for scored in best if is_decision(scored.passage.text)]
    return _by_turns(found, carried)[:DECISIONS_MAX]


def action_items(best: Sequence[Scored], corpus: Corpus, *, carried: Sequence[ActionItem]) -> list[ActionItem]:
    """Tasks, dated ones first; carried ones stay unless a new one says the same."""
    found: list[tuple[bool, Passage, str]] = []
    recent = len(corpus.speakers) * _RECENT
    for scored in best:
        passage = scored.passage
        if is_question(passage.text) or is_decision(passage.text) or not is_action(passage.text):
            continue
        due = due_of(passage.text)
        if due or passage.source >= recent:
            found.append((not due, passage, due))
    found.sort(key=lambda item: item[0])
    tasks = [ActionItem(passage.line, owner_of(passage.text, passage.speaker), due) for _, passage, due in found]
    distinct = _distinct([*tasks[: ACTION_ITEMS_MAX // 2], *carried, *tasks[ACTION_ITEMS_MAX // 2 :]])
    return distinct[:ACTION_ITEMS_MAX]


def _distinct(actions: Iterable[ActionItem]) -> list[ActionItem]:
    kept: dict[str, ActionItem] = {}
    for action in actions:
        if is_usable(action.task) and is_usable(f"{action.task} {action.owner} {action.due}"):
            kept.setdefault(action.task.casefold(), action)
    return list(kept.values())


def unresolved(best: Sequence[Scored], corpus: Corpus, *, carried: Sequence[str]) -> list[str]:
    """Questions that nobody else spoke after, and what is called open late in the conversation."""
    speakers = corpus.speakers
    unanswered = len(speakers)
    while unanswered and speakers[unanswered - 1] == speakers[-1]:
        unanswered -= 1
    recent = len(speakers) * _RECENT
    found = [
        scored.passage
        for scored in best
        if (is_question(scored.passage.text) and scored.passage.source >= unanswered)
        or (scored.passage.source >= recent and is_open(scored.passage.text))
    ]
    return _by_turns(found, carried)[:UNRESOLVED_MAX]


def _by_turns(found: Sequence[Passage], carried: Sequence[str]) -> list[str]:
    """New passages and carried lines by turns, none twice."""
    new = [passage.line for passage in found]
    turns = [line for pair in zip(new, carried, strict=False) for line in pair]
    rest = [*new[len(carried) :], *carried[len(new) :]]
    lines = {line.casefold(): line for line in (*turns, *rest) if line and is_usable(line)}
    return list(lines.values())


def participants(corpus: Corpus, carried: Sequence[str]) -> list[str]:
    """Who speaks most first, carried ones after; roles are no names where there are names."""
    spoken = Counter(speaker for speaker in corpus.speakers if speaker)
    present = [speaker for speaker, _ in spoken.most_common()]
    known = {name.casefold(): name for name in (*present, *carried) if is_usable(name)}
    return list(known.values())[:PARTICIPANTS_MAX]
