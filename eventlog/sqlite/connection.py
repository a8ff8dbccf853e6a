"""Connections to a log's file: their transactions, and the few that read, lent one at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, LifoQueue

from abridged.eventlog.errors import LogClosed, LogUnavailable
from abridged.eventlog.event_reader import READER_WAIT_S

BEGIN_IMMEDIATE = "BEGIN IMMEDIATE"


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str = "BEGIN") -> Iterator[sqlite3.Connection]:
    """Run the block in a transaction, which is committed unless the block or the commit raises."""
    connection.execute(begin)
    try:
        yield connection
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


class Readers:
    """Connections that only read. The last one given back is lent first: it has pages and statements in memory."""

    def __init__(self, connections: Sequence[sqlite3.Connection], *, wait_s: float = READER_WAIT_S) -> None:
        self._wait_s = wait_s
        self._free: LifoQueue[sqlite3.Connection | None] = LifoQueue()
        for connection in connections:
            self._free.put(connection)
        self._is_closed = False

    @contextmanager
    def lent(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection until the context ends. Raises LogUnavailable when others keep all of them for `wait_s`,
        and LogClosed once this is closed, at once also in a thread that waits."""
        try:
            connection = self._free.get(timeout=self._wait_s)
        except Empty:
            raise LogUnavailable("too many reads are waiting") from None
        try:
            if connection is None or self._is_closed:
                raise LogClosed("the log is closed")
            yield connection
        finally:
            self._free.put(connection)
            if self._is_closed:
                self._close_free()

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection whose reads see the file as it is at the first of them."""
        with self.lent() as connection, transaction(connection):
            yield connection

    def close(self) -> None:
        """Close the connections, those that are lent when they are given back."""
        self._is_closed = True
        self._close_free()

    def _close_free(self) -> None:
        """Close what nobody has. None is left in its place: it wakes a thread that waits, which gives it back."""
        with suppress(Empty):
            while True:
                if (connection := self._free.get_nowait()) is not None:
                    connection.close()
        self._free.put(None)
