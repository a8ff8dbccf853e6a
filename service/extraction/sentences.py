"""Text into sentences of any script, and sentences into bounded lines or words; linear in the text.

Code blocks, listings and bracketed lines hold no sentences, and a line that ends in a colon only announces one. A text
without punctuation is cut at white space, so every sentence is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = [
    "CLIP_CHARS_MAX",
    "Terms",
    "clipped",
    "first_sentences",
    "is_broken",
    "is_label",
    "sentences",
    "terms_of",
    "unrepeated",
    "up_to_last_end",
]

Terms = frozenset[str]
"""The meaningful words of a sentence."""

CLIP_CHARS_MAX: Final = 300

_SENTENCE_CHARS_MAX: Final = 400
_SENTENCE_CHARS_MIN: Final = 8

_ELLIPSIS: Final = "\u2026"
_FENCE: Final = "```"

_END: Final = re.compile(
    r"(?<=[.!?\u2026\u061f\u0964])[\"'\u201d\u2019)\]]{0,3}\s+(?=[^\sa-z])"
    r"|(?<=[\u3002\uff01\uff1f])(?![\u300d\u300f\u201d\u2019\uff09])"
    r"|(?<=[\u3002\uff01\uff1f][\u300d\u300f\u201d\u2019\uff09])(?![\u3068\u3063\u3001\u3002\uff0c\u300d\u300f])"
)
_LAST_END: Final = re.compile(
    r".*(?:[.!?\u2026\u061f\u0964][\"'\u201d\u2019)\]]{0,3}(?=\s|$)|[\u3002\uff01\uff1f])", re.DOTALL
)
_ABBREVIATED: Final = re.compile(
    r"(?:^|[\s(])(?:[A-Z]|[Mm]rs?|[Mm]s|[Dd]r|[Pp]rof|[Ss]t|[Nn]o|[Vv]s|e\.g|i\.e|etc|approx|[Ff]ig|[Vv]ol|Jr|Inc|Ltd"
    r"|[dosuz]|u\. a|\u00d6|[Nn]r|[Bb]zw|ca|[Vv]gl|inkl|evtl|ggf|sog|Abs|Art|Hr|Fr|Str|Sra?|Dra"
    r"|[Nn]\u00fam|aprox|env|Mme)\.$"
)
_ORDINAL: Final = re.compile(
    r"(?:^|[\s(])(?:a[mb]|im|zu[mr]|vom|beim|bis|seit|de[rmns]|die|das|diese[rmns]?|jede[rmns]?|(?:ihr|sein|uns|euer|mein|dein)"
    r"e?[rmns]?|e?in(?:e[rmns]?)?|und|oder|nach|vor)\s+\d{1,3}\.$",
    re.IGNORECASE,
)
"""A number that an article or a preposition of German makes an ordinal: a stop after it ends no sentence."""

_DATED: Final = re.compile(r"(?:^|[\s(])\d{1,2}\.$")
_MONTH: Final = re.compile(
    r"(?:Jan|Feb|M\u00e4r|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)[a-z]{0,6}\b|\d{1,2}\.(?:\s|$)|(?:19|20)\d\d\b"
)
_OPENING: Final = re.compile(
    r"(?:danach|dann|wir|ich|es|er|sie|ihr|man|das|die|der|den|dem|aber|und|bitte|leider|deshalb|da|so|wenn|in|an|auf|f\u00fcr)\b",
    re.IGNORECASE,
)
"""A word that opens a sentence, and is none that an ordinal counts."""

_LIST_MARK: Final = re.compile(r"^(?:[-*+\u2022>#|]{1,6}\s+|\d{1,3}[.)]\s+)+")
_SPACES: Final = re.compile(r"\s+")
_SPEAKER: Final = re.compile(r"^(?:user|assistant|tool|system): ")
_LOOSE_STOP: Final = re.compile(r" (?=[.,](?:\s|$))")
"""Transcripts of speech separate stops like words."""

_SOUND: Final = re.compile(r"(?:^|(?<=\s))\{[a-z]{2,20}\}(?=[\s.,?!]|$)")
"""A transcriber's note such as `{laughs}`. At the end of a sentence, it means that the sentence broke off there."""

_BRACKETED: Final = re.compile(r"\((?=[^()]*[:/\\\d])[^()]*\)|\[[^\[\]]*\]|[\w./~-]{1,40}[$#%>]")
"""A whole line in brackets from a program or a transcriber: a place, a state, a shell prompt."""

_LISTING: Final = re.compile(
    r"\d{1,6}:(?![\d ])|\d{1,6}: {2,}|\d{1,6}:$"
    r"|(?:from \S{1,80} )?import [\w.*, ]{1,80}$|(?:def|class) \w{1,80}[(:]|(?:return|raise|assert) \S{0,80}[(\[=]"
    r"|#(?:include|define) |File \"|Traceback \(|[\w.\[\]'\"]{1,80} ?[-+*/|&:]?= ?[^=]|[\w.]{1,80}\(.{0,300}\)[;:,]?$"
)
_SYMBOLS: Final = re.compile(r"[][(){}=<>;|\\_*&^$#@+~\"'`/]")
_SYMBOLS_SHARE_MAX: Final = 0.2

_STOPPED: Final = re.compile(r"[.!?\u2026\u061f\u0964\u3002\uff01\uff1f][\"'\u201d\u2019)\]]{0,3}$")
_WRAPPED_CHARS_MIN: Final = 50
"""A shorter line was not wrapped."""

_UNSTOPPED_WORDS_MIN: Final = 5
_LABELLED: Final = re.compile(r"[^\s:][^:.!?]{0,40}:(?: |$)")
_LABELLED_WORDS_MIN: Final = 8

_BROKEN_OFF: Final = re.compile(
    r"(?:[,;:(-]|\.\.|\u2026|[\u2013\u2014][.?!]?)[\"')\]]{0,2}$|\b(?:a|an|and|as|at|because|but|by|for|from|if|in|into"
    r"|is|my|of|on|or|our|so|than|that|the|their|to|was|which|with|your|between|without|every)$",
    re.IGNORECASE,
)
_LEADING: Final = re.compile(r"\u2026|(?:and|as|because|but|for|of|or|so|than|that|to|which|with)\b")
"""How the rest of a sentence opens."""

_TERM: Final = re.compile(r"[^\W\d_][^\W_]{1,40}")
_SPACELESS: Final = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff]")

_STOPWORD_LINES: Final = """
about after again all also am an and any are as at be because been before being but by can could did do does doing
don down each even every few for from get go going good got had has have he her here hers him his how if in into is
it its just know let like ll made make many may me mean might mine more most much must my need no nor not now of off
ok okay on once one only or other our out over own please quite re really right said same say see she should sir so
some still such sure take than thank thanks that the their them then there these they thing things think this those
through to too under until up us ve very want was way we well were what when where which while who why will with
would yeah yes yet you your hello hi
der die das und ist nicht ich wir sie ein eine mit auf für von zu den dem es auch wie aber
le la les un une des et est pas je nous vous il elle que qui dans pour sur avec mais ce au aux du
el los las una es no que con por para pero yo nosotros se su al lo
не на что мы он она они это как но по за из от же бы
"""
_STOPWORDS: Final = frozenset(_STOPWORD_LINES.split())


def sentences(text: str) -> Iterator[str]:
    """The sentences of `text` outside code, in order, each on one line and at most 400 characters long.

    Every piece of a longer sentence but the first opens with an ellipsis; a sentence that broke off ends with one.
    """
    for prose in text.split(_FENCE)[::2]:
        for line in _unwrapped(prose):
            yield from _of_line(line)


def is_broken(sentence: str) -> bool:
    """Whether `sentence` lacks its beginning or end; unknown, and so False, for scripts without spaces."""
    if _is_spaceless(sentence):
        return False
    return (
        len(sentence) > CLIP_CHARS_MAX
        or _LEADING.match(sentence) is not None
        or _BROKEN_OFF.search(sentence) is not None
    )


def is_label(sentence: str) -> bool:
    """Whether `sentence` looks like a label, heading or cell: few words and no stop."""
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
    for word in _TERM.findall(sentence.casefold()):
        if _SPACELESS.search(word):
            terms.update(word[i : i + 2] for i in range(len(word) - 1))
        elif word not in _STOPWORDS:
            terms.add(word)
    return frozenset(terms)


def first_sentences(text: str, count: int) -> str:
    """`text` up to the end of its `count`-th sentence; unchanged where it has no more."""
    left = count
    for end in _END.finditer(text):
        if _goes_on(
            text[max(0, end.start() - _BEFORE_CHARS) : end.start()], text[end.end() : end.end() + _BEFORE_CHARS]
        ):
            continue
        left -= 1
        if not left:
            return text[: end.end()].rstrip()
    return text


def unrepeated(text: str, said: set[str]) -> Iterator[str]:
    """The sentences of `text`, with the white space after each, that are not in `said`, to which it adds them. Who says
    one, its case and its stop do not make it another.
    """
    start = 0
    ends = (
        end.end()
        for line in re.finditer(r"[^\n]*(?:\n|$)", text)
        for end in (*_END.finditer(text, line.start(), line.end()), line)
        if end is line or not _ABBREVIATED.search(text, max(0, end.start() - 8), end.start())
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
        if is_wrapped and line == bare and line[:1].islower():
            held = f"{held} {line}"
            continue
        if held:
            yield held
        held = "" if _is_code(line) or _BRACKETED.fullmatch(line) else line
    if held:
        yield held


def _is_code(line: str) -> bool:
    """Whether a line is source code, part of a listing, or of a stack trace."""
    if _LISTING.match(line) or line.endswith(("{", "}", ";")):
        return True
    return not line.endswith((".", "?", "!")) and len(_SYMBOLS.findall(line)) > _SYMBOLS_SHARE_MAX * len(line)


def _of_line(line: str) -> Iterator[str]:
    begin = 0
    for end in _END.finditer(line):
        after = line[end.end() : end.end() + _BEFORE_CHARS]
        if not _goes_on(line[max(begin, end.start() - _BEFORE_CHARS) : end.start()], after):
            yield from _bounded(line[begin : end.start()])
            begin = end.end()
    yield from _bounded(line[begin:])


def _goes_on(before: str, after: str) -> bool:
    """Whether the stop at the end of `before` belongs to an abbreviation or an ordinal, and so ends no sentence."""
    if _ABBREVIATED.search(before):
        return True
    if _DATED.search(before) and _MONTH.match(after):
        return True
    return _ORDINAL.search(before) is not None and _OPENING.match(after) is None


_BEFORE_CHARS: Final = 24
"""What is looked at before a stop and after it."""


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
    """Whether it has characters of a script without spaces."""
    return not sentence.isascii() and any(not _is_wordlike(character) and character != " " for character in sentence)


def _is_wordlike(character: str) -> bool:
    """Whether the character may belong to a word, number or identifier that spaces delimit."""
    return not character.isspace() and character < "\u2e80"
