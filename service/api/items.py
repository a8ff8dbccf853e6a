"""The requests of a stream, each admitted as a unary call is, and their outcomes in the order of arrival.

A window of requests is under way at most. While it is full nothing is read, so the transport makes the sender wait.
Requests of one conversation are served one after another, so they keep their order.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, NamedTuple

from google.rpc.code_pb2 import Code
from google.rpc.status_pb2 import Status

from abridged.observability.stages import Stage, begin_stages, stage
from abridged.service.api.admission import Tenant
from abridged.service.api.call import StreamingCall
from abridged.service.api.call_record import status_for
from abridged.service.api.deadlines import in_time
from abridged.service.api.drain import Drain
from abridged.service.api.errors import ServerStopping
from abridged.service.api.methods import Method
from abridged.service.api.slow_calls import SlowCalls

Serve = Callable[[Any], Awaitable[Any]]
"""Serves one request."""


class _Item(NamedTuple):
    """A request with its size in bytes, or the status with which it was refused as it was read."""

    request: Any
    size: int
    refusal: Status | None = None


class Items:
    """The requests of one call. `item_s` is how long serving one may take; `ended` is called once for each, with the
    name of its status."""

    def __init__(
        self,
        method: Method,
        call: StreamingCall,
        tenant: Tenant,
        *,
        drain: Drain,
        item_s: float,
        ended: Callable[[str], None],
        slow: SlowCalls,
    ) -> None:
        self._method = method
        self._call = call
        self._tenant = tenant
        self._drain = drain
        self._item_s = item_s
        self._ended = ended
        self._slow = slow

    async def next(self) -> _Item | None:
        """The next request when the namespace has room for its bytes; None when no more come. Raises what ends the
        stream."""
        received = await self._call.read_next()
        if received is None:
            return None
        if isinstance(received, Exception):
            return _Item(None, 0, status_for(received, "rpc.failed", method=self._method.name))
        request, size = received
        await self._tenant.room.hold(size)
        return _Item(request, size)

    def begun(self, item: _Item, serve: Serve, after: asyncio.Task[Any] | None) -> asyncio.Task[Any]:
        """Serve the request once `after` has ended; the task returns the outcome, or the status."""
        task = asyncio.create_task(self._timed(item, serve, after))

        def over(ended: asyncio.Task[Any]) -> None:
            self._tenant.room.let_go(item.size)
            self._ended(_code_of(ended))

        # Not by the task itself: one that is cancelled before its first step runs none of its code.
        task.add_done_callback(over)
        return task

    async def _timed(self, item: _Item, serve: Serve, after: asyncio.Task[Any] | None) -> Any:
        began_s, stages, code = time.perf_counter(), begin_stages(), "CANCELLED"
        try:
            outcome = await self._served(item, serve, after)
            code = _name_of(outcome)
            return outcome
        finally:
            self._slow.ended(self._method.name, code, seconds=time.perf_counter() - began_s, stages=stages)

    async def _served(self, item: _Item, serve: Serve, after: asyncio.Task[Any] | None) -> Any:
        if item.refusal is not None:
            return item.refusal
        self._drain.enter()
        try:
            if after is not None:
                with stage(Stage.TURN):
                    await asyncio.wait((after,))
            self._tenant.take_call(reads=False)
            try:
                return await in_time(serve(item.request), self._item_s)
            finally:
                self._tenant.give_back_call()
        except (Exception, asyncio.CancelledError) as error:
            meaning = self._drain.meaning_of(error)
            if isinstance(meaning, asyncio.CancelledError):
                raise
            return status_for(meaning, "rpc.failed", method=self._method.name)
        finally:
            self._drain.leave()


def _code_of(task: asyncio.Task[Any]) -> str:
    if task.cancelled() or task.exception() is not None:
        return "CANCELLED"
    return _name_of(task.result())


def _name_of(outcome: Any) -> str:
    return Code.Name(outcome.code) if isinstance(outcome, Status) else "OK"


async def in_order(
    items: Items, serve: Serve, key: Callable[[Any], str], *, window: int, stopping: asyncio.Event
) -> AsyncGenerator[Any, None]:
    """Yields the outcome of each request, or its status. Requests with the same `key` keep their order.

    Raises ServerStopping when `stopping` is set and everything that was read has been yielded.
    """
    under_way: deque[asyncio.Task[Any]] = deque()
    moved, has_room = asyncio.Event(), asyncio.Event()
    # One task reads all: a task and a wait for each request would cost as much as the rest of its way through here.
    reading = asyncio.create_task(_read(items, serve, key, under_way, moved, has_room, window))
    reading.add_done_callback(lambda _: moved.set())
    stop = asyncio.create_task(stopping.wait())
    stop.add_done_callback(lambda _: reading.cancel())
    try:
        while under_way or not reading.done():
            if not under_way:
                moved.clear()
                await moved.wait()
                continue
            outcome = await under_way[0]
            under_way.popleft()
            has_room.set()
            yield outcome
        if reading.cancelled():
            raise ServerStopping
        reading.result()
    finally:
        stop.cancel()
        reading.cancel()
        for task in under_way:
            task.cancel()
        await asyncio.wait((reading,))


async def _read(
    items: Items,
    serve: Serve,
    key: Callable[[Any], str],
    under_way: deque[asyncio.Task[Any]],
    moved: asyncio.Event,
    has_room: asyncio.Event,
    window: int,
) -> None:
    """Begin to serve what comes, while fewer than `window` are under way, until no more come.

    A request whose reading is cancelled is not served, and its sender gets no result for it.
    """
    newest: dict[str, asyncio.Task[Any]] = {}
    while True:
        while len(under_way) >= window:
            has_room.clear()
            await has_room.wait()
        item = await items.next()
        if item is None:
            return
        under_way.append(_begun(items, item, serve, key, newest))
        moved.set()


def _begun(
    items: Items, item: _Item, serve: Serve, key: Callable[[Any], str], newest: dict[str, asyncio.Task[Any]]
) -> asyncio.Task[Any]:
    if item.refusal is not None:
        return items.begun(item, serve, None)
    name = key(item.request)
    task = newest[name] = items.begun(item, serve, newest.get(name))

    def forget(ended: asyncio.Task[Any]) -> None:
        if newest.get(name) is ended:
            del newest[name]

    task.add_done_callback(forget)
    return task
