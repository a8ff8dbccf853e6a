"""The words around a value: the name of the thing that it is a value of, and the fate that its sentence tells of it.

A name is the text from the telling words nearest to the value on: in chats of six languages four of them hold a name
that a reader would use in 90 of 100 cases (216 facts of `bench/written/seen`). Each value is looked at within a bounded
reach, so the work is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import islice, takewhile
from typing import Final, NamedTuple

from abridged.service.text.brackets import REACH as BRACKETS_REACH
from abridged.service.text.brackets import in_pairs
from abridged.service.text.identifiers import Identifier, IdentifierKind
from abridged.service.text.phrases import Phrase, Words, has_phrase, section_of, words_of
from abridged.service.text.rows import label_of, without_ends
from abridged.service.text.scripts import HIRAGANA
from abridged.service.text.secrets import MASK, may_carry_secret
from abridged.service.text.sentences import is_question
from abridged.service.text.stops import without_inner_stops
from abridged.service.text.words import is_spaceless, word_keys

NAME_WORDS_MAX: Final = 4
NAME_CHARS_MAX: Final = 60
"""Telling words that a name has at most, and characters before the value within which all but the nearest begin; a word
that denies it may stand before them."""

REST_CHARS_MAX: Final = 40
LONG_REST_CHARS_MAX: Final = 60
"""Characters after a value that are read with it at most: of one that has a name, and of one without."""

ROW_CHARS_MAX: Final = 24
"""Characters of a row of data after its value that are read with it."""

REACH_BEFORE: Final = 100
REACH_AFTER: Final = 40
"""Characters before and after a value among which the words of its name are looked for."""

_DENIAL_CHARS: Final = 24
"""Characters before a name among which a word that denies it is looked for."""

_SPACELESS_CHARS_MAX: Final = 6
_SPACELESS_CHARS_A_WORD: Final = 3
"""Characters that the name has at most of a run in a script without spaces; as many count as a word."""

_NEVER_NAMES: Final = frozenset(
    {
        IdentifierKind.AMOUNT,
        IdentifierKind.COMMAND,
        IdentifierKind.DATE,
        IdentifierKind.DECIMAL,
        IdentifierKind.HASH,
        IdentifierKind.NUMBER,
        IdentifierKind.PATH,
        IdentifierKind.PHONE,
        IdentifierKind.TIME,
        IdentifierKind.URL,
        IdentifierKind.UUID,
        IdentifierKind.VERSION,
    }
)
"""Kinds that are values themselves; a symbol, a code or a ticket may name the thing that has a value."""

_TELL_THEMSELVES: Final = frozenset(
    {IdentifierKind.COMMAND, IdentifierKind.FILE, IdentifierKind.PATH, IdentifierKind.SYMBOL, IdentifierKind.URL}
)
"""Kinds that say what they are: the lines before one in a listing name others."""

_IDEOGRAPHS: Final = "\u2e80-\u3040\u30a0-\u9fff\uf900-\ufaff"
_WORD: Final = re.compile(
    rf"[{_IDEOGRAPHS}]+|[^\W\d_{_IDEOGRAPHS}{HIRAGANA}][^\W{_IDEOGRAPHS}{HIRAGANA}]*"
    rf"(?:['\u2019.-][^\W{_IDEOGRAPHS}{HIRAGANA}]+)*"
)
"""A word, which may have digits in it as names do, or a run of a script without spaces up to the next kana."""

_STOP: Final = re.compile(r"[.!?;][\"'\u201d\u2019)\]]{0,2}\s|[\u3002\uff01\uff1f\uff1b\n]")
_BESIDE: Final = re.compile(r"[ \u00a0\u202f]{0,2}")
"""The space between a value and a word with which it is read as one: `Pantone 7527 C`."""

_CLAUSE_END: Final = r"(?=,(?![0-9])|[;!?\n\u3002\uff0c]|\.?\s{0,3}$|\.\s(?![0-9]))"
_CLAUSE: Final = re.compile(
    r"[ \u00a0\u202f]?[^\s,.;:!?\u3002\uff0c\uff1b\uff1a]"
    rf"(?:[^,;!?{{}}\[\]\n\u3002\uff0c]|,(?=[0-9])){{0,59}}?{_CLAUSE_END}"
)
"""The end of a clause of at most 60 characters; a comma within a number ends none."""

_PART: Final = re.compile(
    rf"\.?, (?=[^,;!?\n]{{0,18}}(?:[0-9]|\b[IVX]{{1,4}}\b))(?:[0-9]{{1,2}}\. (?=\w))?[^,;!?\n]{{1,20}}?{_CLAUSE_END}"
)
"""A short part of a list or an address, with a number in it, up to the next comma: `, Tor 12`, `, 3. OG links`."""

_PARTS_MAX: Final = 3

_LABELLING: Final = re.compile(r"[\"']?[ \t]{0,12}(?:=>|[:=\uff1a])[ \t]{0,12}[\"']?")
_LABEL_CHARS_MIN: Final = 4
"""Characters of a label, such as the key of a JSON object, that names its value by itself."""

_SPACES: Final = re.compile(r"\s+")
_OPENING: Final = "\u3002\u3001\uff0c\uff1b\uff1a\u300c\u300d\uff08\uff09"
"""Marks that may stand before a run of a script without spaces."""

_PARTING: Final = re.compile(r"[,;!?|{}\[\]\t\n\u3001\u3002\uff0c\uff1b(\u2014]|[.:] |  | [-\u2013] ")
"""Marks between clauses, and between the columns of a table."""

_ARROW: Final = re.compile(r"\s{0,3}(?:->|=>|\u2192|\u21d2)\s{0,3}")


class Surroundings(NamedTuple):
    """The words around a value.

    Attributes:
        name: The text before the value that names it, as it was written, with what joins the value to it; else
            telling words after it; empty without any.
        rest: The text after the value that is read with it; empty without any.
        ending: The part of it that ends the row, the bracket or the quotation in which the value stands.
        about: The keys of all words near it in its sentence, for comparison; in a log those of its name.
        sentence: The sentence, as far as a word in it may name the value, if somebody said it; else empty.
        supposed: True if its sentence asks, or supposes something, and so states no value.
        dropped: True if its sentence says that it holds no longer.
        is_beside: True if a word of its name stands beside it, or labels it.
        replaces: The value before an arrow that leads to it; empty for none.
    """

    name: str
    rest: str
    ending: str = ""
    about: frozenset[str] = frozenset()
    sentence: str = ""
    supposed: bool = False
    dropped: bool = False
    is_beside: bool = False
    replaces: str = ""


class Block:
    """A text whose secrets are masked, with the identifiers found in it, in order.

    In rows of data, and in a text that its writer wrote `by_line`, a line names its values by itself.
    """

    def __init__(self, text: str, found: list[Identifier], *, in_rows: bool = False, by_line: bool = False) -> None:
        self._clauses = without_inner_stops(text)
        self._text, self._in_rows, self._by_line = text, in_rows, by_line
        self._words = _without_values(text.replace(MASK, " " * len(MASK)), found)
        self._named = {one.start: one.end for one in found if one.kind not in _NEVER_NAMES}

    def around(self, found: Identifier, before: Identifier | None, *, said: bool) -> Surroundings:
        """The words around an identifier; `before` is the one that stands before it in the text. The sentence is read
        only if somebody `said` it: a log states nothing."""
        end = found.end
        opening, closing = self._sentence_start(found.start), self._sentence_end(end)
        # Only a neighbour of the same kind gives way: `deploy v2 -> prod-7` renames nothing.
        is_turned = before is not None and before.kind is found.kind and self._turns_into(before, found)
        name, is_beside, begin = self._name(found)
        rest_end = self._rest_end(end, REST_CHARS_MAX if name else LONG_REST_CHARS_MAX)
        if not (name or self._tells(end, rest_end)):
            name = self._name_behind(end, closing)
        row_end = self._row_end(found)
        name, ending = self._in_pairs(name, found, begin, row_end)
        rest = self._in_pairs(name, found, found.start, max(rest_end, row_end))[1]
        if may_carry_secret(f"{name}{found.text}{rest}{ending}"):
            name = rest = ending = ""
        around = Surroundings(
            name,
            rest,
            ending,
            is_beside=is_beside,
            replaces=before.text if before is not None and is_turned else "",
        )
        if not said:
            return around._replace(about=word_keys(name + rest))
        sentence = self._text[opening:closing]
        return around._replace(
            about=word_keys(f"{self._words[opening : found.start]} {self._words[end:closing]}"),
            sentence=sentence,
            supposed=_is_supposed(self._text[opening : closing + 1]),
            dropped=has_phrase(sentence, Phrase.CORRECTS)
            and any(found.start <= opening + at < end for at in _given_up(sentence)),
        )

    def _sentence_start(self, start: int) -> int:
        begin = max(0, start - REACH_BEFORE)
        stops = list(_STOP.finditer(self._clauses, begin, start))
        return stops[-1].end() if stops else begin

    def _sentence_end(self, end: int) -> int:
        reach = min(len(self._text), end + REACH_AFTER)
        stop = _STOP.search(self._clauses, end, reach)
        return stop.start() if stop is not None else reach

    def _in_pairs(self, name: str, found: Identifier, begin: int, rest_end: int) -> tuple[str, str]:
        """The name, which begins at `begin` if the text has it as it is, and the rest, with brackets in pairs."""
        reach = BRACKETS_REACH + len(MASK)
        around = self._text[max(0, begin - reach) : begin], self._text[rest_end : rest_end + reach]
        before = around[0].rpartition("\n")[2].rpartition(MASK)[2][-BRACKETS_REACH:] if begin < found.start else ""
        after = around[1].partition("\n")[0].partition(MASK)[0][:BRACKETS_REACH]
        rest = _SPACES.sub(" ", self._text[found.end : rest_end]).rstrip()
        return in_pairs(name, found.text, rest, before=before, after=after)

    def _row_end(self, found: Identifier) -> int:
        """The end of the row of data that a value begins, if it is near, or else the end of the value."""
        end = found.end
        if not (self._in_rows and label_of(self._text, found.start)):
            return end
        row = self._text[end : end + ROW_CHARS_MAX + 1].partition("\n")[0]
        return end + len(row) if len(row) <= ROW_CHARS_MAX and MASK not in row else end

    def _name(self, found: Identifier) -> tuple[str, bool, int]:
        """The text before an identifier from the telling words nearest to it on, as it was written, whether the last
        of them stands beside it or labels it, and where the text begins; for a label the identifier's place. A row of
        data is named by its own line as long as that has any."""
        start = found.start
        begin = max(0, start - REACH_BEFORE, self._text.rfind(MASK, 0, start) + 1)
        line = self._text.rfind("\n", begin, start) + 1
        if self._in_rows and (label := label_of(self._text, start)):
            return label, True, start
        near = list(self._telling(line or begin, start))
        if not near and self._leads_on(line) and found.kind not in _TELL_THEMSELVES:
            near = list(self._telling(begin, start))
        if not near:
            return "", False, start
        at, nearest = near[-1]
        joining = self._text[at + len(nearest) : start]
        is_label = _LABELLING.fullmatch(joining) is not None
        if is_label and len(nearest) >= _LABEL_CHARS_MIN:
            return f"{nearest}=", True, start
        lead = self._lead(near, start)
        if is_label:
            return f"{_in_line(self._text[lead : at + len(nearest)])}=", True, start
        written = _in_line(self._text[lead:start]).lstrip(_OPENING)
        return written + " " * self._text[start - 1].isspace(), _BESIDE.fullmatch(joining) is not None, lead

    def _leads_on(self, line: int) -> bool:
        """Return whether the text before a line may name what stands in the line."""
        if self._in_rows:
            return False
        return not self._by_line or self._text[max(0, line - REACH_BEFORE) : line].rstrip().endswith((":", "\uff1a"))

    def _lead(self, near: list[tuple[int, str]], start: int) -> int:
        """The place of the first word of a name: of the nearest in one clause, if that has any, and close by."""
        room = float(NAME_WORDS_MAX)
        lead = start
        for at, word in reversed(near):
            between = self._words[at + len(word) : lead]
            is_far = room <= 0 or start - at > NAME_CHARS_MAX
            if lead < start and (is_far or _PARTING.search(between) is not None):
                break
            lead = at
            room -= len(word) / _SPACELESS_CHARS_A_WORD if is_spaceless(word) else 1
        return self._denied_from(lead)

    def _denied_from(self, lead: int) -> int:
        """The place of the word that denies what begins at `lead`, or else `lead`: `not` of `do not restart`."""
        begin = max(0, lead - _DENIAL_CHARS)
        while 0 < begin < lead and not self._words[begin - 1].isspace():
            begin += 1
        for parting in _PARTING.finditer(self._words, begin, lead):
            begin = parting.end()
        at = lead
        for denial in section_of(Phrase.DENIES).finditer(self._words[begin:lead]):
            at = begin + denial.start()
        while begin < at < lead and not self._words[at - 1].isspace():
            at -= 1
        return at

    def _name_behind(self, end: int, closing: int) -> str:
        """The first telling words behind an identifier, up to one that labels another value."""
        telling = takewhile(
            lambda found: not self._text.startswith("=", found[0] + len(found[1])), self._telling(end, closing)
        )
        behind = [word for _, word in islice(telling, NAME_WORDS_MAX)]
        return " ".join(behind) + ": " if behind else ""

    def _rest_end(self, end: int, chars_max: int) -> int:
        """The end of what is read with a value: the end of its clause, if that is short, and further values that only
        commas set off: `5 mg` `la sera`, `Halle 3` `, Tor 12`."""
        closed = _CLAUSE.match(self._clauses, end)
        at = closed.end() if closed is not None and closed.end() - end <= chars_max else end
        for _ in range(_PARTS_MAX):
            part = _PART.match(self._clauses, at)
            if part is None:
                break
            at = part.end()
        return at

    def _tells(self, begin: int, end: int) -> bool:
        """Return whether a stretch has a telling word."""
        return next(self._telling(begin, end), None) is not None

    def _telling(self, begin: int, end: int) -> Iterator[tuple[int, str]]:
        """The words of a stretch that name something, with their places. One that is cut off at the stretch's begin is
        none, nor is one with a digit unless it is an identifier: it may be a part of one, or of a secret."""
        empty = _empty_words()
        for match in _WORD.finditer(self._words, begin, end):
            word = match[0]
            if is_spaceless(word):
                cut = word[-_SPACELESS_CHARS_MAX:] if begin < end else word
                yield match.end() - len(cut), cut
                continue
            is_cut = match.start() == begin and begin > 0 and not self._words[begin - 1].isspace()
            is_part = any(map(str.isdigit, word)) and self._named.get(match.start()) != match.end()
            if len(word) > 1 and not is_cut and not is_part and word.casefold() not in empty:
                yield match.start(), word

    def _turns_into(self, before: Identifier, found: Identifier) -> bool:
        """Return whether only an arrow stands between the two: `A -> B`."""
        end = before.end
        return found.start > end and _ARROW.fullmatch(self._text, end, found.start) is not None


def _is_supposed(sentence: str) -> bool:
    return is_question(sentence.strip()) or any(
        has_phrase(sentence, kind) for kind in (Phrase.SETS_CONDITION, Phrase.IMAGINES)
    )


def _given_up(sentence: str) -> Iterator[int]:
    """The places of what a sentence says holds no longer."""
    for match in section_of(Phrase.GIVES_UP).finditer(sentence):
        if match.lastindex:
            yield match.start(match.lastindex)


def _without_values(text: str, found: list[Identifier]) -> str:
    """The text with spaces in place of the values in it."""
    kept: list[str] = []
    at = 0
    for one in found:
        end = one.end
        if one.kind in _NEVER_NAMES and end > at:
            start = max(at, one.start)
            kept += (text[at:start], " " * (end - start))
            at = end
    kept.append(text[at:])
    return "".join(kept)


def _in_line(text: str) -> str:
    return " ".join(without_ends(text).split())


@cache
def _empty_words() -> frozenset[str]:
    return words_of(Words.GRAMMAR) | words_of(Words.TALK) | words_of(Words.SMALL_TALK)
