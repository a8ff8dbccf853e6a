"""Places of the secrets that sentences and tables tell: values beside a word for a password, a key or a PIN.

A sentence that names a secret makes one of every token in it that looks like one, letters mixed with digits or signs,
and the next sentence too if it answers or goes on. A token is left alone if another word names it (`order`, `commit`),
if a preposition makes it a thing (`the password for prod-7`), or if it has the form of a fact (dates, versions, paths,
plain names, numbers). A value that is said to be the secret (`the PIN is 4417`) needs fewer signs of one: a number of
four digits is enough, of three if it is the check number of a card, and so are four words with hyphens. A column of a
table whose head names a secret has them in its cells. The work is linear in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

from abridged.service.text.phrases import Phrase, Words, section_of, words_of
from abridged.service.text.sentences import is_question, spans_of
from abridged.service.text.words import straight

REACH: Final = 240
"""Characters between a name and a token within which it may be the secret."""

_JOINED_REACH: Final = 80
"""Characters between a name and what is said to be its value."""

_CHARS_MIN: Final = 6
_CHARS_MAX: Final = 500
_JOINED_CHARS_MIN: Final = 5
_DIGITS_MIN: Final = 4
_CHECK_DIGITS: Final = 3
_DIGITS_MAX: Final = 19

_WIDE: Final = "\u0e00-\u0eff\u2e80-\uffff"
_TOKEN: Final = re.compile(
    r"[0-9]{3} [0-9]{3}(?![A-Za-z0-9_-])"
    rf"|[^\s\"'`<>{{}}()\[\]|,;\x1f\u00ab\u00bb\u2018-\u201f\u2026{_WIDE}]+"
)
_EDGES: Final = frozenset(".:!?*_~=-")
_KEY: Final = re.compile(r"(?P<key>[\w.-]{1,40})(?P<sign>[:=])(?=[^/:=])")
_LETTER: Final = re.compile(r"[^\W\d_]")
_DIGIT: Final = re.compile(r"[0-9]")
_SIGN: Final = re.compile(r"\w[!#$%^*~@?&+]+\w")
_ENDING: Final = re.compile(r"[^\W\d\u0e00-\uffff]{1,12}")
_WORD: Final = re.compile(r"[\w'\u2019-]+")
_NUMBER: Final = re.compile(rf"[0-9]{{{_CHECK_DIGITS},{_DIGITS_MAX}}}#?|[0-9]{{3}}[ -][0-9]{{3}}")
_TICKET: Final = re.compile(r"[A-Z]{2,6}(?:-[0-9]{2,8}){1,3}")
_PASSPHRASE: Final = re.compile(r"[a-z]{3,20}(?:-[a-z]{3,20}){3,9}", re.IGNORECASE)
"""Words that are a passphrase if they are said to be the secret. Fewer, as in `case-sensitive`, may describe it."""

_AFTER_NUMBER: Final = re.compile(
    r"[\"'`)*\]]{0,3}\s{0,3}(?:$|[.,;!?|)\n\u2013\u2014\u3001\u3002\uff0c]|(?:for|and|or|und|et|y|e|en|i)\b"
    r"|\u3067\u3059|\uc785\ub2c8\ub2e4|\uc774|\u306b|\u4e86|\u548c|\u5427)"
)

_FACT: Final = re.compile(
    r"[A-Za-z][\w+.-]*://.*|www\..*"
    r"|[\w.+-]+@(?:[\w-]+\.)+[A-Za-z]{2,}|[a-z._-]+@[a-z]+(?:-[a-z]+){0,3}-?[0-9]{0,3}|[\w.+-]+@[0-9.]+"
    r"|(?:[\w-]+\.)+(?:[a-z]{2,4}|local|internal|localhost)(?::[0-9]+)?(?:/.*)?"
    r"|[~.]{0,2}/.*|[A-Za-z]:\\.*|[^/]+/[^/]*/.*|.*\.[a-z]{1,4}(?::[0-9]+)*"
    r"|[0-9]{1,4}([-./])[0-9]{1,2}\1[0-9]{1,4}(?:T.*)?|[0-9]{1,2}:[0-9]{2}.*"
    r"|[vV]?[0-9]+(?:\.[0-9]+)+(?:[-+.]?(?:a|b|rc|alpha|beta|dev|pre|post|final|snapshot|hotfix)[\w.+-]*)?(?::[0-9]+)?"
    r"|[vV][0-9][\w.+-]*"
    r"|[$\u20ac\u00a3\u00a5][0-9.]+[kKmM]?|[0-9]{1,3}-?[a-z]+(?:-[a-z]+)*|[0-9.]+%"
    r"|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|[A-Za-z][\w.-]*[=~<>!]=[0-9].*",
    re.DOTALL | re.ASCII,
)
"""Forms that are no secrets even where a sentence says so: addresses, paths, dates, times, versions, amounts, names of
variables, and words with a count, such as `12-character`."""

_YEAR: Final = r"(?:19|20)[0-9]{2}"
_PLAIN_PART: Final = rf"(?:[^\W\d_]+(?:[0-9]{{1,3}}[a-z]{{0,3}}|{_YEAR})?|[0-9]{{1,3}}[^\W\d_]*|{_YEAR})"
_PLAIN: Final = re.compile(
    rf"{_PLAIN_PART}(?:[-_./:+&]{_PLAIN_PART})*"
    r"|[A-Z]{1,6}[0-9]+[A-Z]?|[A-Z0-9]+(?:[-#][A-Z0-9]+)+"
    r"|[a-z]+(?:_[a-z0-9]+)+|(?:[A-Z]{1,6}|[a-z]+)#[0-9]+|#[A-Z0-9]+"
    r"|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
    r"|(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{7,12}"
    r"|[0-9][0-9.,:/+-]*"
)
"""Forms of names that stand beside words for secrets: `prod-7`, `SHA-256`, `PCI-2024-118`, `mia_li_3668`, a UUID, a
commit's hash."""

_LABEL_SPACE: Final = " \t\"'`(#\u201c\u201e\u00ab\x1f="
_COPULA_MARK: Final = re.compile(
    r"(?:[:=|\t\uff1a]|->|=>|\u2192|[\u306f\u3092\u662f\u4e3a\u70ba\u6210\u4e86\ub294\uc740]|\u0e04\u0e37\u0e2d)"
    r"[\s\"'`(*|\u201c\u201e\u00ab\u2018\u300c]{0,8}"
)
_OPENERS: Final = " \t\"'`(*\u201c\u201e\u00ab\u2018\u300c"
_CLAUSE_END: Final = re.compile(r"[;!?\n]|\.\s")

_CELLS: Final = ("|", "\t", ";", ",")
_CELL_WORDS_MAX: Final = 3
_CELL_CHARS_MAX: Final = 30


class _Named(NamedTuple):
    """Sentences that belong together, the places of the names of secrets in them, and the fewest digits of a secret."""

    spans: Sequence[tuple[int, int]]
    names: Sequence[tuple[int, int]]
    digits_min: int


class _Head(NamedTuple):
    """The head of a table: the sign between its cells, how often it stands in a row, and the columns of secrets."""

    sign: str
    signs: int
    columns: Sequence[int]


_REPLY_CHARS_MAX: Final = 60
_REPLY_WORDS_MAX: Final = 4
"""A longer reply says more than a secret: what it tells is known by its own words alone."""

_ASKING_CHARS: Final = 400
_ASKING_SENTENCES: Final = 3
"""The end of a message, which the next one answers."""

_PIN_LAST: Final = re.compile(r"(?<!which )(?<!welche[rn] )\bpin\W{0,3}$", re.IGNORECASE)

_NO_HEAD: Final = _Head("", 0, ())


def told_secrets(text: str) -> list[tuple[int, int]]:
    """The start and the end of each secret, in order; none overlaps another."""
    names = section_of(Phrase.NAMES_SECRET).spans(text)
    if not names:
        return []
    found: set[tuple[int, int]] = set()
    for named in _named(text, names):
        for start, end in named.spans:
            found.update(_in_span(text, start, end, named))
    found.update(_in_tables(text, names))
    kept: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if not kept or start >= kept[-1][1]:
            kept.append((start, end))
    return kept


def may_tell_alone(reply: str) -> bool:
    """Return whether a message is short enough to be an answer alone, and has what may be a secret."""
    return (
        len(reply) <= _REPLY_CHARS_MAX
        and len(reply.split()) <= _REPLY_WORDS_MAX
        and any(_may_be(token, _CHECK_DIGITS) for token in _TOKEN.findall(reply))
    )


def told_in_reply(request: str, reply: str) -> list[tuple[int, int]]:
    """The start and the end of each secret in a short message that follows one which asks for it, in order."""
    if not may_tell_alone(reply):
        return []
    asked = next((one for one in reversed(_last_sentences(request)) if _asks(one)), "")
    if not _names_wanted(asked):
        return []
    digits_min = _digits_min(asked)
    others = {word.casefold() for word in _WORD.findall(reply)} - words_of(Words.GRAMMAR) - words_of(Words.SMALL_TALK)
    found: list[tuple[int, int]] = []
    for match in _TOKEN.finditer(reply):
        # Another word makes a number its own, as in `March 2023`, and no secret has the form of a ticket.
        is_number = match[0].isdecimal() and not section_of(Phrase.NAMES_SECRET).is_in(reply)
        is_other = is_number and any(match[0] not in word for word in others)
        # As if the name stood before each token: nothing else does in so few words.
        if not (is_other or _TICKET.fullmatch(match[0]) or _is_labelled(reply[: match.start()])):
            before = (match.start(), match.start())
            secret = _secret_in(reply, match, match.start(), before, None, digits_min)
            found += [secret] if secret is not None else []
    return found


def _last_sentences(text: str) -> list[str]:
    lines = text[-_ASKING_CHARS:].splitlines()
    sentences = [line[start:end].strip() for line in lines for start, end in spans_of(line)]
    return [sentence for sentence in sentences if sentence][-_ASKING_SENTENCES:]


def _asks(sentence: str) -> bool:
    """Return whether a sentence is a question, or asks for the secret that it names."""
    if is_question(sentence) or sentence.endswith((":", "\uff1a")):
        return True
    return section_of(Phrase.ASKS_FOR_SECRET).is_in(straight(sentence)) and _names_wanted(sentence)


def _names_wanted(sentence: str) -> bool:
    """Return whether a question or a request is for the secret that it names, and not for another thing before it:
    `Which server has ...`, `What is the ticket for ...`."""
    name = section_of(Phrase.NAMES_SECRET).search(sentence) or _PIN_LAST.search(sentence)
    if name is None:
        return False
    return words_of(Words.LABELS).isdisjoint(word.casefold() for word in _WORD.findall(sentence[: name.start()]))


def _named(text: str, names: Sequence[tuple[int, int]]) -> Iterator[_Named]:
    """The sentences that name a secret, each with what goes on from it: after a colon or a question the next one."""
    starts = [start for start, _ in names]
    spans = _spans(text, names)
    for at, (start, end) in enumerate(spans):
        own = names[bisect_left(starts, start) : bisect_left(starts, end)]
        if not own:
            continue
        digits_min = _digits_min(text[start:end])
        sentence = text[max(start, end - REACH) : end].rstrip()
        after = spans[at + 1] if at + 1 < len(spans) else None
        if after is None or not _goes_on(sentence, text[after[0] : after[1]][:REACH]):
            yield _Named([(start, end)], [*own], digits_min)
        else:
            # Its own place is where the answer begins, as if the name stood before it.
            yield _Named([(start, end), after], [*own, (after[0], after[0])], digits_min)


def _digits_min(sentence: str) -> int:
    """The fewest digits of a number that is a secret in a sentence: the check number of a card has three."""
    return _CHECK_DIGITS if section_of(Phrase.NAMES_CHECK_NUMBER).is_in(sentence) else _DIGITS_MIN


def _spans(text: str, names: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The sentences of the lines that name a secret, and of the next line that is not empty."""
    spans: list[tuple[int, int]] = []
    at = 0
    is_after = False
    position = 0
    for line in text.splitlines(keepends=True):
        end = position + len(line)
        has_name = at < len(names) and names[at][0] < end
        while at < len(names) and names[at][0] < end:
            at += 1
        if (has_name or is_after) and line.strip():
            spans += ((position + start, position + stop) for start, stop in spans_of(line))
            is_after = has_name
        position = end
    return spans


_WRAPPED_SPACES_MIN: Final = 3
"""A line of fewer words was not wrapped."""


def _goes_on(sentence: str, after: str) -> bool:
    """Return whether the sentence after one that names a secret may tell it."""
    if is_question(sentence) or sentence.endswith((":", "\uff1a", "=", "=>", "->")):
        return True
    if after[:1].islower() and sentence[-1:].isalnum() and sentence.count(" ") >= _WRAPPED_SPACES_MIN:
        return True
    words = _WORD.findall(straight(after[:40].casefold()))
    return any(word in words_of(Words.FOLLOW_UPS) for word in words[:2])


def _in_span(text: str, start: int, end: int, named: _Named) -> Iterator[tuple[int, int]]:
    names = named.names
    starts = [name[0] for name in names]
    for match in _TOKEN.finditer(text, start, end):
        near = bisect_right(starts, match.start()) - 1
        before = names[near] if near >= 0 else None
        after = names[near + 1] if near + 1 < len(names) else None
        if (before is None or match.start() - before[1] > REACH) and (after is None or after[0] - match.end() > REACH):
            continue
        secret = _secret_in(text, match, start, before, after, named.digits_min)
        if secret is not None:
            yield secret


def _secret_in(
    text: str,
    match: re.Match[str],
    begin: int,
    before: tuple[int, int] | None,
    after: tuple[int, int] | None,
    digits_min: int,
) -> tuple[int, int] | None:
    """The part of a token that is a secret by the name before it, or by that after it."""
    start, end = _core(text, *match.span())
    if not _may_be(text[start:end], digits_min) or _FACT.fullmatch(text, start, end):
        return None
    key = _KEY.match(text, start, end)
    if key is not None:
        start, end = _core(text, key.end(), end)
        if not _may_be(text[start:end], digits_min) or _FACT.fullmatch(text, start, end):
            return None
        if section_of(Phrase.NAMES_SECRET).is_in(key[0]):
            return start, end
        if key["sign"] == "=" or _is_label(key["key"]):
            return None
    lead = text[max(begin, before[1] if before is not None else 0, start - _JOINED_REACH) : match.start()]
    if _is_labelled(lead):
        return None
    if key is None and _is_joined(text, start, end, before, after):
        return start, end
    if not _is_mixed(text[start:end]) or _PLAIN.fullmatch(text, start, end) or _is_thing(lead):
        return None
    return start, end


def _core(text: str, start: int, end: int) -> tuple[int, int]:
    """The place of a token without the marks around it."""
    while start < end and text[start] in _EDGES:
        start += 1
    while start < end and text[end - 1] in _EDGES:
        end -= 1
    return start, end


def _may_be(core: str, digits_min: int = _DIGITS_MIN) -> bool:
    if len(core) < _DIGITS_MIN:
        return len(core) >= digits_min and core.isdigit()
    return len(core) <= _CHARS_MAX and (
        any(sign.search(core) is not None for sign in (_DIGIT, _SIGN)) or _PASSPHRASE.fullmatch(core) is not None
    )


def _is_mixed(core: str) -> bool:
    return len(core) >= _CHARS_MIN and _LETTER.search(core) is not None


def _is_label(word: str) -> bool:
    return word.casefold().strip("._-") in words_of(Words.LABELS)


def _is_labelled(lead: str) -> bool:
    """Return whether other words name what stands behind them: `order`, `user id is`."""
    bare = lead.rstrip(_LABEL_SPACE)
    wide = bare.rstrip("\u306f\u662f\u4e3a\ub294\uc740:\uff1a ")
    if wide.endswith(_wide_labels()):
        return True
    words = _WORD.findall(bare[-40:])
    if not words or not bare[-1:].isalnum():
        return bool(words) and bare[-1:] in ":." and words[-1].casefold() in words_of(Words.NUMBERS)
    last = words[-1].casefold()
    if last in words_of(Words.LABELS):
        return True
    return len(words) > 1 and last in words_of(Words.COPULAS) and words[-2].casefold() in words_of(Words.NUMBERS)


@cache
def _wide_labels() -> tuple[str, ...]:
    return tuple(word for word in words_of(Words.LABELS) if word[0] >= "\u2e80")


def _is_thing(lead: str) -> bool:
    """Return whether a preposition makes a thing of what stands behind it, or a label with a colon names it."""
    bare = lead.rstrip(_OPENERS)
    words = _WORD.findall(bare[-40:])
    if not words:
        return False
    if bare.endswith(":"):
        return _is_label(words[-1])
    return bare[-1:].isalpha() and words[-1].casefold() in words_of(Words.RELATIONS)


def _is_joined(text: str, start: int, end: int, before: tuple[int, int] | None, after: tuple[int, int] | None) -> bool:
    """Return whether the text says that a token is the secret."""
    core = text[start:end]
    if _LETTER.search(core) is None and _SIGN.search(core) is None:
        if _NUMBER.fullmatch(core) is None or _AFTER_NUMBER.match(text, end) is None:
            return False
    elif len(core) < _JOINED_CHARS_MIN:
        return False
    if before is not None and before[1] <= start <= before[1] + _JOINED_REACH and _is_said(text, before, start):
        return True
    return after is not None and 0 <= after[0] - end <= _JOINED_REACH and _is_told_before(text, end, after)


def _says_another_thing(between: str) -> bool:
    """Return whether a clause about the name ends there: `the password is unchanged and the batch cap is`."""
    *clauses, _ = _joined_clauses().split(between)
    return any(word.casefold() in words_of(Words.COPULAS) for clause in clauses for word in _WORD.findall(clause))


@cache
def _joined_clauses() -> re.Pattern[str]:
    return re.compile(rf"[,;]\s|{section_of(Phrase.JOINS).pattern}")


def _is_said(text: str, name: tuple[int, int], start: int) -> bool:
    """Return whether the words between a name and a value join them."""
    # The name may go on: `passwords`, `Passworts`.
    ending = _ENDING.match(text, name[1]) if name[0] < name[1] else None
    between = text[ending.end() if ending is not None else name[1] : start]
    if _CLAUSE_END.search(between.strip()) is not None or _says_another_thing(between):
        return False
    words = [straight(word.casefold()) for word in _WORD.findall(between)]
    is_marked = _ends_in_mark(between)
    if not words:
        return is_marked or not between.strip(_OPENERS)
    if words[0] not in words_of(Words.LINKS) and words[0] not in words_of(Words.COPULAS) and words[0] < "\u0e00":
        return False
    if is_marked:
        return True
    if words[-1] not in words_of(Words.COPULAS):
        return False
    if words[-1] not in _ARRIVING or words[0] == "do" or len(words) == 1:
        return True
    lead = text[max(0, name[0] - _JOINED_REACH) : name[0]]
    return section_of(Phrase.CHANGES).is_in(f"{lead} {between}")


_ARRIVING: Final = frozenset({"to", "auf", "na", "naar", "para", "\u043d\u0430"})
"""Words before a new value, if something is said to change, and before a place otherwise. In Polish `to` is `is`:
`has\u0142o do wifi to`."""


def _ends_in_mark(between: str) -> bool:
    return any(found.end() == len(between) for found in _COPULA_MARK.finditer(between))


def _is_told_before(text: str, end: int, name: tuple[int, int]) -> bool:
    """Return whether words between a value and a name join them: `... is the password`, `... als Passwort`."""
    between = text[end : name[0]]
    words = [word.casefold() for word in _WORD.findall(between)]
    if not words or words[0] not in _TELLING or len(words) > _TELLING_WORDS_MAX or _BROKEN.search(between) is not None:
        return False
    behind = _BEHIND.match(text, name[1])
    # `is the password manager` tells of something else.
    return behind is None or behind[1].casefold() in words_of(Words.LINKS) | words_of(Words.RELATIONS)


_TELLING_WORDS_MAX: Final = 5
_BROKEN: Final = re.compile(r"[,;!?\n]|\.\s")
_BEHIND: Final = re.compile(r"\w{0,20}[ \t]{1,3}([\w'-]{1,40})")
_TELLING: Final = frozenset(
    (
        "is",
        "as",
        "ist",
        "als",
        "est",
        "comme",
        "es",
        "como",
        "\u00e8",
        "come",
        "\u00e9",
        "to",
        "jako",
        "\u044d\u0442\u043e",
        "\u043a\u0430\u043a",
    )
)


def _in_tables(text: str, names: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The cells that could be secrets, in columns whose head names one."""
    head = _NO_HEAD
    at = position = 0
    before = ""
    for line in text.splitlines(keepends=True):
        end = position + len(line)
        first = at
        while at < len(names) and names[at][0] < end:
            at += 1
        if head.columns and line.count(head.sign) == head.signs:
            cells = list(_cells(line, head.sign))
            places = (cells[column] for column in head.columns)
            yield from filter(None, (_in_cell(text, position + start, position + stop) for start, stop in places))
        else:
            head = _head(line, before) if first < at else _NO_HEAD
        before, position = line, end


def _head(line: str, before: str) -> _Head:
    """The head of a table that a line is: of short cells, below no line with as many, and one that names a secret."""
    for sign in _CELLS:
        count = line.count(sign)
        if count and before.count(sign) != count:
            cells = [line[start:end] for start, end in _cells(line, sign)]
            columns = [column for column, cell in enumerate(cells) if _is_name(cell)]
            if columns and all(len(cell.split()) <= _CELL_WORDS_MAX for cell in cells):
                return _Head(sign, count, columns)
    return _NO_HEAD


def _cells(line: str, sign: str) -> Iterator[tuple[int, int]]:
    at = 0
    line = line.rstrip("\r\n")
    while True:
        end = line.find(sign, at)
        if end < 0:
            yield at, len(line)
            return
        yield at, end
        at = end + 1


def _is_name(cell: str) -> bool:
    """Return whether a head is the name of a secret, and not of something about one: its last word names it."""
    cell = cell.strip().strip("*\"'`:").strip()
    if not cell or len(cell) > _CELL_CHARS_MAX:
        return False
    spans = section_of(Phrase.NAMES_SECRET).spans(cell)
    return any(len(cell) - end <= 2 for _, end in spans)


def _in_cell(text: str, start: int, end: int) -> tuple[int, int] | None:
    cell = text[start:end]
    core = cell.strip(" \t\"'`*")
    is_long = len(core) >= _JOINED_CHARS_MIN or core.isdigit()
    if " " in core or not is_long or not _may_be(core) or _FACT.fullmatch(core) is not None:
        return None
    begin = start + cell.index(core)
    return begin, begin + len(core)
