"""A log in memory, for tests and trials. The log keeps every promise except durability.

All state changes under one lock, after the hook has succeeded, so a reader never sees part of an append.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from itertools import islice
from typing import Any

from abridged.eventlog.admission import Admitted, StreamState, admit, check_size, recall, require_expected
from abridged.eventlog.chain import NO_CONTENTS, LogIdentity, blanked, genesis
from abridged.eventlog.errors import EventTooLarge, LogClosed
from abridged.eventlog.event import RecordedEvent, SealedEvent, StreamId
from abridged.eventlog.futures import submit
from abridged.eventlog.log import (
    EVERYTHING,
    PAGE_BYTES_MAX,
    PAGE_EVENTS_MAX,
    SCAN_EVENTS_MAX,
    Append,
    AppendHook,
    AppendResult,
    CompletionQueue,
    EventFilter,
    Outcome,
    Page,
)
from abridged.eventlog.paging import up_to_bytes


class MemoryEventLog:
    """An EventLog without a disk. Appends are committed on the caller's thread."""

    def __init__(
        self,
        *,
        clock_us: Callable[[], int],
        hook: AppendHook | None = None,
    ) -> None:
        self._clock_us = clock_us
        self._hook = hook
        self._identity = LogIdentity.new()
        self._lock = threading.RLock()
        self._events: list[SealedEvent] = []
        self._by_stream: dict[StreamId, list[SealedEvent]] = {}
        self._streams: dict[StreamId, StreamState] = {}
        self._listeners: list[Callable[[int], None]] = []
        self._closed = False

    @property
    def log_id(self) -> str:
        return self._identity.log_id

    def secret(self, purpose: str) -> bytes:
        return self._identity.secret(purpose)

    def submit(self, append: Append) -> Future[AppendResult]:
        return submit(self, append)

    def post(self, append: Append, ticket: Any, completions: CompletionQueue) -> None:
        completions.deliver([(ticket, self._commit(append))])

    def _commit(self, append: Append) -> Outcome:
        try:
            check_size(append)
        except EventTooLarge as error:
            return error
        with self._lock:
            if self._closed:
                return LogClosed("the log is closed")
            state = self._known_of(append)
            admitted = admit(
                [append],
                {append.stream: state},
                head=len(self._events),
                time_us=self._clock_us(),
                identity=self._identity,
            )
            changes: list[Callable[[], None]] = []
            if self._hook is not None and admitted.committed:
                try:
                    self._hook(changes, admitted.committed)
                except Exception as error:  # noqa: BLE001 - the hook's error is the append's outcome, whatever it is
                    return error
            self._store(append.stream, state, admitted)
            for change in changes:
                change()
            listeners = tuple(self._listeners) if admitted.events else ()
        for listener in listeners:
            listener(admitted.events[-1].event.position)
        return admitted.outcomes[0]

    def _known_of(self, append: Append) -> StreamState:
        """A copy of what admission needs, so that a failing hook leaves no trace."""
        kept = self._streams.get(append.stream)
        if kept is None:
            return StreamState(0, genesis(self.log_id, append.stream))
        events = {new.event_id: kept.events[new.event_id] for new in append.events if new.event_id in kept.events}
        requests = {}
        if append.request is not None and append.request.key in kept.requests:
            requests[append.request.key] = kept.requests[append.request.key]
        return StreamState(kept.version, kept.chain, events, requests)

    def _store(self, stream: StreamId, state: StreamState, admitted: Admitted) -> None:
        if not admitted.events and not admitted.requests:
            return
        kept = self._streams.setdefault(stream, StreamState(0, b""))
        kept.version, kept.chain = state.version, state.chain
        kept.events.update(state.events)
        kept.requests.update(state.requests)
        self._by_stream.setdefault(stream, []).extend(admitted.events)
        self._events.extend(admitted.events)

    def read_stream(
        self,
        stream: StreamId,
        *,
        after: int = 0,
        limit: int = PAGE_EVENTS_MAX,
        backward: bool = False,
        bytes_max: int = PAGE_BYTES_MAX,
    ) -> list[RecordedEvent]:
        with self._reading():
            return _page(_walk(self._by_stream.get(stream, []), after, backward), limit, bytes_max)[0]

    def read_all(self, *, after: int = 0, limit: int = PAGE_EVENTS_MAX, backward: bool = False) -> list[RecordedEvent]:
        with self._reading():
            return _page(_walk(self._events, after, backward), limit)[0]

    def scan(
        self,
        *,
        after: int = 0,
        limit: int = PAGE_EVENTS_MAX,
        matching: EventFilter = EVERYTHING,
        backward: bool = False,
        bytes_max: int = PAGE_BYTES_MAX,
    ) -> Page:
        with self._reading():
            head = len(self._events)
            window = islice(_walk(self._events, after, backward), SCAN_EVENTS_MAX)
            found, whole = _page((sealed for sealed in window if matching.accepts(sealed.event)), limit, bytes_max)
        if len(found) == limit or not whole:
            return Page(tuple(found), found[-1].position, head)
        if backward:
            end = min(after or head + 1, head + 1)
            return Page(tuple(found), max(1, end - SCAN_EVENTS_MAX), head)
        return Page(tuple(found), max(after, min(after + SCAN_EVENTS_MAX, head)), head)

    def known(self, append: Append) -> dict[bytes, int]:
        with self._reading():
            return recall(append, self._known_of(append), self._identity)

    def known_ids(self, stream: StreamId, event_ids: Collection[bytes]) -> dict[bytes, int]:
        with self._reading():
            positions = {sealed.event.event_id: sealed.event.position for sealed in self._by_stream.get(stream, ())}
            return {event_id: positions[event_id] for event_id in event_ids if event_id in positions}

    def read_sealed(self, stream: StreamId, *, after: int = 0, limit: int = PAGE_EVENTS_MAX) -> list[SealedEvent]:
        with self._reading():
            events = self._by_stream.get(stream, [])
            page, _ = _page(_walk(events, after, backward=False), limit)
            return events[after : after + len(page)]

    def stream_version(self, stream: StreamId) -> int:
        with self._reading():
            return len(self._by_stream.get(stream, ()))

    def blank(
        self,
        stream: StreamId,
        payloads: Mapping[int, bytes],
        *,
        contents: Mapping[int, bytes] = NO_CONTENTS,
        expected_version: int | None = None,
    ) -> None:
        with self._reading():
            if expected_version is not None:
                require_expected(expected_version, len(self._by_stream.get(stream, ())))
            kept = self._streams.get(stream, StreamState(0, b""))
            places = {sealed.event.version: sealed for sealed in self._by_stream.get(stream, ())}
            rows = blanked(places.values(), stream, payloads, contents, self._identity.key)
            first, last = rows[0].event.position, rows[-1].event.position
            for name, request in kept.requests.items():
                if request.last_position >= first and request.first_position <= last:
                    kept.requests[name] = request._replace(content_hash=b"")
            for row in rows:
                old = places[row.event.version]
                new = old._replace(event=row.event, content_hash=row.content_hash, salt=row.salt)
                self._events[row.event.position - 1] = self._by_stream[stream][row.event.version - 1] = new
                known = kept.events[row.event.event_id]
                kept.events[row.event.event_id] = known._replace(content_hash=row.content_hash)

    def purge(self) -> bool:
        """See EventLog: no byte of a blanked payload is left."""
        return True

    def full(self) -> str:
        return ""

    def head(self) -> int:
        with self._reading():
            return len(self._events)

    def confirm(self) -> None:
        """See EventLog. Nothing of this log outlives the process, so nothing is left to confirm."""

    def head_of(self, namespace: str) -> int:
        with self._reading():
            newest_first = reversed(self._events)
            return next(
                (sealed.event.position for sealed in newest_first if sealed.event.stream.namespace == namespace), 0
            )

    def on_commit(self, listener: Callable[[int], None]) -> Callable[[], None]:
        with self._lock:
            self._listeners.append(listener)

        def stop() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return stop

    def close(self) -> None:
        with self._lock:
            self._closed = True

    def _reading(self) -> threading.RLock:
        if self._closed:
            raise LogClosed("the log is closed")
        return self._lock


def _walk(events: list[SealedEvent], after: int, backward: bool) -> Iterator[SealedEvent]:
    """Events by their place, which is also their position or version minus one."""
    if not backward:
        return islice(events, after, None)
    last = len(events) if after == 0 else min(after - 1, len(events))
    return (events[place] for place in range(last - 1, -1, -1))


def _page(
    events: Iterable[SealedEvent], limit: int, bytes_max: int = PAGE_BYTES_MAX
) -> tuple[list[RecordedEvent], bool]:
    """The first `limit` events up to `bytes_max`, at least one, and whether the byte limit left the page whole."""
    recorded = (sealed.event for sealed in islice(events, limit))
    return up_to_bytes(recorded, lambda event: len(event.payload), bytes_max=bytes_max)
