"""Values as people write them: codes, amounts, dates, quantities and ranges, by shape and in any language.

A value is a run of neighbours that no sentence needs: a chunk with a digit in it, and behind it units, currencies,
names of months, codes of capitals and further groups of digits. `FR76 1780 6004`, `16 A gG`, `10 mm x 2 m`, `64,20 €`,
`3. Oktober 2026`, `60時間` and `rel/24.12-lts` are one value each; so is a span of code. Words of dates, units and
currencies are those of Unicode's CLDR (`cldr.json`, written by scripts/gen-calendar); no form is listed. Runs are
bounded, so the work is linear in the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import count, pairwise
from typing import Final, NamedTuple

from abridged.service.text.identifiers import NUMBER_CHARS_MIN, Identifier, IdentifierKind, form_of
from abridged.service.text.phrases import Words, words_of
from abridged.service.text.scripts import EAST, FULL_WIDTH, HANGUL
from abridged.service.text.stops import CONTEXT_CHARS, is_inside

_NUMBERED_LINE: Final = re.compile(r"^[ ]{0,6}([0-9]{1,6})(?:[:|]|\t)(?![0-9])", re.MULTILINE)
_NUMBERED_LINES_MIN: Final = 2
"""Steps from a line to the next one."""

_ITEM: Final = re.compile(
    r"(?:(?P<line>^[ \t>*+#-]{0,12})|(?<=[.:;!?)])[ ]?|(?<=\S )(?=\(?[0-9]{1,2}\)))\(?"
    r"(?P<number>[0-9]{1,2})[.)](?=\*{0,2}[ \t]+(?![0-9.,]+(?:\s|$))\S)",
    re.MULTILINE,
)
"""The mark of an item of a list, at the begin of a line or, where a list has no lines, behind another sentence or in
brackets."""

RUN_CHUNKS_MAX: Final = 10
"""Chunks of one value: an IBAN in groups of four has nine."""

_CHUNK: Final = re.compile(
    rf"`(?P<code>[^`\n]{{2,60}})`|[^\s{EAST}{HANGUL}{FULL_WIDTH}`<>{{}}\[\]|;\u201c\u201d\u201e\u00ab\u00bb\"]{{1,120}}"
)
_COUNTER: Final = re.compile(
    # Dates and times chain their counters; any other quantity has one, of one or two characters.
    r"(?:[年月日号號時时点點分秒](?:[前后後半间間]|[0-9]{1,4}(?=[年月日号號時时点點分秒]))?){1,4}[间間]?"
    r"|[\u30a1-\u30fa\u30fc]{1,6}|[\u4e00-\u9fff][\u4e00-\u9fff]?(?![\u4e00-\u9fff])|[\u4e00-\u9fff\uac00-\ud7af]"
)
_ADDITION: Final = re.compile(
    r"/[\u4e00-\u9fff]{1,2}(?![\u4e00-\u9fff])"
    r"|(?: ?\((?=[^()]*[0-9])[A-Za-z0-9./-]{2,12}\)|[(\uff08][\u3040-\u30ff\u4e00-\u9fff]{1,4}[)\uff09])"
)
_NUMBER_WORDS: Final = re.compile(
    r"[一二三四五六七八九十百千万两〇零]{1,6}[元块円圆人名度点个個日号天周月年件台]|[一二三四五六七八九十百千万两]{2,6}"
)
_EDGES: Final = ".,:;!?()'\u2019\u2026~=&"
_OPENING: Final = re.compile(rf"\A[{_EDGES}]*(?:\*{{1,3}}(?=\w))?")
_CLOSING: Final = re.compile(r"(?<=[\w.,:;!?)%])\*{1,3}\Z")
"""The punctuation before a chunk, and the asterisks behind it, of emphasis."""

_CAPITALS: Final = re.compile(r"[A-Z]{1,5}(?:/[A-Z]{1,3})?")
_MIXED: Final = re.compile(
    r"(?=.{2,6}$)[a-zµμ]{1,3}[A-Z]\w*(?:\([A-Z]\))?|[A-Za-zµμ$€£¥]{1,4}/[A-Za-z]{1,5}[²³]?|[°%‰]\w?|[\u0391-\u03c9]"
)
_ANY: Final = re.compile(r"\*(?:/[0-9]{1,2})?")
"""A field of a schedule, as in `17 3 * * 1-5`."""

_SIGNS: Final = re.compile(r"[\u00d7x*/+\u2013\u2014\u2212-]|->|→")
_PREFIX: Final = re.compile(r"[A-Z]{1,5}(?:[-/][A-Z]{1,3})?|[a-z]/[a-z]")
_PREFIXES_MAX: Final = 2
_CLOCK: Final = re.compile(r"[0-2]?[0-9](?:[:.h][0-5][0-9]){1,2}(?:[-\u2013][0-2]?[0-9][:.h][0-5][0-9])?")
_YEAR: Final = re.compile(r"(?:19|20)[0-9]{2}")
_MOMENT: Final = re.compile(
    rf"{_CLOCK.pattern}|[0-3]?[0-9][./-][01]?[0-9](?:[./-](?:[0-9]{{4}}|[0-9]{{2}})?)?|[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}|{_YEAR.pattern}"
)
"""A time of day; that, a date or a year."""

_ORDINAL: Final = re.compile(r"[0-3]?[0-9](?:[a-zº°]{1,3})?\.?")
_DAY_GAP: Final = re.compile(r"[.,]{0,2}[ \u00a0\u202f]{1,2}")
_VOWELS: Final = frozenset("aeiouy\u0430\u0443\u0438")
"""Units of one letter that are words of grammar somewhere."""

_DAY_MARKS: Final = (",", ".")
_DAY_CHARS_MIN: Final = 4
_JOINT_CHARS_MAX: Final = 4
_CODED: Final = re.compile(r"[A-Z0-9]{1,5}")
_JOINING_CHARS_MAX: Final = 3
_PART_CHARS_MAX: Final = 2
_GROUP: Final = re.compile(r"[(+]?[0-9*][0-9:.,()/*-]*|[A-Z0-9]{1,5}|[A-Z]{0,3}[0-9]+[A-Z]?")
_PLAIN: Final = re.compile(r"[~<>\u2264\u2265\u00b1+-]?[0-9][0-9.,:/+\u2013-]*")
_SPACE: Final = re.compile(r"[ \u00a0\u202f]{0,2}")
_WORD: Final = re.compile(r"[^\W\d_]{3,}(?:-[^\W\d_]+)*")
_JOINED: Final = re.compile(r"[^\W_]+(?:[./_-]{1,2}[^\W_]+)+")
_CAPITAL_PARTS: Final = re.compile(r"[A-Z][^\W_]*(?:/[A-Z][^\W_]*)+")

_LETTER: Final = re.compile(r"[^\W\d_]")
_DIGIT: Final = re.compile(r"[0-9]")


class _Chunk(NamedTuple):
    """A chunk without the punctuation around it, and whether a sentence goes on after it."""

    text: str
    start: int
    end: int
    goes_on: bool
    is_code: bool


def is_listing(text: str) -> bool:
    """Return whether lines of a text begin with their numbers, as programs print files: these are no values."""
    numbers = [int(line[1]) for line in _NUMBERED_LINE.finditer(text)]
    return sum(after - before == 1 for before, after in pairwise(numbers)) >= _NUMBERED_LINES_MIN


def without_counters(text: str) -> str:
    """The text with spaces in place of the numbers that only count the items of a list: each stands beside the next."""
    marks = [mark for mark in _ITEM.finditer(text) if not _opens_month(text, mark.end())]
    lines = {int(mark["number"]) for mark in marks if mark["line"] is not None}
    highest = 0
    for mark in marks:
        # Quantities in a sentence come in any order.
        highest += int(mark["number"]) == highest + 1
    counted = next(number for number in count(highest + 1) if number not in lines)
    at, kept = 0, list[str]()
    for mark in marks:
        number = int(mark["number"])
        if 0 < number < counted != 2 or (mark["line"] is not None and lines & {number - 1, number + 1}):
            kept += (text[at : mark.start()], " " * len(mark[0]))
            at = mark.end()
    return "".join((*kept, text[at:]))


def _opens_month(text: str, at: int) -> bool:
    following = _CHUNK.search(text, at)
    return following is not None and _is_month(following[0])


def values(text: str) -> Iterator[Identifier]:
    """Every value of prose, in order; a run once, as it is written."""
    chunks = [_chunk(match) for match in _CHUNK.finditer(text)]
    at = taken = 0
    while at < len(chunks):
        chunk = chunks[at]
        if chunk.start < taken:
            at += 1
            continue
        if chunk.is_code or _DIGIT.search(chunk.text) or _is_joined(chunk.text):
            first = _first_of_run(text, chunks, at, taken)
            last = _last_of_run(text, chunks, first, at)
            end = _with_counter(text, chunks[last].end) if not chunk.is_code else chunk.end
            run = text[chunks[first].start : end]
            if run and not (chunk.is_code and not _is_name(run)):
                yield Identifier(_kind(run, chunks[first : last + 1]), run, chunks[first].start)
            at, taken = last, end
        at += 1
    for match in _NUMBER_WORDS.finditer(text):
        yield Identifier(IdentifierKind.AMOUNT, match[0], match.start())


def _is_joined(chunk: str) -> bool:
    """Return whether a slash or a low line joins words as no sentence does: `fix/ledger-dup`, `Europe/Madrid`,
    `max_conns`."""
    if _JOINED.fullmatch(chunk) is None:
        return False
    is_path = "/" in chunk and ("-" in chunk or "." in chunk or _CAPITAL_PARTS.fullmatch(chunk) is not None)
    return "_" in chunk or is_path


def _chunk(match: re.Match[str]) -> _Chunk:
    if match["code"] is not None:
        return _Chunk(match["code"], match.start("code"), match.end("code"), goes_on=False, is_code=True)
    raw = match[0]
    left = _OPENING.sub("", raw)
    right = _CLOSING.sub("", left.rstrip(_EDGES)).rstrip(_EDGES) or left[:1]
    if right.count("(") > right.count(")") and left[len(right) : len(right) + 1] == ")":
        right += ")"
    start = match.start() + len(raw) - len(left)
    rest = left[len(right) :]
    # A full stop after a number may be that of an ordinal: the next chunk decides.
    return _Chunk(
        right, start, start + len(right), goes_on=not rest or (rest == "." and right.isdigit()), is_code=False
    )


def _first_of_run(text: str, chunks: list[_Chunk], at: int, taken: int) -> int:
    """The place of the first chunk of the run whose number is at `at`: codes may stand before it, as in `PO 4500`."""
    first = at
    while first > 0 and at - first < _PREFIXES_MAX and _PLAIN.match(chunks[at].text):
        before, after = chunks[first - 1], chunks[first]
        gap = text[before.end : after.start]
        is_prefix = _PREFIX.fullmatch(before.text) and not _is_grammar(before.text)
        is_date = _DAY_GAP.fullmatch(gap) and _opens_date(before.text, gap, chunks[first : at + 2])
        if before.start < taken or not (is_date or (is_prefix and _SPACE.fullmatch(gap))):
            break
        first -= 1
    return first


def _opens_date(before: str, gap: str, following: list[_Chunk]) -> bool:
    """Return whether a chunk is the month or the day of the week before the rest of a date: `May` 15, `Freitag`,
    28.03."""
    after = following[0].text
    if _is_month(before):
        return _ORDINAL.fullmatch(after) is not None
    is_day = _is_day(before, is_marked=gap[:1] in _DAY_MARKS)
    return is_day and (_MOMENT.match(after) is not None or any(_is_month(chunk.text) for chunk in following))


def _last_of_run(text: str, chunks: list[_Chunk], first: int, last: int) -> int:
    """The place of the last chunk of the run that begins at `first` and has its number at `last`."""
    while not chunks[last].is_code and last - first + 1 < RUN_CHUNKS_MAX:
        step = _continues(text, chunks, first, last) if chunks[last].goes_on else 0
        step = step or _continues_moment(text, chunks, first, last)
        if not step:
            break
        last += step
    # Nothing follows a sign that stands before another mark, as in `OPS-1 -> OPS-2`.
    is_sign = _SIGNS.fullmatch(chunks[last].text) and not _ANY.fullmatch(chunks[last].text)
    return last - 1 if last > first and is_sign else last


def _continues(text: str, chunks: list[_Chunk], first: int, last: int) -> int:
    """Count the further chunks that belong to the run of a quantity or a code; 0 at its end."""
    before, *following = chunks[last : last + 3]
    if not following or not following[0].text or following[0].is_code:
        return 0
    after, *next_one = following
    is_ordinal = text[before.end : before.end + 1] == "."
    if not _SPACE.fullmatch(text, before.end + is_ordinal, after.start):
        return 0
    if is_ordinal or _is_month(after.text):
        is_named = _is_month(after.text) or (is_ordinal and _is_numbered(text, before, after))
        return int(is_named and _ORDINAL.fullmatch(before.text) is not None)
    if _ANY.fullmatch(after.text) and (_ANY.fullmatch(before.text) or _PLAIN.fullmatch(before.text)):
        return 1
    if _SIGNS.fullmatch(after.text):
        return int(bool(next_one) and _goes_on_after_sign(next_one[0].text))
    if _DIGIT.search(after.text):
        return int(_is_next_group(before.text, after.text))
    if _is_unit_of(before.text, after.text):
        return 1
    if after.text.casefold() in words_of(Words.GRAMMAR):
        # `3 de marzo`, `3rd of May`: the word between belongs to the date.
        is_date = bool(next_one) and _is_month(next_one[0].text) and _ORDINAL.fullmatch(before.text) is not None
        return 2 * (is_date and len(after.text) <= _JOINING_CHARS_MAX)
    is_quantity = last == first and before.text.isdigit() and len(before.text) < NUMBER_CHARS_MIN
    return int(is_quantity and _WORD.fullmatch(after.text) is not None)


def _is_numbered(text: str, before: _Chunk, after: _Chunk) -> bool:
    """Return whether a code goes on after the full stop of an ordinal: `3. OG`."""
    opening = text[max(0, before.end + 1 - CONTEXT_CHARS) : before.end + 1]
    return _CAPITALS.fullmatch(after.text) is not None and is_inside(opening, text[after.start : after.end])


def _continues_moment(text: str, chunks: list[_Chunk], first: int, last: int) -> int:
    """Count the further chunks that belong to a date: `Freitag, 28.03., 10:40`, `3 June at 07:30`, `20:00 bis
    08:00`."""
    if last + 1 >= len(chunks) or not any(_is_of_moment(chunk.text) for chunk in chunks[first : last + 1]):
        return 0
    before, after = chunks[last], chunks[last + 1]
    gap = text[before.end : after.start]
    if _DAY_GAP.fullmatch(gap) and (_MOMENT.fullmatch(after.text) or _is_day(after.text, is_marked=False)):
        # Two dates are two values: a list of them is no moment.
        is_second = _is_date(after.text) and any(_is_date(chunk.text) for chunk in chunks[first : last + 1])
        return int(not is_second)
    is_joint = _SPACE.fullmatch(gap) and after.goes_on and len(after.text) <= _JOINT_CHARS_MAX
    if not is_joint or last + 2 >= len(chunks):
        return 0
    ending = chunks[last + 2].text
    return 2 * bool(_CLOCK.fullmatch(ending) or (_is_month(before.text) and _YEAR.fullmatch(ending)))


def _is_of_moment(chunk: str) -> bool:
    return _CLOCK.fullmatch(chunk) is not None or _MOMENT.fullmatch(chunk) is not None or _is_month(chunk)


def _is_date(chunk: str) -> bool:
    return bool(_MOMENT.fullmatch(chunk)) and not (_CLOCK.fullmatch(chunk) or _YEAR.fullmatch(chunk))


def _is_day(chunk: str, *, is_marked: bool) -> bool:
    """Return whether a chunk names a day of the week; a short name, which may be any word, needs a mark behind it."""
    name = chunk.casefold()
    days = _table()["days"]
    return (len(name) >= _DAY_CHARS_MIN or is_marked) and (name in days or name.removesuffix("s") in days)


def _is_month(chunk: str) -> bool:
    return chunk.casefold().rstrip(".") in _table()["months"]


def _goes_on_after_sign(chunk: str) -> bool:
    return _DIGIT.search(chunk) is not None or _SIGNS.fullmatch(chunk) is not None


def _is_next_group(before: str, after: str) -> bool:
    """Return whether a chunk with a digit goes on with the value before it: `1780 6004`, `7014 CE P4A`, `16 h 15`, `2 x
    32`. A measurement after a code is a value of its own."""
    if _SIGNS.fullmatch(before) or _is_month(before):
        return True
    if before in _table()["units"]:
        return after.isdigit() and len(after) <= _PART_CHARS_MAX
    if _CAPITALS.fullmatch(before):
        return _CODED.fullmatch(after) is not None
    is_code = _LETTER.search(before) is not None
    is_measured = _PLAIN.fullmatch(after) is not None and not after.isdigit()
    return bool(_GROUP.fullmatch(before) and _GROUP.fullmatch(after)) and not (is_code and is_measured)


def _is_unit_of(before: str, after: str) -> bool:
    """Return whether a chunk without a digit is the unit, the currency or the suffix of the chunk before it."""
    if after in words_of(Words.GRAMMAR):
        return False
    is_unit = (after in _table()["units"] and after not in _VOWELS) or after.strip(".") in _table()["currencies"]
    if is_unit and _PLAIN.fullmatch(before):
        return True
    is_suffix = _CAPITALS.fullmatch(after) is not None and not _is_grammar(after)
    return is_suffix or _MIXED.fullmatch(after) is not None


def _is_grammar(capitals: str) -> bool:
    """Return whether a chunk is a capital letter that is a word, as `I` is: two capitals are a code, whatever word they
    spell."""
    return len(capitals) == 1 and capitals.casefold() in words_of(Words.GRAMMAR)


def _with_counter(text: str, end: int) -> int:
    """The end of the value with the counter that follows its number in scripts without spaces, and with a code or a
    word of such a script in brackets."""
    counter = _COUNTER.match(text, end) if text[end - 1 : end].isdigit() else None
    addition = _ADDITION.match(text, counter.end() if counter else end)
    return addition.end() if addition else counter.end() if counter else end


def _is_name(code: str) -> bool:
    """Return whether a span of code names something, and is no command or statement of several words."""
    return _LETTER.search(code) is not None and code.count(" ") <= 5


def _kind(run: str, chunks: list[_Chunk]) -> IdentifierKind:
    known = form_of(run)
    if known is not None and known not in (IdentifierKind.DECIMAL, IdentifierKind.TIME):
        return known
    if any(_is_month(chunk.text) for chunk in chunks) or known is IdentifierKind.TIME or ("年" in run or "月" in run):
        return IdentifierKind.DATE
    return IdentifierKind.AMOUNT if _PLAIN.match(run) or known is IdentifierKind.DECIMAL else IdentifierKind.CODE


@cache
def _table() -> dict[str, frozenset[str]]:
    """The words of CLDR, by what they are."""
    read = json.loads((files(__package__) / "cldr.json").read_text(encoding="utf-8"))
    return {name: frozenset(words) for name, words in read.items()}
