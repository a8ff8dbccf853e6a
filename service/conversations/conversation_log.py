"""Conversations in the event log: their events' ids, their commit with the read table's row, their fold.

One stream a conversation. Everything here is about bytes and ids; what the events mean is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain, islice
from typing import NamedTuple, ParamSpec, TypeVar

from abridged.eventlog.async_append import AsyncAppender
from abridged.eventlog.errors import EventIdConflict, LogCorrupt, LogUnavailable, StreamCorrupt
from abridged.eventlog.event import NewEvent, RecordedEvent, StreamId
from abridged.eventlog.log import Append, AppendResult, EventLog, Outcome, RequestKey
from abridged.observability.stages import Stage, stage
from abridged.service.codec.events import UnknownEvent, decoded, encode, sent_content
from abridged.service.codec.state import KeptWindow
from abridged.service.codec.values import settings_from_bytes
from abridged.service.conversations.replay import (
    PAGE_EVENTS,
    Replayed,
    evolved,
    recorded_events,
    recorded_originals,
    replayed,
    require_known,
)
from abridged.service.conversations.row import Row
from abridged.service.conversations.snapshot_writer import EVENTS_MIN, SnapshotWriter, is_due
from abridged.service.conversations.table import ConversationTable, Projected, is_row_of
from abridged.service.domain.conversation import Conversation, holdings, initial_state
from abridged.service.domain.errors import MessageIdReused, TooLarge
from abridged.service.domain.events import (
    ConversationForked,
    ConversationOpened,
    Event,
    MessageAppended,
    SummarizationCompleted,
    SummarizationRequested,
    SummaryRevoked,
)
from abridged.service.domain.fold import archived_fork
from abridged.service.domain.message import Message
from abridged.service.domain.record import MessageRange

P = ParamSpec("P")
T = TypeVar("T")

FOLDS_MAX = 5

COUNTED_MAX = 4_096
"""Conversations whose events beyond their snapshots are counted: more than have their states in memory."""

OnChanged = Callable[[StreamId, Conversation, Sequence[Event]], None]
"""Called after a commit, on the event loop, with the resulting state."""


class SentMessages(NamedTuple):
    """A client's messages as idempotency compares them: content by message id, and the request's own key."""

    contents: Mapping[str, bytes]
    request: RequestKey | None = None


class ConversationLog:
    """Reads and writes conversations' streams. Lives on one event loop; reads run in threads."""

    def __init__(
        self,
        log: EventLog,
        *,
        table: ConversationTable,
        new_id: Callable[[], str],
        traceparent: Callable[[], str],
        snapshots: SnapshotWriter | None = None,
        cached: Callable[[StreamId], Conversation | None] = lambda _: None,
    ) -> None:
        """`table` says where streams end; without `snapshots` every stream is read from its beginning. `cached`
        returns a state that is in memory, which is kept in the file when the events turn out not to prove it."""
        self._log = log
        self._table = table
        self._snapshots = snapshots
        self._cached = cached
        self._beyond: dict[StreamId, int] = {}
        self._appender = AsyncAppender(log)
        self._new_id = new_id
        self._traceparent = traceparent

    async def fold(self, key: StreamId) -> Conversation:
        """The conversation, from its stream and a snapshot of it; not open if there is no stream.

        Raises LogCorrupt when what was read of the stream is not what was written: its events, its end, or the index of
        their ids.
        """
        with stage(Stage.LOAD):
            found = await self._read(self._fold, key)
            if found.before and self.is_doubted(key):  # since it began with the snapshot
                found = await self._read(self._fold, key)
        if self._snapshots is not None:
            self._snapshots.doubted.discard(key)
            self._beyond.pop(key, None)
            self._grown(self._snapshots, key, found.state, len(found.positions))
        return found.state._replace(before_archiving=None)

    async def caught_up(self, key: StreamId, state: Conversation) -> Conversation | None:
        """The conversation after the events that the log has beyond `state`; `state` itself without any.

        Returns None if the log does not have the last event of `state`, as after the loss of a primary.
        """
        return await self._read(self._caught_up, key, state)

    async def confirm(self) -> None:
        """Return when everything that was read before is as durable as what was acknowledged."""
        await asyncio.to_thread(self._log.confirm)

    def is_doubted(self, key: StreamId) -> bool:
        """Return whether damaged events of the conversation were read since it was last folded whole: no state of it
        that is in memory is to be served then."""
        return self._snapshots is not None and key in self._snapshots.doubted

    @asynccontextmanager
    async def noticing(self) -> AsyncIterator[None]:
        """Have a conversation doubted whose events turn out to be damaged while the block reads them."""
        try:
            yield
        except StreamCorrupt as error:
            if self._snapshots is not None:
                await self._snapshots.doubt(error.stream, self._cached(error.stream))
            raise

    async def finish(self) -> None:
        """Write snapshots of the conversations in memory that have grown since theirs, the newest first, for a short
        time: so that the next process begins with them."""
        if self._snapshots is not None:
            grown = [key for key, beyond in reversed(self._beyond.items()) if beyond >= EVENTS_MIN]
            states = ((key, self._cached(key)) for key in grown)
            await self._snapshots.finish((key, state) for key, state in states if state is not None)

    async def outline(self, key: StreamId) -> Conversation:
        """The figures of a conversation by its row, without any content; not open if there is no such conversation. An
        archived one is all there."""
        row = await asyncio.to_thread(self._table.row, key)
        if row is None:
            return initial_state()
        outline = initial_state()._replace(
            event_version=row.event_version,
            updated_us=row.updated_us,
            used_us=row.used_us,
            message_version=row.message_version,
            id=row.id,
            created_us=row.created_us,
            closed=bool(row.closed),
            erased=bool(row.erased),
            purge_due=row.purge_due,
            archive_file=row.archive_file,
        )
        if not row.archive_file:
            return outline
        return outline._replace(settings=settings_from_bytes(row.settings), ancestors=archived_fork(row.forked_from))

    async def forget(self, key: StreamId, *, before: int) -> None:
        """Drop the conversation's snapshots, and write none any more of a state with fewer events."""
        self._beyond.pop(key, None)
        if self._snapshots is not None:
            await self._snapshots.forget(key, before=before)

    def kept_ids(self, state: Conversation, messages: Sequence[Message]) -> frozenset[str]:
        """The ids of those of `messages` that came into the window with a snapshot: the index was not asked for them.

        A message that is repeated is new to an index that has lost it.
        """
        kept = state.window.origin
        return kept.ids.among(m.id for m in messages) if isinstance(kept, KeptWindow) else frozenset()

    async def require_found(self, key: StreamId, kept: frozenset[str], known: Mapping[str, int]) -> None:
        """Raise StreamCorrupt unless all `kept_ids` of messages are known."""
        async with self.noticing():
            if not known.keys() >= kept:
                raise StreamCorrupt("the index of event ids is not what was written", key)

    async def _read(self, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self.noticing():
            return await asyncio.to_thread(read, *args, **kwargs)

    def post(
        self,
        key: StreamId,
        projected: Projected,
        sent: SentMessages,
        *,
        on_disk: OnChanged,
        on_outcome: Callable[[bool], None],
    ) -> asyncio.Future[AppendResult]:
        """Queue the events of `projected`; the future fails with an EventLogError when nothing was written.

        `on_disk` gets the state that they lead to and the events once they are on disk; `on_outcome` then gets whether
        they were written. Both are called on the event loop, before the future is done, and also when nobody awaits it.
        """
        events = projected.events

        def heard(outcome: Outcome) -> None:
            projected.behind = None
            written = isinstance(outcome, AppendResult) and not outcome.already_appended
            try:
                if written and projected.after is not None:
                    if self._snapshots is not None:
                        self._grown(self._snapshots, key, projected.after, len(events))
                    on_disk(key, projected.after, events)
            finally:
                on_outcome(written)

        trace_context = self._traceparent()
        new = [self._new_event(key, event, sent, trace_context) for event in events]
        append = Append(key, new, projected.expected_version, sent.request, projected)
        return self._appender.post(append, on_outcome=heard)

    async def known(self, key: StreamId, messages: Sequence[Message], sent: SentMessages) -> dict[bytes, int]:
        """Versions, by event id, of those of `messages` that are on disk.

        Raises EventIdConflict or RequestKeyConflict when they, or the request, are known with other content.
        """
        with stage(Stage.LOAD):
            return await self._read(self._log.known, self._repeated(key, messages, sent))

    async def inherited(
        self, key: StreamId, state: Conversation, messages: Sequence[Message], sent: SentMessages
    ) -> dict[str, int]:
        """Numbers, by id, of those of `messages` that a fork has from its ancestors.

        Raises MessageIdReused if they are known with other content.
        """
        found: dict[str, int] = {}
        for held in holdings(key.name, state.ancestors)[:-1]:
            stream = StreamId(key.namespace, held.conversation_id)
            asked, ids = list(messages), {self.message_event_id(stream, m.id): m.id for m in messages}
            while asked:
                try:
                    known = await self.known(stream, asked, SentMessages(sent.contents))
                except EventIdConflict as conflict:
                    reused = [ids[i] for i in conflict.event_ids if conflict.versions[i] <= held.head]
                    if reused:
                        raise MessageIdReused(tuple(reused)) from conflict
                    # The ancestor got these after the fork, which has them not.
                    later = {ids[i] for i in conflict.event_ids}
                    asked = [m for m in asked if m.id not in later]
                    continue
                known = {i: version for i, version in known.items() if version <= held.head}
                found |= await self.numbers_of(stream, known) if known else {}
                break
        return found

    async def repeat(self, key: StreamId, messages: Sequence[Message], sent: SentMessages) -> None:
        """Append messages that are all on disk already, which stores the request's key."""
        await self._appender.append(self._repeated(key, messages, sent))

    def _repeated(self, key: StreamId, messages: Sequence[Message], sent: SentMessages) -> Append:
        events = [
            NewEvent(self.message_event_id(key, m.id), MessageAppended.__name__, b"", content=sent.contents[m.id])
            for m in messages
        ]
        return Append(key, events, request=sent.request)

    async def require_other(
        self, key: StreamId, messages: Sequence[Message], sent: SentMessages, versions: Mapping[bytes, int]
    ) -> None:
        """Raise LogCorrupt unless the events at these versions, by id, differ in content from what was sent.

        The log compares hashes; if one reports a change in a message that is the same, the hash is damaged.
        """
        contents = {self.message_event_id(key, m.id): sent.contents[m.id] for m in messages}
        for event_id, version in versions.items():
            (stored,) = await self._read(self._log.read_stream, key, after=version - 1, limit=1) or (None,)
            if stored is None or stored.event_id != event_id or sent_content(stored.payload) == contents[event_id]:
                raise LogCorrupt("a stored content hash, or its index, is not what was written")

    async def numbers_of(self, key: StreamId, known: Mapping[bytes, int]) -> dict[str, int]:
        """Numbers, by id, of the messages among the events that are known to have these versions."""
        return await self._read(self._numbers_of, key, known)

    async def originals(
        self,
        key: StreamId,
        state: Conversation,
        *,
        limit: int,
        within: Sequence[MessageRange] | None = None,
        bytes_max: int | None = None,
        on_read: Callable[[int], None] = lambda _: None,
    ) -> tuple[MessageAppended, ...]:
        """Messages as they were appended, the oldest `limit` of them; `within` ascending ranges, or all.

        `state` is one that the log has. The log reads, beside the ranges, only the page in which they begin. Raises
        TooLarge, having read no further, when they are stored in more than `bytes_max` bytes. `on_read` is called in a
        thread with the bytes of each message; it may end the reading by raising.
        """
        return await self._read(self._originals, key, state, limit, within, bytes_max, on_read)

    async def originals_page(
        self, key: StreamId, state: Conversation, *, within: Sequence[MessageRange], limit: int, bytes_max: int
    ) -> tuple[tuple[MessageAppended, ...], bool]:
        """The oldest messages of ascending ranges, and whether more follow.

        They are at most `limit`, stored in `bytes_max` bytes, but always one. `state` is one that the log has.
        """
        return await self._read(self._originals_page, key, state, within, limit, bytes_max)

    async def message_ids(
        self, key: StreamId, state: Conversation, *, within: Sequence[MessageRange], limit: int
    ) -> tuple[Sequence[str], bool]:
        """The ids of the first `limit` messages of ascending ranges, and whether more follow; holds no message."""
        return await self._read(self._message_ids, key, state, within, limit)

    async def as_of(self, key: StreamId, state: Conversation, number: int) -> Conversation:
        """The conversation, or the ancestor that has message `number`, as it stood when that was its newest message.

        Returns the conversation as it was opened for number 0.
        """
        return await self._read(self._as_of, key, state, number)

    async def requested_by(self, key: StreamId, pass_id: str) -> str:
        """The traceparent of the call that triggered a pass, from its event; empty when it had none."""
        return await self._read(self._requested_by, key, self._event_id(key, f"requested/{pass_id}"))

    def message_event_id(self, key: StreamId, message_id: str) -> bytes:
        """The id of a message's event: the same whenever the same message is sent again."""
        return self._event_id(key, f"message/{message_id}")

    def _numbers_of(self, key: StreamId, known: Mapping[bytes, int]) -> dict[str, int]:
        numbers: dict[str, int] = {}
        missing = dict(known)
        reached = 0
        for version in sorted(known.values()):
            if version <= reached:
                continue
            page = self._log.read_stream(key, after=version - 1, limit=PAGE_EVENTS)
            reached = page[-1].version if page else version
            for recorded in page:
                if missing.pop(recorded.event_id, None) is None:
                    continue
                event = decoded(recorded)
                if isinstance(event, MessageAppended):
                    numbers[event.message.id] = event.number
        if missing:
            raise LogCorrupt("known events are not where they are known to be")
        return numbers

    def _as_of(self, key: StreamId, state: Conversation, number: int) -> Conversation:
        held = next(h for h in holdings(key.name, state.ancestors) if number <= h.numbers.last)
        stream, version = StreamId(key.namespace, held.conversation_id), 1
        for recorded, _ in self._recorded(key, state, (MessageRange(number, number),)) if number else ():
            version = recorded.version
        snapshot = self._snapshots.fitting(stream) if self._snapshots is not None else None
        begun = snapshot.state if snapshot and snapshot.event_version <= version else initial_state()
        events = recorded_events(self._log, stream, head=version, after=begun.event_version)
        return evolved(self._log, stream, begun, islice(events, version - begun.event_version))

    def _requested_by(self, key: StreamId, event_id: bytes) -> str:
        before = 0
        while page := self._log.read_stream(key, after=before, limit=PAGE_EVENTS, backward=True):
            for recorded in page:
                if recorded.event_id == event_id:
                    return recorded.trace_context
            before = page[-1].version
        return ""

    def _recorded(
        self, key: StreamId, state: Conversation, ranges: Sequence[MessageRange]
    ) -> Iterator[tuple[RecordedEvent, MessageAppended]]:
        return recorded_originals(
            self._log, key, ranges, ancestors=state.ancestors, redaction=state.redaction, head=state.event_version
        )

    def _originals(
        self,
        key: StreamId,
        state: Conversation,
        limit: int,
        within: Sequence[MessageRange] | None,
        bytes_max: int | None,
        on_read: Callable[[int], None],
    ) -> tuple[MessageAppended, ...]:
        ranges = tuple(within) if within is not None else (MessageRange(1, sys.maxsize),)
        found: list[MessageAppended] = []
        size = 0
        for recorded, event in self._recorded(key, state, ranges):
            if len(found) >= limit:
                break
            size += len(recorded.payload)
            if bytes_max is not None and size > bytes_max:
                raise TooLarge("messages", size=size, limit=bytes_max)
            on_read(len(recorded.payload))
            found.append(event)
        return tuple(found)

    def _originals_page(
        self, key: StreamId, state: Conversation, within: Sequence[MessageRange], limit: int, bytes_max: int
    ) -> tuple[tuple[MessageAppended, ...], bool]:
        found: list[MessageAppended] = []
        size = 0
        for recorded, event in self._recorded(key, state, within):
            size += len(recorded.payload)
            if found and (len(found) == limit or size > bytes_max):
                return tuple(found), True
            found.append(event)
        return tuple(found), False

    def _message_ids(
        self, key: StreamId, state: Conversation, within: Sequence[MessageRange], limit: int
    ) -> tuple[Sequence[str], bool]:
        originals = self._recorded(key, state, within)
        ids = [event.message.id for _, event in islice(originals, limit + 1)]
        return ids[:limit], len(ids) > limit

    def _grown(self, snapshots: SnapshotWriter, key: StreamId, state: Conversation, events: int) -> None:
        """Count events beyond the conversation's snapshot, and offer a new one when it is due."""
        beyond = self._beyond.pop(key, 0) + events
        if state.archive_file:
            return
        if is_due(state, beyond) and snapshots.offer(key, state):
            beyond = 0
        if len(self._beyond) >= COUNTED_MAX:
            del self._beyond[next(iter(self._beyond))]
        self._beyond[key] = beyond

    def _fold(self, key: StreamId) -> Replayed:
        for _ in range(FOLDS_MAX):
            row = self._table.row(key)
            if row is not None and (resumed := self._resumed(key, row)) is not None:
                return resumed
            found = replayed(self._log, key, head=row.event_version if row else 0)
            # A commit whose caller has gone may come between: then the row is another one now.
            if row == self._table.row(key):
                if row is not None and (found.state.event_version, found.position) == (row.event_version, row.position):
                    require_known(self._log, key, found.positions)
                    return found
                if row is None and not found.positions:
                    return found
                raise LogCorrupt("a stream and its row in the read table do not end alike")
        raise LogUnavailable("the conversation changes faster than it is read")

    def _caught_up(self, key: StreamId, state: Conversation) -> Conversation | None:
        tail = recorded_events(self._log, key, after=state.event_version - 1)
        last = next(tail, None)
        if last is None or last.time_us != state.updated_us:
            return None
        first = next(tail, None)
        if first is None:
            return state
        newer = evolved(self._log, key, state, chain((first,), tail))
        # It was unarchived: what it was before, its stream alone says.
        return None if newer.is_blanked else newer._replace(before_archiving=None)

    def _resumed(self, key: StreamId, row: Row) -> Replayed | None:
        """The conversation from its snapshot on; None without one that fits the log and leads to its row."""
        snapshot = self._snapshots.fitting(key) if self._snapshots is not None else None
        if snapshot is None:
            return None
        try:
            found = replayed(self._log, key, head=row.event_version, snapshot=snapshot)
            if not is_row_of(row, found.state, found.position):
                return None
            require_known(self._log, key, found.positions)
        except (LogCorrupt, UnknownEvent):
            # Either the stream is damaged or the snapshot: reading the whole stream shows which.
            return None
        return found

    def _new_event(self, key: StreamId, event: Event, sent: SentMessages, trace_context: str) -> NewEvent:
        content = sent.contents[event.message.id] if isinstance(event, MessageAppended) else None
        type_name, schema_version, payload = encode(event, sent=content)
        event_id = self._event_id(key, self._identity(event))
        return NewEvent(event_id, type_name, payload, schema_version, content, trace_context)

    def _identity(self, event: Event) -> str:
        """Return the identity by which an event written again is the same event; an event that cannot be repeated gets
        a new id."""
        match event:
            case MessageAppended():
                return f"message/{event.message.id}"
            case ConversationOpened() | ConversationForked():
                return "opened"
            case SummarizationRequested():
                return f"requested/{event.plan.pass_id}"
            case SummarizationCompleted():
                return f"completed/{event.pass_id}"
            case SummaryRevoked():
                return f"revoked/{event.record_id}"
            case _:
                return f"other/{self._new_id()}"

    def _event_id(self, key: StreamId, identity: str) -> bytes:
        parts = "\x00".join((self._log.log_id, key.namespace, key.name, identity))
        return hashlib.blake2b(parts.encode(), digest_size=16).digest()
