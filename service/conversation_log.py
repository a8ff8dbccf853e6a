"""Conversations in the event log: their events' ids, their commit with the read table's row, their fold.

One stream a conversation. Everything here is about bytes and ids; what the events mean is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from eventlog.async_append import AsyncAppender
from eventlog.event import NewEvent, RecordedEvent, StreamId
from eventlog.log import Append, AppendResult, EventLog, ExpectedVersion, RequestKey, exactly
from service.codec.events import decode, encode
from service.domain.conversation import Conversation, fold
from service.domain.errors import TooLarge
from service.domain.events import (
    ConversationOpened,
    Event,
    MessageAppended,
    SummarizationCompleted,
    SummarizationRequested,
)
from service.domain.message import Message
from service.projections import Projected

__all__ = ["ConversationLog", "OnChanged", "SentMessages"]

PAGE_EVENTS = 500

_NOWHERE = ExpectedVersion("exact", -1)
"""No stream is ever there: an append that expects it writes nothing, and yet says which of its events are known."""


OnChanged = Callable[[StreamId, Conversation, Sequence[Event]], None]
"""Told of a commit, on the event loop, with the state behind it."""


class SentMessages(NamedTuple):
    """What a client sent, as its idempotency is judged: content by message id, and the request's own key."""

    contents: Mapping[str, bytes]
    request: RequestKey | None = None


class ConversationLog:
    """Reads and writes conversations' streams. Lives on one event loop; reads run in threads."""

    def __init__(self, log: EventLog, *, new_id: Callable[[], str], traceparent: Callable[[], str]) -> None:
        self._log = log
        self._appender = AsyncAppender(log)
        self._new_id = new_id
        self._traceparent = traceparent

    async def fold(self, key: StreamId) -> Conversation:
        """The conversation as its stream tells it; not open when there is no stream."""
        return await asyncio.to_thread(lambda: fold(self._events(key)))

    async def commit(
        self, key: StreamId, state: Conversation, events: Sequence[Event], sent: SentMessages, *, on_disk: OnChanged
    ) -> tuple[Conversation, AppendResult]:
        """Write events that were decided on `state`; answers the state behind them, once they are on disk.

        `on_disk` gets that state on the event loop, with the events, before anybody else and also when the caller has
        gone in the meantime.
        Raises EventLogError; then nothing was written.
        """
        projected = Projected(state, events)
        new = [self._new_event(key, event, sent) for event in events]

        def told(_result: AppendResult) -> None:
            if projected.after is not None:  # None when all of it was known, and nothing was written
                on_disk(key, projected.after, events)

        append = Append(key, new, exactly(state.event_version), sent.request, projected)
        result = await self._appender.append(append, on_disk=told)
        return projected.after or state, result

    async def known(self, key: StreamId, messages: Sequence[Message], sent: SentMessages) -> AppendResult:
        """What of `messages` is on disk, without writing anything: raises what appending them again would raise.

        WrongExpectedVersion says that none of them is.
        """
        events = [
            NewEvent(self.message_event_id(key, m.id), MessageAppended.__name__, b"", content=sent.contents[m.id])
            for m in messages
        ]
        return await self._appender.append(Append(key, events, expected=_NOWHERE, request=sent.request))

    async def numbers_at(self, key: StreamId, versions: Iterable[int]) -> dict[str, int]:
        """Numbers, by id, of the messages among the events of these versions."""
        return await asyncio.to_thread(self._numbers_at, key, sorted(versions))

    async def originals(
        self,
        key: StreamId,
        wanted: Callable[[int], bool],
        *,
        limit: int,
        bytes_max: int | None = None,
        on_read: Callable[[int], None] = lambda _: None,
    ) -> tuple[MessageAppended, ...]:
        """Messages by number as they were appended, the oldest `limit` of them.

        Raises TooLarge, having read no further, when they are stored in more than `bytes_max` bytes. `on_read` hears in
        a thread of the bytes of each message, and ends the reading by raising.
        """
        return await asyncio.to_thread(self._originals, key, wanted, limit, bytes_max, on_read)

    async def requested_by(self, key: StreamId, pass_id: str) -> str:
        """The traceparent of the call that triggered a pass, from its event; empty when it had none."""
        return await asyncio.to_thread(self._requested_by, key, self._event_id(key, f"requested/{pass_id}"))

    def message_event_id(self, key: StreamId, message_id: str) -> bytes:
        """The id of a message's event: the same whenever the same message is sent again."""
        return self._event_id(key, f"message/{message_id}")

    def _numbers_at(self, key: StreamId, versions: Sequence[int]) -> dict[str, int]:
        numbers: dict[str, int] = {}
        reached = 0
        for version in versions:
            if version <= reached:
                continue
            page = self._log.read_stream(key, after=version - 1, limit=PAGE_EVENTS)
            reached = page[-1].version
            for recorded in page:
                if recorded.type == MessageAppended.__name__:
                    event = decode(recorded.type, recorded.schema_version, recorded.payload)
                    assert isinstance(event, MessageAppended)
                    numbers[event.message.id] = event.number
        return numbers

    def _requested_by(self, key: StreamId, event_id: bytes) -> str:
        before = 0
        while page := self._log.read_stream(key, after=before, limit=PAGE_EVENTS, backward=True):
            for recorded in page:
                if recorded.event_id == event_id:
                    return recorded.trace_context
            before = page[-1].version
        return ""

    def _originals(
        self,
        key: StreamId,
        wanted: Callable[[int], bool],
        limit: int,
        bytes_max: int | None,
        on_read: Callable[[int], None],
    ) -> tuple[MessageAppended, ...]:
        found: list[MessageAppended] = []
        size = 0
        for recorded in self._recorded(key):
            if recorded.type != MessageAppended.__name__:
                continue
            event = decode(recorded.type, recorded.schema_version, recorded.payload)
            if isinstance(event, MessageAppended) and wanted(event.number):
                size += len(recorded.payload)
                if bytes_max is not None and size > bytes_max:
                    raise TooLarge("messages", size=size, limit=bytes_max)
                on_read(len(recorded.payload))
                found.append(event)
                if len(found) >= limit:
                    break
        return tuple(found)

    def _events(self, key: StreamId) -> Iterator[tuple[Event, int]]:
        for recorded in self._recorded(key):
            yield decode(recorded.type, recorded.schema_version, recorded.payload), recorded.time_us

    def _recorded(self, key: StreamId) -> Iterator[RecordedEvent]:
        after = 0
        while page := self._log.read_stream(key, after=after, limit=PAGE_EVENTS):
            yield from page
            after = page[-1].version

    def _new_event(self, key: StreamId, event: Event, sent: SentMessages) -> NewEvent:
        content = sent.contents[event.message.id] if isinstance(event, MessageAppended) else None
        type_name, schema_version, payload = encode(event, sent=content)
        return NewEvent(
            event_id=self._event_id(key, self._identity(event)),
            type=type_name,
            payload=payload,
            schema_version=schema_version,
            content=content,
            trace_context=self._traceparent(),
        )

    def _identity(self, event: Event) -> str:
        """What makes an event the same event when it is written again; what cannot be repeated gets a new id."""
        match event:
            case MessageAppended():
                return f"message/{event.message.id}"
            case ConversationOpened():
                return "opened"
            case SummarizationRequested():
                return f"requested/{event.plan.pass_id}"
            case SummarizationCompleted():
                return f"completed/{event.pass_id}"
            case _:
                return f"other/{self._new_id()}"

    def _event_id(self, key: StreamId, identity: str) -> bytes:
        parts = "\x00".join((self._log.log_id, key.namespace, key.name, identity))
        return hashlib.blake2b(parts.encode(), digest_size=16).digest()
