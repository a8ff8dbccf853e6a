"""Reads who is to do a task, and by when.

Somebody addressed by name is to do it, or the subject of an announcement. A task is due after `by`, or before `までに`,
by the words of `service/text/languages/`. A bare number is no date: `before 10` says the hour of a habit as often as
that of a task. The end of a lasting state, such as opening hours, is no date either.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from abridged.service.text.phrases import Phrase, Words, has_phrase, patterns_of, section_of, words_of
from abridged.service.text.words import straight

_SPEAKER: Final = r"^(?:[\w .'-]{1,60}: )?"
_WORD: Final = r"[^\W\d_a-z][^\W\d_]{1,20}"
_NAME: Final = rf"({_WORD}(?:[ -]{_WORD})?)"
_STATE: Final = r"(?:be|not|never|have|still|continue|remain|apply|terminate|mean|constitute|include|fall|survive)\b"
"""Verbs that say how something is, and not that somebody acts."""

_WILL: Final = re.compile(
    rf"{_SPEAKER}{_NAME} (?:will|shall|should|must|needs to|has to|is going to|is to) (?!{_STATE})[a-z]"
)
_ADDRESSED_LAST: Final = re.compile(rf"\b[Pp]lease\b[^,]{{1,200}}, {_NAME}[.!?]?$")
_TITLE: Final = (
    r"(?:(?:Dr|Mr|Mrs|Ms|Prof|Sr|Sra|Dra|M|Mme)\.? |(?:Herr|Frau|Schwester|Pfleger|Sister|Nurse|Chef|Captain|Professor"
    r"|Don|Doña|Monsieur|Madame|Maître) (?:Dr\. )?)"
)
_ARTICLED: Final = r"(?:(?:El|La|Le) [^\W\d_A-Z]+ )"
_PERSON: Final = rf"(?:(?:{_TITLE}|{_ARTICLED})?{_WORD}(?:[ -]{_WORD})?)"
_GERMAN_ROLE: Final = rf"(?:Der|Die|Das) {_WORD}\w*"
_ENGLISH_ROLE: Final = r"The (?:[a-z]+ ){0,2}[a-z]+(?= (?:will|is to|has to|needs to) )"
_ROMANCE_ROLE: Final = (
    r"(?:La |Le |El |L'|Los |Las |Les )\w+(?: (?:de |del |des |du |d')?\w+)?"
    r"(?= \w+(?:rá|rán|ra|ront)\b| va | debe | doit )"
)
_MARK: Final = r"^(?:\W*(?:action|task|todo|aufgabe|tarea|acción|tâche|à faire) ?: )?"
_DOER: Final = re.compile(
    rf"(?i:{_MARK})(?:{_SPEAKER[1:]})?({_PERSON}|{_GERMAN_ROLE}|{_ENGLISH_ROLE}|{_ROMANCE_ROLE})"
    r" (?=to [a-z]|[^\W\d_A-Z]\w+)(\w+)"
)
_BULLET: Final = re.compile(
    rf"^\W*({_PERSON}|[^\W\d_A-Za-z]{{1,10}})\s?[:\uff1a]\s?"
    r"(?!(?i:I|we|you|it|he|she|they|the|that|this|yes|no|ok|so|well|ich|wir|du|ja|nein|je|nous|tu|oui|yo|nosotros|sí)\b)(?=[^\W\d_])"
)
"""A line of minutes: a name, a colon, a task."""

_PASSIVE: Final = re.compile(
    rf"\b(?:will|must|should|to|is|are|wird|werden|soll|sollen|muss|müssen|será|serán|debe|deben|sera|seront|doit|doivent)\b.{{1,80}}?"
    rf"\b(?:by|von|por|par) ({_PERSON})\b"
)


def owner_of(sentence: str, speaker: str) -> str:
    """The doer of a task: the name before `will` or `please`, the subject of what has a date, the speaker of `I will`;
    empty otherwise.
    """
    plain = straight(sentence)
    named = _WILL.match(plain)
    if named is not None and _is_name(named[1]):
        return named[1]
    asked = addressed(plain)
    if asked or has_phrase(plain, Phrase.SPEAKER_ACTS):
        return asked or speaker
    return _subject_of(plain)


def announces(plain: str) -> bool:
    """Return whether the speaker says to do something at a time to come, without a word such as `will`."""
    return bool(due_of(plain)) and has_phrase(plain, Phrase.ANNOUNCES) and not has_phrase(plain, Phrase.TELLS_PAST)


def addressed(plain: str) -> str:
    """The name that a request addresses; empty if it addresses none."""
    named = _request_to_name().match(plain) or _ADDRESSED_LAST.search(plain)
    return named[1] if named is not None and _is_name(named[1]) else ""


@cache
def _request_to_name() -> re.Pattern[str]:
    return re.compile(rf"{_SPEAKER}@?{_NAME},? (?:{section_of(Phrase.ADDRESSES).pattern})")


def _subject_of(plain: str) -> str:
    """The doer that a statement with a date to come names; empty otherwise."""
    if not due_of(plain) or has_phrase(plain, Phrase.TELLS_PAST):
        return ""
    for doer in (_BULLET, *patterns_of(Phrase.NAMES_DOER), _PASSIVE):
        found = doer.search(plain)
        name = found[found.lastindex] if found is not None and found.lastindex else ""
        if name and _is_name(name):
            return name
    found = _DOER.match(plain)
    if found is None or found[2].casefold() in words_of(Words.STATIVE) or _reports(found[1], found[2]):
        return ""
    articled = found[1].split(maxsplit=1)[0].casefold() in words_of(Words.ARTICLES)
    return found[1] if (articled and " " in found[1]) or _is_name(found[1]) else ""


def _reports(name: str, following: str) -> bool:
    """Return whether a capital only begins a report, such as `Fixed in` or `Sent to`; `Ahmed sends` names somebody."""
    if name.casefold() in words_of(Words.STATIVE):
        return True
    return following != "to" and following in words_of(Words.GRAMMAR) and has_phrase(name, Phrase.TELLS_DONE)


def _is_name(name: str) -> bool:
    return name.split(maxsplit=1)[0].casefold() not in words_of(Words.NOT_NAMES)


def deadline_of(sentence: str) -> str:
    """The time by which something has to be done, in the words of the sentence; empty otherwise."""
    return "" if has_phrase(sentence, Phrase.LASTS) else _first(Phrase.SETS_DEADLINE, sentence)


def due_of(sentence: str) -> str:
    """The deadline, or else the time for which it is announced, in the words of the sentence; empty otherwise."""
    return deadline_of(sentence) or _first(Phrase.NAMES_MOMENT, sentence)


def _first(kind: Phrase, sentence: str) -> str:
    found = section_of(kind).search(straight(sentence))
    return next(filter(None, found.groups()), "") if found is not None else ""
