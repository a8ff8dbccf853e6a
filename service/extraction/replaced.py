"""Sentences whose value a later sentence replaced, so that an extract does not tell both as true.

A value gives way if a later sentence gives another to the same subject, if a short correction follows it at once (`make
it 9090 instead`), or if a correction names what it replaces (`9090 instead of 8443`). The correction itself stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from abridged.service.extraction.passages import Passage, Scored
from abridged.service.text.mentions import mentions
from abridged.service.text.phrases import Phrase, has_phrase, section_of
from abridged.service.text.sentences import Terms, terms_of
from abridged.service.text.words import STEM_CHARS

_COMPARED_MAX: Final = 200
"""Passages, best first, that are compared with each other."""

_SUBJECT_TERMS_MIN: Final = 2
_SUBJECT_PAIRS_MIN: Final = 4
"""Words, or pairs of characters in scripts without spaces, that name the subject of a value."""

_FOLLOWING: Final = 6
"""Sources between a value and a correction that does not repeat its subject."""

_SHORT_CHARS: Final = 120
"""Longer sentences tell more than a value, so they neither correct one in passing nor are dropped for it."""

_VALUES_MAX: Final = 2
"""Values that one sentence changes, such as a row and a seat."""

_SUBJECTLESS_TERMS: Final = 2
"""A correction with no more words of its own names no subject."""

_VALUE: Final = re.compile(
    r"(?<![A-Za-z\d_.-])[$€£¥]?(?:[A-Z]{1,2}-?)?\d+(?:[.,:/-]\d+)*[A-Za-z]?(?![\d.]\d|[A-Za-z])"
    r"|[一二三四五六七八九十百千万两〇零]{2,}(?=[元块円人度点分个日号席排段番時])"
)
_GRAMMAR: Final = re.compile(
    "[\u3041-\u309f吧的了是就那请把它用设为在到块元円度]+|値段|価格|料金|時間|番号|座席|价格|价钱|时间|号码|座位"
)
"""Kana, Chinese characters of grammar, and words for values of any kind."""

_OWN_SUBJECT: Final = re.compile(
    r"^\W*(?:the|our|my|der|die|das|unsere?|mein|le|la|les|notre|el|los|las|nuestr[oa]) (\w+)", re.IGNORECASE
)
"""The opening of a sentence that names its subject."""

_COPULA: Final = re.compile(
    r"^(?P<subject>.{3,80}?)(?:\s(?:is|are|ist|sind|est|sont|es|son|heißt)\s|是|は)(?P<value>.{2,60})$"
)


class _Statement(NamedTuple):
    """A passage as a statement of a value.

    Attributes:
        passage: The passage.
        values: The values that it names.
        subject: The passage's words without values, grammar and words of change.
        corrects: True if it speaks of a change.
        gives_up: The values that it says no longer hold.
    """

    passage: Passage
    values: frozenset[str]
    subject: Terms
    corrects: bool
    gives_up: frozenset[str]


def superseding(text: str, superseded: Mapping[str, int], *, said: int = 0) -> int:
    """The message after which a value of a text no longer holds; 0 for none.

    A text that names another value of its kind, or speaks of a change, tells what became of the value. One of message
    `said` tells of no later change.
    """
    named = list(mentions(text, said=True)) if superseded else []
    held = {one.kind for one in named if one.text.casefold() not in superseded}
    gone = (one for one in named if one.kind not in held)
    told = (one for one in gone if said or not has_phrase(one.words.sentence, Phrase.CORRECTS))
    numbers = (superseded.get(one.text.casefold(), 0) for one in told)
    return max((number for number in numbers if number > said), default=0)


def outdated(best: Sequence[Scored]) -> set[str]:
    """The lines of the best passages whose value a later one of them replaced."""
    whole = (one.passage for one in best if not one.passage.fragment)
    read = sorted(map(_statement, islice(whole, _COMPARED_MAX)), key=lambda one: one.passage.place)
    statements = [_announced(one, before) for before, one in zip([None, *read], read, strict=False)]
    lines = {one.passage.line for one in statements if one.corrects and not (one.values or one.subject or one.gives_up)}
    for at, new in enumerate(statements):
        if new.values or new.corrects:
            lines.update(old.passage.line for old in _replaced(new, statements[:at]))
    return lines


def _replaced(new: _Statement, earlier: Sequence[_Statement]) -> Iterator[_Statement]:
    is_subjectless = new.corrects and _is_subjectless(new)
    for old in reversed(earlier):
        if old.passage.source == new.passage.source:
            continue
        is_near = new.passage.source - old.passage.source <= _FOLLOWING
        if is_near and any(_names(old.passage.text, given_up) for given_up in new.gives_up):
            yield old
        elif _differ(old, new) and not new.gives_up:
            if _is_same(old, new):
                yield old
            elif is_near and _is_short(old) and (is_subjectless or _is_only_value(old, new)):
                is_subjectless = False
                yield old
        elif new.corrects and _is_same_position(old, new):
            yield old


def _is_subjectless(statement: _Statement) -> bool:
    """Return whether a statement says a value of something that it does not name."""
    if not statement.passage.text.isascii() and not statement.subject:
        return True
    spaced = " " in statement.passage.text
    return (
        spaced and len(statement.subject) <= _SUBJECTLESS_TERMS and _OWN_SUBJECT.match(statement.passage.text) is None
    )


def _differ(old: _Statement, new: _Statement) -> bool:
    """Return whether each has a value or two of its own; a longer list replaces no single value."""
    gone, come = old.values - new.values, new.values - old.values
    return 0 < len(gone) <= _VALUES_MAX and 0 < len(come) <= _VALUES_MAX


def _is_only_value(old: _Statement, new: _Statement) -> bool:
    """Return whether the old one names nothing but a value, and the new one corrects it or names nothing else
    either."""
    spaceless = " " not in old.passage.text
    return spaceless and not old.subject and (new.corrects or not new.subject)


def _is_same(old: _Statement, new: _Statement) -> bool:
    """Return whether both are about one subject, the new one as a short correction, or in the words of the old one."""
    if not new.corrects or not _is_short(old):
        return _is_restated(old, new)
    if _opening(old) and _opening(new) and _opening(old) != _opening(new):
        return False
    shared = len(old.subject & new.subject)
    return shared >= 1 and shared * 3 >= min(len(old.subject), len(new.subject))


def _opening(statement: _Statement) -> str:
    """The first noun of a sentence that opens with an article; empty otherwise."""
    found = _OWN_SUBJECT.match(statement.passage.text)
    return found[1].casefold()[:STEM_CHARS] if found is not None else ""


def _is_restated(old: _Statement, new: _Statement) -> bool:
    """Return whether the new one repeats the old one up to its value. The number of `room 12` tells two rooms apart."""
    gone, come = old.values - new.values, new.values - old.values
    if len(gone) != 1 or len(come) != 1:
        return False
    before = old.passage.text.partition(min(gone))[0]
    again = new.passage.text.partition(min(come))[0]
    terms_min = _SUBJECT_TERMS_MIN if " " in before else _SUBJECT_PAIRS_MIN
    return before.casefold() == again.casefold() and len(terms_of(before)) >= terms_min


def _is_short(statement: _Statement) -> bool:
    return len(statement.passage.text) <= _SHORT_CHARS


def _is_same_position(old: _Statement, new: _Statement) -> bool:
    """Return whether the new one fills by a correction what the old one says something or somebody is."""
    stated = _COPULA.match(old.passage.text)
    if stated is None or new.gives_up:
        return False
    subject, terms = _stems(stated["subject"]), _stems(new.passage.text)
    return len(subject) >= _SUBJECT_TERMS_MIN and subject <= terms and not _stems(stated["value"]) <= terms


def _announced(statement: _Statement, before: _Statement | None) -> _Statement:
    """The statement as a correction if the sentence before it in its message only announces one ("Correction.")."""
    if before is None or before.passage.source != statement.passage.source or not before.corrects or before.values:
        return statement
    return statement._replace(corrects=len(statement.passage.text) <= _SHORT_CHARS)


def _stems(text: str) -> frozenset[str]:
    """The beginnings of its words, which forms of one word share."""
    return frozenset(term[:STEM_CHARS] for term in terms_of(text))


def _statement(passage: Passage) -> _Statement:
    text = passage.text
    corrects = len(text) <= _SHORT_CHARS and has_phrase(text, Phrase.CORRECTS)
    given_up = (
        found[found.lastindex].strip(" .,") for found in section_of(Phrase.GIVES_UP).finditer(text) if found.lastindex
    )
    return _Statement(
        passage,
        frozenset(_VALUE.findall(text)),
        terms_of(_GRAMMAR.sub(" ", _VALUE.sub(" ", section_of(Phrase.CORRECTS).sub(" ", text)))),
        corrects,
        frozenset(filter(_is_value, given_up)) if corrects else frozenset(),
    )


def _is_value(word: str) -> bool:
    """Return whether a word can be a value: a number, a name or a code."""
    return word[:1].isupper() or any(map(str.isdigit, word))


def _names(text: str, value: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text) is not None
