"""Counts the facts of covered messages that windows still have, by the number of passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from abridged.service.domain.conversation import Conversation, live_coverage
from abridged.service.domain.ledger import KIND_WEIGHTS
from abridged.service.domain.message import Role
from abridged.service.domain.policy import SummaryRole
from abridged.service.domain.render import rendered_window
from abridged.service.text.identifiers import NUMBER_CHARS_MIN, IdentifierKind, identifiers
from bench.player import PlayedChat
from bench.quality.facts import Fact, FactKind

PASSES: Final = (1, 3, 10)
"""The numbers of records after which a window is examined; its conversation's end is one more time."""

END: Final = 0
"""Stands for the conversation's end among PASSES."""


@dataclass(slots=True)
class Tally:
    """Counts of what could be there and is.

    Attributes:
        asked: Current facts whose message is no longer in the window.
        written: Values of these facts that the window has.
        attributed: Values that the window has beside the names that they belong to.
        old: Values that were replaced, in messages that are no longer in the window.
        stale: Replaced values that the window has without the current one.
        rules: Standing rules that nobody pinned, whose message is no longer in the window. They are no identifiers.
        ruling: Standing rules of these that the window has.
    """

    asked: int = 0
    written: int = 0
    attributed: int = 0
    old: int = 0
    stale: int = 0
    rules: int = 0
    ruling: int = 0


@dataclass(slots=True)
class Survey:
    """Looks at the windows of chats whose facts are given, by chat, in the order of their messages.

    `seen` is the player's OnWindow. `tallies` are by number of records, END for the end of each chat.
    """

    chats: Mapping[str, Sequence[Fact]]
    lengths: Mapping[str, int]
    tallies: dict[int, Tally] = field(default_factory=lambda: {place: Tally() for place in (*PASSES, END)})
    pinned: int = 0
    pinned_kept: int = 0
    missing: int = 0
    messages: int = 0
    tokens: int = 0
    window_tokens: int = 0
    _reached: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, chats: Iterable[PlayedChat], facts: Mapping[str, Sequence[Fact]]) -> Survey:
        """The survey of these chats."""
        return cls(facts, {name: len(messages) for name, messages in chats})

    def seen(self, name: str, count: int, state: Conversation) -> None:
        """Look at the window after `count` messages, if it has just reached one of PASSES or the end."""
        before = self._reached.get(name, 0)
        self._reached[name] = records = len(state.records)
        for place in PASSES:
            if before < place <= records:
                self._tally(self.tallies[place], name, count, state)
        if count == self.lengths[name]:
            self._tally(self.tallies[END], name, count, state)
            self._end(name, state)

    def _tally(self, tally: Tally, name: str, at: int, state: Conversation) -> None:
        text = "\n".join(rendered.message.content for rendered in rendered_window(state, SummaryRole.SYSTEM))
        inside = {m.number for m in state.window if not m.cleared_tokens}
        facts = self.chats[name]
        current = {fact.anchor: fact for fact in facts if fact.anchor and fact.is_current(at)}
        for fact in facts:
            if fact.message > at or fact.message in inside:
                continue
            if fact.kind is FactKind.RULE:
                tally.rules += not fact.pinned
                tally.ruling += not fact.pinned and fact.is_written_in(text)
            elif fact.is_current(at):
                tally.asked += 1
                tally.written += fact.is_written_in(text)
                tally.attributed += fact.is_attributed_in(text)
            else:
                tally.old += 1
                tally.stale += fact.is_written_in(text) and not current[fact.anchor].is_written_in(text)

    def _end(self, name: str, state: Conversation) -> None:
        inside = {m.number for m in state.window}
        covered = {number for r in live_coverage(state) for number in range(r.first, r.last + 1)}
        pinned = {fact.message for fact in self.chats[name] if fact.pinned}
        self.pinned += len(pinned)
        self.pinned_kept += len(pinned & inside)
        self.messages += self.lengths[name]
        self.missing += self.lengths[name] - len(inside | covered)
        self.tokens += state.original_tokens
        self.window_tokens += state.window_tokens


def found_facts(chat: PlayedChat) -> list[Fact]:
    """The identifiers that people or the model said in a real chat, each where it was said last.

    Identifiers that only a tool returned are left out: nobody will ask for most of them.
    """
    last: dict[str, Fact] = {}
    for number, message in enumerate(chat[1], 1):
        if message.role not in (Role.USER, Role.ASSISTANT):
            continue
        for found in identifiers(message.content):
            if found.kind is IdentifierKind.NUMBER and sum(map(str.isdigit, found.text)) < NUMBER_CHARS_MIN:
                continue
            if found.kind in KIND_WEIGHTS and len(found.text) >= NUMBER_CHARS_MIN:
                last[found.text.casefold()] = Fact(FactKind.FOUND, found.text, number)
    return sorted(last.values(), key=lambda fact: fact.message)
