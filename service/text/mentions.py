"""Finds each identifier that a text names, with the words before it, and the identifier that it replaces.

Beside the forms of `service.text.identifiers` this knows some by where they stand: a number after a word such
as `gate`, a code of letters alone after `booking`, an amount with its unit, a command. A draft is not judged by these,
because it may write them in other words. The work is linear in the text, which is read in blocks, so that the memory it
takes is bounded.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from abridged.service.text.identifiers import (
    IDENTIFIER_CHARS_MAX,
    NUMBER_CHARS_MIN,
    Identifier,
    IdentifierKind,
    identifiers_of_masked,
)
from abridged.service.text.phrases import Words, words_of
from abridged.service.text.secrets import MASK, mask_secrets
from abridged.service.text.values import values

BLOCK_CHARS: Final = 65_536
"""Characters that are looked at at once. Only what a space joins, such as a date in words, can be cut between two."""

CONTEXT_CHARS_MAX: Final = 48
CONTEXT_WORDS_MAX: Final = 3
"""Limits on the characters and words before an identifier that describe it."""

_LABELS: Final = (
    r"gate|room|seat|flight|platform|terminal|order|invoice|ticket|case|issue|port|locker|dock|bay|rack|desk|track"
    r"|bus|train|apartment|suite|unit|extension|batch|lot|row|shelf|pier|hall|stand"
)
_UNITS: Final = r"[kKMGTP]i?B|[kMG]bps|[kMG]Hz|kWh|mAh|kg|km|cm|mm|ml|ms|rpm|m²|m³|°C|°F"
_NUMBERED: Final = r"[A-Z]{0,2}-?\d{1,6}[A-Z]?)(?![\w.-]*\w)"
_NAMED: Final = re.compile(
    rf"(?<![\w-])(?P<label>(?i:{_LABELS})) (?:(?i:no\.?|number|nr\.?) |#)?(?P<first>{_NUMBERED}"
    rf"(?: (?:to|->|→|=>|into) (?:(?i:{_LABELS}) )?(?P<second>{_NUMBERED})?",
    re.ASCII,
)
_CODED: Final = re.compile(
    r"(?<![\w-])(?:(?i:reservation|booking|confirmation|record locator|locator|reference|PNR|voucher|coupon|promo)"
    r"(?:[ _](?i:id|code|number|no\.?|ref))?(?: is|:| =|\":)?[ ]?[\"'(#]?)(?P<code>[A-Z]{5,10})(?![\w-])",
    re.ASCII,
)
_MEASURED: Final = re.compile(rf"(?<![\w.,])\d{{1,9}}(?:[.,]\d{{1,3}})? ?(?:{_UNITS})(?!\w)")
_HOST: Final = re.compile(r"(?<![\w./@-])[a-z][a-z0-9]{1,20}(?:-[a-z0-9]{1,20}){1,4}-\d{1,6}(?![\w-]|\.\w)")
_CREDENTIALS: Final = re.compile(
    r":[^\s/]+@|\s-[up]\s?\S|\s--?(?:user|pass|token|secret|key|auth|header)", re.IGNORECASE
)
"""A command with one of these may carry a secret in a form that only its program knows."""

_IN_LINE: Final = r"[^`\n\r\v\f\x1c-\x1e\x85\u2028\u2029]"
"""A character of a span of code that does not end its line, by what str.splitlines takes for an end."""

_COMMAND: Final = re.compile(
    r"(?:(?<=`)|(?<=^\$ )|(?<=^> \$ )|(?<=^))"
    r"(?P<command>(?:sudo )?(?:git|npm|npx|yarn|pnpm|pip3?|uv|poetry|docker|docker-compose|kubectl|helm|terraform"
    r"|ansible|make|cmake|cargo|go|python3?|pytest|node|deno|bun|java|mvn|gradle|curl|wget|ssh|scp|rsync|systemctl"
    r"|journalctl|apt|apt-get|brew|psql|mysql|redis-cli|sqlite3|aws|gcloud|az|ollama|rg|grep|sed|awk|tar|chmod|chown"
    r"|crontab|alembic)"
    rf" [^\s`]{_IN_LINE}{{1,160}})",
    re.MULTILINE,
)
_SPANNED: Final = re.compile(
    r"(?:(?<!`)`|(?<=^\$ )|(?<=^> \$ ))(?P<command>(?:\./)?[a-z][a-z0-9_.+-]{1,39} [^\s`]" + _IN_LINE + "{1,160})",
    re.MULTILINE,
)
_OPTION: Final = re.compile(r"\s--?[A-Za-z][A-Za-z-]*(?:[\s=]|$)")
"""A span of code, or a line after a prompt, is a command of whatever program if it has an option."""

_PROSE: Final = re.compile(r"[.?!] [A-Z]|, (?:and|but|so|which)\b|\b(?:the|is|are|was|has|have|will|you|we|it)\b")
"""Marks of a sentence, in a line that only happens to begin with the name of a program."""

_CLAUSE: Final = re.compile(r"[.;!?]\s|[\n{}\[\]|]")
_WORD: Final = re.compile(r"(?<!\w)[^\W\d_]+(?:['\u2019_-][^\W\d_]+)*(?!\w)")
"""A word of a context has no digits: one that has may be a part of a name, or of a secret."""

_KEY: Final = re.compile(r"[\"']\s{0,2}:")
"""The characters after a key of JSON, which names a value but is not one."""

_CHANGES_LINES: Final = """
moved changed now new updated update instead rescheduled postponed shifted switched corrected correction actually
extended brought forward pushed raised lowered increased decreased reduced bumped upgraded downgraded renamed replaced
replaces latest current currently final revised set becomes became change move reschedule
"""
_CHANGES: Final = frozenset(_CHANGES_LINES.split())
"""Words of a sentence that gives something another value."""

_FROM: Final = re.compile(
    r"\b(?:from|replac(?:e|es|ed|ing)|renam(?:e|ed|ing)|swap(?:ped)?)\s+(?:\S+\s+){0,2}$", re.IGNORECASE
)
_TO: Final = re.compile(r"\s*(?:to|->|→|=>|into|with|by)\s+(?:\S+\s+){0,2}", re.IGNORECASE)
_INSTEAD: Final = re.compile(
    r"(?:\b(?:instead of|rather than|no longer|previously|formerly|in place of|replaces|it was|and not)\s+"
    r"|\((?:was|not)\s+)"
    r"(?:\S+\s+){0,2}$",
    re.IGNORECASE,
)
_REACH: Final = 48
"""Characters before an identifier that say what becomes of it."""

_WORDS_OF_MATTER: Final = 2


class Mention(NamedTuple):
    """An identifier where a text names it.

    Attributes:
        kind: Its kind.
        text: It, as written.
        context: The words before it, at most CONTEXT_WORDS_MAX.
        matter: The thing it is a value of: the last meaningful words before it, for comparison; empty without any.
        changes: Whether the words around it, within its clause, speak of a change.
        replaces: The identifier of the same text that it replaces; empty for none.
        dropped: Whether the text says that it holds no longer.
        is_quantity: Whether it is a plain number, or an amount of bytes, time, length or the like, and not of money:
            what a log counts on every line, and worth a place only if somebody said it.
    """

    kind: IdentifierKind
    text: str
    context: str
    matter: tuple[str, ...]
    changes: bool
    replaces: str = ""
    dropped: bool = False
    is_quantity: bool = False


def mentions(text: str, *, said: bool = False) -> Iterator[Mention]:
    """Every identifier of the text that is worth a place in a ledger, in order, without secrets.

    Of what somebody `said` values count whatever their form; tools return too many.
    """
    masked = mask_secrets(text)
    start = 0
    while start < len(masked):
        end = _block_end(masked, start)
        yield from _of_block(masked[start:end], said=said)
        start = end


def _block_end(text: str, start: int) -> int:
    """The end of a block: at a line's end or a space, where there is one."""
    end = start + BLOCK_CHARS
    if end >= len(text):
        return len(text)
    for boundary in ("\n", " "):
        found = text.rfind(boundary, start + BLOCK_CHARS // 2, end)
        if found > 0:
            return found + 1
    return end


def _of_block(block: str, *, said: bool) -> Iterator[Mention]:
    everything, pairs = _by_place(block)
    if said:
        everything += _outside(list(values(block.replace(MASK, " " * len(MASK)))), _places(everything))
    everything += _outside(identifiers_of_masked(block), _places(everything))
    everything.sort(key=lambda found: found.start)
    seen: deque[Identifier] = deque(maxlen=CONTEXT_CHARS_MAX // 2)
    for found in everything:
        if not _counts(found, block):
            continue
        yield _mention(found, seen, block, pairs.get(found.start, ""))
        seen.append(found)


def _places(found: list[Identifier]) -> list[tuple[int, int]]:
    return [(one.start, one.start + len(one.text)) for one in found]


def _by_place(block: str) -> tuple[list[Identifier], dict[int, str]]:
    """The identifiers that are known by where they stand; and which one the one at a place replaces."""
    found: list[Identifier] = []
    replaced: dict[int, str] = {}
    for match in _NAMED.finditer(block):
        first = f"{match['label']} {match['first']}"
        found.append(Identifier(IdentifierKind.CODE, first, match.start()))
        if match["second"]:
            second = f"{match['label']} {match['second']}"
            found.append(Identifier(IdentifierKind.CODE, second, match.start("second")))
            replaced[match.start("second")] = first
    found += (Identifier(IdentifierKind.CODE, m["code"], m.start("code")) for m in _CODED.finditer(block))
    found += (Identifier(IdentifierKind.AMOUNT, m[0], m.start()) for m in _MEASURED.finditer(block))
    found += (Identifier(IdentifierKind.CODE, m[0], m.start()) for m in _HOST.finditer(block))
    found += _commands(block)
    return found, replaced


def _commands(block: str) -> Iterator[Identifier]:
    """Commands of well-known programs, and those of others that have an option, each once."""
    places = {m.start("command"): m["command"] for m in _SPANNED.finditer(block) if _OPTION.search(m["command"])}
    places |= {m.start("command"): m["command"] for m in _COMMAND.finditer(block)}
    for start, line in places.items():
        command = line.rstrip(" .,:;")
        if MASK not in command and not _PROSE.search(command) and not _CREDENTIALS.search(command):
            yield Identifier(IdentifierKind.COMMAND, command, start)


def _outside(found: list[Identifier], taken: list[tuple[int, int]]) -> Iterator[Identifier]:
    """Those that do not lie in a place that is taken, of a command alone excepted: its files are names too."""
    places = sorted(taken)
    at = 0
    for one in found:
        while at < len(places) and places[at][1] <= one.start:
            at += 1
        if at == len(places) or one.start + len(one.text) <= places[at][0] or one.kind in _IN_COMMANDS:
            yield one


_IN_COMMANDS: Final = frozenset({IdentifierKind.PATH, IdentifierKind.FILE, IdentifierKind.URL, IdentifierKind.HASH})


def _counts(found: Identifier, block: str) -> bool:
    if found.kind in _NEVER or len(found.text) > IDENTIFIER_CHARS_MAX:
        return False
    if found.kind is IdentifierKind.NUMBER:
        return sum(map(str.isdigit, found.text)) >= NUMBER_CHARS_MIN
    if found.kind is IdentifierKind.SYMBOL:
        end = found.start + len(found.text)
        return _KEY.match(block, end) is None
    # The end of an element, `</name>`, has the form of a path.
    return found.kind is not IdentifierKind.PATH or block[found.start - 1 : found.start] != "<"


_SHORT_HASH: Final = re.compile(r"(?=.{7})[0-9]{5,}[a-f]{1,3}")
"""The only hashes that also have the form of a number with a unit."""

_NEVER: Final = frozenset({IdentifierKind.TIME, IdentifierKind.DECIMAL})


def _mention(found: Identifier, seen: Sequence[Identifier], block: str, replaces: str) -> Mention:
    """The mention; `seen` are the identifiers before it, as far back as its context can reach."""
    clause = _clause_before(found, seen, block)
    words = _WORD.findall(clause.replace(MASK, " "))
    folded = [word.casefold() for word in words]
    grammar = words_of(Words.GRAMMAR)
    telling = [word for word in folded if word not in grammar and word not in _CHANGES]
    near = block[max(0, found.start - _REACH) : found.start]
    end = found.start + len(found.text)
    after = _CLAUSE.split(block[end : end + _REACH])[0]
    said = {*folded, *(word.casefold() for word in _WORD.findall(after))}
    dropped = _INSTEAD.search(near) is not None
    if not replaces and seen and seen[-1].kind is found.kind:
        replaces = _replaced_by(found, seen[-1], block)
    return Mention(
        IdentifierKind.HASH if _SHORT_HASH.fullmatch(found.text) else found.kind,
        found.text,
        " ".join(words[-CONTEXT_WORDS_MAX:]),
        tuple(telling[-_WORDS_OF_MATTER:]),
        not _CHANGES.isdisjoint(said),
        "" if dropped else replaces,
        dropped,
        found.kind is IdentifierKind.NUMBER or _MEASURED.fullmatch(found.text) is not None,
    )


def _clause_before(found: Identifier, seen: Sequence[Identifier], block: str) -> str:
    """The text before the identifier in its clause, without other identifiers."""
    begin = max(0, found.start - CONTEXT_CHARS_MAX)
    pieces: list[str] = []
    end = found.start
    for other in reversed(seen):
        stop = other.start + len(other.text)
        if stop <= begin:
            break
        pieces.append(block[stop:end])
        end = min(end, other.start)
    pieces.append(block[begin : max(begin, end)])
    clause = _CLAUSE.split(" ".join(reversed(pieces)))[-1]
    # The first word may be the rest of a longer one that the cut went through.
    return clause.partition(" ")[2] if begin and len(clause) >= CONTEXT_CHARS_MAX else clause


def _replaced_by(found: Identifier, before: Identifier, block: str) -> str:
    """The identifier before this one if the text says that it gives way to it: `from A to B`, `A -> B`."""
    end = before.start + len(before.text)
    between = block[end : found.start]
    if len(between) > _REACH or _TO.fullmatch(between) is None:
        return ""
    arrow = between.strip()[:1] in "-=→"
    return before.text if arrow or _FROM.search(block[max(0, before.start - _REACH) : before.start]) else ""
