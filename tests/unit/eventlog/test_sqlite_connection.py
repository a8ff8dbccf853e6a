"""Connections that read are lent one at a time, and a transaction is all or nothing."""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing, suppress
from threading import Condition, Thread

import pytest

from abridged.eventlog.errors import EventLogError, LogClosed, LogUnavailable
from abridged.eventlog.sqlite.connection import Readers, transaction
from tests.support.patience import PATIENCE_S


def _connection() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None)


def _is_closed(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except sqlite3.ProgrammingError:
        return True
    return False


def _refused(readers: Readers, refusals: list[Exception]) -> None:
    try:
        with readers.lent():
            pass
    except EventLogError as refusal:
        refusals.append(refusal)


def _waits(thread: Thread) -> bool:
    """Return whether the thread has begun to wait for another one."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code is Condition.wait.__code__


def test_the_connection_that_was_given_back_last_is_lent_first():
    """Pages and statements of earlier reads are in its memory."""
    with closing(Readers([_connection() for _ in range(3)])) as readers:
        with readers.lent() as first, readers.lent():
            pass

        with readers.lent() as again:
            assert again is first


def test_a_connection_is_lent_to_one_at_a_time():
    """A second borrower gets another one."""
    with closing(Readers([_connection(), _connection()])) as readers, readers.lent() as one, readers.lent() as other:
        assert one is not other


def test_a_snapshot_ends_with_its_block_also_when_that_raises():
    """An open one would keep the write-ahead log from being cut."""
    with closing(Readers([_connection()])) as readers:
        with readers.snapshot() as connection:
            assert connection.in_transaction
        with pytest.raises(sqlite3.OperationalError), readers.snapshot():
            connection.execute("SELECT * FROM nothing")

        with readers.lent() as again:
            assert again is connection
            assert not again.in_transaction


def test_closing_closes_what_is_lent_once_it_is_given_back():
    """A read that runs meanwhile ends as it began, and no further one begins."""
    free, lent = _connection(), _connection()
    readers = Readers([free, lent])
    with readers.lent() as connection:
        assert connection is lent
        readers.close()
        assert _is_closed(free)
        assert not _is_closed(lent)

    assert _is_closed(lent)
    with pytest.raises(LogClosed, match="the log is closed"), readers.lent():
        pass


def test_a_reader_that_waits_too_long_is_refused_and_the_next_one_served():
    """A retry may find a connection: the log is busy, not closed."""
    with closing(Readers([_connection()], wait_s=0.01)) as readers:
        with readers.lent(), pytest.raises(LogUnavailable, match="too many reads are waiting"), readers.lent():
            pass

        with readers.lent() as connection:
            assert not _is_closed(connection)


def test_closing_wakes_each_reader_that_waits():
    """Borrowers get the connection back only after the log has closed."""
    refusals: list[Exception] = []
    readers = Readers([_connection()])
    threads = [Thread(target=_refused, args=(readers, refusals)) for _ in range(2)]
    with readers.lent():
        for thread in threads:
            thread.start()
        while not all(map(_waits, threads)):
            os.sched_yield()
        readers.close()
        for thread in threads:
            thread.join(PATIENCE_S)

        assert [type(refusal) for refusal in refusals] == [LogClosed, LogClosed]


def test_a_transaction_that_fails_leaves_nothing():
    """SQLite takes its rows back, and the connection takes the next transaction."""
    with closing(_connection()) as connection:
        connection.execute("CREATE TABLE seen (number INTEGER PRIMARY KEY)")
        with pytest.raises(sqlite3.IntegrityError), transaction(connection):
            connection.executemany("INSERT INTO seen VALUES (?)", [(1,), (1,)])
        with transaction(connection, "BEGIN IMMEDIATE"):
            connection.execute("INSERT INTO seen VALUES (2)")

        assert connection.execute("SELECT number FROM seen").fetchall() == [(2,)]
        assert not connection.in_transaction


def test_a_transaction_that_sqlite_has_rolled_back_is_not_committed():
    """An append would be acknowledged otherwise, and be nowhere."""

    def twice(connection: sqlite3.Connection) -> None:
        with transaction(connection), suppress(sqlite3.IntegrityError):
            for _ in range(2):
                connection.execute("INSERT OR ROLLBACK INTO one VALUES (1)")

    with closing(_connection()) as connection:
        connection.execute("CREATE TABLE one (id INTEGER PRIMARY KEY)")
        with pytest.raises(sqlite3.OperationalError, match="no transaction"):
            twice(connection)
