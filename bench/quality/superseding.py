"""Values that a later sentence replaces, or does not, by writers who never saw the code; and which are taken for it.

A line of `LANGUAGE.tsv` has a label, `replaced` or `holds`, a sentence and the value that it states, a later sentence
and its value. A dozen lines make a conversation: first all the earlier sentences, then all the later ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from abridged.service.domain.events import MessageAppended
from abridged.service.domain.ledger import NO_LEDGER
from abridged.service.domain.ledger_entries import found_in
from abridged.service.domain.message import Message, Role
from abridged.service.domain.tokens import TokenSource
from bench.quality.examined import Share

PAIRS: Final = 12
"""The lines of a conversation."""


class Pair(NamedTuple):
    """Two sentences of a conversation, each with its value; the later value replaces the earlier one, or does not."""

    is_replaced: bool
    old_sentence: str
    old_value: str
    new_sentence: str
    new_value: str


class Conversation(NamedTuple):
    """The pairs of a conversation, and its messages."""

    pairs: list[Pair]
    messages: list[MessageAppended]

    def is_replaced(self, old: str, *, by: str) -> bool:
        """Return whether a pair replaces one value by the other, both as they are found."""
        replaced = (pair for pair in self.pairs if pair.is_replaced)
        return any(names(old, pair.old_value) and names(by, pair.new_value) for pair in replaced)


class Superseded(NamedTuple):
    """The share of replaced values that are known to be, and the share of those known to be that were."""

    found: Share
    right: Share


def conversations(folder: Path) -> Iterator[Conversation]:
    """The conversations of a half, by language."""
    for path in sorted(folder.glob("values/*.tsv")):
        lines = [line.split("\t") for line in path.read_text("utf-8").splitlines()]
        pairs = [Pair(label == "replaced", *rest) for label, *rest in lines]
        for start in range(0, len(pairs), PAIRS):
            made = pairs[start : start + PAIRS]
            said = [*(pair.old_sentence for pair in made), *(pair.new_sentence for pair in made)]
            messages = (Message(f"m{number}", Role.USER, text) for number, text in enumerate(said, 1))
            appended = [MessageAppended(n, message, 0, TokenSource.ESTIMATE) for n, message in enumerate(messages, 1)]
            yield Conversation(made, appended)


def superseded_read(folder: Path) -> Superseded:
    """Read the conversations of a half as a pass does."""
    found = Superseded(Share(), Share())
    for pairs, messages in conversations(folder):
        _, replaced = found_in(messages, (), NO_LEDGER)
        gone = [one.key for one in replaced]
        olds = [pair.old_value for pair in pairs if pair.is_replaced]
        found.found.add(sum(any(names(key, old) for key in gone) for old in olds), len(olds))
        found.right.add(sum(any(names(key, old) for old in olds) for key in gone), len(gone))
    return found


def names(key: str, value: str) -> bool:
    """Return whether a value that was found, case folded, is the one of a line, with a word more or less around its
    number."""
    shorter, longer = sorted((key, value.casefold()), key=len)
    return key == value.casefold() or (any(map(str.isdigit, shorter)) and _has_whole(longer, shorter))


def _has_whole(text: str, part: str) -> bool:
    """Return whether a text has a part, and not within a number."""
    return re.search(rf"(?<![0-9])(?<![0-9][.,:]){re.escape(part)}(?![.,:]?[0-9])", text) is not None
