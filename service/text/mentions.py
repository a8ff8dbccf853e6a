"""Finds each identifier that a text names, with the words around it, and the identifier that it replaces.

The module knows, beside the forms of `service.text.identifiers`, some by where they stand: a number after a word such
as `gate`, a code of letters alone after `booking`, an amount with its unit, a command, the state of an object. A draft
is not judged by these, because it may write them in other words. The work is linear in the text, which is read in
blocks, so that the memory it takes is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from abridged.service.text.digits import with_ascii_digits
from abridged.service.text.identifiers import (
    IDENTIFIER_CHARS_MAX,
    NUMBER_CHARS_MIN,
    Identifier,
    IdentifierKind,
    identifiers_of_masked,
)
from abridged.service.text.rows import as_rows, states_in, without_labels
from abridged.service.text.secrets import MASK, mask_secrets, may_carry_secret
from abridged.service.text.surroundings import Block, Surroundings
from abridged.service.text.values import values, without_counters

BLOCK_CHARS: Final = 65_536
"""Characters that are looked at at once. Only what a space joins, such as a date in words, can be cut between two."""

SAID_DIGITS_MIN: Final = 2
"""Digits of a plain number that is a value if somebody says it and names it; of a log only long numbers are."""

_LABELS: Final = (
    r"gate|room|seat|flight|platform|terminal|order|invoice|ticket|case|issue|port|locker|dock|bay|rack|desk|track"
    r"|bus|train|apartment|suite|unit|extension|batch|lot|row|shelf|pier|hall|stand"
)
_NUMBERED: Final = r"[A-Z]{0,2}-?\d{1,6}[A-Z]?)(?![\w.-]*\w)"
_NAMED: Final = re.compile(
    rf"(?<![\w-])(?P<label>(?i:{_LABELS})) (?:(?i:no\.?|number|nr\.?) |#)?(?P<first>{_NUMBERED}"
    rf"(?: (?:to|->|→|=>|into) (?P<again>(?i:{_LABELS}) )?(?P<second>{_NUMBERED})?",
    re.ASCII,
)
_CODED: Final = re.compile(
    r"(?<![\w-])(?:(?i:reservation|booking|confirmation|record locator|locator|reference|PNR|voucher|coupon|promo)"
    r"(?:[ _](?i:id|code|number|no\.?|ref))?(?: is|:| ?\x1f?=|\":)?[ ]?[\"'(#]?)(?P<code>[A-Z]{5,10})(?![\w-])",
    re.ASCII,
)
_HOST: Final = re.compile(r"(?<![\w./@-])[a-z][a-z0-9]{1,20}(?:-[a-z0-9]{1,20}){1,4}-\d{1,6}(?![\w-]|\.\w)")
_BOUND: Final = r"[<>=!~]=?=?[ ]?[0-9](?:[0-9.]{0,20}[0-9*])?(?![\w.]*\w)"
_BOUNDS: Final = re.compile(rf"(?<![<>=!~]){_BOUND}(?:,[ ]?{_BOUND}){{1,4}}", re.ASCII)
"""Bounds of a version, which are one value together: `>=3.10,<3.13`."""

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

_KEY: Final = re.compile(r"[\"']\s{0,2}:")
"""The characters after a key of JSON, which names a value but is not one."""


_STATEMENT: Final = re.compile(
    r"(?!(?!for ).*\b\w+ \w+ \w+ \w)(?=.*(?:[\w>]\(|\w ?[-+*/|&:]?=|::|->|\w \*\w))(?!.*:$)"
    r"|(?:(?:el)?if|for|while|with|def|class) .*[\w>]\(.*:$"
)
_DECLARATION: Final = re.compile(r"(?:[\w:<>]{1,40}[ *&]{1,3}){1,3}\w{1,40};")
"""A line of a program: a statement with a call, an assignment or a member, and a declaration of a type and a name."""

_LINE_CHARS_MAX: Final = 240
"""Characters before and after a value within which its line is read."""

_ASSIGNED: Final = re.compile(r"[^()=]{1,80}[=:]\s{0,12}[\"']?")
_ENDING: Final = re.compile(r"[\"']?;")
_IN_PROGRAMS: Final = frozenset(
    {IdentifierKind.AMOUNT, IdentifierKind.NUMBER, IdentifierKind.CODE, IdentifierKind.SYMBOL}
)
"""Kinds that are parts of a program, in its statements."""


class Mention(NamedTuple):
    """An identifier where a text names it.

    Attributes:
        kind: The identifier's kind.
        text: The identifier as it was written.
        words: The words around it.
        replaces: The identifier of the same text that it replaces; empty for none.
    """

    kind: IdentifierKind
    text: str
    words: Surroundings
    replaces: str = ""


def mentions(text: str, *, said: bool = False, by_line: bool = False) -> Iterator[Mention]:
    """Every identifier of the text that is worth a place in a ledger, in order, without secrets.

    Values that somebody `said` count whatever their form; tools return too many. Values in data are named by its rows,
    and in a text that was written `by_line`, as programs write, by their line or by one before it that ends in a colon.
    """
    rows = as_rows(text)
    masked = mask_secrets(text if rows is None else rows)
    start = 0
    while start < len(masked):
        end = _block_end(masked, start)
        yield from _of_block(masked[start:end], said=said, in_rows=rows is not None, by_line=by_line)
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


def _of_block(block: str, *, said: bool, in_rows: bool, by_line: bool) -> Iterator[Mention]:
    if said and not in_rows:
        block = without_counters(block)
    plain = with_ascii_digits(block)
    read = without_labels(plain) if in_rows else plain
    everything, pairs = _by_place(plain)
    if in_rows:
        states = [Identifier(IdentifierKind.STATE, *state) for state in states_in(block) if MASK not in state[0]]
        everything = [*states, *_outside(everything, _places(states))]
    if said:
        everything += _outside(list(values(read.replace(MASK, " " * len(MASK)))), _places(everything))
    everything += _outside(identifiers_of_masked(read), _places(everything))
    everything.sort(key=lambda found: found.start)
    if plain is not block:
        everything = [_as_written(found, plain, block) for found in everything]
    around = Block(block, everything, in_rows=in_rows, by_line=by_line)
    before: Identifier | None = None
    for found in everything:
        if not _counts(found, block, said=said) or (not in_rows and _is_inner(found, block)):
            continue
        if found.kind is IdentifierKind.STATE:
            yield Mention(found.kind, found.text, _NAMED_BY_ITSELF)
            continue
        words = around.around(found, before, said=said)
        if found.kind is IdentifierKind.NUMBER and not (words.name or words.rest) and not _is_long(found):
            continue
        yield Mention(
            IdentifierKind.HASH if _SHORT_HASH.fullmatch(found.text) else found.kind,
            found.text,
            words,
            pairs.get(found.start, words.replaces),
        )
        before = found


_NAMED_BY_ITSELF: Final = Surroundings("", "", is_beside=True)


def _as_written(found: Identifier, plain: str, block: str) -> Identifier:
    """An identifier of a block in plain digits with those that its writer used."""
    if not plain.startswith(found.text, found.start):
        return found
    return replace(found, text=block[found.start : found.start + len(found.text)])


def _places(found: list[Identifier]) -> list[tuple[int, int]]:
    return [(one.start, one.end) for one in found]


def _by_place(block: str) -> tuple[list[Identifier], dict[int, str]]:
    """The identifiers that are known by where they stand; and which one the one at a place replaces."""
    found: list[Identifier] = []
    replaced: dict[int, str] = {}
    for match in _NAMED.finditer(block):
        first = f"{match['label']} {match['first']}"
        found.append(Identifier(IdentifierKind.CODE, first, match.start()))
        if match["second"]:
            second = f"{match['again'] or match['label'] + ' '}{match['second']}"
            start = match.start("again") if match["again"] else match.start("second")
            found.append(Identifier(IdentifierKind.CODE, second, start, match.end("second")))
            replaced[start] = first
    found += (Identifier(IdentifierKind.CODE, m["code"], m.start("code")) for m in _CODED.finditer(block))
    found += (Identifier(IdentifierKind.CODE, m[0], m.start()) for m in _HOST.finditer(block))
    found += (Identifier(IdentifierKind.VERSION, m[0], m.start()) for m in _BOUNDS.finditer(block))
    found += _commands(block)
    return found, replaced


def _commands(block: str) -> Iterator[Identifier]:
    """Commands of well-known programs, and those of others that have an option, each once."""
    places = {m.start("command"): m["command"] for m in _SPANNED.finditer(block) if _OPTION.search(m["command"])}
    places |= {m.start("command"): m["command"] for m in _COMMAND.finditer(block)}
    for start, line in places.items():
        command = line.rstrip(" .,:;")
        if MASK not in command and not _PROSE.search(command) and not may_carry_secret(command):
            yield Identifier(IdentifierKind.COMMAND, command, start)


def _outside(found: list[Identifier], taken: list[tuple[int, int]]) -> Iterator[Identifier]:
    """Yield the identifiers that do not lie in a place that is taken, of a command alone excepted: its files are names
    too."""
    places = sorted(taken)
    at = 0
    for one in found:
        while at < len(places) and places[at][1] <= one.start:
            at += 1
        if at == len(places) or one.end <= places[at][0] or one.kind in _IN_COMMANDS:
            yield one


_IN_COMMANDS: Final = frozenset({IdentifierKind.PATH, IdentifierKind.FILE, IdentifierKind.URL, IdentifierKind.HASH})


def _is_long(number: Identifier) -> bool:
    return sum(map(str.isdigit, number.text)) >= NUMBER_CHARS_MIN


def _counts(found: Identifier, block: str, *, said: bool) -> bool:
    if found.kind in _NEVER or len(found.text) > IDENTIFIER_CHARS_MAX:
        return False
    if found.kind is IdentifierKind.NUMBER:
        return _is_long(found) or (said and len(found.text) >= SAID_DIGITS_MIN)
    if found.kind is IdentifierKind.SYMBOL:
        end = found.end
        return _KEY.match(block, end) is None
    # The end of an element, `</name>`, has the form of a path.
    return found.kind is not IdentifierKind.PATH or block[found.start - 1 : found.start] != "<"


def _is_inner(found: Identifier, block: str) -> bool:
    """Return whether a statement of a program has it for itself alone: a name of no function, or a number that is not
    assigned as it is."""
    if found.kind not in _IN_PROGRAMS:
        return False
    before = block[max(0, found.start - _LINE_CHARS_MAX) : found.start].rpartition("\n")[2]
    after = block[found.end : found.end + _LINE_CHARS_MAX].partition("\n")[0]
    line = f"{before}{found.text}{after}".strip()
    if not line.endswith((";", "{", "}", ":")) or not (_STATEMENT.match(line) or _DECLARATION.fullmatch(line)):
        return False
    if found.kind is IdentifierKind.SYMBOL:
        return not (found.text.endswith("()") or after.startswith("("))
    return not (_ASSIGNED.fullmatch(before) and _ENDING.match(after))


_SHORT_HASH: Final = re.compile(r"(?=.{7})[0-9]{5,}[a-f]{1,3}")
"""The only hashes that also have the form of a number with a unit."""

_NEVER: Final = frozenset({IdentifierKind.TIME, IdentifierKind.DECIMAL})
