"""Follows the head of a log, which other processes move too.

A notification is a hint, and a look at the head every POLL_S is the truth: a hint that is lost, or a pooler that passes
on none, costs only that time. Each look is a heartbeat of the connection as well.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

import psycopg

from abridged.eventlog.errors import EventLogError
from abridged.eventlog.postgres import sql
from abridged.eventlog.postgres.connections import Connection, is_direct

POLL_S = 0.25


class Channel(NamedTuple):
    """Where the processes of a log notify each other; `sender` is this one's own name there."""

    name: str
    sender: str

    @classmethod
    def of(cls, log: int, log_id: str) -> Channel:
        """That of the log of a number: two copies of one log in a database have the same id."""
        return cls(f"abridged_{log_id}_{log}", uuid.uuid4().hex)


class HeadWatch:
    """Calls `moved` with the head, on a thread of its own, whenever it has looked."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        log: int,
        channel: Channel,
        moved: Callable[[int], None],
        *,
        poll_s: float = POLL_S,
    ) -> None:
        self._connect = connect
        self._log = {"log": log}
        self._listen = psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel.name))
        self._sender = channel.sender
        self._moved = moved
        self._poll_s = poll_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eventlog-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more. The thread ends at the next notification, or at the next look."""
        self._stopped.set()

    def join(self) -> None:
        """Wait until the thread has ended, unless it is the caller."""
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with closing(self._connect()) as connection:
                    self._follow(connection)
            except (psycopg.Error, EventLogError):
                # Appends and reads say what is wrong with the database.
                self._stopped.wait(self._poll_s)

    def _follow(self, connection: Connection) -> None:
        if is_direct(connection):
            connection.execute(self._listen)
        while not self._stopped.is_set():
            row = connection.execute(sql.HEAD, self._log).fetchone()
            assert row is not None, "an aggregate always has a row"
            self._moved(row[0])
            self._wait(connection)

    def _wait(self, connection: Connection) -> None:
        """Return when another process may have moved the head: this one knows of its own commits."""
        next_look = time.monotonic() + self._poll_s
        while not self._stopped.is_set() and (rest_s := next_look - time.monotonic()) > 0:
            for notice in connection.notifies(timeout=rest_s, stop_after=1):
                if notice.payload != self._sender:
                    return
