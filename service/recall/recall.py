"""SearchHistory without its wire: the query's vector, the index, and what the log says of each entry now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from eventlog.event import StreamId
from eventlog.log import EventLog
from service.codec.events import decode
from service.recall.errors import EmbedderChanged, RecallOff, RecallStopped
from service.recall.index import text_of
from service.recall.passages import pieces_of, snippet_of
from service.recall.projection import Projection, require_same
from service.recall.query import Query
from service.recall.search import Entry, Mode, Search, Searcher
from service.recall.vectors import Embedder, Vector, quantized

__all__ = ["Hit", "Hits", "Recall"]


class Hit(NamedTuple):
    """An entry and the part of its text to show."""

    entry: Entry
    snippet: str


class Hits(NamedTuple):
    """Hits, best first. Every event up to `position` was searched."""

    hits: tuple[Hit, ...]
    position: int


class Recall:
    """One log's index, kept up and searched."""

    def __init__(self, log: EventLog, projection: Projection) -> None:
        self._log = log
        self._searcher = Searcher(projection.path)
        self.projection = projection

    @property
    def best_mode(self) -> Mode:
        """What is compared when a caller does not say."""
        return Mode.WORDS if self.projection.embedder is None else Mode.BOTH

    async def search(self, search: Search) -> Hits:
        """The best entries that say in the log what the index has of them.

        Raises RecallOff, RecallStopped, EmbedderAway, and LogCorrupt for an entry whose event is damaged.
        """
        meaning = search.mode is not Mode.WORDS
        embedder = self.projection.embedder
        if meaning and embedder is None:
            raise RecallOff("recall.index", "both")
        self.projection.require(meaning=meaning)
        vector = await self._vector(search.query, embedder) if meaning and embedder is not None else None
        return await asyncio.to_thread(self._found, search, vector)

    async def close(self) -> None:
        """Stop, and release the file."""
        await self.projection.close()
        self._searcher.close()

    async def _vector(self, query: Query, embedder: Embedder) -> Vector | None:
        rows = await embedder.embed([query.text])
        name, known = await asyncio.to_thread(self._searcher.embedder)
        try:
            require_same(embedder, rows.shape[1], name=name, known=known)
        except EmbedderChanged as changed:
            await self.projection.stop_vectors(changed)
            raise RecallStopped(str(changed)) from changed
        return quantized(rows)[0]

    def _found(self, search: Search, vector: Vector | None) -> Hits:
        found = self._searcher(search, vector)
        # The head tells nothing of other namespaces, whose events come between.
        position = min(found.position, self._log.head_of(search.namespace))
        return Hits(tuple(islice(self._hits(search, found.entries), search.limit)), position)

    def _hits(self, search: Search, entries: Iterable[Entry]) -> Iterator[Hit]:
        for entry in entries:
            # What was erased since it was indexed is in the log no longer, and so not in an answer.
            if self._says(StreamId(search.namespace, entry.conversation), entry) != entry.text:
                continue
            shown = entry.text if entry.piece is None else pieces_of(entry.text)[entry.piece]
            yield Hit(entry, snippet_of(shown, search.query.stems))

    def _says(self, stream: StreamId, entry: Entry) -> str:
        """What the entry's event says in the log now."""
        events = self._log.read_stream(stream, after=entry.version - 1, limit=1)
        if not events or events[0].position != entry.id:
            return ""
        return text_of(decode(events[0].type, events[0].schema_version, events[0].payload))
