"""Follows the head of a log, which other processes move too.

A notification is a hint, and a look at the head every POLL_S is the truth: a hint that is lost, or a pooler that passes
on none, costs only that time. Each look is a heartbeat of the connection as well. Notifications may come by a
connection of their own, to the server itself, where looks go through a pooler.
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

HEARTBEAT_S = 1.0
"""Longest silence of a connection that only listens, after which it is asked whether it is still there."""

LISTEN_AGAIN_S = 5.0
"""Time until another attempt to listen, after one that failed."""


class Channel(NamedTuple):
    """The channel by which the processes of a log notify each other; `sender` is this process's own name there."""

    name: str
    sender: str

    @classmethod
    def of(cls, log: int, log_id: str) -> Channel:
        """The channel of the log of a number: two copies of one log in a database have the same id."""
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
        listen: Callable[[], Connection] | None = None,
        poll_s: float = POLL_S,
    ) -> None:
        """Connections that `listen` makes are for notifications alone; without it those that look listen, too."""
        self._connect = connect
        self._connect_to_listen = listen
        self._log = {"log": log}
        self._listen = psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel.name))
        self._sender = channel.sender
        self._moved = moved
        self._poll_s = poll_s
        self._stopped = threading.Event()
        self._woken = threading.Event()
        runs = (self._run,) if listen is None else (self._run, self._hear)
        self._threads = [threading.Thread(target=run, name="eventlog-watch", daemon=True) for run in runs]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Look no more. The threads end at the next notification, look or heartbeat."""
        self._stopped.set()
        self._woken.set()

    def join(self) -> None:
        """Wait until the threads have ended, but for the caller's."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with closing(self._connect()) as connection:
                    self._follow(connection)
            except (psycopg.Error, EventLogError):
                # Appends and reads say what is wrong with the database.
                self._stopped.wait(self._poll_s)

    def _follow(self, connection: Connection) -> None:
        if self._connect_to_listen is None and is_direct(connection):
            connection.execute(self._listen)
        while not self._stopped.is_set():
            row = connection.execute(sql.HEAD, self._log).fetchone()
            assert row is not None, "an aggregate always has a row"
            self._moved(row[0])
            self._wait(connection)

    def _wait(self, connection: Connection) -> None:
        """Return when another process may have moved the head: this one knows of its own commits."""
        if self._connect_to_listen is not None:
            self._woken.wait(self._poll_s)
            self._woken.clear()
            return
        next_look = time.monotonic() + self._poll_s
        while not self._stopped.is_set() and (rest_s := next_look - time.monotonic()) > 0:
            for notice in connection.notifies(timeout=rest_s, stop_after=1):
                if notice.payload != self._sender:
                    return

    def _hear(self) -> None:
        """Listen on connections of its own, and have the head looked at for each notification of another process."""
        assert self._connect_to_listen is not None, "or nothing runs this"
        while not self._stopped.is_set():
            try:
                with closing(self._connect_to_listen()) as connection:
                    connection.execute(self._listen)
                    self._woken.set()
                    while not self._stopped.is_set():
                        self._hear_one(connection)
            except (psycopg.Error, EventLogError):
                # The looks go on without it.
                self._stopped.wait(LISTEN_AGAIN_S)

    def _hear_one(self, connection: Connection) -> None:
        for notice in connection.notifies(timeout=HEARTBEAT_S, stop_after=1):
            if notice.payload != self._sender:
                self._woken.set()
            return
        connection.execute(sql.CONNECTED)
