"""A log that a database keeps, as its callers see it: one thread writes, reads run in any, listeners hear of commits.

Databases differ in their writer and their reader. A subclass brings both, and releases them.
"""

from __future__ import annotations

import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

from abridged.eventlog.admission import check_size, recall
from abridged.eventlog.chain import NO_CONTENTS, LogIdentity, blanked
from abridged.eventlog.errors import EventLogError, EventTooLarge, LogClosed, LogFailed, LogForked, LogGone
from abridged.eventlog.event import RecordedEvent, SealedEvent, StreamId
from abridged.eventlog.event_reader import EventReader
from abridged.eventlog.futures import submit
from abridged.eventlog.group_commit import GroupCommit
from abridged.eventlog.log import (
    EVERYTHING,
    PAGE_BYTES_MAX,
    PAGE_EVENTS_MAX,
    Append,
    AppendResult,
    CompletionQueue,
    EventFilter,
    Outcome,
    Page,
)

_LOGGER = logging.getLogger(__name__)


class GroupWriter(Protocol):
    """Commits groups of appends, used by one thread at a time. `head` is the last position that it knows of."""

    head: int

    def commit(self, appends: Sequence[Append]) -> Sequence[Outcome]:
        """Write the admissible appends of the group; returns one outcome per append, in order, and does not raise."""
        ...


W = TypeVar("W", bound=GroupWriter)
R = TypeVar("R", bound=EventReader)


class StoredEventLog(ABC, Generic[W, R]):
    """An EventLog over a writer and a reader, but for `full` and `head_of`."""

    def __init__(
        self,
        writer: W,
        reader: R,
        *,
        identity: LogIdentity,
        head: int,
        on_fatal: Callable[[Exception], None] | None,
    ) -> None:
        """A subclass sets what its methods use before it calls this: the writer's thread begins here."""
        self._writer = writer
        self._reader = reader
        self._identity = identity
        self._on_fatal = on_fatal
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._announcing = threading.Lock()
        self._closed = False
        self._listeners: tuple[Callable[[int], None], ...] = ()
        self._head = self._announced_head = head
        self._group_commit = GroupCommit(self._commit, after=self._committed, idle=self._idle, failed=self._fail)

    @property
    def log_id(self) -> str:
        return self._identity.log_id

    def secret(self, purpose: str) -> bytes:
        return self._identity.secret(purpose)

    def submit(self, append: Append) -> Future[AppendResult]:
        return submit(self, append)

    def post(self, append: Append, ticket: Any, completions: CompletionQueue) -> None:
        refusal: EventLogError
        if os.getpid() != self._process:
            refusal = LogForked("the log was opened before the fork")
        else:
            try:
                size = check_size(append)
            except EventTooLarge as error:
                refusal = error
            else:
                self._group_commit.post(append, size, ticket, completions)
                return
        completions.deliver([(ticket, refusal)])

    def read_stream(
        self,
        stream: StreamId,
        *,
        after: int = 0,
        limit: int = PAGE_EVENTS_MAX,
        backward: bool = False,
        bytes_max: int = PAGE_BYTES_MAX,
    ) -> list[RecordedEvent]:
        return self._reading().read_stream(stream, after=after, limit=limit, backward=backward, bytes_max=bytes_max)

    def read_all(self, *, after: int = 0, limit: int = PAGE_EVENTS_MAX, backward: bool = False) -> list[RecordedEvent]:
        return self._reading().read_all(after=after, limit=limit, backward=backward, head=self._head)

    def scan(
        self,
        *,
        after: int = 0,
        limit: int = PAGE_EVENTS_MAX,
        matching: EventFilter = EVERYTHING,
        backward: bool = False,
        bytes_max: int = PAGE_BYTES_MAX,
    ) -> Page:
        return self._reading().scan(
            after=after, limit=limit, matching=matching, head=self._head, backward=backward, bytes_max=bytes_max
        )

    def known(self, append: Append) -> dict[bytes, int]:
        return recall(append, self._reading().known(append), self._identity)

    def known_ids(self, stream: StreamId, event_ids: Collection[bytes]) -> dict[bytes, int]:
        return self._reading().known_ids(stream, event_ids)

    def read_sealed(self, stream: StreamId, *, after: int = 0, limit: int = PAGE_EVENTS_MAX) -> list[SealedEvent]:
        return self._reading().read_sealed(stream, after=after, limit=limit)

    def stream_version(self, stream: StreamId) -> int:
        return self._reading().stream_version(stream)

    def blank(
        self,
        stream: StreamId,
        payloads: Mapping[int, bytes],
        *,
        contents: Mapping[int, bytes] = NO_CONTENTS,
        expected_version: int | None = None,
    ) -> None:
        events = self._between(stream, min(payloads), max(payloads))
        rows = blanked(events, stream, payloads, contents, self._identity.key)
        self._put_blanked(
            [(row.event.payload, row.salt, row.content_hash, row.event.position) for row in rows], expected_version
        )

    def _between(self, stream: StreamId, first: int, last: int) -> Iterator[SealedEvent]:
        after = first - 1
        while after < last and (
            page := self.read_sealed(stream, after=after, limit=min(last - after, PAGE_EVENTS_MAX))
        ):
            yield from page
            after = page[-1].event.version

    @abstractmethod
    def _put_blanked(self, rows: Sequence[tuple[bytes, bytes, bytes, int]], expected_version: int | None) -> None:
        """Write payloads, salts and content hashes of a stream's events by position, in one transaction, and take away
        the hashes of their requests."""

    @abstractmethod
    def purge(self) -> bool:
        """See EventLog."""

    @abstractmethod
    def full(self) -> str:
        """See EventLog."""

    def head(self) -> int:
        self._reading()
        return self._head

    def confirm(self) -> None:
        """See EventLog. One process writes this log, so whatever it reads is durable."""
        self._reading()

    @abstractmethod
    def head_of(self, namespace: str) -> int:
        """See EventLog."""

    def on_commit(self, listener: Callable[[int], None]) -> Callable[[], None]:
        with self._lock:
            self._listeners = (*self._listeners, listener)

        def stop() -> None:
            with self._lock:
                self._listeners = tuple(known for known in self._listeners if known is not listener)

        return stop

    def close(self) -> None:
        with self._lock:
            if self._closed or os.getpid() != self._process:
                return
            self._closed = True
        self._group_commit.close()
        self._release()

    @abstractmethod
    def _release(self) -> None:
        """Release the writer and the reader, once, after the last group."""

    def _reading(self) -> R:
        if os.getpid() != self._process:
            raise LogForked("the log was opened before the fork")
        if self._closed:
            raise LogClosed("the log is closed")
        return self._reader

    def _commit(self, appends: Sequence[Append]) -> Sequence[Outcome]:
        with self._writing:
            outcomes = self._writer.commit(appends)
        self._advance(self._writer.head)
        return outcomes

    def _committed(self) -> None:
        """Act on a group whose outcomes are delivered."""
        self._announce()

    def _idle(self) -> None:
        """Act on a while without appends."""

    def _advance(self, head: int) -> None:
        """Take over a head that was committed, here or elsewhere."""
        with self._lock:
            self._head = max(self._head, head)

    def _fall(self, known: int, head: int) -> None:
        """Take over a head that is lower than the `known` one, whose events are lost; not if it has moved meanwhile."""
        with self._announcing, self._lock:
            if self._head == known:
                self._head = head
                self._announced_head = min(self._announced_head, head)

    def _announce(self) -> None:
        """Tell the listeners of a head once, whichever thread saw it first."""
        with self._announcing:
            if self._announced_head < self._head:
                self._announced_head = self._head
                for listener in self._listeners:
                    listener(self._announced_head)

    def _fail(self, error: Exception) -> None:
        _LOGGER.critical("the event log has stopped", exc_info=error)
        gone = isinstance(error, LogGone)
        self._group_commit.refuse(lambda: LogGone(str(error)) if gone else LogFailed("the event log has stopped"))
        if self._on_fatal is not None:
            self._on_fatal(error)
