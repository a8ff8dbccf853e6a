"""Searches of a benchmark's chats by a sidecar, beside plain BM25 and plain cosines over whole messages.

The sidecar gets each chat an exchange an append, in a window that never fills: it has no records beside the messages.
The sidecar's rivals have the same messages, vectors and count of tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from abridged.service.recall.multilingual import MultilingualEmbedder
from abridged.service.tokenizers.estimated import EstimatingCounter
from bench.processes import sidecar_child
from bench.quality.beam import BeamChat, BeamQuestion, stands
from bench.quality.examined import Share
from bench.quality.rivals import Rivals, exchanges
from bench.rpc import SidecarCalls

FIRST: Final = (5, 10)
"""The hits among which a source is looked for."""

BUDGETS: Final = (2_000, 7_000)
"""Tokens that a caller reads of what is found."""

SETTINGS: Final = {
    "summarizer.models": "extractive:",
    "recall.index": "both",
    "recall.embedder": "multilingual",
    "server.message_bytes_max": "1000000",
}
"""One message is a third of a megabyte of blanks."""

MODES: Final = ("words", "meaning", "both")
NEWEST = "newest messages"

token_count: Final = lru_cache(maxsize=20_000)(EstimatingCounter().count)
"""Most texts are read again for the next question."""


@dataclass(slots=True)
class Counted:
    """The counts of a category in a half, by who searched: the questions with a source among the first hits, for each
    of FIRST, the answers that stand in what is read, for each of BUDGETS, and the updated facts whose newest statement
    comes before the oldest."""

    sources: dict[str, tuple[Share, ...]] = field(default_factory=lambda: defaultdict(lambda: _shares(FIRST)))
    answers: dict[str, tuple[Share, ...]] = field(default_factory=lambda: defaultdict(lambda: _shares(BUDGETS)))
    newest: dict[str, Share] = field(default_factory=lambda: defaultdict(Share))


Counts = dict[tuple[str, str], Counted]
"""The counts by half and category."""


def _shares(of: Sequence[int]) -> tuple[Share, ...]:
    return tuple(Share() for _ in of)


async def counted(chats: Iterable[BeamChat], progress: Callable[[str], None]) -> Counts:
    """Ask all questions of the chats."""
    counts: Counts = defaultdict(Counted)
    embedder = MultilingualEmbedder()
    with TemporaryDirectory(prefix="abridged-bench-") as place, sidecar_child(Path(place), "beam", SETTINGS) as child:
        async with SidecarCalls.connected(child.address) as sidecar:
            for chat in chats:
                progress(f"chat {chat.name}")
                for number, exchange in enumerate(exchanges(chat.messages)):
                    await sidecar.told(chat.conversation, number, exchange)
                await sidecar.indexed()
                rivals = await Rivals.of(chat.messages, embedder)
                for question in chat.questions:
                    if question.sources:
                        await _ask(counts[chat.half, question.category], chat, question, sidecar, rivals)
    return counts


async def _ask(counted: Counted, chat: BeamChat, question: BeamQuestion, sidecar: SidecarCalls, rivals: Rivals) -> None:
    # What stands in quotation marks would have to occur.
    query = question.text.replace('"', " ")
    orders = await rivals.orders(question.text)
    for mode in MODES:
        orders[mode] = [*await sidecar.exchanges_found(chat.conversation, query, mode, limit=FIRST[-1])]
    for name, order in orders.items():
        for share, first in zip(counted.sources[name], FIRST, strict=True):
            share.add(any(not question.sources.isdisjoint(found) for found in order[:first]), 1)
        if (is_first := question.has_newest_first(order[: FIRST[-1]])) is not None:
            counted.newest[name].add(is_first, 1)
    if not question.values:
        return
    passages = {NEWEST: [text for _, text in reversed(chat.messages)], **await rivals.passages(question.text)}
    for place, budget in enumerate(BUDGETS):
        read = {name: within(found, budget) for name, found in passages.items()}
        for mode in MODES:
            found = await sidecar.passages_found(chat.conversation, query, mode, max_tokens=budget)
            read[mode] = "\n".join(found)
        for name, text in read.items():
            counted.answers[name][place].add(stands(question.values, text), 1)


def within(texts: Iterable[str], budget: int) -> str:
    """The texts in order: one that has no room is left out."""
    taken: list[str] = []
    for text in texts:
        tokens = token_count(text)
        if tokens <= budget:
            taken.append(text)
            budget -= tokens
    return "\n".join(taken)
