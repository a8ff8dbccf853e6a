"""SearchHistory without its wire: the query's vector, the index, and what the log says of each entry now."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from abridged.eventlog.errors import KeyLost
from abridged.eventlog.event import StreamId
from abridged.eventlog.log import EventLog
from abridged.service.domain.conversation import Conversation, holdings
from abridged.service.domain.errors import ConversationIsArchived, ConversationIsErased, ConversationNotFound
from abridged.service.domain.events import Event, MessageAppended, SummarizationCompleted
from abridged.service.domain.message import Role
from abridged.service.domain.ranges import covers, merged, without
from abridged.service.domain.record import MessageRange, SummaryRecord
from abridged.service.recall.errors import EmbedderChanged, RecallOff, RecallStopped
from abridged.service.recall.file import Kind
from abridged.service.recall.passages import passage_of, pieces_of, snippet_of
from abridged.service.recall.projection import Projection, require_same
from abridged.service.recall.query import Query
from abridged.service.recall.search import ENTRIES_MAX, Asked, Entry, Found, Mode, Opening, Search
from abridged.service.recall.searcher import Searcher
from abridged.service.recall.texts import checksum, event_at, text_of
from abridged.service.recall.vectors import Embedder, direction
from abridged.service.tokenizers.estimated import EstimatingCounter

FULL_HITS = 10
"""The first hits come with the best part of their exchange beside its opening. The others come with their opening, and
with that part only in the room that the openings leave: what a user says is short and tells what a long reply is about,
so a budget holds more exchanges."""

TOKENS_MIN = 16
"""Tokens of the least room that is still filled."""

_COUNT = EstimatingCounter().count


class Passage(NamedTuple):
    """A part of a message, or of a record's text, whose number is 0."""

    number: int
    role: Role | None
    text: str
    tokens: int


class Hit(NamedTuple):
    """An entry, its text and the part of it to show. A message has no `record`, and a record no `message_id`.
    `passages` are in the order of the chat; none unless the search asks for them."""

    entry: Entry
    text: str
    snippet: str
    message_id: str
    record: SummaryRecord | None
    passages: tuple[Passage, ...] = ()


class Hits(NamedTuple):
    """The hits, best first. The search covered every event up to `position`."""

    hits: tuple[Hit, ...]
    position: int


class IndexReached(NamedTuple):
    """The positions that the index has reached, as one namespace may know them.

    Attributes:
        embedder: The maker of vectors, as `provider:model`; empty for an index of words alone.
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
        """`state_of` returns a conversation as it is now, or raises ConversationNotFound, ConversationIsErased or
        ConversationIsArchived."""
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

        However late the index is: what was rewound, revoked, redacted or erased before the call is no hit. Raises
        RecallOff, RecallStopped, EmbedderAway, LogCorrupt for an entry whose event is damaged, and
        ConversationNotFound, ConversationIsErased and ConversationIsArchived for the conversation that the search
        names.
        """
        meaning = search.mode is not Mode.WORDS
        embedder = self.projection.embedder
        if meaning and embedder is None:
            raise RecallOff("recall.index", "both")
        self.projection.require(meaning=meaning)
        asked = await _asked(search.query, embedder) if meaning and embedder is not None else None
        try:
            found = await (self._of_branch if search.conversation else self._search)(search, asked)
            return await asyncio.to_thread(self._with_passages, search, found) if search.tokens_max else found
        except EmbedderChanged as changed:
            await self.projection.stop_vectors(changed)
            raise RecallStopped(str(changed)) from changed

    def reached(self, namespace: str) -> IndexReached:
        """Return the positions that the index has reached, without a sign of other namespaces' events between them."""
        head, progress = self._log.head_of(namespace), self.projection.progress
        embedder = self.projection.embedder
        return IndexReached(
            embedder="" if embedder is None else embedder.name,
            dimension=self.projection.dimension,
            head=head,
            words=min(progress.words, head),
            vectors=min(progress.vectors, head),
            stopped=progress.stopped,
        )

    async def close(self) -> None:
        """Stop, and release the file."""
        # Closing the projection gives up the process's lock on the file.
        self._searcher.close()
        await self.projection.close()

    async def _of_branch(self, search: Search, asked: Asked | None) -> Hits:
        """The hits in one conversation; for a fork, with what it has of its ancestors, as its own."""
        state = await self._state_of(StreamId(search.namespace, search.conversation))
        if not state.ancestors:
            return await self._search(search, asked)
        records = {shown.record.id for shown in state.shown} | {r.id for r in state.records if r.episode is not None}
        found: list[Hit] = []
        position = sys.maxsize
        for held in holdings(search.conversation, state.ancestors):
            name, last = held.conversation_id, held.numbers.last
            gone = (*_gone(state), *([MessageRange(last + 1, sys.maxsize)] if last < sys.maxsize else []))
            held_only = replace(
                search, conversation=name, limit=ENTRIES_MAX, gone={name: merged(gone)}, records=records
            )
            part = await self._search(held_only, asked)
            found += part.hits
            position = min(position, part.position)
        found.sort(key=lambda hit: hit.entry.score, reverse=True)
        return Hits(tuple(found[: search.limit]), position)

    async def _search(self, search: Search, asked: Asked | None) -> Hits:
        for entries_max in dict.fromkeys((min(2 * search.limit, ENTRIES_MAX), ENTRIES_MAX)):
            found, entries, gone = await self._kept_entries(search, entries_max, asked)
            if gone:
                # Of an exchange whose best message was rewound, another one may stand.
                search = replace(search, gone={**search.gone, **gone})
                found, entries, _ = await self._kept_entries(search, entries_max, asked)
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
        try:
            return any(last.position > position for last in self._log.read_stream(stream, limit=1, backward=True))
        except KeyLost:
            return True

    async def _kept_entries(
        self, search: Search, entries_max: int, asked: Asked | None
    ) -> tuple[Found, list[Entry], dict[str, tuple[MessageRange, ...]]]:
        """The index's answer, its entries that are not taken back, and the gone messages of conversations where one
        was. A page that is full asks for no further state."""
        found, late = await asyncio.to_thread(self._found, search, entries_max, asked)
        states: dict[str, Conversation | None] = {}
        entries: list[Entry] = []
        gone: dict[str, tuple[MessageRange, ...]] = {}
        for entry in found.entries:
            name, state = entry.conversation, None
            if name in late:
                if name not in states:
                    if len(entries) >= search.limit:
                        break
                    states[name] = await self._state(StreamId(search.namespace, name))
                state = states[name]
                if _is_taken_back(entry, state):
                    if state is not None and entry.kind is Kind.MESSAGE:
                        gone[name] = merged((*search.gone.get(name, ()), *_gone(state)))
                    continue
            left_out = merged((*search.gone.get(name, ()), *(() if state is None else _gone(state))))
            if entry.exchange is not None and left_out:
                kept = without((entry.exchange,), left_out)
                opening = None if kept[0].first > entry.exchange.first else entry.opening
                entry = entry._replace(exchange=MessageRange(kept[0].first, kept[-1].last), opening=opening)
            entries.append(entry)
        return found, entries, gone

    async def _state(self, stream: StreamId) -> Conversation | None:
        try:
            return await self._state_of(stream)
        except (ConversationNotFound, ConversationIsErased, ConversationIsArchived, KeyLost):
            return None

    def _with_passages(self, search: Search, found: Hits) -> Hits:
        """The hits that have a passage in `tokens_max`, with those."""
        left = search.tokens_max
        passages: list[list[Passage]] = [[] for _ in found.hits]
        for place, passage in self._offered(search, found.hits):
            if left < TOKENS_MIN:
                break
            if passage.tokens <= left:
                left -= passage.tokens
                passages[place].append(passage)
        hits = (hit._replace(passages=tuple(own)) for hit, own in zip(found.hits, passages, strict=True) if own)
        return found._replace(hits=tuple(hits))

    def _offered(self, search: Search, hits: Sequence[Hit]) -> Iterator[tuple[int, Passage]]:
        """Yield passages with the places of their hits: of each hit its opening, of the first FULL_HITS also what was
        found, and last what was found in the others."""
        later: list[tuple[int, Hit]] = []
        for place, hit in enumerate(hits):
            entry = hit.entry
            opening = None if entry.opening is None else self._event(search, entry, entry.opening)
            if isinstance(opening, MessageAppended):
                text = passage_of(text_of(opening), search.query.stems)
                yield place, _passage(opening.number, opening.message.role, text)
            if place < FULL_HITS or entry.opening is None:
                yield place, _passage_found(search, hit)
            else:
                later.append((place, hit))
        for place, hit in later:
            yield place, _passage_found(search, hit)

    def _page(self, search: Search, entries: Iterable[Entry]) -> tuple[Hit, ...]:
        return tuple(islice(self._hits(search, entries), search.limit))

    def _hits(self, search: Search, entries: Iterable[Entry]) -> Iterator[Hit]:
        for entry in entries:
            if (event := self._event(search, entry, entry)) is None:
                continue
            text = text_of(event)
            yield Hit(
                entry,
                text,
                snippet_of(_found_in(entry, text), search.query.stems),
                event.message.id if isinstance(event, MessageAppended) else "",
                event.record if isinstance(event, SummarizationCompleted) else None,
            )

    def _event(self, search: Search, entry: Entry, found: Entry | Opening) -> Event | None:
        """The event of an entry or of its opening; None where the log says something else by now: it no longer has a
        text that was erased since it was indexed, or the key of which was lost."""
        event = event_at(self._log, StreamId(search.namespace, entry.conversation), found.id, found.version)
        return event if checksum(text_of(event)) == found.checksum else None


def _found_in(entry: Entry, text: str) -> str:
    """The text of an entry, or the piece of it that is nearest in meaning."""
    return text if entry.piece is None else pieces_of(text)[entry.piece]


def _passage_found(search: Search, hit: Hit) -> Passage:
    """The passage of the message or the record that was found."""
    entry = hit.entry
    text = passage_of(_found_in(entry, hit.text), search.query.stems)
    return _passage(entry.first if entry.kind is Kind.MESSAGE else 0, entry.role, text)


def _passage(number: int, role: Role | None, text: str) -> Passage:
    return Passage(number, role, text, _COUNT(text))


def _gone(state: Conversation) -> tuple[MessageRange, ...]:
    """The messages that were rewound or redacted."""
    return merged((*state.removed, *state.redaction.messages))


def _is_taken_back(entry: Entry, state: Conversation | None) -> bool:
    if state is None:
        return True
    if entry.kind is Kind.MESSAGE:
        return covers(state.removed, entry.first) or state.redaction.has(entry.first)
    return entry.source in state.redaction.record_ids or any(record.id == entry.source for record in state.revoked)


async def _asked(query: Query, embedder: Embedder) -> Asked:
    rows = await embedder.embed([query.text])

    def require(name: str, known: int) -> None:
        require_same(embedder, rows.shape[1], name=name, known=known)

    return Asked(direction(rows[0]), require)
