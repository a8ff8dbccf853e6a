"""EventLogService: the log as it is, to whoever may read it.

Invariant: no position that is sent is past the last one of the caller's namespace, but in a call that reads while the
namespace grows: how far the whole log has come says what others do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from operator import itemgetter
from typing import Any

from abridged.eventlog.errors import LogCorrupt, StreamCorrupt
from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.eventlog.log import PAYLOAD_BYTES_MAX, EventFilter
from abridged.eventlog.subscription import (
    BATCH_BYTES_MAX,
    Batch,
    CaughtUp,
    Checkpoint,
    FellBehind,
    Heartbeat,
    Item,
    log_pages,
    subscribe,
)
from abridged.service.api.auth import current_caller
from abridged.service.api.errors import CursorOutOfRange, InvalidRequest
from abridged.service.api.event_wire import EventEncoder
from abridged.service.api.pages import RESPONSE_BYTES_MAX, page_size
from abridged.service.api.watch import Watching, until_stopped
from abridged.service.codec.events import EVENT_TYPES
from abridged.service.codec.values import timestamp
from abridged.service.conversations.table import ConversationTable
from abridged.service.domain.errors import ConversationNotFound
from abridged.service.telemetry.progress import Progress
from abridged.v1 import event_log_service_pb2, event_log_service_pb2_grpc

READ_DEFAULT = 100

READ_BYTES_MAX = RESPONSE_BYTES_MAX // 2
"""Payload of a ReadEvents response, which has it as bytes and as a message."""

_Read = tuple[list[RecordedEvent], int, bool]
"""Events, the cursor after them, and whether nothing more follows in this direction."""

assert 2 * max(BATCH_BYTES_MAX, READ_BYTES_MAX, PAYLOAD_BYTES_MAX) <= RESPONSE_BYTES_MAX, (
    "a batch, in both forms, exceeds an answer"
)

_END = itemgetter(RecordedEvent._fields.index("stream"), RecordedEvent._fields.index("version"))

_pb = event_log_service_pb2


class EventLogServicer(event_log_service_pb2_grpc.EventLogServiceServicer):
    """See the contract: every method's promise is written there."""

    def __init__(self, watching: Watching, table: ConversationTable) -> None:
        self._watching = watching
        self._table = table
        self._log = watching.log
        self._encoded = EventEncoder(watching.log.log_id)

    async def ReadEvents(self, request: _pb.ReadEventsRequest, context: Any) -> Any:
        namespace = _namespace(request.conversation_id)
        limit = page_size(request.limit, default=READ_DEFAULT)
        if request.conversation_id:
            read = partial(self._of_conversation, StreamId(namespace, request.conversation_id))
        else:
            read = partial(self._of_namespace, namespace)
        async with self._watching.noticing():
            events, cursor, end = await asyncio.to_thread(read, request.after, limit, backward=request.backward)
        await self._reached(events)
        answer = _pb.ReadEventsResponse(next_after=cursor, end=end)
        events_field = _pb.ReadEventsResponse.EVENTS_FIELD_NUMBER
        return self._encoded.repeated(events_field, events, after=answer.SerializeToString())

    def _of_conversation(self, stream: StreamId, after: int, limit: int, *, backward: bool) -> _Read:
        """Events of a conversation by version. The conversation's row says where the stream ends: an index may have
        lost that."""
        row = self._table.row(stream)
        head = row.event_version if row is not None else 0
        events = self._log.read_stream(stream, after=after, limit=limit, backward=backward, bytes_max=READ_BYTES_MAX)
        if not head and not events:
            raise ConversationNotFound(stream.name)
        if not head:
            raise LogCorrupt("a stream has no row in the read table")
        cursor = events[-1].version if events else after
        if backward:
            newest = events[0].version if events else 0
            if newest < min(after - 1 if after else head, head):
                raise StreamCorrupt(f"a stream of {head} events ends at {newest}", stream, newest + 1)
            return events, cursor, cursor == 1
        # What the bytes of a page or its limit cut off is read next; where nothing is, nothing may be missing.
        room = READ_BYTES_MAX - sum(len(event.payload) for event in events)
        if cursor < head and len(events) < limit and (not events or room >= PAYLOAD_BYTES_MAX):
            raise StreamCorrupt(f"a stream of {head} events ends at {cursor}", stream, cursor + 1)
        if not events:
            self._check_cursor(after, head)
        return events, cursor, cursor >= head

    def _of_namespace(self, namespace: str, after: int, limit: int, *, backward: bool) -> _Read:
        """Events of a namespace by position. No cursor tells how far other namespaces have come."""
        head = self._log.head_of(namespace)
        if backward:
            after = after or head + 1
        else:
            self._check_cursor(after, head)
        matching = EventFilter(namespace=namespace)
        page = self._log.scan(after=after, limit=limit, matching=matching, backward=backward, bytes_max=READ_BYTES_MAX)
        events = list(page.events)
        if backward:
            return events, page.cursor, page.cursor <= 1
        last = events[-1].position if events else 0
        return events, max(last, min(page.cursor, head)), page.cursor >= head

    async def SubscribeEvents(self, request: _pb.SubscribeEventsRequest, context: Any) -> AsyncGenerator[Any, None]:
        namespace = _namespace(request.conversation_id)
        unknown = [name for name in request.types if name not in EVENT_TYPES]
        if unknown:
            raise InvalidRequest((("types", f"'{unknown[0][:80]}' is no event type"),))
        if request.after_position:
            self._check_cursor(request.after_position, await self._head(namespace))
        matching = EventFilter(
            namespace=namespace,
            stream=StreamId(namespace, request.conversation_id) if request.conversation_id else None,
            types=frozenset(request.types),
        )
        pages = log_pages(self._log, self._watching.executor, matching=matching)
        items = subscribe(
            pages,
            self._watching.wake_up,
            after=request.after_position,
            clock=self._watching.now_s,
            timing=self._watching.timing,
        )
        async with self._watching.noticing(), aclosing(until_stopped(self._watching.stopping, items)) as taken:
            async for item in taken:
                if isinstance(item, Batch):
                    await self._reached(item.events)
                yield await self._response(namespace, item)

    async def _reached(self, events: Sequence[RecordedEvent]) -> None:
        is_backward = len(events) > 1 and events[0].position > events[-1].position
        # Of each stream the last one stays.
        newest = dict(map(_END, reversed(events) if is_backward else events))
        for stream, version in newest.items():
            await self._watching.reached(stream, version)

    async def GetHead(self, request: _pb.GetHeadRequest, context: Any) -> _pb.GetHeadResponse:
        return _pb.GetHeadResponse(log_id=self._log.log_id, position=await self._head(current_caller().namespace))

    async def _head(self, namespace: str) -> int:
        return await asyncio.to_thread(self._log.head_of, namespace)

    def _check_cursor(self, cursor: int, head: int) -> None:
        if cursor > head:
            raise CursorOutOfRange(cursor=cursor, head=head, log_id=self._log.log_id)

    async def _response(
        self, namespace: str, item: Item[RecordedEvent] | Progress
    ) -> _pb.SubscribeEventsResponse | bytes:
        assert not isinstance(item, Progress), "only watchers of a conversation receive progress"
        # An event of the namespace at the cursor is at most its head; otherwise the log's own head stays private.
        is_own = isinstance(item, Batch) and item.events[-1].position == item.cursor
        head = item.cursor if is_own else await self._head(namespace)
        cursor, position = min(item.cursor, head), min(item.head, head)
        match item:
            case Batch():
                return self._encoded.repeated(
                    _pb.EventPage.EVENTS_FIELD_NUMBER,
                    item.events,
                    after=_pb.EventPage(cursor=cursor).SerializeToString(),
                    within=_pb.SubscribeEventsResponse.PAGE_FIELD_NUMBER,
                )
            case Checkpoint():
                return _pb.SubscribeEventsResponse(page=_pb.EventPage(cursor=cursor))
            case CaughtUp():
                return _pb.SubscribeEventsResponse(caught_up=_pb.CaughtUp(position=position))
            case FellBehind():
                return _pb.SubscribeEventsResponse(fell_behind=_pb.FellBehind(position=position))
            case Heartbeat():
                heartbeat = _pb.Heartbeat(position=position, time=timestamp(self._watching.now_us()))
                return _pb.SubscribeEventsResponse(heartbeat=heartbeat)


def _namespace(conversation_id: str) -> str:
    """The caller's namespace; reading more than one conversation of it takes a scope of its own."""
    caller = current_caller()
    if not conversation_id:
        caller.require("read-all")
    return caller.namespace
