"""Long conversations in a large window: its fill after passes, and what it knows, with room after a pass and without.

A window of CONTEXT_LENGTH tokens has ten passes only after some 250,000 tokens, so the chats of a folder are joined
into one conversation, in turn a chat of each file.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain as chained
from itertools import zip_longest
from pathlib import Path
from statistics import median
from typing import Final

from abridged.service.domain.conversation import Conversation
from abridged.service.domain.policy import Policy
from abridged.service.domain.profiles import chain
from abridged.service.domain.sizes import LEDGER_WITHOUT_ROOM
from bench.costs import chats_of
from bench.player import MODEL_WINDOW, Costs, played
from bench.quality.examined import Share, window_text
from bench.quality.facts import Fact
from bench.quality.generator import generated
from bench.quality.lossy import LossyModel
from bench.quality.runs import Corpus, Summarizing, joined
from bench.quality.survival import found_facts

CONTEXT_LENGTH: Final = 32_768
PASSES: Final = 10
"""Windows are compared after the message that leads to pass number PASSES without room."""

TURNS, FACTS = 1_150, 400
"""A generated conversation of ten passes, and the facts that it states."""

SEEDS: Final = (51, 52)

ROOMS: Final[Mapping[str, Policy]] = {
    "without": replace(chain.defaults(), after_pass_token_ratio=0.0, max_ledger_tokens=LEDGER_WITHOUT_ROOM),
    "with": chain.defaults(),
}
"""The sizes of a window of 8,192 tokens in a larger one, and the default policy."""

BAND: Final = (0.25, 0.35)
"""The fill that a pass is to leave."""

HEADINGS = (
    "conversation", "summarizer", "room", "passes", "cleared", "fill after a pass: least, median, most",
    "in the band", f"known after {PASSES} passes without room", "known at the end", "calls", "call tokens",
)  # fmt: skip


@dataclass(slots=True)
class Look:
    """Looks at the windows of one conversation; `seen` is the player's OnWindow.

    Attributes:
        facts: The facts that the conversation states.
        length: The number of its messages.
        at: The message after which to look; 0 for the one that leads to pass number PASSES.
        fills: The fill of the window after each pass that made a record of all that it could.
        passes: Passes, also those that cleared results alone.
        known: Facts that hold and that the window says, after message `at`.
        known_at_end: The same at the end.
    """

    facts: Sequence[Fact]
    length: int
    at: int = 0
    fills: list[float] = field(default_factory=list)
    passes: int = 0
    known: Share = field(default_factory=Share)
    known_at_end: Share = field(default_factory=Share)

    def seen(self, _name: str, count: int, state: Conversation) -> None:
        """Look at the window after `count` messages."""
        if state.completed_passes > self.passes:
            self.passes = state.completed_passes
            last = next(ended for ended in reversed(state.passes) if ended.record_id or ended.cleared)
            if last.record_id and not last.plan.cut:
                self.fills.append(state.ratio)
        self.at = self.at or (count if self.passes >= PASSES else 0)
        if count == self.at:
            self.known = self._known(count, state)
        if count == self.length:
            self.known_at_end = self._known(count, state)

    def _known(self, count: int, state: Conversation) -> Share:
        text = window_text(state)
        stated = [fact for fact in self.facts if fact.message <= count and fact.is_current(count)]
        return Share(sum(fact.is_written_in(text) for fact in stated), len(stated))


@dataclass(frozen=True, slots=True)
class Played:
    """A conversation played once."""

    conversation: Corpus
    summarizer: str
    room: str
    look: Look
    costs: Costs


def conversations(folder: Path | None, *, turns: int = TURNS, facts: int = FACTS) -> list[Corpus]:
    """The generated conversations, and the chats of the folder as one."""
    made = [generated(seed, turns=turns, facts=facts) for seed in SEEDS]
    found = [Corpus(chat.id, [chat.played], {chat.id: chat.facts}) for chat in made]
    if folder is not None:
        files = [chats_of(path) for path in sorted(folder.glob("*.jsonl"))]
        in_turn = [chat for chat in chained.from_iterable(zip_longest(*files)) if chat is not None]
        (whole,) = joined(in_turn, messages=sys.maxsize)
        found.append(Corpus("real chats", [whole], {whole[0]: found_facts(whole)}))
    return found


async def compared(conversation: Corpus, who: Summarizing) -> tuple[Played, Played]:
    """The conversation without room and with it; the second is looked at where the first had its PASSES passes."""
    ((name, messages),) = conversation.chats
    at, found = 0, list[Played]()
    for label, policy in ROOMS.items():
        look = Look(conversation.facts[name], len(messages), at)
        costs = await played(
            conversation.chats,
            context_length=CONTEXT_LENGTH,
            policy=policy,
            model=who.model,
            extractive=who.model is None,
            on_window=look.seen,
        )
        found.append(Played(conversation, who.name, label, look, costs))
        at = look.at
    without, within = found
    return without, within


async def rows(folder: Path | None) -> AsyncIterator[tuple[str, ...]]:
    """Two rows for each conversation and summarizer, and two for all of them."""
    model = LossyModel(window=MODEL_WINDOW)
    every: list[Played] = []
    for conversation in conversations(folder):
        for who in (Summarizing("extractive"), Summarizing(model.name, model)):
            for played_once in await compared(conversation, who):
                every.append(played_once)
                yield row(played_once)
    for label in ROOMS:
        yield _total([one for one in every if one.room == label])


def row(one: Played) -> tuple[str, ...]:
    return one.conversation.name, one.summarizer, one.room, *_figures([one])


def _total(every: Sequence[Played]) -> tuple[str, ...]:
    return "all", "", every[0].room, *_figures(every)


def _figures(every: Sequence[Played]) -> tuple[str, ...]:
    fills = [fill for one in every for fill in one.look.fills]
    low, high = BAND
    return (
        f"{sum(one.look.passes for one in every)}",
        f"{sum(one.costs.cleared for one in every)}",
        f"{min(fills):.2f} {median(fills):.2f} {max(fills):.2f}",
        f"{sum(low <= fill <= high for fill in fills) / len(fills):.2f}",
        _share(one.look.known for one in every),
        _share(one.look.known_at_end for one in every),
        f"{sum(one.costs.calls for one in every):,}",
        f"{sum(one.costs.call_tokens for one in every):,}",
    )


def _share(shares: Iterable[Share]) -> str:
    total = Share()
    for share in shares:
        total.add(share.part, share.whole)
    return f"{total.value:.2f}"
