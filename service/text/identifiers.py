"""Identifiers in text, which a summary must copy letter by letter; recognized by form alone.

The text is split at white space and brackets into chunks of at most CHUNK_CHARS_MAX, and each whole chunk is matched
against one form after the other, so the work is linear in the text. Secrets are masked first and never identifiers.
Decimals (3.14) are measurements, not names: `numerals` includes them, `identifiers` does not. Digits of other
scripts are found, and given as ASCII has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from abridged.service.text.digits import with_ascii_digits
from abridged.service.text.secrets import MASK, mask_secrets

CHUNK_CHARS_MAX: Final = 1_024
"""A longer run without white space is cut; no identifier for people is longer."""

SERIES_MIN: Final = 4
"""The number of names from which on, if they differ in their number alone, they count rows, columns or fields."""

_COUNTED: Final = re.compile(r"(.*_)\d{1,3}", re.ASCII)
"""Longer numbers are no counts: `gift_card_7480005` names one card."""


class IdentifierKind(StrEnum):
    """The form of an identifier, most distinctive first. A COMMAND and a STATE are recognized by where they stand,
    in `service.text.mentions` alone."""

    URL = "url"
    EMAIL = "email"
    UUID = "uuid"
    HASH = "hash"
    PATH = "path"
    FILE = "file"
    TICKET = "ticket"
    VERSION = "version"
    CODE = "code"
    SYMBOL = "symbol"
    COMMAND = "command"
    AMOUNT = "amount"
    DATE = "date"
    PHONE = "phone"
    TIME = "time"
    NUMBER = "number"
    DECIMAL = "decimal"
    STATE = "state"


VALUES: Final = frozenset(
    {IdentifierKind.AMOUNT, IdentifierKind.DATE, IdentifierKind.NUMBER, IdentifierKind.PHONE, IdentifierKind.VERSION}
)
"""Kinds of which a thing has one value at a time: a newer one replaces the older. They say little without the
words before them."""

MEASURED: Final = frozenset({IdentifierKind.AMOUNT, IdentifierKind.DATE, IdentifierKind.NUMBER})
"""Kinds whose letters are units, which name nothing."""


@dataclass(frozen=True, slots=True)
class Identifier:
    """An identifier as written. `start` orders identifiers in the text; masked secrets may shift it. `until` is its end
    there, or 0 for the end of its text: `443` of `port 80 to 443` is `port 443`."""

    kind: IdentifierKind
    text: str
    start: int
    until: int = 0

    @property
    def end(self) -> int:
        """The end in the text."""
        return self.until or self.start + len(self.text)


IDENTIFIER_CHARS_MAX: Final = 200
"""Longer ones are data."""

NUMBER_CHARS_MIN: Final = 5
"""Shorter plain numbers are quantities, meaningless without their sentence."""

_MONTH_NAMES: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
MONTHS: Final = {name: number for number, name in enumerate(_MONTH_NAMES, start=1)}
"""The number of each month by its first three letters."""

_MONTH: Final = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\.?"
)
_CURRENCY: Final = r"(?:USD|EUR|GBP|JPY|CNY|INR|CHF|CAD|AUD|dollars?|euros?|pounds?|yen|cents)"

_PHRASES: Final = tuple(
    (kind, re.compile(pattern, re.ASCII))
    for kind, pattern in (
        (IdentifierKind.DATE, rf"\b{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?\b(?:,? \d{{4}}\b)?"),
        (IdentifierKind.DATE, rf"(?<![\w.])\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}(?![a-z])(?:,? \d{{4}}\b)?"),
        (IdentifierKind.DATE, r"\b(?:19|20)\d\d年\d{1,2}月(?:\d{1,2}日)?"),
        (IdentifierKind.AMOUNT, rf"(?<![\w.,])\d{{1,3}}(?:[\d.,]{{0,15}}\d)? {_CURRENCY}\b"),
        (IdentifierKind.AMOUNT, rf"\b{_CURRENCY[:-1].partition('|dollars')[0]}) \d(?:[\d.,]{{0,15}}\d)?"),
        (IdentifierKind.AMOUNT, r"[$€£¥₹] \d(?:[\d.,]{0,15}\d)?"),
        (IdentifierKind.PHONE, r"(?<![\w+])\+\d(?:[ ().-]{0,2}\d){6,14}(?!\w)"),
        (IdentifierKind.PHONE, r"(?<![\w.-])\(\d{2,5}\) ?\d{3,4}[ -]?\d{2,5}(?![\w-])"),
        (IdentifierKind.PHONE, r"(?<![\w./-])\d{3}[-.]\d{3,4}(?:[-.]\d{4})(?![\w./-])"),
        (IdentifierKind.TIME, r"(?<![\w.:])\d{1,2}(?::\d\d)? ?[AaPp]\.?[Mm]\b"),
    )
)
"""Forms that contain a space, searched in the whole text. Each starts with a rare character and is bounded."""

_CHUNK: Final = re.compile(
    rf"[^\s\"'`<>{{}}\[\]|;*\u00ab\u00bb\u2010-\u201f\u2026\u2e80-\uffff]{{2,{CHUNK_CHARS_MAX}}}"
)
_TELLING: Final = re.compile(r"[0-9@/\\_]|[a-z][A-Z]|[A-Za-z]\.[A-Za-z]|\(\)|\w::\w")
_EDGE: Final = ".,:!?=&#%$()-+~"

_EXTENSIONS: Final = (
    r"(?:py|pyi|js|mjs|ts|tsx|jsx|go|rs|java|kt|rb|php|c|h|cc|cpp|hpp|cs|swift|scala|lua|sh|bash|ps1|bat|sql|r|ipynb"
    r"|html?|css|scss|vue|svelte|json[lc5]?|ya?ml|toml|ini|cfg|conf|env|xml|csv|tsv|txt|md|rst|log|lock|proto|diff|patch"
    r"|pdf|docx?|xlsx?|pptx?|odt|png|jpe?g|gif|svg|webp|mp3|mp4|wav|zip|tar|gz|tgz|bz2|xz|7z|whl|jar|deb|rpm|exe|dll|so"
    r"|db|sqlite3?|parquet|bak|tmp|pem|crt|key)"
)
_TLDS: Final = r"(?:com|org|net|io|dev|ai|app|gov|edu|info|de|fr|uk|eu|jp|cn|in|local|internal|localhost)"

_DATE_SHAPE: Final = (
    r"\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
    r"|\d{4}/\d{1,2}/\d{1,2}|\d{1,2}[./]\d{1,2}[./](?:\d{4}|\d{2})|\d{4}-(?:0\d|1[0-2])"
)

_SHAPES: Final = (
    (IdentifierKind.URL, r"[A-Za-z][A-Za-z0-9+.-]{1,15}://\S+|www\.[\w-]+\.\S+"),
    (IdentifierKind.EMAIL, r"[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,6}"),
    (IdentifierKind.UUID, r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"),
    (IdentifierKind.DATE, _DATE_SHAPE),
    (IdentifierKind.TIME, r"(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:[.,]\d{1,9})?)?Z?"),
    (IdentifierKind.PHONE, r"\+\d{7,15}"),
    (IdentifierKind.VERSION, r"[vV]\d{1,5}(?:\.\d{1,6}){0,4}(?:[-+][\w.+-]{1,40})?"),
    (IdentifierKind.VERSION, r"\d{1,5}(?:\.\d{1,6}){2,4}(?:[-+]?[A-Za-z][\w.+-]{0,40})?|\d{1,3}(?:\.\d{1,3}){3}:\d+"),
    (IdentifierKind.TICKET, r"[A-Z][A-Z0-9]{1,9}-\d{1,8}|#\d{2,9}|[A-Z]{2,6}-\d{2,4}-\d{1,6}"),
    (IdentifierKind.AMOUNT, r"-?[$€£¥₹]-?\d(?:[\d.,]*\d)?[kKmMbB]?|\d(?:[\d.,]*\d)?(?:[€£¥₹]|USD|EUR|GBP)"),
    (IdentifierKind.DECIMAL, r"[-+]?\d{1,15}(?:,\d{3}){0,4}\.\d{1,15}(?:%|[A-Za-z]{1,3})?|[-+]?\.\d{1,15}%?"),
    (IdentifierKind.DECIMAL, r"[-+]?\d{1,15},\d{1,2}%?|[-+]?\d(?:\.\d{1,8})?[eE][-+]?\d{1,3}"),
    (IdentifierKind.NUMBER, r"[-+~]?\d{1,3}(?:,\d{3}){1,5}(?:%|[A-Za-z]{1,3})?"),
    (IdentifierKind.NUMBER, r"[-+~]?\d{2,24}(?:%|[A-Za-z]{1,3}|st|nd|rd|th)?"),
    (IdentifierKind.HASH, r"(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{7,64}|0x[0-9A-Fa-f]{4,64}"),
    (IdentifierKind.HASH, r"(?:sha(?:1|256|512)|md5)[:-][0-9A-Za-z+/=]{16,128}"),
    (IdentifierKind.PATH, r"(?:~|\.{1,2}|[A-Za-z]:)?(?:[/\\][\w.@+%-]+){2,40}[/\\]?(?::\d+){0,2}"),
    (IdentifierKind.PATH, r"(?:~|\.{1,2}|[A-Za-z]:)[/\\][\w.@+%-]+[/\\]?(?::\d+){0,2}|[/\\][\w.@+%-]{3,}[/\\]?"),
    (IdentifierKind.PATH, rf"[\w.@+-]+(?:[/\\][\w.@+%-]+){{0,40}}[/\\][\w.@+%-]*\.{_EXTENSIONS}(?::\d+){{0,2}}"),
    (IdentifierKind.PATH, r"(?=[^/]*[/][^/]*[/])(?=\S*[_.\d-])[\w.@+-]+(?:/[\w.@+%-]+){2,40}/?"),
    (IdentifierKind.FILE, rf"[\w+-][\w.+-]{{0,120}}\.{_EXTENSIONS}(?::\d+){{0,2}}|\.(?:env|gitignore|dockerignore)"),
    (IdentifierKind.URL, rf"(?:[A-Za-z0-9-]{{1,63}}\.){{1,6}}{_TLDS}(?::\d{{2,5}})?(?:/\S*)?|\w+:\d{{2,5}}(?:/\S*)?"),
    (IdentifierKind.SYMBOL, r"[A-Za-z_][\w.:]{0,120}\(\)"),
    (IdentifierKind.SYMBOL, r"(?=\w*[A-Za-z])_{0,2}(?:[A-Za-z0-9]+_+)+[A-Za-z0-9]*(?:\.\w+)*"),
    (IdentifierKind.SYMBOL, r"(?=\w{4})[A-Z]*[a-z][a-z0-9]*[A-Z][A-Za-z0-9]*(?:\.\w+)*"),
    (IdentifierKind.SYMBOL, r"[A-Za-z_]\w+(?:\.[a-z_]\w+)+|[A-Za-z_]\w*(?:::\w+)+"),
    (IdentifierKind.CODE, r"(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{4,40}"),
    (IdentifierKind.CODE, r"(?=[A-Za-z-]*\d)(?=[\d-]*[A-Z])[A-Z0-9]{2,12}(?:-[A-Z0-9]{2,12}){1,5}"),
)
"""Forms of a whole chunk, tried in this order. They have no groups, so each group is a form."""

_SHAPE: Final = re.compile("|".join(f"({pattern})" for _, pattern in _SHAPES), re.ASCII)

_PARTS: Final = re.compile(r"[^=,:&()?]+")
_ABBREVIATION: Final = re.compile(r"(?:[A-Z][a-z]{1,3}\.){1,3}|[a-z]{1,3}(?:\.[a-z]{1,3})+\.?")


def identifiers(text: str) -> tuple[Identifier, ...]:
    """Every identifier of `text` in order, including repeats; without decimals and secrets."""
    return tuple(found for found in _scan(text) if found.kind is not IdentifierKind.DECIMAL)


def serial(found: Iterable[str]) -> frozenset[str]:
    """The identifiers that only count: SERIES_MIN or more that differ in a number of up to three digits at their end,
    such as `row_0`, `row_1`.
    """
    series: dict[str, set[str]] = {}
    for text in found:
        counted = _COUNTED.fullmatch(text)
        if counted is not None:
            series.setdefault(counted[1].casefold(), set()).add(text)
    return frozenset(text for texts in series.values() if len(texts) >= SERIES_MIN for text in texts)


def numerals(text: str) -> tuple[Identifier, ...]:
    """The results of `identifiers`, and decimals: everything in `text` that must not be invented."""
    return tuple(_scan(text))


def identifiers_of_masked(text: str) -> list[Identifier]:
    """The results of `identifiers` for a text whose secrets are already masked, each where it stands in it."""
    return [found for found in _scan_masked(text) if found.kind is not IdentifierKind.DECIMAL]


def form_of(text: str) -> IdentifierKind | None:
    """The kind whose form the whole text has; None for none of them."""
    match = _SHAPE.fullmatch(text)
    return None if match is None or match.lastindex is None else _SHAPES[match.lastindex - 1][0]


def _scan(text: str) -> list[Identifier]:
    return _scan_masked(mask_secrets(text))


def _scan_masked(text: str) -> list[Identifier]:
    found: list[Identifier] = []
    text = with_ascii_digits(text.replace(MASK, " " * len(MASK)))
    for kind, phrase in _PHRASES:
        spans = [match.span() for match in phrase.finditer(text)]
        found += (Identifier(kind, text[start:end].rstrip("."), start) for start, end in spans)
        text = _blanked(text, spans)
    for match in _CHUNK.finditer(text):
        if _TELLING.search(match[0]):
            found += _of_chunk(match[0], match.start())
    found.sort(key=lambda identifier: identifier.start)
    return found


def _blanked(text: str, spans: list[tuple[int, int]]) -> str:
    """`text` with spaces over `spans`, so that no part of a phrase is found twice."""
    if not spans:
        return text
    kept: list[str] = []
    position = 0
    for start, end in spans:
        kept += text[position:start], " " * (end - start)
        position = end
    kept.append(text[position:])
    return "".join(kept)


def _of_chunk(chunk: str, start: int) -> Iterator[Identifier]:
    """The chunk as one identifier, or else the identifiers between its inner separators."""
    whole = _classified(chunk, start)
    if whole is not None:
        yield whole
        return
    for part in _PARTS.finditer(chunk):
        if len(part[0]) > 1 and _TELLING.search(part[0]):
            inner = _classified(part[0], start + part.start())
            if inner is not None:
                yield inner


def _classified(chunk: str, start: int) -> Identifier | None:
    for candidate in _trims(chunk):
        match = _SHAPE.fullmatch(candidate)
        if match is None or match.lastindex is None:
            continue
        kind = _SHAPES[match.lastindex - 1][0]
        if kind is IdentifierKind.SYMBOL and _ABBREVIATION.fullmatch(candidate):
            return None
        return Identifier(kind, candidate, start + chunk.index(candidate))
    return None


def _trims(chunk: str) -> Iterator[str]:
    """The chunk without surrounding punctuation: first keeping what may belong to a name, then bare."""
    right = chunk.rstrip(".,:!?=&-~")
    inner = right.lstrip(",:!?=&(")
    unopened = inner.count(")") - inner.count("(")
    closing = len(inner) - len(inner.rstrip(")"))
    if unopened > 0 and closing:
        inner = inner[: len(inner) - min(unopened, closing)].rstrip(".,:!?")
    if inner:
        yield inner
    bare = inner.strip(_EDGE)
    if bare and bare != inner:
        yield bare
