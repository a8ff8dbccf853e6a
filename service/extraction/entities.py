"""The names worth keeping in a record: proper names, and identifiers unless a ledger keeps them, ranked.

Repetition and recency count. Half of the places are reserved for names that the previous record carried, so an early
technical term outlives a burst of new ones. A date has one form, and a capitalized word is a name only if nothing else
explains its capital.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from abridged.service.domain.ledger import KIND_WEIGHTS
from abridged.service.grounding.required import REPEATS_MAX, is_worth_naming
from abridged.service.text.identifiers import MONTHS, identifiers, serial
from abridged.service.text.phrases import Words, words_of

_SAID_WEIGHT: Final = 1.0
"""A name that somebody said counts more than one that only a tool's result contains."""

_NAME_WEIGHT: Final = 1.5
_PART: Final = r"[A-Z\u00c0-\u00d6\u00d8-\u00de\u0410-\u042f][\w'\u2019-]{1,30}"
_NAME: Final = re.compile(rf"(?<!\w){_PART}(?: (?:(?:of|of the|de|von|van) )?{_PART}){{0,3}}(?: (?:19|20)\d\d\b)?")
"""Capitalized words, with the words that join them and a year."""

_MIDDLE: Final = re.compile(r"[a-z\u00df-\u00f6\u00f8-\u00ff\u0430-\u044f,;] \(?$")
"""Characters before a name that does not open its sentence, label or cell."""

_ENDING: Final = re.compile(r"['\u2019](?:s|ll|m|d|ve|re|t)?$")
_NAME_REPEATS_MIN: Final = 2
"""Occurrences that make a single word a name; two capitalized words are one at once."""

_CAPITALS_SHARE_MAX: Final = 0.15
"""The share of capitalized words beyond which the language capitalizes every noun, and a capital marks no name."""

_WORD: Final = re.compile(r"(?<![\w./@-])[^\W\d_]{2,40}(?:-[^\W\d_]{1,40})?(?![\w/@]|\.\w)")
_CARRIED_FIRST: Final = 3.0
_CARRIED_LAST: Final = 1.0
_MENTION: Final = 1.0

_MONTH: Final = rf"(?P<month>{'|'.join(MONTHS)})[a-z]{{0,6}}\.?"
_NAMED: Final = re.compile(rf"{_MONTH} (?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:,? (?P<year>\d{{4}}))?", re.IGNORECASE)
_NAMED_LAST: Final = re.compile(
    rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? {_MONTH}(?:,? (?P<year>\d{{4}}))?", re.IGNORECASE
)
_NUMERIC: Final = re.compile(
    r"(?P<year>\d{4})(?P<joint>[-/])(?P<month>\d{1,2})(?P=joint)(?P<day>\d{1,2})(?P<time>T\d\d:\d\d.*)?"
    r"|(?P<year_cjk>\d{4})\u5e74(?P<month_cjk>\d{1,2})\u6708(?P<day_cjk>\d{1,2})\u65e5"
)


def ranked_entities(
    texts: Sequence[str], *, carried: Sequence[str], spoken: Sequence[str], count_max: int, has_ledger: bool
) -> tuple[str, ...]:
    """The names, most relevant first, `count_max` at most.

    `texts` are all texts, oldest first. `spoken` is what people and models said in each, empty for tools; its
    capitalized words are names. `carried` are the names of the previous record, in order. With `has_ledger` a ledger
    has the identifiers, each in the words that give it a meaning, so that only persons, places and firms are names.
    """
    named = _name_scores(spoken)
    if has_ledger:
        scores = {name: score for name, score in named.items() if _names_somebody(name)}
        carried = list(filter(_names_somebody, carried))
    else:
        scores = {**named, **_identifier_scores(texts, spoken)}
    forms = fullest_forms((*carried, *scores))
    scores = _in_one_form(scores, forms)
    mentioned = {name.casefold() for name in scores}
    kept = _carried_scores([forms.get(name, name) for name in carried], mentioned)
    for name in kept:
        scores.pop(name, None)
    old = sorted(kept, key=lambda name: -kept[name])[: max(count_max // 2, count_max - len(scores))]
    new = sorted(scores, key=lambda name: -scores[name])[: count_max - len(old)]
    both = {**{name: kept[name] for name in old}, **{name: scores[name] for name in new}}
    return tuple(sorted(both, key=lambda name: -both[name]))


def _names_somebody(name: str) -> bool:
    """Return whether a name is that of a person, a place or a firm: no identifier, and no single word in capitals.

    A word of letters alone is no identifier, though code writes names such as `McKinsey`; `Boeing 747` only has one in
    it.
    """
    is_word = name.replace("-", "").replace("'", "").isalpha()
    is_identifier = not is_word and any(found.text == name for found in identifiers(name))
    return not is_identifier and (" " in name or not name.isupper())


def _in_one_form(scores: dict[str, float], forms: dict[str, str]) -> dict[str, float]:
    """The scores with each date in one form, which gets the best of its forms' scores."""
    best: dict[str, float] = {}
    for name, score in scores.items():
        form = forms.get(name, name)
        best[form] = max(score, best.get(form, score))
    return best


def _identifier_scores(texts: Sequence[str], spoken: Sequence[str]) -> dict[str, float]:
    counts: dict[str, int] = {}
    scores: dict[str, float] = {}
    said: set[str] = set()
    for position, (text, words) in enumerate(zip(texts, spoken, strict=True), start=1):
        recency = position / len(texts)
        for found in identifiers(text):
            if not is_worth_naming(found):
                continue
            counts[found.text] = counts.get(found.text, 0) + 1
            if words:
                said.add(found.text)
            scores[found.text] = KIND_WEIGHTS[found.kind] + recency + min(counts[found.text], REPEATS_MAX) / 2
    counting = serial(name for name in scores if name not in said)
    return {name: score + _SAID_WEIGHT * (name in said) for name, score in scores.items() if name not in counting}


def _name_scores(spoken: Sequence[str]) -> dict[str, float]:
    common = _common_words(spoken)
    found = (
        _ENDING.sub("", match[0])
        for text in spoken
        for match in _NAME.finditer(text)
        if _MIDDLE.search(text[max(0, match.start() - 3) : match.start()])
    )
    counts = Counter(name for name in found if _is_name(name, common))
    if counts.total() > _CAPITALS_SHARE_MAX * sum(len(_WORD.findall(text)) for text in spoken):
        return {}
    return {
        name: _NAME_WEIGHT + min(count, REPEATS_MAX) / 2
        for name, count in counts.items()
        if count >= _NAME_REPEATS_MIN or " " in name
    }


def _common_words(spoken: Iterable[str]) -> frozenset[str]:
    """Words that the texts write in lower case, with their plurals: they are not names."""
    small = {word for text in spoken for word in _WORD.findall(text) if word.islower()}
    return frozenset(small | {f"{word}s" for word in small} | {word.removesuffix("s") for word in small})


def _is_name(name: str, common: frozenset[str]) -> bool:
    """Return whether a word of `name` is neither common nor written in lower case elsewhere, or a year makes it a
    title.

    A clause in capitals, such as `EXPRESS OR IMPLIED`, is no name.
    """
    if any(word.isupper() and word.casefold() in words_of(Words.GRAMMAR) for word in name.split()):
        return False
    words = [word.casefold() for word in name.split() if not word.islower()]
    if len(words) > 1 and words[-1].isdigit():
        return True
    return any(word not in words_of(Words.CAPITALIZED) and word not in common for word in words)


def _carried_scores(carried: Sequence[str], mentioned: set[str]) -> dict[str, float]:
    """Scores that keep the carried order; another mention raises a name."""
    step = (_CARRIED_FIRST - _CARRIED_LAST) / max(1, len(carried))
    return {
        name: _CARRIED_FIRST - step * place + _MENTION * (name.casefold() in mentioned)
        for place, name in enumerate(dict.fromkeys(carried))
    }


class Day(NamedTuple):
    """A day of a month; `year` is 0 if not given."""

    year: int
    month: int
    day: int


def day_of(text: str) -> Day | None:
    """The day that `text` names, in letters or year first; None for anything else.

    A number for the month before or after the day means different days in different countries, so it is left as it is.
    """
    numeric = _NUMERIC.fullmatch(text)
    if numeric is not None:
        fields = numeric.group("year", "month", "day") if numeric["year"] else numeric.groups()[-3:]
        return Day(*map(int, fields))
    named = _NAMED.fullmatch(text) or _NAMED_LAST.fullmatch(text)
    if named is None:
        return None
    return Day(int(named["year"] or 0), MONTHS[named["month"].casefold()], int(named["day"]))


def fullest_forms(texts: Iterable[str]) -> dict[str, str]:
    """The form to use for each text that is a day: with its year if any form has it, without a time.

    A day without a year gets the only year that the texts mention; if there are several, it stays. The first of equal
    forms is used.
    """
    days = {text: day for text in texts if (day := day_of(text)) is not None}
    years: dict[tuple[int, int], set[int]] = {}
    for day in days.values():
        years.setdefault((day.month, day.day), set()).update({day.year} - {0})
    full = {text: _with_year(day, years[day.month, day.day]) for text, day in days.items()}
    forms: dict[Day, str] = {}
    for text in sorted(full, key=lambda text: (days[text].year == 0, "T" in text)):
        forms.setdefault(full[text], text)
    return {text: forms[day] for text, day in full.items()}


def _with_year(day: Day, years: set[int]) -> Day:
    return day._replace(year=next(iter(years))) if not day.year and len(years) == 1 else day
