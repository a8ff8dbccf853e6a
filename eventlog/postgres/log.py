"""A log in a PostgreSQL database, which several processes may write and read at once.

Acknowledged means committed as durably as the server commits, on its synchronous standby too if it has one.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing
from typing import Any, Self, TypeVar

import psycopg

from abridged.eventlog.admission import check_size, recall
from abridged.eventlog.backend import Notice
from abridged.eventlog.chain import LogIdentity
from abridged.eventlog.errors import (
    EventLogError,
    EventTooLarge,
    LogClosed,
    LogFailed,
    LogForked,
    LogUnavailable,
)
from abridged.eventlog.event import RecordedEvent, SealedEvent, StreamId
from abridged.eventlog.futures import submit
from abridged.eventlog.group_commit import GroupCommit
from abridged.eventlog.log import (
    EVERYTHING,
    PAGE_BYTES_MAX,
    PAGE_EVENTS_MAX,
    Append,
    AppendHook,
    AppendResult,
    CompletionQueue,
    EventFilter,
    Outcome,
    Page,
)
from abridged.eventlog.postgres.connections import Address, Connection, Readers
from abridged.eventlog.postgres.database import (
    hazards,
    identity_of,
    make_tables,
    prove_exclusion,
    require_fit,
    server_of,
    transaction,
    was_made_meanwhile,
)
from abridged.eventlog.postgres.errors import translating
from abridged.eventlog.postgres.reader import PostgresReader
from abridged.eventlog.postgres.watch import Channel, HeadWatch
from abridged.eventlog.postgres.writer import PostgresWriter

OPENINGS_MAX = 3
"""Attempts at a database in which another process makes the tables at the same time."""

_LOGGER = logging.getLogger(__name__)

T = TypeVar("T")


class PostgresEventLog:
    """An EventLog in a database. Use `open` to create it; `warnings` are for the operator."""

    def __init__(
        self,
        writer: PostgresWriter,
        reader: PostgresReader,
        *,
        identity: LogIdentity,
        watch: Callable[[Callable[[int], None]], HeadWatch],
        on_fatal: Callable[[Exception], None] | None,
        warnings: tuple[Notice, ...],
    ) -> None:
        self.warnings = warnings
        self._identity = identity
        self._writer = writer
        self._reader = reader
        self._on_fatal = on_fatal
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._announcing = threading.Lock()
        self._namespace_heads: dict[str, tuple[int, int]] = {}
        self._closed = False
        self._listeners: tuple[Callable[[int], None], ...] = ()
        self._head = self._announced_head = reader.head()
        self._group_commit = GroupCommit(self._commit, after=self._announce, idle=lambda: None, failed=self._fail)
        self._watch = watch(self._followed)

    @classmethod
    def open(
        cls,
        address: Address,
        log: int,
        *,
        clock_us: Callable[[], int],
        hook: AppendHook | None = None,
        prepare: Callable[[Connection], None] | None = None,
        on_fatal: Callable[[Exception], None] | None = None,
    ) -> Self:
        """Open or create the log of this number.

        `prepare` runs once in the opening transaction, so that the hook's owner can create its own tables. Raises
        LogUnsafe, LogOlder, LogNewer, LogCorrupt, LogForeign, LogFull or LogUnavailable, and has changed nothing then.
        """
        with ExitStack() as opened:
            connection = address.connect()
            opened.callback(connection.close)
            with translating():
                server = server_of(connection)
                require_fit(server)
                identity = _prepared(connection, log, clock_us, prepare)
                with closing(address.connect()) as other:
                    prove_exclusion(connection, other, log)
            channel = Channel.of(identity.log_id)
            writer = PostgresWriter(
                connection,
                connect=address.connect,
                log=log,
                identity=identity,
                hook=hook,
                clock_us=clock_us,
                channel=channel,
            )
            reader = PostgresReader(Readers(address.connect), log)
            opened.callback(reader.close)
            made = cls(
                writer,
                reader,
                identity=identity,
                watch=lambda moved: HeadWatch(address.connect, log, channel, moved),
                on_fatal=on_fatal,
                warnings=tuple(hazards(server)),
            )
            opened.pop_all()
            return made

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

    def read(self, query: Callable[[Connection], T]) -> T:
        """Run `query` in one short read-only snapshot, for the tables of the hook's owner."""
        return self._reading().read(query)

    def write(self, query: Callable[[Connection], T]) -> T:
        """Run `query` in a short transaction between two groups of appends, for the tables of the hook's owner."""
        with self._writing:
            self._reading()
            return self._writer.write(query)

    def full(self) -> str:
        """The server's disk is not this process's to look at: an append finds out."""
        return ""

    def head(self) -> int:
        """The last committed position that this process knows of: another's commits follow within POLL_S."""
        self._reading()
        return self._head

    def head_of(self, namespace: str) -> int:
        reader, head = self._reading(), self._head
        looked, known = self._namespace_heads.get(namespace, (0, 0))
        if looked < head:
            known = max(known, reader.head_of_since(namespace, looked, head) if looked else reader.head_of(namespace))
            self._namespace_heads[namespace] = head, known
        return known

    def on_commit(self, listener: Callable[[int], None]) -> Callable[[], None]:
        """See EventLog; after commits of other processes the listener is called on the watch's thread."""
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
        with self._writing:
            self._watch.stop()
            self._writer.wake()
            self._writer.close()
        self._watch.join()
        self._reader.close()

    def _reading(self) -> PostgresReader:
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

    def _followed(self, head: int) -> None:
        self._advance(head)
        self._announce()

    def _advance(self, head: int) -> None:
        """Take over a head that was committed, here or elsewhere."""
        with self._lock:
            self._head = max(self._head, head)

    def _announce(self) -> None:
        """Tell the listeners of a head once, whichever thread saw it first."""
        with self._announcing:
            if self._announced_head < self._head:
                self._announced_head = self._head
                for listener in self._listeners:
                    listener(self._announced_head)

    def _fail(self, error: Exception) -> None:
        _LOGGER.critical("the event log has stopped", exc_info=error)
        self._group_commit.refuse(lambda: LogFailed("the event log has stopped"))
        if self._on_fatal is not None:
            self._on_fatal(error)


def _prepared(
    connection: Connection, log: int, clock_us: Callable[[], int], prepare: Callable[[Connection], None] | None
) -> LogIdentity:
    """The identity of the log, whose tables are there after this."""
    for _ in range(OPENINGS_MAX):
        try:
            with transaction(connection):
                make_tables(connection)
                identity = identity_of(connection, log, clock_us=clock_us)
                if prepare is not None:
                    prepare(connection)
                return identity
        except psycopg.Error as error:
            if not was_made_meanwhile(error):
                raise
    raise LogUnavailable("other processes are making the log's tables")
