"""SearchHistory without its wire: the query's vector, the index, and what the log says of each entry now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from abridged.eventlog.event import StreamId
from abridged.eventlog.log import EventLog
from abridged.service.codec.events import decode
from abridged.service.domain.conversation import Conversation, holdings
from abridged.service.domain.errors import ConversationNotFound
from abridged.service.domain.events import Event, SummarizationCompleted
from abridged.service.domain.ranges import covers
from abridged.service.domain.record import SummaryRecord
from abridged.service.recall.errors import EmbedderChanged, RecallOff, RecallStopped
from abridged.service.recall.index import Kind, text_of
from abridged.service.recall.passages import pieces_of, snippet_of
from abridged.service.recall.projection import Projection, require_same
from abridged.service.recall.query import Query
from abridged.service.recall.search import ENTRIES_MAX, Asked, Entry, Found, Mode, Search, Searcher
from abridged.service.recall.vectors import Embedder, quantized


class Hit(NamedTuple):
    """An entry and the part of its text to show; `record` is None for a message."""

    entry: Entry
    snippet: str
    record: SummaryRecord | None


class Hits(NamedTuple):
    """The hits, best first. The search covered every event up to `position`."""

    hits: tuple[Hit, ...]
    position: int


class Standing(NamedTuple):
    """The positions that the index has reached, as one namespace may know them.

    Attributes:
        embedder: What makes vectors, as `provider:model`; empty for an index of words alone.
        dimension: Numbers of a vector; 0 while none is known.
        head: The position of the namespace's newest event.
        words: The last of these that is indexed by words.
        vectors: The last that has vectors; `words` for an index of words alone.
        stopped: Why the index, or its vectors, follow the log no longer; empty if they do.
    """

    embedder: str
    dimension: int
    head: int
    words: int
    vectors: int
    stopped: str


class Recall:
    """One log's index, kept up and searched."""

    def __init__(
        self, log: EventLog, projection: Projection, state_of: Callable[[StreamId], Awaitable[Conversation]]
    ) -> None:
        """`state_of` returns a conversation as it is now, or raises ConversationNotFound."""
        self._log = log
        self._state_of = state_of
        self._searcher = Searcher(projection.path)
        self.projection = projection

    @property
    def best_mode(self) -> Mode:
        """Return the comparison for a caller who names none."""
        return Mode.WORDS if self.projection.embedder is None else Mode.BOTH

    async def search(self, search: Search) -> Hits:
        """The best entries that say in the log what the index has of them, and that nothing has taken back.

        However late the index is: what was rewound or revoked before the call is no hit. Raises RecallOff,
        RecallStopped, EmbedderAway, and LogCorrupt for an entry whose event is damaged.
        """
        meaning = search.mode is not Mode.WORDS
        embedder = self.projection.embedder
        if meaning and embedder is None:
            raise RecallOff("recall.index", "both")
        self.projection.require(meaning=meaning)
        asked = await _asked(search.query, embedder) if meaning and embedder is not None else None
        try:
            return await self._of_branch(search, asked) if search.conversation else await self._search(search, asked)
        except EmbedderChanged as changed:
            await self.projection.stop_vectors(changed)
            raise RecallStopped(str(changed)) from changed

    def standing(self, namespace: str) -> Standing:
        """Return the positions that the index has reached, without a sign of other namespaces' events between them."""
        head, progress = self._log.head_of(namespace), self.projection.progress
        embedder = self.projection.embedder
        return Standing(
            embedder="" if embedder is None else embedder.name,
            dimension=self.projection.dimension,
            head=head,
            words=min(progress.words, head),
            vectors=min(progress.vectors, head),
            stopped=progress.stopped,
        )

    async def close(self) -> None:
        """Stop, and release the file."""
        await self.projection.close()
        self._searcher.close()

    async def _of_branch(self, search: Search, asked: Asked | None) -> Hits:
        """The hits in one conversation; for a fork, with what it has of its ancestors, as its own."""
        state = await self._state(StreamId(search.namespace, search.conversation))
        if state is None or not state.ancestors:
            return await self._search(search, asked)
        records = {record.id for record in state.records}
        found: list[Hit] = []
        position = 0
        for held in holdings(search.conversation, state.ancestors):
            part = replace(search, conversation=held.conversation_id, limit=ENTRIES_MAX)
            hits, position = await self._search(part, asked)
            for hit in hits:
                entry = hit.entry
                has_record = entry.kind is Kind.MESSAGE or entry.source in records
                if has_record and entry.last <= held.numbers.last and not _is_taken_back(entry, state):
                    found.append(hit._replace(entry=entry._replace(conversation=search.conversation)))
        found.sort(key=lambda hit: hit.entry.score, reverse=True)
        return Hits(tuple(found[: search.limit]), position)

    async def _search(self, search: Search, asked: Asked | None) -> Hits:
        for entries_max in dict.fromkeys((2 * search.limit, ENTRIES_MAX)):
            found, late = await asyncio.to_thread(self._found, search, entries_max, asked)
            entries = await self._standing_entries(search, found.entries, late) if late else found.entries
            hits = await asyncio.to_thread(self._page, search, entries)
            if len(hits) == search.limit or len(found.entries) < entries_max:
                break
        return Hits(hits, min(found.position, await asyncio.to_thread(self._log.head_of, search.namespace)))

    def _found(self, search: Search, entries_max: int, asked: Asked | None) -> tuple[Found, frozenset[str]]:
        """Entries, and those of their conversations that have events which are not indexed yet."""
        found = self._searcher(search, entries_max, asked)
        if self._log.head_of(search.namespace) <= found.words:
            return found, frozenset()
        names = {entry.conversation for entry in found.entries}
        return found, frozenset(
            name for name in names if self._ends_after(found.words, StreamId(search.namespace, name))
        )

    def _ends_after(self, position: int, stream: StreamId) -> bool:
        return any(last.position > position for last in self._log.read_stream(stream, limit=1, backward=True))

    async def _standing_entries(self, search: Search, entries: Iterable[Entry], late: frozenset[str]) -> list[Entry]:
        """The entries that are not taken back. A page that is full asks for no further state."""
        states: dict[str, Conversation | None] = {}
        standing: list[Entry] = []
        for entry in entries:
            name = entry.conversation
            if name in late:
                if name not in states:
                    if len(standing) >= search.limit:
                        break
                    states[name] = await self._state(StreamId(search.namespace, name))
                if _is_taken_back(entry, states[name]):
                    continue
            standing.append(entry)
        return standing

    async def _state(self, stream: StreamId) -> Conversation | None:
        try:
            return await self._state_of(stream)
        except ConversationNotFound:
            return None

    def _page(self, search: Search, entries: Iterable[Entry]) -> tuple[Hit, ...]:
        return tuple(islice(self._hits(search, entries), search.limit))

    def _hits(self, search: Search, entries: Iterable[Entry]) -> Iterator[Hit]:
        for entry in entries:
            # The log no longer has text that was erased since it was indexed, so the answer has none of it.
            event = self._event(StreamId(search.namespace, entry.conversation), entry)
            if event is None or text_of(event) != entry.text:
                continue
            shown = entry.text if entry.piece is None else pieces_of(entry.text)[entry.piece]
            record = event.record if isinstance(event, SummarizationCompleted) else None
            yield Hit(entry, snippet_of(shown, search.query.stems), record)

    def _event(self, stream: StreamId, entry: Entry) -> Event | None:
        """The entry's event as the log has it now."""
        events = self._log.read_stream(stream, after=entry.version - 1, limit=1)
        if not events or events[0].position != entry.id:
            return None
        return decode(events[0].type, events[0].schema_version, events[0].payload)


def _is_taken_back(entry: Entry, state: Conversation | None) -> bool:
    if state is None:
        return True
    if entry.kind is Kind.MESSAGE:
        return covers(state.removed, entry.first)
    return any(record.id == entry.source for record in state.revoked)


async def _asked(query: Query, embedder: Embedder) -> Asked:
    rows = await embedder.embed([query.text])

    def require(name: str, known: int) -> None:
        require_same(embedder, rows.shape[1], name=name, known=known)

    return Asked(quantized(rows)[0], require)
