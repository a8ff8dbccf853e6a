"""The ledger: the identifiers of the messages that have left the window, kept beside the records and never as prose.

The ledger is a fold of the identifiers that events say were found in the messages that left. The window shows as many
entries as the ledger's share of it holds, the most needed first, and the ledger remembers about as many again, so that
an entry can come back. The log still has the identifiers that the ledger forgets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import accumulate
from types import MappingProxyType
from typing import Final, NamedTuple

from abridged.service.domain.tokens import TokenSource, calibrated_tokens
from abridged.service.text.identifiers import MEASURED, VALUES, IdentifierKind
from abridged.service.text.naming import is_whole
from abridged.service.text.rows import OF, column_of
from abridged.service.text.words import word_keys

NUMBERS_MAX: Final = 8
"""Messages that an entry names: the first and the newest ones."""

LEDGER_FRAME_TOKENS: Final = 6
"""The line above the entries, and what joins the groups to it."""

_GROUP_TOKENS: Final = 3
"""The name of a kind, a colon and the line's end."""

_REPEATS_MAX: Final = 5

_BESIDE_CHARS: Final = 80
"""A name stands beside a value within this many characters of its line."""

_OPENING: Final = ("(", "[", "{", '"', "`")
"""Marks that open what their fact ends."""

_REPLACED: Final = "no longer: "
"""The words before a fact whose value a newer one has replaced, and their tokens."""

_REPLACED_TOKENS: Final = 3


class Use(StrEnum):
    """The strongest of the speakers who named an identifier: one that only a tool's result contains is mostly noise."""

    USER = "user"
    CALL = "call"
    ASSISTANT = "assistant"
    TOOL = "tool"


_USE_WEIGHTS: Final[Mapping[Use, float]] = MappingProxyType(
    {Use.USER: 2.0, Use.CALL: 2.0, Use.ASSISTANT: 1.0, Use.TOOL: 0.0}
)

_NOISE: Final = 4.0
"""Ranks an identifier that one tool result names once below all that were used."""

NOISE_SHARE: Final = 0.5
"""Part of the limit that these may fill: a window is better used by messages."""

_RECENT_WEIGHT: Final = 0.7
_LONG_CHARS: Final = 8
_SHORT_CHARS: Final = 4
"""The bounds of long and short values. Writers of the chats of `bench/written/seen` noted as facts one in three of the
values of eight characters or more, and one in seventeen of those of fewer than four, of 1,237 values in all."""

KIND_WEIGHTS: Final[Mapping[IdentifierKind, float]] = MappingProxyType(
    {
        IdentifierKind.STATE: 1.2,
        IdentifierKind.CODE: 1.2,
        IdentifierKind.TICKET: 1.2,
        IdentifierKind.EMAIL: 1.0,
        IdentifierKind.UUID: 1.0,
        IdentifierKind.PATH: 1.0,
        IdentifierKind.FILE: 1.0,
        IdentifierKind.PHONE: 1.0,
        IdentifierKind.URL: 0.8,
        IdentifierKind.HASH: 0.8,
        IdentifierKind.VERSION: 0.8,
        IdentifierKind.COMMAND: 0.8,
        IdentifierKind.SYMBOL: 0.7,
        IdentifierKind.AMOUNT: 0.7,
        IdentifierKind.DATE: 0.7,
        IdentifierKind.NUMBER: 0.3,
    }
)
"""The kinds worth a place, with weights, in the order in which they are shown; times are not worth one."""

_PLACES: Final = {kind: place for place, kind in enumerate(KIND_WEIGHTS)}


class LedgerEntry(NamedTuple):
    """An identifier of messages that have left the window.

    Attributes:
        kind: The identifier's kind.
        text: The identifier as it was written: a fact by its first message, other entries by the newest.
        context: The words that say what it is, of the same message; empty without any. A fact has them with what joins
            it to them.
        numbers: The messages that name it, ascending: the first one and the newest, NUMBERS_MAX at most.
        times: The number of messages that name it, as far as their numbers say it: only NUMBERS_MAX are known, so that
            a rewind past the newest of these leaves as many as are still known.
        use: The strongest of those who named it.
        tokens: The identifier's tokens in the window, uncorrected, with those of `rest`.
        context_tokens: The tokens that the words of `context` take more; 0 for kinds that are shown without.
        replaced_by: The message that gave a newer value; 0 while it holds.
        is_fact: True if the window shows it as a fact, its name and its value, or not at all. Logs of earlier versions
            have identifiers alone, which are listed by kind.
        rest: The words after a fact that are read with it; empty without any.
    """

    kind: IdentifierKind
    text: str
    context: str
    numbers: tuple[int, ...]
    times: int
    use: Use
    tokens: int
    context_tokens: int = 0
    replaced_by: int = 0
    is_fact: bool = False
    rest: str = ""

    @property
    def key(self) -> str:
        """The key that two forms of one identifier share."""
        return self.text.casefold()

    @property
    def written_by(self) -> int:
        """The message whose spelling and words the entry has."""
        return self.numbers[0 if self.is_fact else -1]


class Replaced(NamedTuple):
    """An identifier, by its key, that message `number` gave a newer value for."""

    key: str
    number: int


class LedgerFinds(NamedTuple):
    """The identifiers of messages that leave the window.

    Attributes:
        entries: The identifiers, each once.
        replaced: Older identifiers that they, or the messages that stay, have replaced.
        limit_tokens: Most tokens of the ledger in the window from now on.
        memory_tokens: Most tokens of all that the ledger remembers.
        source: The source of the entries' token counts.
    """

    entries: tuple[LedgerEntry, ...] = ()
    replaced: tuple[Replaced, ...] = ()
    limit_tokens: int = 0
    memory_tokens: int = 0
    source: TokenSource = TokenSource.ESTIMATE

    def corrected(self, factor: float) -> LedgerFinds:
        """The finds with the entries' tokens corrected by what the caller's own counts have taught."""
        if factor == 1:
            return self
        entries = (
            e._replace(
                tokens=calibrated_tokens(e.tokens, factor), context_tokens=calibrated_tokens(e.context_tokens, factor)
            )
            for e in self.entries
        )
        return self._replace(entries=tuple(entries))

    def without(self, gone: Callable[[int], bool]) -> LedgerFinds:
        """The finds without what only messages say, or spell so, that are `gone`, and without `replaced`: its keys may
        be theirs."""
        spelled = (entry for entry in self.entries if not (gone(entry.written_by) and _has_case(entry.text)))
        kept = (_kept_to(entry, lambda number: not gone(number), lambda _: True) for entry in spelled)
        return self._replace(entries=tuple(entry for entry in kept if entry is not None), replaced=())


NOTHING_FOUND: Final = LedgerFinds()


class Ledger(NamedTuple):
    """The ledger of a conversation.

    Attributes:
        entries: The entries that it remembers, most needed first.
        shown: The number of them that the window shows: the first ones.
        explained: The number of these with the words before them, if they are values: the first ones, too.
        tokens: The tokens that these take in the window with their frame, uncorrected; 0 without entries.
        limit_tokens: Most tokens of those.
        memory_tokens: Most tokens of all that it remembers.
        source: The source of their count.
    """

    entries: tuple[LedgerEntry, ...] = ()
    shown: int = 0
    explained: int = 0
    tokens: int = 0
    limit_tokens: int = 0
    memory_tokens: int = 0
    source: TokenSource = TokenSource.ESTIMATE

    @property
    def in_window(self) -> tuple[LedgerEntry, ...]:
        """The entries that the window shows, most needed first."""
        return self.entries[: self.shown]

    def after(self, finds: LedgerFinds, beside: str = "") -> Ledger:
        """The ledger with what was found in messages that left, in a window whose records say what is `beside` it."""
        entries = joined_entries((*self.entries, *finds.entries))
        marked = _replaced(entries, finds.replaced)
        return _fitted(marked, finds.limit_tokens, finds.memory_tokens, finds.source, beside)

    def restricted(self, holds: Callable[[int], bool], exists: Callable[[int], bool], beside: str = "") -> Ledger:
        """The ledger with what messages say that it `holds`; a message that does not exist replaces nothing."""
        if not self.entries:
            return self
        kept = [entry for entry in (_kept_to(entry, holds, exists) for entry in self.entries) if entry is not None]
        return _fitted(kept, self.limit_tokens, self.memory_tokens, self.source, beside)


NO_LEDGER: Final = Ledger()


def joined_entries(entries: Iterable[LedgerEntry]) -> tuple[LedgerEntry, ...]:
    """The entries with those of one identifier joined, in the order of their first appearance."""
    found: dict[str, LedgerEntry] = {}
    for entry in entries:
        known = found.get(entry.key)
        found[entry.key] = entry if known is None else _joined(known, entry)
    return tuple(found.values())


def entry_text(entry: LedgerEntry) -> str:
    """The entry with the words before it if it is a value, which says little by itself."""
    return f"{entry.context} {entry.text}" if entry.kind in VALUES and entry.context else entry.text


def fact_text(entry: LedgerEntry) -> str:
    """The fact as a line of the window; one that a newer value has replaced says so."""
    return f"{_REPLACED if entry.replaced_by else ''}{entry.context}{entry.text}{entry.rest}"


def ledger_lines(ledger: Ledger) -> list[str]:
    """The entries of the window: facts in the order in which they were first said, those of one name on one line, and
    identifiers by kind, each kind on a line, the most needed of it first; empty without any."""
    groups: dict[IdentifierKind, list[str]] = {}
    facts: list[LedgerEntry] = []
    for place, entry in enumerate(ledger.in_window):
        if entry.is_fact:
            facts.append(entry)
        else:
            groups.setdefault(entry.kind, []).append(entry_text(entry) if place < ledger.explained else entry.text)
    lines = [f"{kind.value}:{_line(groups[kind])}" for kind in sorted(groups, key=lambda kind: _PLACES[kind])]
    return [
        *(["Facts as written:", *_fact_lines(facts)] if facts else ()),
        *(["Identifiers as written:", *lines] if lines else ()),
    ]


def _fact_lines(facts: list[LedgerEntry]) -> list[str]:
    lines: dict[str, str] = {}
    labels: dict[str, str] = {}
    for fact in sorted(facts, key=lambda fact: (fact.numbers[0], fact.context, fact.key)):
        group = _group(fact)
        if group not in lines:
            lines[group] = fact_text(fact)
        elif labels[group] == fact.context:
            lines[group] += f", {fact.text}{fact.rest}"
        else:
            own = column_of(fact.text) if fact.kind is IdentifierKind.STATE else f"{column_of(fact.context)}{fact.text}"
            lines[group] += f"; {own}{fact.rest}"
        labels[group] = fact.context
    return list(lines.values())


def _line(texts: Sequence[str]) -> str:
    """Texts with a space in them stand between semicolons, others between spaces: a semicolon takes a token."""
    return "".join(
        f"; {text}" if before is not None and (" " in text or " " in before) else f" {text}"
        for before, text in zip((None, *texts), texts, strict=False)
    )


def _joined(one: LedgerEntry, other: LedgerEntry) -> LedgerEntry:
    older, newer = sorted((one, other), key=lambda entry: entry.numbers[-1])
    numbers = sorted({*older.numbers, *newer.numbers})
    both = len(older.numbers) + len(newer.numbers) - len(numbers)
    replaced_by = max(older.replaced_by, newer.replaced_by)
    said_first = min((older, newer), key=lambda entry: entry.numbers[0]) if newer.is_fact else newer
    return newer._replace(
        text=said_first.text,
        context=said_first.context,
        rest=said_first.rest,
        tokens=said_first.tokens,
        context_tokens=said_first.context_tokens,
        numbers=_bounded(numbers),
        times=older.times + newer.times - both,
        use=min(older.use, newer.use, key=_USES.index),
        replaced_by=replaced_by if replaced_by >= numbers[-1] else 0,
    )


_USES: Final = tuple(Use)


def _bounded(numbers: Sequence[int]) -> tuple[int, ...]:
    if len(numbers) <= NUMBERS_MAX:
        return tuple(numbers)
    return (numbers[0], *numbers[1 - NUMBERS_MAX :])


def _replaced(entries: Iterable[LedgerEntry], replaced: tuple[Replaced, ...]) -> list[LedgerEntry]:
    by_key = dict(replaced)
    return [
        entry._replace(replaced_by=by_key[entry.key]) if by_key.get(entry.key, 0) >= entry.numbers[-1] else entry
        for entry in entries
    ]


def _kept_to(entry: LedgerEntry, holds: Callable[[int], bool], exists: Callable[[int], bool]) -> LedgerEntry | None:
    numbers = tuple(filter(holds, entry.numbers))
    if not numbers:
        return None
    left = entry._replace(
        numbers=numbers,
        times=_times_left(entry, numbers),
        replaced_by=entry.replaced_by if exists(entry.replaced_by) else 0,
    )
    if left.written_by == entry.written_by:
        return left
    if entry.is_fact and _has_case(entry.text):
        return None
    return left._replace(context="", rest="", context_tokens=0)


def _has_case(text: str) -> bool:
    """Return whether a text may be spelled in two ways that are one to the ledger."""
    return text.lower() != text.upper()


def _times_left(entry: LedgerEntry, numbers: Sequence[int]) -> int:
    """Count the messages that name it if only `numbers` of the known ones are left.

    The unknown ones lie between the first known and the second. Nobody knows without the second which of them are left.
    """
    if entry.numbers[1:2] == tuple(numbers[1:2]):
        return entry.times - (len(entry.numbers) - len(numbers))
    return len(numbers)


def _fitted(
    entries: list[LedgerEntry], limit_tokens: int, memory_tokens: int, source: TokenSource, beside: str
) -> Ledger:
    """The ledger of the entries: the most needed, within both limits.

    First come identifiers alone, as many as there is room for, and then the words before values. Entries that the
    records beside the ledger say, or another entry, are not shown twice.
    """
    newest = max((entry.numbers[-1] for entry in entries), default=1)
    # The newer of equals comes first, then the longer, then the alphabet's: never the order in which they were found.
    ranked = sorted(entries, key=lambda entry: (-_need(entry, newest), -entry.numbers[-1], -len(entry.rest), entry.key))
    shown: list[LedgerEntry] = []
    others: list[LedgerEntry] = []
    tokens = LEDGER_FRAME_TOKENS
    groups: set[IdentifierKind | str] = set()
    said = beside.casefold()
    for entry in ranked:
        after = tokens + _least_tokens(entry, groups)
        most = limit_tokens * NOISE_SHARE if _is_noise(entry) and not entry.is_fact else limit_tokens
        is_outdated = bool(entry.replaced_by) and (not entry.is_fact or entry.kind is IdentifierKind.STATE)
        is_hidden = is_outdated or (entry.is_fact and _is_nameless_noise(entry))
        if is_hidden or after > most or _is_said(entry, said):
            others.append(entry)
            continue
        groups.add(_line_of(entry))
        tokens = after
        said = f"{said}\n{fact_text(entry).casefold() if entry.is_fact else entry.key}"
        shown.append(entry)
    explained = 0
    for entry in shown:
        if entry.is_fact:
            explained += 1
            continue
        if tokens + entry.context_tokens > limit_tokens:
            break
        tokens += entry.context_tokens
        explained += 1
    room = memory_tokens - sum(entry.tokens for entry in shown)
    remembered = sum(total <= room for total in accumulate(entry.tokens for entry in others))
    kept = (*shown, *others[:remembered])
    return Ledger(kept, len(shown), explained, tokens if shown else 0, limit_tokens, memory_tokens, source)


def _least_tokens(entry: LedgerEntry, groups: Collection[IdentifierKind | str]) -> int:
    """The fewest tokens with which the window can show an entry beside those of these groups."""
    if not entry.is_fact:
        return entry.tokens + (0 if entry.kind in groups else _GROUP_TOKENS)
    # Of facts of one object each is counted with the object's name, which the line has once.
    name = 0 if _group(entry) in groups and OF not in entry.context else entry.context_tokens
    return entry.tokens + name + (_REPLACED_TOKENS if entry.replaced_by else 0)


def _line_of(entry: LedgerEntry) -> IdentifierKind | str:
    """The line that an entry shares with others: identifiers of one kind have one, and facts of a group."""
    return _group(entry) if entry.is_fact else entry.kind


def _group(fact: LedgerEntry) -> str:
    """The object, in data, or else the name of a fact; with the fact, if the name opens a bracket around it."""
    says = fact.text if fact.kind is IdentifierKind.STATE else fact.context
    name = says.rpartition(OF)[0] or says or fact.key
    if name.endswith(_OPENING):
        name += fact.key
    return f"{_REPLACED if fact.replaced_by else ''}{name}"


def _is_said(entry: LedgerEntry, text: str) -> bool:
    """Return whether the text names the entry; a fact has to be in a line with a word of its name."""
    if entry.key not in text or not entry.is_fact or not (entry.context or entry.rest):
        return _names_identifier(text, entry)
    words = word_keys(entry.context + entry.rest) - word_keys(entry.text)
    return any(
        any(word in near for word in words) and _names_identifier(near, entry)
        for line in text.splitlines()
        for near in _around(entry.key, line)
    )


def _around(key: str, line: str) -> Iterator[str]:
    """The stretches of a line around each place of a key."""
    for at in _places(key, line):
        yield line[max(0, at - _BESIDE_CHARS) : at + len(key) + _BESIDE_CHARS]


def _places(key: str, text: str) -> Iterator[int]:
    at = text.find(key)
    while at >= 0:
        yield at
        at = text.find(key, at + 1)


def _names_identifier(text: str, entry: LedgerEntry) -> bool:
    """Return whether the text names the identifier, and not only a longer one that contains it."""
    size = len(entry.key)
    return any(is_whole(text, at, at + size) for at in _places(entry.key, text))


def _is_noise(entry: LedgerEntry) -> bool:
    """Return whether only a tool's result names the entry, and once; any number of rows may have the same quantity by
    chance."""
    return entry.use is Use.TOOL and (entry.times == 1 or entry.kind in MEASURED)


def _is_nameless_noise(fact: LedgerEntry) -> bool:
    """Return whether it is a quantity of rows that no word names: writers of chats noted none of 31 such as a fact."""
    return fact.use is Use.TOOL and fact.kind in MEASURED and not fact.context


def _need(entry: LedgerEntry, newest: int) -> float:
    """Rank an entry by a reader's need: replaced ones last, before them identifiers that one tool result named once."""
    if entry.replaced_by:
        return -2 * _NOISE
    needed, recent = KIND_WEIGHTS[entry.kind] + _USE_WEIGHTS[entry.use], entry.numbers[-1] / newest
    if entry.is_fact:
        is_repeated = entry.times > 1 and not _is_noise(entry)
        return needed + _RECENT_WEIGHT * recent + is_repeated + _form_weight(entry)
    needed += recent + (0 if entry.kind in MEASURED else min(entry.times, _REPEATS_MAX) / 4)
    return needed - _NOISE if _is_noise(entry) else needed


def _form_weight(fact: LedgerEntry) -> float:
    """The evidence in how a fact is written: a label or a long value speaks for it, a short one without a label or one
    without a digit against it."""
    chars, has_label = len(fact.text), fact.context.endswith("=")
    length = 1.0 if chars >= _LONG_CHARS else -1.0 if chars < _SHORT_CHARS and not has_label else 0.0
    return length + has_label - (not any(map(str.isdigit, fact.text)))
