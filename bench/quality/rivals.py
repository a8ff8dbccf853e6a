"""Plain searches of a chat, to compare with: by BM25 and by cosine, of whole messages and of passages of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from abridged.service.recall.query import spelled
from abridged.service.recall.vectors import Embedder
from abridged.service.text.sentences import parts_of

RIVALS: Final = ("BM25", "cosine")
PASSAGE_CHARS: Final = 300
"""A passage takes no further sentence from this length on: one to three of them."""


def exchanges(messages: Sequence[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """A user's message with all that follows up to the next one."""
    current: list[tuple[str, str]] = []
    for message in messages:
        if message[0] == "user" and current:
            yield current
            current = []
        current.append(message)
    yield current


class Rivals:
    """Plain searches of one chat: whole messages, and passages of one to three sentences, by BM25 and by cosine."""

    def __init__(self, messages: _Texts, passages: _Texts, first: Sequence[int]) -> None:
        self._messages = messages
        self._passages = passages
        self._first = first

    @classmethod
    async def of(cls, messages: Sequence[tuple[str, str]], embedder: Embedder) -> Rivals:
        """The rivals for a chat."""
        texts = [text for _, text in messages]
        passages = [passage for text in texts for passage in plain_passages(text)]
        first = [0]
        for exchange in exchanges(messages):
            first.append(first[-1] + len(exchange))
        return cls(await _Texts.of(texts, embedder), await _Texts.of(passages, embedder), first)

    async def orders(self, query: str) -> dict[str, list[Sequence[int]]]:
        """The messages by each rival, best first; and the exchanges of these, each by its best message."""
        found: dict[str, list[Sequence[int]]] = {}
        for name, order in (await self._messages.orders(query)).items():
            found[name] = [(place + 1,) for place in order]
            exchange_of = dict.fromkeys(next(n for n in self._first[::-1] if n <= place) for place in order)
            ends = dict(zip(self._first, self._first[1:], strict=False))
            found[f"{name}, exchanges"] = [range(first + 1, ends[first] + 1) for first in exchange_of]
        return found

    async def passages(self, query: str) -> dict[str, list[str]]:
        """The passages by each rival, best first."""
        orders = await self._passages.orders(query)
        return {name: [self._passages.texts[place] for place in order] for name, order in orders.items()}


def plain_passages(text: str) -> Iterator[str]:
    """Whole sentences, until PASSAGE_CHARS are reached."""
    passage = ""
    for part in parts_of(text):
        passage = f"{passage} {part}".lstrip()
        if len(passage) >= PASSAGE_CHARS:
            yield passage
            passage = ""
    if passage:
        yield passage


@dataclass(frozen=True, slots=True)
class _Texts:
    """Texts with their vectors, and their words in a table of FTS5 with its plain tokenizer."""

    texts: Sequence[str]
    vectors: Any
    embedder: Embedder
    words: sqlite3.Connection

    @classmethod
    async def of(cls, texts: Sequence[str], embedder: Embedder) -> _Texts:
        words = sqlite3.connect(":memory:")
        words.execute("CREATE VIRTUAL TABLE texts USING fts5(text)")
        words.executemany("INSERT INTO texts(rowid, text) VALUES(?, ?)", enumerate(texts))
        return cls(texts, await embedder.embed(texts), embedder, words)

    async def orders(self, query: str) -> dict[str, list[int]]:
        """The places of the texts by each of RIVALS, best first."""
        import numpy as np

        (asked,) = await self.embedder.embed([query])
        cosines = self.vectors @ asked / np.maximum(1e-9, np.linalg.norm(self.vectors, axis=1))
        return dict(zip(RIVALS, (self._by_words(query), np.argsort(-cosines, kind="stable").tolist()), strict=True))

    def _by_words(self, query: str) -> list[int]:
        """The texts with a word of the query, by bm25."""
        words = " OR ".join(f'"{word}"' for word in dict.fromkeys(spelled(query).split()))
        return [row for (row,) in self.words.execute("SELECT rowid FROM texts(?) ORDER BY rank, rowid", (words,))]
