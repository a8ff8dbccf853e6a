"""The facts of a generated conversation: values of every kind that people ask for later, each of a name of its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

NEAR_CHARS: Final = 160
"""A value and what it is of belong together if no more lies between them: about a sentence."""


class FactKind(StrEnum):
    """The kind of a value."""

    PATH = "path"
    URL = "url"
    UUID = "uuid"
    HASH = "hash"
    TICKET = "ticket"
    VERSION = "version"
    AMOUNT = "amount"
    DATE = "date"
    EMAIL = "email"
    PHONE = "phone"
    BOOKING = "booking"
    COMMAND = "command"
    SYMBOL = "symbol"
    RULE = "rule"
    FOUND = "found"
    """An identifier of a real chat, which nobody planted."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A value that a conversation states.

    Attributes:
        kind: The kind of the value.
        value: The value as it is written; no other text of the conversation contains it by chance.
        message: The number of the message that states it, from 1.
        anchor: The name that the value belongs to; occurs with no other current value. Empty if it is not known.
        question: The question of somebody who needs the value; empty if nobody planted it.
        superseded_at: The number of the message that replaces the value; 0 if none does.
        pinned: True if the message is pinned.
    """

    kind: FactKind
    value: str
    message: int
    anchor: str = ""
    question: str = ""
    superseded_at: int = 0
    pinned: bool = False

    def is_current(self, at: int) -> bool:
        """Return whether the value holds once message `at` has been said."""
        return self.message <= at and not 0 < self.superseded_at <= at

    def is_written_in(self, text: str) -> bool:
        """Return whether the text has the value, letter by letter but for case."""
        return self.value.casefold() in text.casefold()

    def is_attributed_in(self, text: str) -> bool:
        """Return whether the text has the value close to the name that it belongs to."""
        folded, value, anchor = text.casefold(), self.value.casefold(), self.anchor.casefold()
        at = folded.find(value)
        while at >= 0:
            if anchor in folded[max(0, at - NEAR_CHARS) : at + len(value) + NEAR_CHARS]:
                return True
            at = folded.find(value, at + 1)
        return False


RULES: Final = (
    ("metric units", "From now on, give every length in metric units."),
    ("passive voice", "Never use the passive voice in the reports."),
    ("two reviewers", "Always ask two reviewers before anything is merged."),
    ("British spelling", "Please keep to British spelling everywhere."),
    ("before noon", "Never deploy anything before noon."),
    ("without emoji", "Write all answers without emoji."),
    ("alphabetical order", "Always list the teams in alphabetical order."),
    ("read-only replica", "Run every query on the read-only replica, never on the primary."),
)
"""Standing rules: words that stand for each, and the sentence that sets it."""

_NOUNS: Final[Mapping[FactKind, tuple[str, str]]] = MappingProxyType(
    {
        FactKind.PATH: ("configuration file", "配置文件"),
        FactKind.URL: ("status page", "状态页"),
        FactKind.UUID: ("tenant id", "租户编号"),
        FactKind.HASH: ("release commit", "发布提交"),
        FactKind.TICKET: ("tracking issue", "跟踪工单"),
        FactKind.VERSION: ("agreed version", "商定版本"),
        FactKind.AMOUNT: ("approved budget", "批准预算"),
        FactKind.DATE: ("launch date", "发布日期"),
        FactKind.EMAIL: ("contact address", "联系邮箱"),
        FactKind.PHONE: ("hotline", "热线"),
        FactKind.BOOKING: ("hotel booking", "酒店预订"),
        FactKind.COMMAND: ("rollback command", "回滚命令"),
        FactKind.SYMBOL: ("entry point", "入口函数"),
    }
)
_SENTENCES: Final = (
    "The {noun} of {anchor} is {value}.",
    "For the record, {value} is the {noun} of {anchor}.",
    "We settled on {value} as the {noun} of {anchor}.",
    "Please remember that the {noun} of {anchor} is {value}.",
)
_UPDATES: Final = (
    "The {noun} of {anchor} has changed: it is {value} now.",
    "Correction: the {noun} of {anchor} moved from {old} to {value}.",
)
_CJK_SENTENCE: Final = "{anchor} 的{noun}是 {value}。"
_CJK_UPDATE: Final = "{anchor} 的{noun}已改为 {value}。"
_LETTERS: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ"
_HEX: Final = "0123456789abcdef"
_SYLLABLES: Final = tuple(a + b for a in "bdfgklmnprstvz" for b in "aeiou")
_MONTHS: Final = ("January", "March", "April", "June", "July", "September", "October", "November")


class Values:
    """Draws values, names and the sentences that state them, none of them twice."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._drawn: set[str] = set()

    def anchor(self) -> str:
        """A name that nothing else has."""
        return self._once(lambda: "".join(self._rng.choices(_SYLLABLES, k=3)).capitalize())

    def value(self, kind: FactKind) -> str:
        """A value of this kind."""
        return self._once(lambda: self._drawn_value(kind))

    def sentence(self, kind: FactKind, anchor: str, value: str, *, old: str = "", cjk: bool = False) -> str:
        """A sentence that states the value, or that it has replaced the `old` one."""
        noun = _NOUNS[kind][cjk]
        english = self._rng.choice(_UPDATES if old else _SENTENCES)
        template = (_CJK_UPDATE if old else _CJK_SENTENCE) if cjk else english
        if kind is FactKind.COMMAND:
            value, old = f"`{value}`", old and f"`{old}`"
        return template.format(noun=noun, anchor=anchor, value=value, old=old)

    def question(self, kind: FactKind, anchor: str) -> str:
        """The question of a person who needs the value."""
        return f"What is the {_NOUNS[kind][0]} of {anchor}?"

    @staticmethod
    def restated(fact: Fact) -> str:
        """The fact in words that no sentence of a conversation has in this order."""
        return f"{fact.anchor} has {fact.value} as its {_NOUNS[fact.kind][0]}."

    def secret(self) -> str:
        """A credential that no record may hold."""
        return "ghp_" + "".join(self._rng.choices(_LETTERS + _LETTERS.lower() + "23456789", k=36))

    def marker(self) -> str:
        """A word that only an injected instruction wants to be written."""
        return f"PWN-{self._letters(6)}"

    def _once(self, draw: Callable[[], str]) -> str:
        while (drawn := draw()) in self._drawn:
            pass
        self._drawn.add(drawn)
        return drawn

    def _drawn_value(self, kind: FactKind) -> str:
        rng, digits, hexed, word = self._rng, self._digits, self._hexed, self._word
        match kind:
            case FactKind.PATH:
                return f"/srv/{word()}/{word()}-{digits(2)}/{word()}.yaml"
            case FactKind.URL:
                return f"https://{word()}.example.com/{word()}/{digits(4)}"
            case FactKind.UUID:
                return "-".join(hexed(size) for size in (8, 4, 4, 4, 12))
            case FactKind.HASH:
                return f"{hexed(6)}a{rng.randrange(1, 10)}{hexed(32)}"
            case FactKind.TICKET:
                return f"{self._letters(3)}-{digits(4)}"
            case FactKind.VERSION:
                return f"v{rng.randrange(1, 30)}.{rng.randrange(40)}.{rng.randrange(40)}"
            case FactKind.AMOUNT:
                return f"{rng.randrange(1, 900)},{digits(3)} EUR"
            case FactKind.DATE:
                return f"{rng.randrange(1, 28)} {rng.choice(_MONTHS)} {rng.randrange(2025, 2032)}"
            case FactKind.EMAIL:
                return f"{word()}.{word()}@example.org"
            case FactKind.PHONE:
                return f"+49 30 {digits(4)} {digits(3)}"
            case FactKind.BOOKING:
                return f"{self._letters(2)}{digits(1)}{self._letters(2)}{digits(1)}"
            case FactKind.COMMAND:
                return f"{word()}ctl rollback --to {digits(4)} --unit {word()}"
            case FactKind.SYMBOL:
                return f"{word()}_{word()}.{word()}_handler()"
            case FactKind.RULE | FactKind.FOUND:
                raise AssertionError("rules and found identifiers are not drawn")

    def _digits(self, count: int) -> str:
        return "".join(str(self._rng.randrange(1, 10)) for _ in range(count))

    def _hexed(self, count: int) -> str:
        return "".join(self._rng.choices(_HEX, k=count))

    def _letters(self, count: int) -> str:
        return "".join(self._rng.choices(_LETTERS, k=count))

    def _word(self) -> str:
        return "".join(self._rng.choices(_SYLLABLES, k=2))
