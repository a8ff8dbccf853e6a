"""Processes of their own on one log in PostgreSQL: writers that print acknowledgements, readers that print pages. Each
line is an Ack or a Look.

    python -m tests.support.log_processes KIND URL NUMBER [--plain] [--clients N] [--batch N] [--events N]

KIND is `write` or `read`. A process goes on until its standard input ends, or it is killed; a writer with `--events`
ends when each of its clients has written its share. A reader ends at the end of the log. `--plain` is the control: a
table whose positions come from a sequence, in the same database.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import NamedTuple, Protocol

import psycopg

from abridged.eventlog.event import NewEvent, StreamId
from abridged.eventlog.log import Append
from abridged.eventlog.postgres.connections import Address
from abridged.eventlog.postgres.log import PostgresEventLog
from tests.support.histories import Ack, Look, Place
from tests.support.patience import PATIENCE_S

CLIENTS = 4
BATCH = 3
PAGE = 500
PAUSE_S = 0.01
EVENTS_PER_S_MIN = 500
"""Events a second that a machine writes and reads in any case: a bound on hanging, as PATIENCE_S is."""


class LogProcess:
    """One such process."""

    def __init__(self, kind: str, url: str, number: int, *options: str) -> None:
        command = [sys.executable, "-m", "tests.support.log_processes", kind, url, str(number), *options]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def kill(self) -> None:
        """End it at once; a line that it was printing is lost."""
        self._process.kill()
        self._end(PATIENCE_S)
        if self.lines and not self.lines[-1].endswith("\n"):
            self.lines.pop()

    def stop(self, *, events: int = 0) -> None:
        """End it after its last append, or at the end of the log, from which it may be that number of events away."""
        self._end(PATIENCE_S + events / EVENTS_PER_S_MIN)
        assert self._process.returncode == 0

    def finish(self, *, events: int) -> None:
        """Wait until it has written its events."""
        self._process.wait(PATIENCE_S + events / EVENTS_PER_S_MIN)
        self.stop()

    def _end(self, patience_s: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(patience_s)
        self._listener.join(patience_s)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for line in said:
                self.lines.append(line)


def acks_of(lines: list[str]) -> list[Ack]:
    """The acknowledgements that a writer has printed."""
    said = (json.loads(line) for line in lines)
    return [Ack(tuple((at, bytes.fromhex(i)) for at, i in places), called, acked) for places, called, acked in said]


def looks_of(lines: list[str]) -> list[Look]:
    """The pages that a reader has printed. Followers of the log are promised no moment of another process's."""
    said = (json.loads(line) for line in lines)
    return [Look(after, tuple((at, bytes.fromhex(i)) for at, i in places), 0.0, 0.0) for after, places in said]


class _Places(Protocol):
    """A log or a table that gives events their positions."""

    def append(self, name: str, ids: Sequence[bytes]) -> Sequence[int]:
        """Write events in one commit, and return their positions."""
        ...

    def read(self, after: int) -> Sequence[Place]:
        """The next page after a position."""
        ...


class _Log(NamedTuple):
    """The log, as a sidecar has it open."""

    log: PostgresEventLog

    def append(self, name: str, ids: Sequence[bytes]) -> Sequence[int]:
        append = Append(StreamId("default", name), [NewEvent(i, "noted", i) for i in ids])
        first = self.log.submit(append).result(PATIENCE_S).first_position
        return range(first, first + len(ids))

    def read(self, after: int) -> Sequence[Place]:
        return [(event.position, event.event_id) for event in self.log.read_all(after=after, limit=PAGE)]


class PlainSequence:
    """The control: positions are given out by a sequence, and seen when their transaction commits."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._own = threading.local()
        self._connections: list[psycopg.Connection[tuple[int, bytes]]] = []

    def create(self) -> None:
        """Create the table."""
        self._connection().execute("CREATE TABLE plain (position bigserial PRIMARY KEY, event_id bytea NOT NULL)")

    def append(self, name: str, ids: Sequence[bytes]) -> Sequence[int]:
        connection = self._connection()
        with connection.transaction():
            return [connection.execute(_PLAIN_INSERT, (event_id,)).fetchall()[0][0] for event_id in ids]

    def read(self, after: int) -> Sequence[Place]:
        return self._connection().execute(_PLAIN_PAGE, (after, PAGE)).fetchall()

    def places(self) -> list[Place]:
        """The places of all rows."""
        return self._connection().execute("SELECT position, event_id FROM plain ORDER BY position").fetchall()

    def close(self) -> None:
        """Close the connections of all threads."""
        for connection in self._connections:
            connection.close()

    def _connection(self) -> psycopg.Connection[tuple[int, bytes]]:
        """The connection of this thread."""
        if not hasattr(self._own, "connection"):
            self._own.connection = psycopg.connect(self._url, autocommit=True)
            self._connections.append(self._own.connection)
        connection: psycopg.Connection[tuple[int, bytes]] = self._own.connection
        return connection


_PLAIN_INSERT = "INSERT INTO plain (event_id) VALUES (%b) RETURNING position"
_PLAIN_PAGE = "SELECT position, event_id FROM plain WHERE position > %s ORDER BY position LIMIT %s"


def _write(places: _Places, asked: argparse.Namespace, ended: threading.Event) -> None:
    def run(client: int) -> None:
        count = 0
        mine = asked.number.to_bytes(4, "big") + client.to_bytes(4, "big")
        while not ended.is_set() and not 0 < -(-asked.events // asked.clients) <= count:
            ids = [mine + (count + n).to_bytes(8, "big") for n in range(asked.batch)]
            count += len(ids)
            called_s = time.monotonic()
            positions = places.append(f"{asked.number}-{client}", ids)
            acked_s = time.monotonic()
            _say([[(at, event_id.hex()) for at, event_id in zip(positions, ids, strict=True)], called_s, acked_s])

    clients = [threading.Thread(target=run, args=(client,)) for client in range(asked.clients)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()


def _read(places: _Places, ended: threading.Event) -> None:
    after = 0
    while True:
        is_last = ended.is_set()
        page = places.read(after)
        if page:
            _say([after, [(position, event_id.hex()) for position, event_id in page]])
            after = page[-1][0]
        elif is_last:
            return
        else:
            ended.wait(PAUSE_S)


_printing = threading.Lock()


def _say(what: object) -> None:
    line = json.dumps(what) + "\n"
    with _printing:
        sys.stdout.write(line)
        sys.stdout.flush()


@contextmanager
def _opened(url: str, *, plain: bool) -> Iterator[_Places]:
    if plain:
        with closing(PlainSequence(url)) as table:
            yield table
        return
    with closing(PostgresEventLog.open(Address(url), clock_us=lambda: time.time_ns() // 1_000)) as log:
        yield _Log(log)


def _main() -> None:
    parser = argparse.ArgumentParser(prog="log_processes")
    parser.add_argument("kind", choices=("write", "read"))
    parser.add_argument("url")
    parser.add_argument("number", type=int)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--events", type=int, default=0)
    asked = parser.parse_args()
    ended = threading.Event()
    threading.Thread(target=_end, args=(ended,), daemon=True).start()
    with _opened(asked.url, plain=asked.plain) as places:
        if asked.kind == "write":
            _write(places, asked, ended)
        else:
            _read(places, ended)


def _end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


if __name__ == "__main__":
    _main()
