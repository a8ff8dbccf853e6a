"""The receipt of a pass: how much of what it took out of the window is where afterwards.

A pass takes out messages, the texts of cleared results, records that a new one replaces, and entries of the ledger for
which no room is left. Each message, and each identifier, decision and standing rule in them, is counted once, at the
first place of `ReceiptPlace` that holds. `service.domain.whereabouts` makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from abridged.service.domain.ledger import Use
from abridged.service.text.naming import Names

ITEMS_MAX: Final = 8
"""Things of one kind at one place that a receipt names; it counts all of them."""


class ReceiptKind(StrEnum):
    """The kind of a thing that left the window."""

    MESSAGE = "message"
    IDENTIFIER = "identifier"
    DECISION = "decision"
    RULE = "rule"


class ReceiptPlace(StrEnum):
    """The place of a thing after the pass, the most lasting place first.

    PINNED and WINDOW: a message in the window says it, a pinned one or another. RECORD, LEDGER and RULES: the summary
    says it. REACHABLE: the window does not say it, and a call returns a message or a record that does. GONE: no call
    does.
    """

    PINNED = "pinned"
    RECORD = "record"
    LEDGER = "ledger"
    RULES = "rules"
    WINDOW = "window"
    REACHABLE = "reachable"
    GONE = "gone"


class ReceiptItem(NamedTuple):
    """One thing of a line: its text, empty for a message, and a message that says it, 0 if only a record does."""

    text: str
    number: int


@dataclass(frozen=True, slots=True)
class ReceiptLine:
    """The number of things of a kind that are at a place. `items` are some of those that the window does not say."""

    kind: ReceiptKind
    place: ReceiptPlace
    count: int
    items: tuple[ReceiptItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Receipt:
    """The lines of a pass, each with a count above 0; none if nothing left."""

    lines: tuple[ReceiptLine, ...] = ()

    def count(self, place: ReceiptPlace, kind: ReceiptKind | None = None) -> int:
        """Count the things, or the things of one kind, that are at the place."""
        return sum(line.count for line in self.lines if line.place is place and kind in (None, line.kind))


class Named(NamedTuple):
    """An identifier that leaves: as it is written, the newest message that names it, 0 if only a record does, and who
    named it."""

    text: str
    number: int
    use: Use


class Decided(NamedTuple):
    """A decision or a standing rule that leaves: a sentence, and the message that says it, 0 if only a record does."""

    text: str
    number: int


@dataclass(frozen=True, slots=True)
class Leaving:
    """The names and sentences in the texts that a pass takes out of the window.

    Attributes:
        names: The identifiers by key, which is the identifier case folded.
        decisions: The decisions by key.
        results: The identifiers of the tool results that stay, by message and key: the pass may clear some of them.
        index: The keys of names and decisions, ready to be looked up.
    """

    names: Mapping[str, Named] = field(default_factory=lambda: MappingProxyType({}))
    decisions: Mapping[str, Decided] = field(default_factory=lambda: MappingProxyType({}))
    results: Mapping[int, Mapping[str, Named]] = field(default_factory=lambda: MappingProxyType({}))
    index: Names = field(default_factory=lambda: Names(()))


NOTHING_LEAVES: Final = Leaving()
