"""The speed of the disk, of bare SQLite and of folding a log, measured in the bench's own process.

The bare SQLite has the log's own settings, because its connection is made by the log's own function.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import chain, islice
from pathlib import Path

from abridged.eventlog.event import NewEvent, StreamId
from abridged.eventlog.log import Append, EventLog
from abridged.eventlog.sqlite.backend import SqliteBackend
from abridged.eventlog.sqlite.connection import writer_of
from abridged.service.codec.events import encode
from abridged.service.conversations.conversation_log import ConversationLog
from abridged.service.conversations.row import READ_TABLE
from abridged.service.conversations.table import ConversationTable, Projected
from abridged.service.domain.conversation import initial_state
from abridged.service.domain.events import ConversationOpened, Event, MessageAppended, Settings
from abridged.service.domain.message import Message, Role
from abridged.service.domain.tokens import TokenSource
from bench.figures import percentile

FLUSHES = 200
FLUSH_BYTES = 4_096
BATCH_ROWS = 100
ROWS_MAX = 500_000
FOLD_EVENTS = 50_000
FOLD_STREAMS = 5
SEED_EVENTS = 1_000
PAGE_ROWS = 500

_CREATE = "CREATE TABLE rows (id INTEGER PRIMARY KEY, stream INTEGER, version INTEGER, name BLOB, payload BLOB)"
_INSERT = "INSERT INTO rows (stream, version, name, payload) VALUES (?, ?, ?, ?)"
_PAGE = (
    "SELECT position, version, event_id, type, time_us, payload FROM events WHERE position > ? "
    "ORDER BY position LIMIT ?"
)


def flush_percentiles_ms(path: Path) -> tuple[float, float]:
    """Median and 99th percentile of fdatasync after a small write."""
    block = secrets.token_bytes(FLUSH_BYTES)
    latencies = []
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        for number in range(FLUSHES):
            os.pwrite(file, block, number * FLUSH_BYTES)
            began = time.perf_counter()
            os.fdatasync(file)
            latencies.append(time.perf_counter() - began)
    finally:
        os.close(file)
    return percentile(latencies, 0.5) * 1e3, percentile(latencies, 0.99) * 1e3


class BareSqlite:
    """A table as plain as one can be."""

    def __init__(self, connection: sqlite3.Connection, payload: bytes) -> None:
        self._connection = connection
        self._payload = payload

    @classmethod
    @contextmanager
    def open(cls, path: Path, payload: bytes) -> Iterator[BareSqlite]:
        """Make the file and its table."""
        with closing(writer_of(path)) as connection:
            connection.execute(_CREATE)
            yield cls(connection, payload)

    def rows_per_s(self, seconds: float, *, rows: int) -> float:
        """Insert transactions of `rows` rows for some seconds."""
        began = time.perf_counter()
        written = 0
        while (spent := time.perf_counter() - began) < seconds and written < ROWS_MAX:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(_INSERT, [(1, written, secrets.token_bytes(16), self._payload)] * rows)
            self._connection.execute("COMMIT")
            written += rows
        return written / spent


class FoldLog:
    """A log of FOLD_EVENTS events in a few conversations, opened as the sidecar opens it."""

    def __init__(self, path: Path, log: EventLog, table: ConversationTable) -> None:
        self._path = path
        self._log = log
        self._table = table

    @classmethod
    @contextmanager
    def seeded(cls, path: Path, content: str) -> Iterator[FoldLog]:
        """Write the log."""
        backend = SqliteBackend(path)
        rows = backend.rows(READ_TABLE)
        table = ConversationTable(rows)
        log, *_ = backend.open(rows, clock_us=_now_us, hook=table.project)
        try:
            for stream in _streams():
                _seed(log, stream, content)
            yield cls(path, log, table)
        finally:
            log.close()

    async def events_per_s(self) -> float:
        """Load every conversation once: read, check, decode, evolve, and compare with its row and its index of ids."""
        reading = ConversationLog(self._log, table=self._table, new_id=_no_id, traceparent=_no_id)
        began = time.perf_counter()
        states = [await reading.fold(stream) for stream in _streams()]
        spent = time.perf_counter() - began
        assert sum(state.event_version for state in states) == FOLD_EVENTS, "every event was folded"
        return FOLD_EVENTS / spent

    def rows_per_s(self) -> float:
        """Read the same rows by SQL alone."""
        with sqlite3.connect(f"file:{self._path}?mode=ro", uri=True) as connection:
            began = time.perf_counter()
            after = count = 0
            while page := connection.execute(_PAGE, (after, PAGE_ROWS)).fetchall():
                after = page[-1][0]
                count += len(page)
            spent = time.perf_counter() - began
        connection.close()
        return count / spent


def _streams() -> list[StreamId]:
    return [StreamId("default", f"chat-{number}") for number in range(FOLD_STREAMS)]


def _seed(log: EventLog, stream: StreamId, content: str) -> None:
    opened = ConversationOpened(stream.name, Settings(context_length=100_000_000))
    messages = (
        MessageAppended(
            number,
            Message(id=f"m{number}", role=Role.USER if number % 2 else Role.ASSISTANT, content=content),
            80,
            TokenSource.ESTIMATE,
            "estimate",
        )
        for number in range(1, FOLD_EVENTS // FOLD_STREAMS)
    )
    state = initial_state()
    facts: Iterator[Event] = chain((opened,), messages)
    while batch := list(islice(facts, SEED_EVENTS)):
        projected = Projected(state, batch)
        events = [_new_event(*encode(fact)) for fact in batch]
        log.submit(Append(stream, events, projected=projected)).result()
        assert projected.after is not None, "the batch was written"
        state = projected.after


def _new_event(type_name: str, schema_version: int, payload: bytes) -> NewEvent:
    return NewEvent(secrets.token_bytes(16), type_name, payload, schema_version)


def _now_us() -> int:
    return time.time_ns() // 1_000


_no_id: Callable[[], str] = str
"""Folding makes no ids and has no trace."""
