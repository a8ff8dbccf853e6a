"""Reads when something is due: after `by`, or before `までに`, in the words of `service/text/languages/`.

A bare number is no date: `before 10` says the hour of a habit as often as that of a task. Neither is the end of a
lasting state, such as opening hours.
"""

from __future__ import annotations

from service.text.phrases import Phrase, has_phrase, pattern_of


def deadline_of(sentence: str) -> str:
    """By when something has to be done, in the words of the sentence; empty otherwise."""
    return "" if has_phrase(sentence, Phrase.LASTS) else _first(Phrase.SETS_DEADLINE, sentence)


def due_of(sentence: str) -> str:
    """The deadline, or else the time for which it is announced, in the words of the sentence; empty otherwise."""
    return deadline_of(sentence) or _first(Phrase.NAMES_MOMENT, sentence)


def _first(kind: Phrase, sentence: str) -> str:
    found = pattern_of(kind).search(sentence.replace("\u2019", "'"))
    return next(filter(None, found.groups()), "") if found is not None else ""
