"""EventLogService: the log as it is, to whoever may read it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any

from abridged.v1 import event_log_service_pb2, event_log_service_pb2_grpc
from eventlog.event import RecordedEvent, StreamId
from eventlog.log import PAGE_BYTES_MAX, PAYLOAD_BYTES_MAX, EventFilter
from eventlog.subscription import (
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
from service.api.auth import current_caller
from service.api.errors import InvalidRequest
from service.api.fitting import RESPONSE_BYTES_MAX, fitting
from service.api.watch import Watching, until_stopped
from service.api.wire import event_to_proto
from service.codec.events import EVENT_TYPES
from service.codec.values import timestamp
from service.domain.errors import ConversationNotFound
from service.summarizer.progress import Progress

__all__ = ["EventLogServicer"]

READ_DEFAULT = 100

assert max(BATCH_BYTES_MAX, PAYLOAD_BYTES_MAX) <= RESPONSE_BYTES_MAX, "a batch exceeds an answer"
assert RESPONSE_BYTES_MAX <= PAGE_BYTES_MAX - PAYLOAD_BYTES_MAX, "a page cut short by its bytes exceeds an answer"

_pb = event_log_service_pb2


class EventLogServicer(event_log_service_pb2_grpc.EventLogServiceServicer):
    """See the contract: every method's promise is written there."""

    def __init__(self, watching: Watching) -> None:
        self._watching = watching
        self._log = watching.log

    async def ReadEvents(self, request: _pb.ReadEventsRequest, context: Any) -> _pb.ReadEventsResponse:
        namespace = _namespace(request.conversation_id)
        limit = request.limit or READ_DEFAULT
        if request.conversation_id:
            stream = StreamId(namespace, request.conversation_id)
            read = await asyncio.to_thread(
                self._log.read_stream, stream, after=request.after, limit=limit, backward=request.backward
            )
            if not read and not await asyncio.to_thread(self._log.stream_version, stream):
                raise ConversationNotFound(request.conversation_id)
        else:
            read = await asyncio.to_thread(
                self._log.read_all, after=request.after, limit=limit, namespace=namespace, backward=request.backward
            )
        events = _answerable(read)
        cursor = request.after
        if events:
            cursor = events[-1].version if request.conversation_id else events[-1].position
        return _pb.ReadEventsResponse(
            events=[event_to_proto(event, self._log.log_id) for event in events],
            next_after=cursor,
            end=(len(read) < limit and len(events) == len(read)) or (request.backward and cursor == 1),
        )

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
                events = [event_to_proto(event, self._log.log_id) for event in item.events]
                return [_pb.SubscribeEventsResponse(page=_pb.EventPage(events=events, cursor=item.cursor))]
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


def _namespace(conversation_id: str) -> str:
    """The caller's namespace; reading more than one conversation of it takes a scope of its own."""
    caller = current_caller()
    if not conversation_id:
        caller.require("read-all")
    return caller.namespace


def _answerable(events: Iterable[RecordedEvent]) -> list[RecordedEvent]:
    return fitting(events, lambda event: len(event.payload))
