"""Text into sentences of any script, and sentences into bounded lines or words; linear in the text.

Code blocks, listings and bracketed lines hold no sentences, and a line that ends in a colon only announces one. A text
without punctuation is cut at white space, so every sentence is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from abridged.service.text.phrases import Words, words_of
from abridged.service.text.scripts import EAST, EAST_BEGINS, SOUTHEAST
from abridged.service.text.stops import CONTEXT_CHARS, GERMAN_MONTH, is_inside

Terms = frozenset[str]
"""The meaningful words of a sentence."""

CLIP_CHARS_MAX: Final = 300

_SENTENCE_CHARS_MAX: Final = 400
_SENTENCE_CHARS_MIN: Final = 8

_ELLIPSIS: Final = "\u2026"
_FENCE: Final = "```"

_SMALL: Final = "a-z\u00df-\u00f6\u00f8-\u00ff"
_WIDE_STOPS: Final = "\u3002\uff01\uff1f"
_BRACKETS_CLOSED: Final = "\uff09\u300b\u3009\u3011"
_QUOTES_CLOSED: Final = "\u300d\u300f\u201d\u2019"
_GOING_ON: Final = "\u3068\u3063\u306a\u306e\u3001\uff0c"
"""Particles and commas, after which a Japanese or Chinese sentence goes on past its quotation."""

_NAMED_WITH_STOP: Final = "[\u3092\u306e\uff0c\u3001]"
"""Characters after a name that itself ends in a stop."""

_END: Final = re.compile(
    rf"(?<=[.!?\u2026\u061f\u0964])(?:[\"'\u201d\u2019)\]\u00bb]|\s\u00bb){{0,3}}\s+(?=[^\s{_SMALL}\u00bb])(?![\u2014\u2013-]\s?[{_SMALL}])"
    rf"|(?<=[{_WIDE_STOPS}])(?![{_WIDE_STOPS}{_QUOTES_CLOSED}{_BRACKETS_CLOSED}]|{_NAMED_WITH_STOP})"
    rf"|(?<=\u3002[{_QUOTES_CLOSED}])(?![{_WIDE_STOPS}{_QUOTES_CLOSED}{_GOING_ON}])"
)
_LAST_END: Final = re.compile(
    r".*(?:[.!?\u2026\u061f\u0964][\"'\u201d\u2019)\]]{0,3}(?=\s|$)|[\u3002\uff01\uff1f])", re.DOTALL
)
_LIST_MARK: Final = re.compile(rf"^(?:[-*+\u2022>#|]{{1,6}}\s+|\d{{1,3}}[.)]\s+(?!{GERMAN_MONTH}))+")
_SPACES: Final = re.compile(r"\s+")
_SPEAKER: Final = re.compile(r"^(?:user|assistant|tool|system): ")
_LOOSE_STOP: Final = re.compile(r" (?=[.,](?:\s|$))")
"""Transcripts of speech separate stops like words."""

_SOUND: Final = re.compile(r"(?:^|(?<=\s))\{[a-z]{2,20}\}(?=[\s.,?!]|$)")
"""A transcriber's note such as `{laughs}`. A note at the end of a sentence means that the sentence broke off there."""

_BRACKETED: Final = re.compile(r"\((?=[^()]*[:/\\\d])[^()]*\)|\[[^\[\]]*\]|[\w./~-]{1,40}[$#%>]")
"""A whole line in brackets from a program or a transcriber: a place, a state, a shell prompt."""

_NUMBERED: Final = r"\d{1,6}:(?![\d ])|\S{1,200}\.\w{1,6}:\d{1,6}(?::\d{1,6})?: "
"""A line with its number, or with that of the line of a file that it is about."""

_LISTING: Final = re.compile(
    r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S* .{0,20}?\[?[A-Z]{4,8}\]?[: ]|[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \S+ \S+:"
    r"|\[?(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL)\]?[: ]"
    r"|(?=.{0,60}\d\d:\d\d:\d\d).{0,60}(?:\b(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL|WARNUNG|FEHLER"
    r"|AVISO|ERREUR)\b|\[\w{2,8}\])|(?:\S* )?\w+=\S+ \w+=\S"
    rf"|{_NUMBERED}|\d{{1,6}}: {{2,}}|\d{{1,6}}:$"
    r"|(?:from \S{1,80} )?import [\w.*, ]{1,80}$|(?:def|class) \w{1,80}[(:]|(?:return|raise|assert) \S{0,80}[(\[=]"
    r"|#(?:include|define) |File \"|Traceback \(|[\w.\[\]'\"]{1,80} ?[-+*/|&:]?= ?[^=]|[\w.]{1,80}\(.{0,300}\)[;:,]?$"
)
_NUMBERED_LINE: Final = re.compile(_NUMBERED)
_OUTPUT: Final = re.compile(r"\d{1,6}:(?: {2,}|$)|\S+ {4,}\S|/\*|\S+/$")
"""A line of code with its number, a row of columns, a comment of code, or a folder alone."""

_ENTRY: Final = re.compile(r"[a-z][\w.-]*: [^\s.?!]+", re.ASCII)
"""An entry of settings, `level: info`. A person's note of two words is taken for one, too."""

_PROSE_WORDS_MIN: Final = 3
"""Fewer words say nothing that a semicolon could end."""

_QUOTATION: Final = re.compile(
    r"[\"\u201c\u201e][^\"\u201c\u201d\u201e]{1,200}[\"\u201d\u201c]|\u00ab[^\u00ab\u00bb]{1,200}\u00bb|[\u300c\u300e][^\u300d\u300f]{1,200}[\u300d\u300f]"
)
_QUESTION_END: Final = re.compile(r"[?\uff1f\u061f][\"'\u201d\u2019)\]]{0,3}$")
_SYMBOLS: Final = re.compile(r"[][(){}=<>;|\\_*&^$#@+~\"'`/]")
_SYMBOLS_SHARE_MAX: Final = 0.2

_STATEMENT: Final = re.compile(r"[\w>)]\(|\w ?[-+*/|&:]?=|::|->")
"""A call, an assignment or a member: no wrapped line of prose, which may end in a semicolon, has one."""

_STOPPED: Final = re.compile(r"[.!?\u2026\u061f\u0964\u3002\uff01\uff1f][\"'\u201d\u2019)\]]{0,3}$")
_WRAPPED_CHARS_MIN: Final = 50
"""A shorter line was not wrapped."""

_UNSTOPPED_WORDS_MIN: Final = 5
_LABELLED: Final = re.compile(r"[^\s:][^:.!?]{0,40}:(?: |$)")
_LABELLED_WORDS_MIN: Final = 8

_CUT_OFF: Final = r"(?:[,;:(-]|\.\.|\u2026|[\u2013\u2014][.?!]?)[\"')\]]{0,2}$"

_TERM: Final = re.compile(r"[^\W\d_][^\W_]{1,40}")
_SPACELESS: Final = re.compile(f"[{SOUTHEAST}{EAST}]")


def sentences(text: str) -> Iterator[str]:
    """The sentences of `text` outside code, in order, each on one line and at most 400 characters long.

    Every piece of a longer sentence but the first opens with an ellipsis; a sentence that broke off ends with one.
    """
    for prose in text.split(_FENCE)[::2]:
        for line in _unwrapped(prose):
            yield from _of_line(line)


def parts_of(text: str) -> Iterator[str]:
    """The sentences of `text` in order as they are written, those of code and lists too; none is empty."""
    for line in text.splitlines():
        for start, end in spans_of(line):
            if part := line[start:end].strip():
                yield part


def without_quotations(sentence: str) -> str:
    """`sentence` without what it quotes, whose words say nothing of the person who quotes."""
    return _QUOTATION.sub(" ", sentence)


def is_question(sentence: str) -> bool:
    """Return whether `sentence` ends as a question."""
    return _QUESTION_END.search(sentence.rstrip()) is not None


def is_broken(sentence: str) -> bool:
    """Return whether `sentence` lacks its beginning or end; unknown, and so False, for scripts without spaces."""
    if _is_spaceless(sentence):
        return False
    return (
        len(sentence) > CLIP_CHARS_MAX
        or _leading().match(sentence) is not None
        or _broken_off().search(sentence) is not None
    )


def is_label(sentence: str) -> bool:
    """Return whether `sentence` looks like a label, heading or cell: few words and no stop."""
    if _STOPPED.search(sentence) or _is_spaceless(sentence):
        return False
    words_min = _LABELLED_WORDS_MIN if _LABELLED.match(sentence) else _UNSTOPPED_WORDS_MIN
    return sentence.count(" ") + 1 < words_min


def clipped(sentence: str, chars_max: int = CLIP_CHARS_MAX) -> str:
    """`sentence`, cut between words to `chars_max`; words and numbers are never divided.

    Empty if the first word is already longer.
    """
    if len(sentence) <= chars_max:
        return sentence
    end = _boundary(sentence, chars_max - 1)
    return sentence[:end].rstrip(" ,;:-(") + _ELLIPSIS if end else ""


def terms_of(sentence: str) -> Terms:
    """The meaningful words of `sentence`; for scripts without spaces, pairs of characters."""
    terms: set[str] = set()
    empty = _empty_words()
    for word in _TERM.findall(sentence.casefold()):
        if _SPACELESS.search(word):
            terms.update(word[i : i + 2] for i in range(len(word) - 1))
        elif word not in empty:
            terms.add(word)
    return frozenset(terms)


@cache
def _empty_words() -> frozenset[str]:
    return words_of(Words.GRAMMAR) | words_of(Words.SMALL_TALK)


def first_sentences(text: str, count: int) -> str:
    """`text` up to the end of its `count`-th sentence; unchanged where it has no more."""
    left = count
    for end in _END.finditer(text):
        if _is_inside(text, 0, end):
            continue
        left -= 1
        if not left:
            return text[: end.end()].rstrip()
    return text


def unrepeated(text: str, said: set[str]) -> Iterator[str]:
    """The sentences of `text`, with the white space after each, that are not in `said`, to which it adds them. The
    speaker of one, its case and its stop do not make it another.
    """
    start = 0
    ends = (
        end.end()
        for line in re.finditer(r"[^\n]*(?:\n|$)", text)
        for end in (*_END.finditer(text, line.start(), line.end()), line)
        if end is line or not _is_inside(text, line.start(), end)
    )
    for end in ends:
        sentence, start = text[start:end], end
        words = _SPACES.sub(" ", _SPEAKER.sub("", sentence.strip())).casefold().rstrip(".!?\u2026 ")
        if words and words not in said:
            said.add(words)
            yield sentence


def up_to_last_end(text: str) -> str:
    """`text` without the sentence that breaks off at its end; empty if no sentence ends in it."""
    found = _LAST_END.match(text)
    return found.group() if found else ""


def _unwrapped(prose: str) -> Iterator[str]:
    """The lines of prose, with wrapped lines joined."""
    held = ""
    for raw in prose.splitlines():
        bare = raw.strip()
        line = _LIST_MARK.sub("", bare)
        is_wrapped = _WRAPPED_CHARS_MIN <= len(held) <= _SENTENCE_CHARS_MAX and not _STOPPED.search(held)
        if is_wrapped and line == bare and _continues(held, line):
            held = f"{held} {line}"
            continue
        if held:
            yield held
        held = "" if _is_code(line) or _BRACKETED.fullmatch(line) else line
    if held:
        yield held


def _continues(held: str, line: str) -> bool:
    """Return whether a wrapped line goes on: in lower case, after a word that ends no sentence, or in a clause of
    capitals. A statement of a program continues no prose."""
    if _is_code(line) and _STATEMENT.search(line):
        return False
    return line[:1].islower() or _broken_off().search(held) is not None or (held.isupper() and line.isupper())


@cache
def _leading() -> re.Pattern[str]:
    """The opening of the rest of a sentence."""
    return re.compile(rf"\u2026|(?:{'|'.join(sorted(words_of(Words.LEADING)))})\b")


@cache
def _broken_off() -> re.Pattern[str]:
    """The end of a sentence that breaks off."""
    return re.compile(rf"{_CUT_OFF}|\b(?:{'|'.join(sorted(words_of(Words.UNFINISHED)))})$", re.IGNORECASE)


def _is_code(line: str) -> bool:
    """Return whether a line is source code, part of a listing, or of a stack trace."""
    if _LISTING.match(line) or line.endswith(("{", "}", ";")):
        return True
    return not line.endswith((".", "?", "!")) and len(_SYMBOLS.findall(line)) > _SYMBOLS_SHARE_MAX * len(line)


def is_of_program(sentence: str) -> bool:
    """Return whether a sentence is a statement of a program, an entry of its settings, a line of a numbered listing, or
    a compiler's message: a person's list may end its items in semicolons, too."""
    if _NUMBERED_LINE.match(sentence) or _OUTPUT.match(sentence) or _ENTRY.fullmatch(sentence):
        return True
    is_alone = sentence.isascii() and len(sentence.split()) < _PROSE_WORDS_MIN
    return sentence.endswith(("{", "}", ";")) and (is_alone or _STATEMENT.search(sentence) is not None)


def _of_line(line: str) -> Iterator[str]:
    for start, end in spans_of(line):
        yield from _bounded(line[start:end])


def spans_of(line: str) -> Iterator[tuple[int, int]]:
    """The start and the end of each sentence of a line."""
    start = 0
    for end in _END.finditer(line):
        if not _is_inside(line, start, end):
            yield start, end.start()
            start = end.end()
    yield start, len(line)


def _is_inside(text: str, begin: int, end: re.Match[str]) -> bool:
    """Return whether the sentence that begins at `begin` goes on after the stop before `end`."""
    before = text[max(begin, end.start() - CONTEXT_CHARS) : end.start()]
    return is_inside(before, text[end.end() : end.end() + CONTEXT_CHARS])


def _bounded(sentence: str) -> Iterator[str]:
    rest = _SPACES.sub(" ", sentence.replace("**", "")).strip()
    if rest.endswith(":"):
        return
    rest = _LOOSE_STOP.sub("", _without_sounds(rest) if "{" in rest else rest)
    opening, start = "", 0
    # By place: to cut off what is read would copy the rest each time.
    while len(opening) + len(rest) - start > _SENTENCE_CHARS_MAX:
        piece = rest[start : start + _SENTENCE_CHARS_MAX]
        end = _boundary(piece, _SENTENCE_CHARS_MAX - 1)
        if end:
            yield opening + piece[:end].rstrip()
            start += end
        else:
            # No sentence has such a word, and half of it would be an invented identifier.
            end = rest.find(" ", start)
            start = end if end >= 0 else len(rest)
        start += rest.startswith(" ", start)
        opening = _ELLIPSIS
    rest = opening + rest[start:] if start < len(rest) else ""
    if len(rest) >= _SENTENCE_CHARS_MIN or (rest and not rest.isascii()):
        yield rest


def _without_sounds(sentence: str) -> str:
    """The words without transcribers' notes; a sentence that ends in one broke off."""
    words = _SPACES.sub(" ", _SOUND.sub("", sentence)).strip()
    return words + _ELLIPSIS if words and sentence.endswith("}") and _SOUND.search(sentence) else words


def _boundary(text: str, end: int) -> int:
    """The last place up to `end` that divides no word: a space, or between characters of a script without spaces."""
    space = text.rfind(" ", 0, end + 1)
    for place in range(end, max(space, 0), -1):
        if not (_is_wordlike(text[place - 1]) and _is_wordlike(text[place])):
            return place
    return max(space, 0)


def _is_spaceless(sentence: str) -> bool:
    """Return whether a sentence has characters of a script without spaces."""
    return not sentence.isascii() and any(not _is_wordlike(character) and character != " " for character in sentence)


def _is_wordlike(character: str) -> bool:
    """Return whether the character may belong to a word, number or identifier that spaces delimit."""
    return not character.isspace() and character < EAST_BEGINS
