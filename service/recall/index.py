"""Writes the index: events in, words and vectors out, and how far it is, in one transaction.

Each type of event has one small method in `_INDEXED`, or stands in `_UNINDEXED`; an event that is in neither stops the
index, because what it says may be that a text must be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.eventlog.log import PAGE_EVENTS_MAX, EventLog
from abridged.eventlog.sqlite.gaps import Gaps
from abridged.service.codec.events import UnknownEvent, decoded
from abridged.service.domain.events import (
    ConversationArchived,
    ConversationErased,
    ConversationOpened,
    ConversationRewound,
    ConversationUnarchived,
    ErasedEvent,
    MessageAppended,
    MessagesRedacted,
    RulesDropped,
    SettingsChanged,
    SummarizationCompleted,
    SummaryRevoked,
)
from abridged.service.domain.message import Role
from abridged.service.domain.ranges import ranges_of
from abridged.service.recall.entries import Embedding, NewEntry, add, embed, forget, label, supersede_again
from abridged.service.recall.file import ROLE_NUMBERS, Connection, Kind, Scope, create_tables_of, words_table
from abridged.service.recall.standing import RUN_MAX, Said, drop_standing, keep_standing
from abridged.service.recall.texts import checksum, event_at, text_of

IDS_KEPT_MAX = 4_096
"""Conversations whose numbers are kept in memory."""


class Unembedded(NamedTuple):
    """An entry that has no vectors yet."""

    id: int
    text: str


class Index:
    """The index's only writer. One thread at a time may use it; raises apsw.Error when the file fails."""

    def __init__(self, connection: Connection, log: EventLog) -> None:
        """`log` has the texts of the entries, and the events that an archive has given back."""
        self._connection = connection
        self._log = log
        self._gaps = Gaps(Path(connection.filename))
        self._ids: dict[StreamId, Scope] = {}
        self._forgot = False
        # Texts of users in this batch that have no reply yet, by their entries: most replies are in the same batch.
        self._unanswered: dict[int, str] = {}

    @property
    def position(self) -> int:
        """Every event up to this position is indexed."""
        return int(self._made("position") or 0)

    @property
    def embedder(self) -> tuple[str, int]:
        """Return the model that made the vectors, and how many numbers each has; `("", 0)` before the first."""
        return self._made("embedder"), int(self._made("dimension") or 0)

    def apply(self, events: Sequence[RecordedEvent], cursor: int) -> None:
        """Index the events and move to `cursor`, or do neither.

        Raises UnknownEvent for an event that this version cannot place.
        """
        try:
            with self._connection:
                for recorded in events:
                    self._apply(recorded)
                self._connection.execute("UPDATE made SET value = ? WHERE name = 'position'", (str(cursor),))
        except BaseException:
            self._ids.clear()
            raise
        finally:
            self._unanswered.clear()
        if self._forgot:
            self._forgot = not self._cut()

    def purge(self) -> bool:
        """Leave no byte of what was forgotten in the file's pages and its write-ahead log; False while a reader is in
        the way. Raises as `Gaps.zero` does."""
        self._merge()
        if not self._cut():
            return False
        self._gaps.zero()
        # The pages in memory have what was overwritten, and a change of one would write it again.
        self._connection.execute("PRAGMA shrink_memory").fetchall()
        return True

    def _merge(self) -> None:
        """Write the words of namespaces anew where texts were removed: a tombstone only hides those of an entry."""
        for (namespace,) in self._connection.execute("SELECT id FROM namespaces WHERE has_tombstones").fetchall():
            table = words_table(namespace)
            with self._connection:
                self._connection.execute(f"INSERT INTO {table}({table}) VALUES('optimize')")
                self._connection.execute("UPDATE namespaces SET has_tombstones = 0 WHERE id = ?", (namespace,))

    def _cut(self) -> bool:
        """Cut the write-ahead log, which has the overwritten pages, to nothing; False while a reader is in the way."""
        ((busy, *_),) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return not busy

    def unembedded(self, limit: int) -> list[Unembedded]:
        """The oldest entries without vectors; one of a text that the log has no longer, or whose key is lost, is empty.
        Raises EventLogError when the log cannot be read."""
        rows = self._connection.execute(
            "SELECT id, checksum FROM entries WHERE NOT has_vectors ORDER BY id LIMIT ?", (limit,)
        ).fetchall()
        found: dict[int, RecordedEvent] = {}
        for entry, _ in rows:
            if entry not in found:
                # Entries follow each other closely, so that a page has most of them.
                page = self._log.scan(after=entry - 1, limit=limit)
                found |= {event.position: event for event in page.events}
        texts = [(entry, text_of(decoded(found[entry])) if entry in found else "", known) for entry, known in rows]
        return [Unembedded(entry, text if checksum(text) == known else "") for entry, text, known in texts]

    def embed(self, embeddings: Iterable[Embedding], *, embedder: str, dimension: int) -> None:
        """Keep the vectors that `embedder` made, of `dimension` numbers each."""
        with self._connection:
            for name, value in (("embedder", embedder), ("dimension", str(dimension))):
                self._connection.execute("INSERT OR REPLACE INTO made VALUES(?, ?)", (name, value))
            for embedding in embeddings:
                embed(self._connection, embedding)

    def close(self) -> None:
        self._connection.close()
        self._gaps.close()

    def _made(self, name: str) -> str:
        row = self._connection.execute("SELECT value FROM made WHERE name = ?", (name,)).fetchone()
        return row[0] if row else ""

    def _apply(self, recorded: RecordedEvent) -> None:
        if recorded.type in _UNINDEXED:
            return
        indexed = _INDEXED.get(recorded.type)
        if indexed is None:
            raise UnknownEvent(f"{recorded.type} version {recorded.schema_version}")
        event = decoded(recorded)
        if not isinstance(event, ErasedEvent):
            indexed(self, recorded, event)

    def _labelled(self, recorded: RecordedEvent, event: ConversationOpened | SettingsChanged) -> None:
        label(self._connection, self._scope_of(recorded.stream), event.settings.labels)

    def _message_appended(self, recorded: RecordedEvent, event: MessageAppended) -> None:
        message, text = event.message, text_of(event)
        entry = NewEntry(Kind.MESSAGE, message.role, event.number, event.number, "", text, message.labels)
        add(self._connection, self._scope_of(recorded.stream), recorded, entry)
        if message.role is Role.USER:
            self._unanswered[recorded.position] = text
        if message.role is Role.ASSISTANT:
            self._keep_standing(recorded, event)

    def _keep_standing(self, recorded: RecordedEvent, reply: MessageAppended) -> None:
        """Keep what the user's messages right before a reply lay down."""
        _, conversation = self._scope_of(recorded.stream)
        newest = self._connection.execute(
            "SELECT role, id, first, version FROM entries WHERE conversation = ? AND kind = ? AND id < ?"
            " ORDER BY exchange DESC, first DESC LIMIT ?",
            (conversation, Kind.MESSAGE, recorded.position, RUN_MAX),
        )
        run = takewhile(lambda row: row[0] == ROLE_NUMBERS[Role.USER], newest)
        asked = [Said(entry, number, self._said(recorded.stream, entry, version)) for _, entry, number, version in run]
        if asked:
            keep_standing(self._connection, conversation, asked[::-1], reply)

    def _said(self, stream: StreamId, entry: int, version: int) -> str:
        text = self._unanswered.pop(entry, None)
        return text_of(event_at(self._log, stream, entry, version)) if text is None else text

    def _rules_dropped(self, recorded: RecordedEvent, event: RulesDropped) -> None:
        _, conversation = self._scope_of(recorded.stream)
        for rule in event.rules:
            drop_standing(self._connection, conversation, rule)

    def _completed(self, recorded: RecordedEvent, event: SummarizationCompleted) -> None:
        record = event.record
        first, last = min(r.first for r in record.covered), max(r.last for r in record.covered)
        kind = Kind.SUMMARY if record.episode is None else Kind.EPISODE
        entry = NewEntry(kind, None, first, last, record.id, text_of(event))
        add(self._connection, self._scope_of(recorded.stream), recorded, entry)

    def _revoked(self, recorded: RecordedEvent, event: SummaryRevoked) -> None:
        self._forget_records(recorded, event.revoked_ids)

    def _rewound(self, recorded: RecordedEvent, event: ConversationRewound) -> None:
        self._forget(recorded, "kind = ? AND first > ?", Kind.MESSAGE, event.to)
        self._forget_records(recorded, event.revoked_ids)

    def _redacted(self, recorded: RecordedEvent, event: MessagesRedacted) -> None:
        for one in ranges_of(event.numbers):
            self._forget(recorded, "kind = ? AND first BETWEEN ? AND ?", Kind.MESSAGE, one.first, one.last)
        self._forget_records(recorded, event.revoked_ids)

    def _erased(self, recorded: RecordedEvent, _event: ConversationErased) -> None:
        self._forget(recorded, "TRUE")
        label(self._connection, self._scope_of(recorded.stream), {})

    def _archived(self, recorded: RecordedEvent, _event: ConversationArchived) -> None:
        self._forget(recorded, "TRUE")

    def _unarchived(self, recorded: RecordedEvent, _event: ConversationUnarchived) -> None:
        """Index the events again that are back in their places."""
        self._forget(recorded, "TRUE")
        for earlier in self._events_before(recorded.stream, recorded.version):
            if earlier.type not in (ConversationArchived.__name__, ConversationUnarchived.__name__):
                self._apply(earlier)
        self._unanswered.clear()

    def _forget(self, recorded: RecordedEvent, which: str, *values: object) -> None:
        forget(self._connection, self._scope_of(recorded.stream), which, *values)
        self._forgot = True

    def _forget_records(self, recorded: RecordedEvent, ids: Collection[str]) -> None:
        for record_id in ids:
            self._forget(recorded, "kind <> ? AND source = ?", Kind.MESSAGE, record_id)
        if ids:
            supersede_again(self._connection, self._scope_of(recorded.stream))

    def _events_before(self, stream: StreamId, version: int) -> Iterator[RecordedEvent]:
        # A later event may be encrypted with a key that is lost.
        after = 0
        while after < version - 1:
            page = self._log.read_stream(stream, after=after, limit=min(PAGE_EVENTS_MAX, version - 1 - after))
            yield from page
            after = page[-1].version

    def _scope_of(self, stream: StreamId) -> Scope:
        if (known := self._ids.get(stream)) is not None:
            return known
        namespace = self._id("namespaces", name=stream.namespace)
        create_tables_of(self._connection, namespace)
        scope = Scope(namespace, self._id("conversations", namespace=namespace, name=stream.name))
        if len(self._ids) >= IDS_KEPT_MAX:
            self._ids.clear()
        self._ids[stream] = scope
        return scope

    def _id(self, table: str, **columns: object) -> int:
        """The number of the row with these `columns`, which is made if it is not there."""
        values = tuple(columns.values())
        matches = " AND ".join(f"{column} = ?" for column in columns)
        row = self._connection.execute(f"SELECT id FROM {table} WHERE {matches}", values).fetchone()
        if row is not None:
            return int(row[0])
        places = ", ".join("?" * len(values))
        self._connection.execute(f"INSERT INTO {table}({', '.join(columns)}) VALUES({places})", values)
        return int(self._connection.last_insert_rowid())


_INDEXED: Mapping[str, Callable[[Index, RecordedEvent, Any], None]] = {
    "ConversationOpened": Index._labelled,
    "SettingsChanged": Index._labelled,
    "MessageAppended": Index._message_appended,
    "RulesDropped": Index._rules_dropped,
    "SummarizationCompleted": Index._completed,
    "SummaryRevoked": Index._revoked,
    "ConversationRewound": Index._rewound,
    "MessagesRedacted": Index._redacted,
    "ConversationErased": Index._erased,
    "ConversationArchived": Index._archived,
    "ConversationUnarchived": Index._unarchived,
}
"""Events that are indexed."""

_UNINDEXED = frozenset(
    {
        "UsageReported",
        "SummarizationRequested",
        "SummarizationStarted",
        "SummarizationReleased",
        "SummarizationFailed",
        "SummarizationSkipped",
        "SummarizationCleared",
        "SummaryRated",
        "ConversationForked",
        "ConversationClosed",
        "ConversationReopened",
        "TitleChanged",
        "TextPurged",
        "MessagesPinned",
        "MessagesUnpinned",
    }
)
"""Events that neither say a text nor take one back. They are not even decoded."""
