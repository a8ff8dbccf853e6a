"""Tells whether the identifiers and numbers of one text occur in another, in whatever notation.

A summary may write `1,200 USD` as `$1200`, `2024-05-15` as `May 15, 2024`, or a path in other case, which is no
invention. Each identifier therefore becomes keys that its variants share. One that shares no key with the source is
looked up there literally before it counts as unsupported; the number of such look-ups is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from abridged.service.domain.material import read_text
from abridged.service.domain.message import Message
from abridged.service.text.identifiers import MONTHS, Identifier, IdentifierKind, numerals

LOOKUPS_MAX: Final = 500
"""Further unsupported identifiers of a record are counted without a literal look-up, because it is refused anyway."""

_NUMERIC: Final = frozenset(
    {
        IdentifierKind.AMOUNT,
        IdentifierKind.DECIMAL,
        IdentifierKind.NUMBER,
    }
)
_UNITS: Final = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_TEENS: Final = ("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
_TENS: Final = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SPELLED: Final = {
    **{word: value for value, word in enumerate((*_UNITS, *_TEENS), start=1)},
    **{word: value * 10 for value, word in enumerate(_TENS, start=2)},
    "dozen": 12,
}
_SCALES: Final = {"hundred": 100, "thousand": 1_000, "million": 1_000_000}
"""Numbers that people write as words and models as digits, or vice versa."""

_YEAR_CHARS: Final = 4

_COUNTRY_CODE: Final = re.compile(r"[17]|2[07]|3[0-469]|4[013-9]|5[1-8]|6[0-6]|8[1246]|9[0-58]|\d{3}")
"""The country code of a phone number with a `+` (ITU-T E.164)."""

_MAGNITUDES: Final = {"k": 1_000, "m": 1_000_000, "b": 1_000_000_000}

_DIGITS: Final = re.compile(r"\d+")
_WORD: Final = re.compile(r"[a-z]+")
_DAY_AND_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}t\d{2}:\d{2}")
_NUMERAL: Final = re.compile(r"\d[\d.,]*")
_NUMBER_WORD: Final = rf"(?:{'|'.join((*_SPELLED, *_SCALES))})"
_SPELLED_RE: Final = re.compile(rf"\b{_NUMBER_WORD}(?:(?:[ -]| and ){_NUMBER_WORD}){{0,8}}\b", re.IGNORECASE)
_JOINT: Final = re.compile(r"[ -](?:and )?")


@dataclass(frozen=True, slots=True)
class Evidence:
    """The content of texts: the keys of their identifiers, the numbers of each date, and the texts with normalized
    case and spacing."""

    keys: frozenset[str]
    dates: frozenset[frozenset[str]]
    folded: str


def evidence_of(texts: Iterable[str]) -> Evidence:
    """Everything in `texts` that can support a claim."""
    joined = "\n".join(texts)
    return evidence_with(numerals(joined), joined)


def evidence_with(found: Iterable[Identifier], text: str) -> Evidence:
    """Everything in `text` that can support a claim, given what `numerals` finds in it."""
    keys: set[str] = set()
    dates: set[frozenset[str]] = set()
    for identifier in found:
        keys.update(keys_of(identifier))
        if identifier.kind is IdentifierKind.DATE:
            dates.add(_date_numbers(identifier.text))
    for match in _SPELLED_RE.finditer(text):
        keys.update(_spelled_values(match[0].lower()))
    return Evidence(frozenset(keys), frozenset(dates), " ".join(text.casefold().split()))


def texts_of(message: Message) -> tuple[str, ...]:
    """Every text of a message that a summary may draw on: what it says, its material, names, arguments of calls."""
    calls = (text for call in message.tool_calls for text in (call.name, call.arguments))
    return (read_text(message), message.name, *calls)


def unsupported(text: str, evidence: Evidence) -> tuple[Identifier, ...]:
    """The identifiers and numbers of `text`, each once, that `evidence` does not contain."""
    distinct = {found.text.casefold(): found for found in numerals(text)}
    unknown = [found for found in distinct.values() if not _is_supported(found, evidence)]
    looked_up = unknown[:LOOKUPS_MAX]
    return (*(found for found in looked_up if not _is_written(found, evidence.folded)), *unknown[LOOKUPS_MAX:])


def survival(wanted: Iterable[Identifier], text: str) -> float:
    """Share of the distinct identifiers `wanted` that `text` contains; 1.0 without any."""
    return share_held(wanted, evidence_of([text]))


def share_held(wanted: Iterable[Identifier], evidence: Evidence) -> float:
    """Share of the distinct identifiers `wanted` that `evidence` contains; 1.0 without any."""
    distinct = {found.text.casefold(): found for found in wanted}
    return sum(_is_supported(found, evidence) for found in distinct.values()) / len(distinct) if distinct else 1.0


def _is_supported(found: Identifier, evidence: Evidence) -> bool:
    if not evidence.keys.isdisjoint(keys_of(found)):
        return True
    if found.kind is IdentifierKind.DATE:
        numbers = _date_numbers(found.text)
        return any(numbers <= known for known in evidence.dates)
    return False


def keys_of(found: Identifier) -> set[str]:
    """Keys that the variants of one identifier share, always including its text in normalized case."""
    text = found.text.casefold().rstrip(".,:;!?)")
    keys = {text, text.removesuffix("'s").removesuffix("s")}
    if found.kind in _NUMERIC:
        keys |= _number_keys(text)
    elif found.kind is IdentifierKind.PHONE:
        keys |= _phone_keys(text)
    elif found.kind is IdentifierKind.TIME:
        keys.add(_clock(text))
    elif found.kind is IdentifierKind.DATE:
        keys.add(_joined(_date_numbers(text)))
        if _DAY_AND_TIME.match(text):
            keys.add(_clock(text[11:]))
    elif found.kind is IdentifierKind.VERSION:
        keys.add(text.removeprefix("v"))
    elif found.kind in (IdentifierKind.TICKET, IdentifierKind.SYMBOL):
        keys |= {text.removeprefix("#"), text.removesuffix("()")}
    elif found.kind in (IdentifierKind.PATH, IdentifierKind.FILE):
        path = text.partition(":")[0] if text[1:2] != ":" else text
        keys |= {path, path.removeprefix("./").rstrip("/")}
    return keys


def day_key(found: Identifier) -> str:
    """The key of a date that is written without its year."""
    return _joined(number for number in _date_numbers(found.text) if len(number) < _YEAR_CHARS)


def _joined(numbers: Iterable[str]) -> str:
    return "/".join(sorted(numbers))


def _number_keys(text: str) -> set[str]:
    """The possible values of a numeral: `1.200` is twelve hundred to some and one and a fifth to others."""
    match = _NUMERAL.search(text)
    if match is None:
        return set()
    numeral = match[0].rstrip(".,")
    magnitude = _MAGNITUDES.get(text[match.end() : match.end() + 1], 1)
    readings = {numeral.replace(",", ""), numeral.replace(".", "").replace(",", ".")}
    values = {_plain(reading) for reading in readings if reading.count(".") <= 1}
    values |= {_plain(str(float(value) * magnitude)) for value in values if magnitude > 1 and len(value) < 16}
    return values | {"".join(_DIGITS.findall(text))}


def _phone_keys(text: str) -> set[str]:
    """All digits of a phone number, and those that are dialled within its country."""
    digits = "".join(_DIGITS.findall(text))
    national = _COUNTRY_CODE.sub("", digits, count=1) if text.startswith("+") else digits
    return {digits, national.lstrip("0")}


def _plain(reading: str) -> str:
    """A decimal without insignificant zeros."""
    whole, point, fraction = reading.partition(".")
    fraction = fraction.rstrip("0") if point else ""
    return (whole.lstrip("0") or "0") + ("." + fraction if fraction else "")


def _clock(text: str) -> str:
    """`3 pm`, `3:00 PM` and `15:00` as one form."""
    hour, minute = ([*_DIGITS.findall(text)[:2], "0"])[:2]
    letters = "".join(_WORD.findall(text))
    hours = int(hour[:2]) % 12 + 12 * letters.startswith("p") if letters[:1] in ("a", "p") else int(hour[:2])
    return f"{hours}:{int(minute[:2]):02d}"


def _date_numbers(text: str) -> frozenset[str]:
    """Year, month and day as numbers in any order, which differs between countries."""
    day = text.casefold().partition("t")[0] if text[4:5] == "-" else text.casefold()
    numbers = {number.lstrip("0") or "0" for number in _DIGITS.findall(day)}
    return frozenset(numbers | {str(MONTHS[word[:3]]) for word in _WORD.findall(day) if word[:3] in MONTHS})


def _spelled_values(phrase: str) -> set[str]:
    """The values of number words, each alone and all together: `two hundred and five` is 2, 100, 5 and 205."""
    words = _JOINT.split(phrase)
    values = [_SPELLED.get(word) or _SCALES[word] for word in words]
    total = group = 0
    for word, value in zip(words, values, strict=True):
        if word not in _SCALES:
            group += value
        elif value == _SCALES["hundred"]:
            group = max(1, group) * value
        else:
            total, group = total + max(1, group) * value, 0
    return {str(value) for value in (*values, total + group)}


def _is_written(found: Identifier, folded: str) -> bool:
    """Return whether the identifier occurs literally in `folded`; a function also with its arguments."""
    if _occurs(found.text, folded):
        return True
    return found.text.endswith("()") and _occurs(found.text.removesuffix(")"), folded)


def _occurs(text: str, folded: str) -> bool:
    """Return whether `text` occurs in `folded` by itself, not inside a longer word or number."""
    wanted = text.casefold()
    position = folded.find(wanted)
    while position >= 0:
        end = position + len(wanted)
        if not _joins(folded[position - 1 : position], wanted[0]) and not _joins(folded[end : end + 1], wanted[-1]):
            return True
        position = folded.find(wanted, end)
    return False


def _joins(beside: str, edge: str) -> bool:
    return beside.isalnum() and edge.isalnum()
