"""A primary with a synchronous standby, writers that append to whichever leads, and the loss of the primary.

A round stops the standby, cancels waits for it for a while, kills the primary, and starts and promotes the standby; the
old primary comes back as the standby of the new one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import psycopg

from abridged.eventlog.errors import EventLogError
from abridged.eventlog.event import NewEvent, StreamId
from abridged.eventlog.log import Append
from abridged.eventlog.postgres import sql
from abridged.eventlog.postgres.connections import STATEMENT_MAX_MS, Address, Connection
from abridged.eventlog.postgres.log import PostgresEventLog
from tests.support.histories import Ack, Place
from tests.support.patience import PATIENCE_S
from tests.support.postgres_server import PostgresServer

WRITERS = 4
CLIENTS_EACH = 3
ACKS_BEFORE = 60
"""Appends that are acknowledged before a primary is lost."""

CANCELS = 30
"""The number of times that the waits for the standby are cancelled before the primary is killed."""

PAUSE_S = 0.005
PAUSES_MAX = int(PATIENCE_S / PAUSE_S)


class AdvisoryCursor(psycopg.Cursor[tuple[Any, ...]]):
    """The control: a group takes an advisory lock in place of the log's row."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        if query == sql.LOCK.encode():
            query = b"SELECT log_id, key FROM logs, pg_advisory_xact_lock(1) WHERE log = %(log)b"
        return super().execute(query, params, **options)


class AdvisoryAddress(Address):
    """An address whose connections take the control's lock."""

    def connect(self, *, statement_max_ms: int = STATEMENT_MAX_MS) -> Connection:
        connection = super().connect(statement_max_ms=statement_max_ms)
        connection.cursor_factory = AdvisoryCursor
        return connection


class Pair:
    """Two servers, of which one leads and the other follows."""

    def __init__(self) -> None:
        self.primary, self.standby = (PostgresServer(synchronous_standby_names="*") for _ in range(2))
        hosts = ",".join(quote(str(server.folder), safe="") for server in (self.primary, self.standby))
        self.url = f"postgresql://postgres@/postgres?host={hosts}&target_session_attrs=read-write"
        self.primary.start()
        self._attach()

    def lose_primary(self) -> int:
        """Lose the primary while waits for its standby are cancelled, and promote that. Returns the cancelled waits."""
        self.standby.stop()
        with psycopg.connect(self.primary.url, autocommit=True) as beside:
            cancelled = 0
            for _ in range(CANCELS):
                cancelled += beside.execute(CANCEL).rowcount
                time.sleep(PAUSE_S)
            self.primary.kill()
        self.standby.start()
        with psycopg.connect(self.standby.url, autocommit=True) as beside:
            beside.execute("SELECT pg_promote(true, 60)")
        self.primary, self.standby = self.standby, self.primary
        self._attach()
        return cancelled

    def places(self) -> list[Place]:
        """The places of all events."""
        with psycopg.connect(self.primary.url) as beside:
            return beside.execute("SELECT position, event_id FROM events ORDER BY position").fetchall()

    def close(self) -> None:
        """Stop both."""
        self.primary.close()
        self.standby.close()

    def _attach(self) -> None:
        self.standby.follow(self.primary)
        self.standby.start()
        with psycopg.connect(self.primary.url, autocommit=True) as beside:
            until(lambda: beside.execute(_SYNCHRONOUS).fetchone() is not None)


class Load:
    """Clients that append one event after the other, each again with the same id until it is acknowledged."""

    def __init__(self, address: Address) -> None:
        self.acks: list[Ack] = []
        self.failed: list[BaseException] = []
        self._stopped = threading.Event()
        self._logs = [PostgresEventLog.open(address, clock_us=lambda: time.time_ns() // 1_000) for _ in range(WRITERS)]
        self._clients = [
            threading.Thread(target=self._run, args=(log, number * CLIENTS_EACH + client), daemon=True)
            for number, log in enumerate(self._logs)
            for client in range(CLIENTS_EACH)
        ]
        for client in self._clients:
            client.start()

    def advance(self) -> None:
        """Return when that number of further appends has been acknowledged."""
        wanted = len(self.acks) + ACKS_BEFORE
        until(lambda: len(self.acks) >= wanted or bool(self.failed))

    def stop(self) -> None:
        """End each client after its acknowledgement."""
        self._stopped.set()
        for client in self._clients:
            client.join(PATIENCE_S)
            assert not client.is_alive()
        for log in self._logs:
            log.close()
        for error in self.failed:
            raise error

    def _run(self, log: PostgresEventLog, client: int) -> None:
        try:
            number = 0
            while not self._stopped.is_set():
                number += 1
                event_id = client.to_bytes(4, "big") + number.to_bytes(12, "big")
                self._append(log, Append(StreamId("default", str(client)), [NewEvent(event_id, "noted", event_id)]))
        except BaseException as error:
            self.failed.append(error)
            raise

    def _append(self, log: PostgresEventLog, append: Append) -> None:
        called_s = time.monotonic()
        for _ in range(PAUSES_MAX):
            try:
                result = log.submit(append).result(PATIENCE_S)
            except EventLogError:
                time.sleep(PAUSE_S)
                continue
            places = ((result.last_position, append.events[0].event_id),)
            self.acks.append(Ack(places, called_s, time.monotonic()))
            return
        raise AssertionError("no primary takes the append")


def until(holds: Callable[[], bool]) -> None:
    """Return when something is so."""
    for _ in range(PAUSES_MAX):
        if holds():
            return
        time.sleep(PAUSE_S)
    raise AssertionError("the servers never came to this")


CANCEL = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
_SYNCHRONOUS = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
