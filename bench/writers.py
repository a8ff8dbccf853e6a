"""Processes that append to a log and read it, each kind as fast as it can: the product's log, a bare one, and the
recorders of the library `eventsourcing`.

A process measures each line of its standard input and prints an events-a-second for it. The process ends with its
input.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from abridged.eventlog.async_append import AsyncAppender
from abridged.eventlog.event import NewEvent, StreamId
from abridged.eventlog.log import Append, EventLog
from abridged.eventlog.postgres.connections import Address, Connection
from abridged.eventlog.postgres.log import DEFAULT_NAME, PostgresEventLog
from abridged.eventlog.sqlite.backend import SqliteBackend
from abridged.eventlog.subscription import BATCH_BYTES_MAX
from abridged.service.conversations.row import READ_TABLE
from abridged.service.event_loop import loop_factory
from bench.load import closed_loop

SCAN_EVENTS = 30_000
"""Events that a scan reads, at most."""

PAGE_EVENTS = 500
PAYLOAD = b"m" * 270
"""A payload as long as a message of bench.rpc."""

_RUN = "from bench.writers import run; import sys; run(*sys.argv[1:])"


class Writer(Protocol):
    """One process's way to a log."""

    def append(self, seconds: float, *, callers: int, events: int) -> float:
        """Return the events a second of callers that append batches, each after its last append is durable."""

    def scan(self) -> float:
        """Events a second from the first position on."""


class BareWriter:
    """Group commits under the lock of a row, into a table without any index but its key.

    A transaction has an append of each caller: no group commit can be fuller. The connection is the log's own.
    """

    _TABLES = """
    CREATE TABLE IF NOT EXISTS bare_logs (log integer PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS bare_events (
        position bigint PRIMARY KEY, stream bigint, version bigint, event_id bytea, payload bytea
    );
    INSERT INTO bare_logs VALUES (1) ON CONFLICT DO NOTHING
    """
    _LOCK = "SELECT log FROM bare_logs WHERE log = 1 FOR UPDATE"
    _HEAD = "SELECT coalesce(max(position), 0) FROM bare_events"
    _INSERT = """
    INSERT INTO bare_events SELECT * FROM unnest(
        %(position)b::bigint[], %(stream)b::bigint[], %(version)b::bigint[], %(event_id)b::bytea[], %(payload)b::bytea[]
    )
    """
    _PAGE = "SELECT * FROM bare_events WHERE position > %(after)b ORDER BY position LIMIT %(limit)b"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @classmethod
    @contextmanager
    def open(cls, url: str) -> Iterator[BareWriter]:
        with Address(url).connect() as connection:
            # Processes that make tables at the same time would fail each other.
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(1)")
                connection.execute(cls._TABLES)
            yield cls(connection)

    def append(self, seconds: float, *, callers: int, events: int) -> float:
        rows, version = callers * events, 0
        began = time.perf_counter()
        while (spent := time.perf_counter() - began) < seconds:
            self._commit(rows, version)
            version += rows
        return version / spent

    def scan(self) -> float:
        cursor = self._connection.cursor(binary=True)
        began, after = time.perf_counter(), 0
        while after < SCAN_EVENTS and (
            page := cursor.execute(self._PAGE, {"after": after, "limit": PAGE_EVENTS}).fetchall()
        ):
            after = page[-1][0]
        return after / (time.perf_counter() - began)

    def _commit(self, rows: int, version: int) -> None:
        with self._connection.transaction():
            self._connection.execute(self._LOCK)
            row = self._connection.execute(self._HEAD).fetchone()
            assert row is not None, "an aggregate always has a row"
            columns = {
                "position": list(range(row[0] + 1, row[0] + rows + 1)),
                "stream": [os.getpid()] * rows,
                "version": list(range(version + 1, version + rows + 1)),
                "event_id": [secrets.token_bytes(16) for _ in range(rows)],
                "payload": [PAYLOAD] * rows,
            }
            self._connection.execute(self._INSERT, columns)


class LogWriter:
    """The product's log, whose callers wait on an event loop as a sidecar's do; each has a stream of its own."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._streams = f"{os.getpid()}-{secrets.token_hex(4)}"

    @classmethod
    @contextmanager
    def in_postgres(cls, url: str, name: str = DEFAULT_NAME) -> Iterator[LogWriter]:
        log = PostgresEventLog.open(Address(url), name, clock_us=_now_us)
        yield cls(log)
        log.close()

    @classmethod
    @contextmanager
    def in_sqlite(cls, path: str) -> Iterator[LogWriter]:
        backend = SqliteBackend(Path(path))
        log, *_ = backend.open(backend.rows(READ_TABLE), clock_us=_now_us, hook=lambda *_: None)
        yield cls(log)
        log.close()

    def append(self, seconds: float, *, callers: int, events: int) -> float:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(self._appended(seconds, callers, events))

    def scan(self) -> float:
        began, after = time.perf_counter(), 0
        while after < SCAN_EVENTS and (events := self._log.scan(after=after, bytes_max=BATCH_BYTES_MAX).events):
            after = events[-1].position
        return after / (time.perf_counter() - began)

    async def _appended(self, seconds: float, callers: int, events: int) -> float:
        appender = AsyncAppender(self._log)

        async def append(caller: int, _: int) -> None:
            new = [NewEvent(secrets.token_bytes(16), "noted", PAYLOAD) for _ in range(events)]
            await appender.append(Append(StreamId("default", f"{self._streams}-{caller}"), new))

        return events * (await closed_loop(append, clients=callers, seconds=seconds)).rate


class LibraryWriter:
    """A recorder of the library `eventsourcing`, whose callers are threads; each transaction is one append."""

    def __init__(self, recorder: Any) -> None:
        self._recorder = recorder
        self._event = import_module("eventsourcing.persistence").StoredEvent

    @classmethod
    @contextmanager
    def in_postgres(cls, url: str) -> Iterator[LibraryWriter]:
        library = import_module("eventsourcing.postgres")
        with Address(url).connect() as connection:
            # Processes that make tables at the same time would fail each other.
            connection.execute("SELECT pg_advisory_lock(1)")
            schema = connection.execute("SELECT current_schema()").fetchone()
            assert schema is not None, "every URL of a measurement has a schema"
            at = connection.info
            datastore = library.PostgresDatastore(
                at.dbname, at.host, at.port, at.user, at.password, schema=schema[0], pool_size=5, max_overflow=10
            )
            recorder = library.PostgresApplicationRecorder(datastore)
            recorder.create_table()
        yield cls(recorder)
        datastore.close()

    @classmethod
    @contextmanager
    def in_sqlite(cls, path: str) -> Iterator[LibraryWriter]:
        library = import_module("eventsourcing.sqlite")
        datastore = library.SQLiteDatastore(path)
        recorder = library.SQLiteApplicationRecorder(datastore)
        recorder.create_table()
        yield cls(recorder)
        datastore.close()

    def append(self, seconds: float, *, callers: int, events: int) -> float:
        began = time.perf_counter()
        with ThreadPoolExecutor(callers) as threads:
            written = sum(threads.map(lambda _: self._appended(began + seconds, events), range(callers)))
        return written / (time.perf_counter() - began)

    def scan(self) -> float:
        began, after = time.perf_counter(), 0
        while after < SCAN_EVENTS and (
            page := self._recorder.select_notifications(after, PAGE_EVENTS, inclusive_of_start=False)
        ):
            after = page[-1].id
        return after / (time.perf_counter() - began)

    def _appended(self, end: float, events: int) -> int:
        stream, version = uuid.uuid4(), 0
        while time.perf_counter() < end:
            self._recorder.insert_events(
                [self._event(stream, version + number, "noted", PAYLOAD) for number in range(1, events + 1)]
            )
            version += events
        return version


KINDS: Mapping[str, Callable[..., Any]] = {
    "bare": BareWriter.open,
    "log": LogWriter.in_postgres,
    "library": LibraryWriter.in_postgres,
    "file": LogWriter.in_sqlite,
    "library_file": LibraryWriter.in_sqlite,
}
"""Each opens a Writer at a URL or a path, a log in PostgreSQL by its name."""


class Writers:
    """Processes of one kind, on one log or several, measured together."""

    def __init__(self, processes: Sequence[subprocess.Popen[str]]) -> None:
        self._processes = processes

    @classmethod
    @contextmanager
    def started(cls, kind: str, place: str, processes: int, names: Sequence[str] = ()) -> Iterator[Writers]:
        """Start them, in turns on the logs of these names, and end them with their input. Raises EOFError, here or
        later, for one that has failed."""
        start = partial(
            subprocess.Popen[str],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with ExitStack() as resources:
            # Popen's own exit closes the input, and waits.
            commands = [
                [sys.executable, "-c", _RUN, kind, place, *([names[at % len(names)]] if names else [])]
                for at in range(processes)
            ]
            writers = cls([resources.enter_context(start(command)) for command in commands])
            writers._measured(writers._processes, {})
            yield writers

    def appended(self, seconds: float, *, callers: int, events: int) -> float:
        """Return the events a second of all writers together, each with that number of callers."""
        asked = {"seconds": seconds, "callers": callers, "events": events}
        return self._measured(self._processes, asked)

    def scanned(self) -> float:
        """Events a second that one of them reads while nobody writes."""
        return self._measured(self._processes[:1], {})

    def _measured(self, processes: Sequence[subprocess.Popen[str]], asked: Mapping[str, float]) -> float:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
        return sum(_rate(process) for process in processes)


def _rate(process: subprocess.Popen[str]) -> float:
    assert process.stdout is not None
    if not (line := process.stdout.readline()):
        raise EOFError("a process that measures has ended")
    return float(line)


def run(kind: str, place: str, *name: str) -> None:
    """Measure what each line asks for: appends of `callers`, or without any a scan."""
    with KINDS[kind](place, *name) as writer:
        for line in sys.stdin:
            asked = json.loads(line)
            print(writer.append(**asked) if asked else writer.scan(), flush=True)


def _now_us() -> int:
    return time.time_ns() // 1_000
