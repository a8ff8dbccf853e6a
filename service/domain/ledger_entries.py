"""Makes ledger entries of messages: the facts in them with counts, and those that newer values have replaced.

A fact is replaced across messages alone, since one message often lists several of a kind, and only by what somebody
says: a tool's result has a price for each flight, and an argument of a call is not a statement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from abridged.service.domain.events import MessageAppended
from abridged.service.domain.ledger import NUMBERS_MAX, Ledger, LedgerEntry, Replaced, Use
from abridged.service.domain.material import material
from abridged.service.domain.message import Message, Role, sent_content
from abridged.service.domain.standing_values import StandingValues, Stated, Told, shape_of, told_by
from abridged.service.text.identifiers import MEASURED, SERIES_MIN, IdentifierKind, serial
from abridged.service.text.mentions import Mention, mentions
from abridged.service.text.nested_json import begins_as_data
from abridged.service.text.rows import column_of, row_of
from abridged.service.text.values import is_listing
from abridged.service.text.words import word_keys

FOUND_MAX: Final = 4_096
"""Identifiers that are held while messages are read; of more the oldest that were named once are forgotten."""

SAID_CHARS_MAX: Final = 600
"""A longer message is a document or the output of a program, whose numbers nobody said."""

READ_CHARS_MAX: Final = 2_000
"""A longer result of a tool has a value in every line, so that only identifiers count."""

LISTED_MIN: Final = 3
"""Values of one shape in one message that make a list: each is of a thing of its own."""

_DENSE_SHARE: Final = 0.04
"""Identifiers a word. No long message of people in meetings has one in a hundred words; half of those by which a coding
agent is shown files and output have one in sixteen."""

_SAID: Final = {Role.USER: Use.USER, Role.ASSISTANT: Use.ASSISTANT, Role.TOOL: Use.TOOL}
_USES: Final = tuple(Use)


@dataclass(slots=True)
class Found:
    """A fact as the messages name it so far. `is_said` tells that prose names it, not rows of data alone."""

    kind: IdentifierKind
    text: str
    context: str
    use: Use
    first: int
    numbers: list[int] = field(default_factory=list)
    count: int = 0
    replaced_by: int = 0
    is_said: bool = False
    rest: str = ""

    def entry(self) -> LedgerEntry:
        """Return an entry of it without counted tokens."""
        newest = self.numbers if self.count <= NUMBERS_MAX else self.numbers[1 - NUMBERS_MAX :]
        numbers = tuple(sorted({self.first, *newest}))
        return LedgerEntry(
            self.kind,
            self.text,
            self.context,
            numbers,
            self.count,
            self.use,
            tokens=0,
            replaced_by=self.replaced_by,
            is_fact=True,
            rest=self.rest,
        )


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


def stated_by(mention: Mention, number: int, told: Told | None, *, is_listed: bool = False) -> Stated:
    """The value that a mention in message `number` states, in a sentence with these signs."""
    about, named = mention.words.about, word_keys(mention.words.name)
    return Stated(mention.text.casefold(), mention.kind, about, named, number, told, is_listed)


class _Reading:
    """The identifiers that have been read so far. `only_replaces` says that the messages stay: they add nothing."""

    def __init__(self, ledger: Ledger, heard: Heard) -> None:
        self._heard = heard
        self.found: dict[str, Found] = {}
        self.replaced: dict[str, int] = {}
        self.only_replaces = False
        self._named_at: dict[str, int] = {}
        self._standing = StandingValues()
        self._states: dict[str, str] = {}
        shapes = Counter((number, shape_of(entry.key)) for entry in ledger.entries for number in entry.numbers)
        for entry in sorted(ledger.entries, key=lambda entry: entry.numbers[-1]):
            number, words = entry.numbers[-1], word_keys(entry.context)
            self._named_at[entry.key] = number
            if entry.kind is IdentifierKind.STATE:
                self._states[row_of(entry.key)] = entry.key
            elif not entry.replaced_by:
                in_list = any(shapes[one, shape_of(entry.key)] >= LISTED_MIN for one in entry.numbers)
                is_listed = in_list or entry.use is Use.TOOL
                first = Stated(entry.key, entry.kind, words, words, entry.numbers[0], is_listed=is_listed)
                self._standing.stands(first)
                self._standing.named_again(entry.key, number)

    def read(self, m: MessageAppended) -> None:
        """Read one message; they come in order."""
        for text, use in _texts(m.message):
            is_data = use is Use.TOOL or (use is not Use.CALL and begins_as_data(text))
            most = READ_CHARS_MAX if is_data else SAID_CHARS_MAX
            in_listing = is_listing(text)
            is_prose = use is not Use.CALL and len(text) <= most and not in_listing
            named = list(mentions(text, said=is_prose, by_line=use is Use.TOOL or in_listing))
            is_handed_on = use is Use.USER and len(text) > SAID_CHARS_MAX and _is_dense(text, named)
            if is_handed_on:
                named = list(mentions(text, said=is_prose, by_line=True))
            by, is_data = Use.TOOL if is_handed_on else use, is_data or is_handed_on
            # The model chooses what a call names, so calls count rows only within one of them.
            rows = serial(mention.text for mention in named) if use is Use.CALL else frozenset()
            shapes = {key: shape_of(key) for key in {mention.text.casefold() for mention in named}}
            times = Counter(shapes.values())
            told = {sentence: told_by(sentence) for sentence in {mention.words.sentence for mention in named} - {""}}
            states = [mention for mention in named if mention.kind is IdentifierKind.STATE]
            if use is Use.CALL or len(states) >= LISTED_MIN:
                named = [mention for mention in named if mention.kind is not IdentifierKind.STATE]
            if use is not Use.CALL:
                for mention in states:
                    self._changes_to(mention.text.casefold(), m.number)
            for mention in named:
                if not mention.words.dropped:
                    self._standing.named_again(mention.text.casefold(), m.number)
            for mention in named:
                self._heard(mention, m.number, use)
                if by is not Use.TOOL or _is_worth_a_place(mention):
                    is_listed = is_data or times[shapes[mention.text.casefold()]] >= LISTED_MIN
                    signs = told.get(mention.words.sentence)
                    stated = stated_by(mention, m.number, signs, is_listed=is_listed)
                    self._named(mention, stated, by, is_data=is_data or mention.text in rows)
        if len(self.found) > 2 * FOUND_MAX:
            self._forget()

    def said_or_alone(self) -> dict[str, Found]:
        """Return the finds without names that only count the rows of data, and without the columns of such rows."""
        counting = serial(key for key, found in self.found.items() if not found.is_said)
        columns = Counter(column_of(found.context) for found in self.found.values() if _is_cell(found))
        return {
            key: found
            for key, found in self.found.items()
            if key not in counting and not (_is_cell(found) and columns[column_of(found.context)] >= SERIES_MIN)
        }

    def _named(self, mention: Mention, stated: Stated, use: Use, *, is_data: bool) -> None:
        key, number = stated.key, stated.number
        if not self.only_replaces:
            found = self.found.get(key)
            if found is None:
                found = self.found[key] = Found(mention.kind, mention.text, "", use, number)
            found.is_said = found.is_said or not is_data
            _count(found, mention, number, use, is_data=is_data)
        if mention.kind is not IdentifierKind.STATE:
            self._replace(mention, stated, is_data=is_data)
        if not mention.words.dropped and self._named_at.get(key, 0) < number:
            self._named_at[key] = number
            if self.replaced.get(key, number) < number:
                del self.replaced[key]
            if key in self.found and self.found[key].replaced_by < number:
                self.found[key].replaced_by = 0

    def _replace(self, mention: Mention, stated: Stated, *, is_data: bool) -> None:
        words, key, number = mention.words, stated.key, stated.number
        if not is_data and not words.supposed:
            old = self._standing.superseded_by(stated)
            named = mention.replaces.casefold()
            for gone in filter(None, (old, named, key if words.dropped else "")):
                self._give_way(gone, number)
        if not words.dropped:
            self._standing.stands(stated)

    def _changes_to(self, key: str, number: int) -> None:
        """Let the state that an object had give way to another one of the same row."""
        row = row_of(key)
        old = self._states.get(row, key)
        self._states[row] = key
        if old != key:
            self._give_way(old, number)

    def _give_way(self, key: str, number: int) -> None:
        self._standing.falls(key)
        if key in self.found:
            self.found[key].replaced_by = number
        self.replaced[key] = number

    def _forget(self) -> None:
        """Keep the newest FOUND_MAX of those that were named once, and all others up to as many."""
        ranked = sorted(self.found.items(), key=lambda item: (item[1].count > 1, item[1].use is not Use.TOOL))
        self.found = dict(ranked[-FOUND_MAX:])


def _is_dense(text: str, named: Sequence[Mention]) -> bool:
    """Return whether a text names as many things as programs put out, whoever hands it on."""
    return len({mention.text for mention in named}) >= _DENSE_SHARE * len(text.split())


def _is_cell(found: Found) -> bool:
    """Return whether it may be a value in a column: a measured one that only a tool's result labels."""
    return found.use is Use.TOOL and found.context.endswith("=") and found.kind in MEASURED


def _is_worth_a_place(mention: Mention) -> bool:
    """Return whether a value that only a tool's result names is worth a place: every line of a log has numbers and
    times that no word stands beside."""
    return mention.words.is_beside or mention.kind not in (IdentifierKind.NUMBER, IdentifierKind.DATE)


def _texts(message: Message) -> Iterator[tuple[str, Use]]:
    if message.role in _SAID:
        yield sent_content(message), _SAID[message.role]
        if beside := material(message):
            # Material beside a model's words comes from the API's own tools.
            yield beside, Use.USER if message.role is Role.USER else Use.TOOL
    for call in message.tool_calls:
        yield call.arguments, Use.CALL


def _count(found: Found, mention: Mention, number: int, use: Use, *, is_data: bool) -> None:
    found.use = min(found.use, use, key=_USES.index)
    if number == found.first and not found.context:
        # A message that goes takes its words along, so that those of a fact are of one message.
        found.context, found.rest = mention.words.name, mention.words.ending if is_data else mention.words.rest
    if found.numbers and found.numbers[-1] == number:
        return
    found.count += 1
    found.numbers.append(number)
    if len(found.numbers) > 2 * NUMBERS_MAX:
        del found.numbers[:NUMBERS_MAX]
