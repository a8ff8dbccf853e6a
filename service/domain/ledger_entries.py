"""Makes ledger entries of messages: their identifiers with counts, and those that newer values have replaced.

Values are replaced across messages alone, since one message often lists several of a kind, and only by what somebody
says: a tool's result has a price for each flight, and an argument of a call is not a statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from abridged.service.domain.events import MessageAppended
from abridged.service.domain.ledger import NUMBERS_MAX, Ledger, LedgerEntry, Replaced, Use
from abridged.service.domain.message import Message, Role
from abridged.service.text.envelope import unwrap_envelope
from abridged.service.text.identifiers import VALUES, IdentifierKind, serial
from abridged.service.text.mentions import Mention, mentions

FOUND_MAX: Final = 4_096
"""Identifiers that are held while messages are read; of more the oldest that were named once are forgotten."""

SAID_CHARS_MAX: Final = 600
"""A longer message is a document or the output of a program, whose numbers nobody said."""

_REPLACEABLE: Final = VALUES | {IdentifierKind.CODE}

_SAID: Final = {Role.USER: Use.USER, Role.ASSISTANT: Use.ASSISTANT, Role.TOOL: Use.TOOL}
_USES: Final = tuple(Use)


@dataclass(slots=True)
class Found:
    """An identifier as the messages name it so far. `is_said` tells that prose names it, not rows of data alone."""

    kind: IdentifierKind
    text: str
    context: str
    use: Use
    first: int
    numbers: list[int] = field(default_factory=list)
    count: int = 0
    matters: set[tuple[str, ...]] = field(default_factory=set)
    replaced_by: int = 0
    is_said: bool = False

    def entry(self) -> LedgerEntry:
        """Return an entry of it without counted tokens."""
        newest = self.numbers if self.count <= NUMBERS_MAX else self.numbers[1 - NUMBERS_MAX :]
        numbers = tuple(sorted({self.first, *newest}))
        return LedgerEntry(self.kind, self.text, self.context, numbers, self.count, self.use, 0, 0, self.replaced_by)


Heard = Callable[[Mention, int, Use], None]
"""Takes every identifier that is read, the number of its message, and who named it."""

UNHEARD: Final[Heard] = lambda _mention, _number, _use: None  # noqa: E731 - a value among parameters


def found_in(
    leaving: Iterable[MessageAppended],
    staying: Iterable[MessageAppended],
    ledger: Ledger,
    heard: Heard = UNHEARD,
) -> tuple[list[Found], tuple[Replaced, ...]]:
    """The identifiers of the messages that leave, and those of the ledger that they, or the ones that stay, replace."""
    reading = _Reading(ledger, heard)
    for m in leaving:
        reading.read(m)
    own = reading.said_or_alone()
    reading.only_replaces = True
    for m in staying:
        reading.read(m)
    return list(own.values()), tuple(Replaced(key, number) for key, number in reading.replaced.items())


class _Reading:
    """The identifiers that have been read so far. `only_replaces` says that the messages stay: they add nothing."""

    def __init__(self, ledger: Ledger, heard: Heard) -> None:
        self._heard = heard
        self.found: dict[str, Found] = {}
        self.replaced: dict[str, int] = {}
        self.only_replaces = False
        self._newest: dict[tuple[str, ...], tuple[int, str]] = {}
        self._named_at: dict[str, int] = {}
        for entry in ledger.entries:
            self._named_at[entry.key] = entry.numbers[-1]
            if entry.kind in _REPLACEABLE and not entry.replaced_by:
                for matter in _matters_of(entry):
                    known = self._newest.get(matter)
                    if known is None or known[0] < entry.numbers[-1]:
                        self._newest[matter] = (entry.numbers[-1], entry.key)

    def read(self, m: MessageAppended) -> None:
        """Read one message; they come in order."""
        for text, use in _texts(m.message):
            is_data = use is Use.TOOL or (use is not Use.CALL and text.lstrip()[:1] in ("{", "["))
            named = list(mentions(text, said=not is_data and use is not Use.CALL and len(text) <= SAID_CHARS_MAX))
            # The model chooses what a call names, so calls count rows only within one of them.
            rows = serial(mention.text for mention in named) if use is Use.CALL else frozenset()
            for mention in named:
                self._heard(mention, m.number, use)
                if use is not Use.TOOL or _is_worth_a_place(mention):
                    self._named(mention, m.number, use, is_data=is_data or mention.text in rows)
        if len(self.found) > 2 * FOUND_MAX:
            self._forget()

    def said_or_alone(self) -> dict[str, Found]:
        """Return the finds without names that only count the rows of data, one a message."""
        counting = serial(key for key, found in self.found.items() if not found.is_said)
        return {key: found for key, found in self.found.items() if key not in counting}

    def _named(self, mention: Mention, number: int, use: Use, *, is_data: bool) -> None:
        key = mention.text.casefold()
        if not self.only_replaces:
            found = self.found.get(key)
            if found is None:
                found = self.found[key] = Found(mention.kind, mention.text, mention.context, use, number)
            found.is_said = found.is_said or not is_data
            _count(found, mention, number, use)
        if use in (Use.USER, Use.ASSISTANT):
            self._replace(mention, key, number)
        if not mention.dropped and self._named_at.get(key, 0) < number:
            self._named_at[key] = number
            if self.replaced.get(key, number) < number:
                del self.replaced[key]
            if key in self.found and self.found[key].replaced_by < number:
                self.found[key].replaced_by = 0

    def _replace(self, mention: Mention, key: str, number: int) -> None:
        if mention.replaces:
            self._give_way(mention.replaces.casefold(), number)
        if mention.dropped:
            self._give_way(key, number)
            return
        if mention.kind not in _REPLACEABLE or not mention.matter:
            return
        for matter in _matters(mention):
            known = self._newest.get(matter)
            if known is not None and known[1] != key and known[0] < number:
                # The last word alone names the same thing only if nothing else tells the two apart.
                sure = len(matter) > 2 or (mention.changes and len(mention.matter) == 1)
                if sure and self._named_at.get(known[1], 0) < number:
                    self._give_way(known[1], number)
            self._newest[matter] = (number, key)

    def _give_way(self, key: str, number: int) -> None:
        if key in self.found:
            self.found[key].replaced_by = number
        self.replaced[key] = number

    def _forget(self) -> None:
        """Keep the newest FOUND_MAX of those that were named once, and all others up to as many."""
        ranked = sorted(self.found.items(), key=lambda item: (item[1].count > 1, item[1].use is not Use.TOOL))
        self.found = dict(ranked[-FOUND_MAX:])


def _is_worth_a_place(mention: Mention) -> bool:
    """Whether an identifier that only a tool's result names is one: not a quantity, and no date that nothing names.

    A log has durations, sizes and times of its own on every line. Repeated, they are as meaningless.
    """
    return not mention.is_quantity and not (mention.kind is IdentifierKind.DATE and not mention.context)


def _texts(message: Message) -> Iterator[tuple[str, Use]]:
    if message.role in _SAID:
        yield unwrap_envelope(message.content), _SAID[message.role]
    for call in message.tool_calls:
        yield call.arguments, Use.CALL


def _count(found: Found, mention: Mention, number: int, use: Use) -> None:
    found.use = min(found.use, use, key=_USES.index)
    if mention.matter:
        found.matters.add(mention.matter)
    if found.numbers and found.numbers[-1] == number:
        return
    found.text, found.context = mention.text, mention.context or found.context
    found.count += 1
    found.numbers.append(number)
    if len(found.numbers) > 2 * NUMBERS_MAX:
        del found.numbers[:NUMBERS_MAX]


def _matters(mention: Mention) -> Iterator[tuple[str, ...]]:
    """Return the names by which a value is looked up: its kind with both words before it, and with the last of them."""
    kind = mention.kind.value
    if len(mention.matter) > 1:
        yield (kind, *mention.matter)
    yield (kind, mention.matter[-1])


def _matters_of(entry: LedgerEntry) -> Iterator[tuple[str, ...]]:
    for mention in mentions(f"{entry.context} {entry.text}"):
        if mention.text.casefold() == entry.key and mention.matter:
            yield from _matters(mention)
