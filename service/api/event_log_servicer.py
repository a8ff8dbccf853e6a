"""EventLogService: the log as it is, to whoever may read it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any

from abridged.v1 import event_log_service_pb2, event_log_service_pb2_grpc
from eventlog.errors import LogCorrupt
from eventlog.event import RecordedEvent, StreamId
from eventlog.log import PAGE_BYTES_MAX, PAYLOAD_BYTES_MAX, EventFilter
from eventlog.subscription import Batch, CaughtUp, Checkpoint, FellBehind, Heartbeat, Item, log_pages, subscribe
from service.api.auth import current_caller
from service.api.errors import InvalidRequest
from service.api.fitting import RESPONSE_BYTES_MAX, fitting
from service.api.watch import Watching, until_stopped
from service.api.wire import event_to_proto
from service.codec.events import EVENT_TYPES
from service.codec.values import timestamp
from service.domain.errors import ConversationNotFound
from service.projections import ConversationTable
from service.summarizer.progress import Progress

__all__ = ["EventLogServicer"]

READ_DEFAULT = 100

_Read = tuple[list[RecordedEvent], int, bool]
"""Events, the cursor behind them, and whether there is nothing more in this direction."""

assert RESPONSE_BYTES_MAX <= PAGE_BYTES_MAX - PAYLOAD_BYTES_MAX, "a page cut short by its bytes exceeds an answer"

_pb = event_log_service_pb2


class EventLogServicer(event_log_service_pb2_grpc.EventLogServiceServicer):
    """See the contract: every method's promise is written there."""

    def __init__(self, watching: Watching, table: ConversationTable) -> None:
        self._watching = watching
        self._table = table
        self._log = watching.log

    async def ReadEvents(self, request: _pb.ReadEventsRequest, context: Any) -> _pb.ReadEventsResponse:
        namespace = _namespace(request.conversation_id)
        if request.conversation_id:
            stream = StreamId(namespace, request.conversation_id)
            events, cursor, end = await asyncio.to_thread(self._of_conversation, stream, request)
        else:
            events, cursor, end = await asyncio.to_thread(self._of_namespace, namespace, request)
        answered = _answerable(events)
        if len(answered) < len(events):
            cursor, end = answered[-1].version if request.conversation_id else answered[-1].position, False
        return _pb.ReadEventsResponse(
            events=[event_to_proto(event, self._log.log_id) for event in answered], next_after=cursor, end=end
        )

    def _of_conversation(self, stream: StreamId, request: _pb.ReadEventsRequest) -> _Read:
        """Events of a conversation by version. Its row says where the stream ends: an index may have lost that."""
        row = self._table.row(stream)
        limit = request.limit or READ_DEFAULT
        after, head = request.after, row.event_version if row is not None else 0
        events = self._log.read_stream(stream, after=after, limit=limit, backward=request.backward)
        if not head and not events:
            raise ConversationNotFound(stream.name)
        if not head:
            raise LogCorrupt("a stream has no row in the read table")
        if request.backward:
            newest = events[0].version if events else 0
            if newest < min(after - 1 if after else head, head):
                raise LogCorrupt(f"a stream of {head} events ends at {newest}")
            cursor = events[-1].version if events else after
            return events, cursor, cursor == 1
        cursor = events[-1].version if events else after
        # What the bytes of a page or its limit cut off is read next; where nothing is, nothing may be missing.
        if not events and after < head:
            raise LogCorrupt(f"a stream of {head} events ends at {after}")
        return events, cursor, cursor >= head

    def _of_namespace(self, namespace: str, request: _pb.ReadEventsRequest) -> _Read:
        matching = EventFilter(namespace=namespace)
        limit = request.limit or READ_DEFAULT
        page = self._log.scan(after=request.after, limit=limit, matching=matching, backward=request.backward)
        end = page.cursor <= 1 if request.backward else page.cursor >= page.head
        return list(page.events), page.cursor, end

    async def SubscribeEvents(
        self, request: _pb.SubscribeEventsRequest, context: Any
    ) -> AsyncGenerator[_pb.SubscribeEventsResponse, None]:
        namespace = _namespace(request.conversation_id)
        unknown = [name for name in request.types if name not in EVENT_TYPES]
        if unknown:
            raise InvalidRequest((("types", f"'{unknown[0][:80]}' is no event type"),))
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
        async with aclosing(until_stopped(self._watching.stopping, items)) as taken:
            async for item in taken:
                for response in self._responses(item):
                    yield response

    async def GetHead(self, request: _pb.GetHeadRequest, context: Any) -> _pb.GetHeadResponse:
        return _pb.GetHeadResponse(log_id=self._log.log_id, position=self._log.head())

    def _responses(self, item: Item | Progress) -> list[_pb.SubscribeEventsResponse]:
        match item:
            case Batch():
                return self._pages(item)
            case Checkpoint():
                return [_pb.SubscribeEventsResponse(page=_pb.EventPage(cursor=item.cursor))]
            case CaughtUp():
                return [_pb.SubscribeEventsResponse(caught_up=_pb.CaughtUp(position=item.head))]
            case FellBehind():
                return [_pb.SubscribeEventsResponse(fell_behind=_pb.FellBehind(position=item.head))]
            case Heartbeat():
                heartbeat = _pb.Heartbeat(position=item.head, time=timestamp(self._watching.now_us()))
                return [_pb.SubscribeEventsResponse(heartbeat=heartbeat)]
            case _:
                return []

    def _pages(self, batch: Batch) -> list[_pb.SubscribeEventsResponse]:
        """The batch in answers that a client can take; the last one has the batch's cursor."""
        responses = []
        rest = list(batch.events)
        while rest:
            part = _answerable(rest)
            rest = rest[len(part) :]
            cursor = part[-1].position if rest else batch.cursor
            page = _pb.EventPage(events=[event_to_proto(e, self._log.log_id) for e in part], cursor=cursor)
            responses.append(_pb.SubscribeEventsResponse(page=page))
        return responses


def _namespace(conversation_id: str) -> str:
    """The caller's namespace; reading more than one conversation of it takes a scope of its own."""
    caller = current_caller()
    if not conversation_id:
        caller.require("read-all")
    return caller.namespace


def _answerable(events: Iterable[RecordedEvent]) -> list[RecordedEvent]:
    return fitting(events, lambda event: len(event.payload))
