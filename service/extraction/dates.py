"""Dates in their many spellings, so that one date has one form in a list."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["Day", "day_of", "fullest_forms"]

_MONTH_NAMES: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS: Final = {name: number for number, name in enumerate(_MONTH_NAMES, start=1)}
_MONTH: Final = r"(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
_NAMED: Final = re.compile(rf"{_MONTH} (?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:,? (?P<year>\d{{4}}))?", re.IGNORECASE)
_NAMED_LAST: Final = re.compile(
    rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? {_MONTH}(?:,? (?P<year>\d{{4}}))?", re.IGNORECASE
)
_NUMERIC: Final = re.compile(
    r"(?P<year>\d{4})(?P<joint>[-/])(?P<month>\d{1,2})(?P=joint)(?P<day>\d{1,2})(?P<time>T\d\d:\d\d.*)?"
    r"|(?P<year_cjk>\d{4})\u5e74(?P<month_cjk>\d{1,2})\u6708(?P<day_cjk>\d{1,2})\u65e5"
)


class Day(NamedTuple):
    """A day of a month; `year` is 0 where it is not told."""

    year: int
    month: int
    day: int


def day_of(text: str) -> Day | None:
    """The day that `text` is, in letters or with the year first; None for anything else.

    What puts a number for the month after the day, or before it, is another matter in another country, and stays.
    """
    numeric = _NUMERIC.fullmatch(text)
    if numeric is not None:
        fields = numeric.group("year", "month", "day") if numeric["year"] else numeric.groups()[-3:]
        return Day(*map(int, fields))
    named = _NAMED.fullmatch(text) or _NAMED_LAST.fullmatch(text)
    if named is None:
        return None
    return Day(int(named["year"] or 0), _MONTHS[named["month"].casefold()], int(named["day"]))


def fullest_forms(texts: Iterable[str]) -> dict[str, str]:
    """For each text that is a day the form that stands for it: with its year if any form tells it, without a time.

    A day without a year is that of the one year in which the texts have it; with several it stays. Of forms alike the
    first stands.
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
