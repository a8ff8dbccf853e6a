"""Connections that read are lent one at a time, and a transaction is all or nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from abridged.eventlog.errors import LogUnavailable
from abridged.eventlog.sqlite.connection import Readers, transaction


def _connection() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None)


def _is_closed(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except sqlite3.ProgrammingError:
        return True
    return False


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
    with pytest.raises(LogUnavailable, match="closed"), readers.lent():
        pass


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
