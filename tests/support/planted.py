"""Chats with planted facts: each fact is in one message, and statements tell it in other words, or tell a lie.

Sentences and statements come from `planted.json` beside this file, in two sets without a sentence in common: `tune` is
for setting thresholds, `held` for reporting. A seed decides who says what where. Half of the facts have a neighbour in
another message that differs in its values alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from abridged.service.domain.message import Message, Role

_DATA: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("planted.json").read_text(encoding="utf-8"))
_MONTHS: Final = ("January", "February", "March", "April", "May", "June", "July", "August", "October", "November")
FACTS: Final = 18
LIES: Final = 8


@dataclass(frozen=True)
class Told:
    """A statement and the message that says it; 0 for a lie, whose `kind` says how it lies."""

    text: str
    number: int
    kind: str


@dataclass(frozen=True)
class Planted:
    """A chat, by message number, and statements about it."""

    messages: tuple[tuple[int, Message], ...]
    told: tuple[Told, ...]

    @property
    def facts(self) -> tuple[Told, ...]:
        """The statements that are true."""
        return tuple(told for told in self.told if told.number)

    @property
    def lies(self) -> tuple[Told, ...]:
        """The statements that nobody said."""
        return tuple(told for told in self.told if not told.number)


def planted(seed: int, part: str) -> Planted:
    """The chat of this seed, with sentences of `part`: `tune` or `held`."""
    rng = Random(f"{part}-{seed}")
    entries: list[tuple[Role, str, str, list[Told]]] = []
    for fact in rng.choices(_DATA["facts"][part], k=FACTS):
        values = _values(rng)
        entries.append(_entry(rng, fact, values))
        if rng.random() < 0.5:
            entries.append(_entry(rng, fact, _values(rng), told=False))
    either = (Role.USER, Role.ASSISTANT)
    mentions = rng.choices(_DATA["mentions"], k=FACTS // 2)
    entries.extend((rng.choice(either), "", mention.format(**_values(rng)), []) for mention in mentions)
    rng.shuffle(entries)
    messages: list[tuple[int, Message]] = []
    told: list[Told] = []
    for number, (role, name, text, statements) in enumerate(entries, start=1):
        filler = rng.sample(_DATA["filler"], k=rng.randint(0, 2)) if role is not Role.TOOL else []
        content = " ".join((*filler[:1], text, *filler[1:]))
        messages.append((number, Message(f"m{number}", role, content, name)))
        told += [Told(t.text, number, t.kind) for t in statements]
    told += _lies(rng, part, told)
    return Planted(tuple(messages), tuple(told))


def _entry(
    rng: Random, fact: dict[str, Any], values: dict[str, str], *, told: bool = True
) -> tuple[Role, str, str, list[Told]]:
    role = Role(fact.get("role", rng.choice(("user", "assistant"))))
    name = rng.choice((*_DATA["people"], "")) if role is Role.USER else ""
    kind = "tool" if role is Role.TOOL else fact.get("lang", "en")
    statements = [Told(rng.choice(fact["told"]).format(**values), 0, kind)] if told else []
    return role, name, fact["said"].format(**values), statements


def _lies(rng: Random, part: str, told: list[Told]) -> Iterator[Told]:
    for text in rng.sample(_DATA["lies"][part], k=LIES):
        yield Told(text.format(**_values(rng)), 0, "fabricated")
    english = [t.text for t in told if t.kind == "en"]
    things = [thing for thing in _DATA["things"] if any(thing in text for text in english)]
    for text in english:
        mine = next((thing for thing in things if thing in text), None)
        others = [thing for thing in things if thing != mine]
        if mine and others:
            yield Told(text.replace(mine, rng.choice(others)), 0, "other thing")


def _values(rng: Random) -> dict[str, str]:
    month, day = rng.randint(1, 9), rng.randint(1, 28)
    return {
        "thing": rng.choice(_DATA["things"]),
        "person": rng.choice(_DATA["people"]),
        "city": rng.choice(_DATA["cities"]),
        "vendor": rng.choice(_DATA["vendors"]),
        "date": f"{_MONTHS[month - 1]} {day}",
        "iso": f"2025-{month:02d}-{day:02d}",
        "day": str(day),
        "month": str(month),
        "month2": f"{month:02d}",
        "amount": f"{rng.randint(2, 99)},{rng.randint(0, 9)}00 EUR",
        "count": str(rng.randint(11, 480)),
        "code": f"E{rng.randint(1000, 9999)}",
        "ticket": f"{rng.choice(('OPS', 'WEB', 'PAY'))}-{rng.randint(100, 9999)}",
        "version": f"v{rng.randint(1, 9)}.{rng.randint(0, 20)}.{rng.randint(0, 9)}",
        "path": f"/var/{rng.choice(('lib', 'log', 'spool'))}/{rng.choice('abcdef')}{rng.randint(10, 99)}.db",
        "host": f"node-{rng.randint(10, 99)}.internal.net",
        "zh_thing": rng.choice(_DATA["zh_things"]),
        "ja_thing": rng.choice(_DATA["ja_things"]),
    }
