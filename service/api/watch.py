"""A conversation's events with the progress of its passes between them, as one stream.

Events come from the log by the one read loop, progress from the board. A slow client holds neither up: the loop reads
only what is taken, and the board keeps only the newest facts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.eventlog.log import EventLog
from abridged.eventlog.subscription import Batch, CaughtUp, Heartbeat, Item, Timing, WakeUp, stream_pages, subscribe
from abridged.service.api.errors import CursorOutOfRange
from abridged.service.api.event_wire import EventEncoder
from abridged.service.api.views import key_of
from abridged.service.api.wire import pass_ahead_to_proto
from abridged.service.codec.values import timestamp
from abridged.service.codec.wire_format import field
from abridged.service.conversations.conversations import Conversations
from abridged.service.domain.notice import PassAhead
from abridged.service.telemetry.progress import Progress, ProgressBoard, Stage
from abridged.v1 import conversation_service_pb2, event_log_service_pb2

E = TypeVar("E")

_pb = conversation_service_pb2
_STAGES = {stage: _pb.PassStage.Value(f"PASS_STAGE_{stage.name}") for stage in Stage}


@dataclass(frozen=True, slots=True)
class Watching:
    """The parts that streams need. `stopping` is set when the server wants them to end; what reads events reads them in
    a block of `noticing`, see ConversationLog, and sends none before `reached`, see Conversations, returns."""

    log: EventLog
    executor: Executor
    wake_up: WakeUp
    board: ProgressBoard
    stopping: asyncio.Event
    now_us: Callable[[], int]
    now_s: Callable[[], float]
    timing: Timing
    noticing: Callable[[], AbstractAsyncContextManager[None]]
    reached: Callable[[StreamId, int], Awaitable[None]]


class WatchCalls:
    """See the contract."""

    def __init__(self, conversations: Conversations, watching: Watching) -> None:
        self._conversations = conversations
        self._watching = watching

    async def WatchConversation(
        self, request: _pb.WatchConversationRequest, context: Any
    ) -> AsyncIterator[_pb.WatchConversationResponse]:
        key = key_of(request.conversation_id)
        await self._conversations.state(key)
        notices = Notices(self._conversations, key)
        watched = watch(self._watching, key, after=request.after_version, notices=notices)
        async with aclosing(watched) as responses:
            async for response in responses:
                yield response


class Notices:
    """The notices for one watcher: one for each time that a pass comes near."""

    def __init__(self, conversations: Conversations, key: StreamId) -> None:
        self._conversations = conversations
        self._key = key
        self._given: int | None = None

    async def fresh(self) -> PassAhead | None:
        """The notice that is due: after a pass again, or once none was near; None if it was given already."""
        state = await self._conversations.state(self._key)
        if not self._conversations.may_be_near(state):
            self._given = None
        elif self._given != state.completed_passes and (
            ahead := await self._conversations.pass_ahead(self._key, state)
        ):
            self._given = state.completed_passes
            return ahead
        return None


async def watch(watching: Watching, key: StreamId, *, after: int, notices: Notices) -> AsyncGenerator[Any, None]:
    """Everything of one conversation after a version, then live, until the server stops or the client goes: each item
    as a WatchConversationResponse or its bytes.

    A notice follows the newest event that is known. Raises CursorOutOfRange when the conversation has no such version.
    """
    version = await asyncio.get_running_loop().run_in_executor(watching.executor, watching.log.stream_version, key)
    if after > version:
        raise CursorOutOfRange(cursor=after, head=version, log_id=watching.log.log_id)
    encoder = EventEncoder(watching.log.log_id)

    def encoded(event: RecordedEvent) -> bytes:
        return field(_pb.WatchConversationResponse.EVENT_FIELD_NUMBER, encoder(event))

    pages = stream_pages(watching.log, watching.executor, stream=key, encoded=encoded)
    items = subscribe(pages, watching.wake_up, after=after, clock=watching.now_s, timing=watching.timing)
    is_live = False
    with watching.board.watching(key) as queue:
        async with watching.noticing(), aclosing(until_stopped(watching.stopping, items, queue)) as taken:
            async for item in taken:
                if isinstance(item, Batch):
                    await watching.reached(key, item.cursor)
                for response in _responses(watching, item):
                    yield response
                is_live = is_live or isinstance(item, CaughtUp)
                if is_live and isinstance(item, Batch | CaughtUp) and (notice := await notices.fresh()):
                    yield _pb.WatchConversationResponse(pass_ahead=pass_ahead_to_proto(notice))


async def until_stopped(
    stopping: asyncio.Event, items: AsyncGenerator[Item[E], None], queue: asyncio.Queue[Progress] | None = None
) -> AsyncGenerator[Item[E] | Progress, None]:
    """The items, and what comes by the queue, in the order in which they come, until `stopping` is set."""
    sources: dict[asyncio.Task[Any], Callable[[], asyncio.Task[Any]]] = {}

    def listen(start: Callable[[], asyncio.Task[Any]]) -> None:
        sources[start()] = start

    stop = asyncio.ensure_future(stopping.wait())
    listen(lambda: asyncio.ensure_future(_next(items)))
    if queue is not None:
        listen(lambda: asyncio.ensure_future(queue.get()))
    try:
        while not stopping.is_set():
            done, _ = await asyncio.wait({stop, *sources}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stop}:
                start = sources.pop(task)
                yield task.result()
                listen(start)
    finally:
        for task in (stop, *sources):
            task.cancel()
        await asyncio.gather(stop, *sources, return_exceptions=True)
        await items.aclose()


async def _next(items: AsyncGenerator[Item[E], None]) -> Item[E]:
    return await anext(items)


def _responses(watching: Watching, item: Item[bytes] | Progress) -> Iterator[_pb.WatchConversationResponse | bytes]:
    match item:
        case Batch():
            yield from item.events
        case CaughtUp():
            yield _pb.WatchConversationResponse(caught_up=event_log_service_pb2.CaughtUp(version=item.head))
        case Heartbeat():
            heartbeat = event_log_service_pb2.Heartbeat(version=item.head, time=timestamp(watching.now_us()))
            yield _pb.WatchConversationResponse(heartbeat=heartbeat)
        case Progress():
            yield _pb.WatchConversationResponse(progress=_progress(item))


def _progress(progress: Progress) -> _pb.PassProgress:
    return _pb.PassProgress(
        summarization_id=progress.pass_id,
        stage=_STAGES[progress.stage],
        attempt=progress.attempt,
        model=progress.model,
        output_chars=progress.output_chars,
        calls_done=progress.calls_done,
        calls_total=progress.calls_total,
        time=timestamp(progress.at_us),
    )
