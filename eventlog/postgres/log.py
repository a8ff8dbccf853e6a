"""A log in a PostgreSQL database, which several processes may write and read at once.

Acknowledged means committed as durably as the server commits, on its synchronous standby too if it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Self, TypeVar

import psycopg

from abridged.eventlog.admission import require_expected
from abridged.eventlog.backend import Notice
from abridged.eventlog.errors import LogUnavailable
from abridged.eventlog.log import AppendHook
from abridged.eventlog.postgres import sql
from abridged.eventlog.postgres.connections import Address, Connection, Readers, arrays, ask
from abridged.eventlog.postgres.database import (
    OPENING_LIMITS,
    StoredLog,
    deaf,
    hazards,
    held_elsewhere,
    made_log,
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
from abridged.eventlog.stored_log import StoredEventLog

OPENINGS_MAX = 10
"""Attempts at a database in which other processes make the tables, or logs, at the same time."""

DEFAULT_NAME = "default"
"""The name of a log that nobody has named."""

T = TypeVar("T")


class PostgresEventLog(StoredEventLog[PostgresWriter, PostgresReader]):
    """An EventLog in a database. Use `open` to create it; `number` is what its keys begin with, and
    `warnings` are for the operator."""

    def __init__(
        self,
        writer: PostgresWriter,
        reader: PostgresReader,
        *,
        stored: StoredLog,
        watch: Callable[[Callable[[int], None]], HeadWatch],
        on_fatal: Callable[[Exception], None] | None,
        warnings: tuple[Notice, ...],
    ) -> None:
        self.number, identity = stored
        self.warnings = warnings
        self._namespace_heads: dict[str, tuple[int, int]] = {}
        super().__init__(writer, reader, identity=identity, head=reader.head(), on_fatal=on_fatal)
        self._watch = watch(self._followed)

    @classmethod
    def open(
        cls,
        address: Address,
        name: str = DEFAULT_NAME,
        *,
        clock_us: Callable[[], int],
        hook: AppendHook | None = None,
        prepare: Callable[[Connection, int], None] | None = None,
        on_fatal: Callable[[Exception], None] | None = None,
        listen: Address | None = None,
        copy_of: str = "",
    ) -> Self:
        """Open or create the log of this name; with `copy_of` that copy of the log with this id, which no other process
        opens. A log whose lock another process holds opens, unless there is something to make.

        `listen` is where the server itself is, for its notifications, where `address` is that of a pooler. `prepare`
        runs once in the opening transaction, with the log's number, so that the hook's owner can create its
        own tables.

        Raises LogUnsafe, LogOlder, LogNewer, LogCorrupt, LogForeign, LogLocked, LogFull or LogUnavailable. No log
        is changed then, and a new one has its tables at most.
        """
        with ExitStack() as opened:
            connection = address.connect()
            opened.callback(connection.close)
            with translating(is_opening=True):
                server = server_of(connection)
                require_fit(server)
                stored = _prepared(connection, name, clock_us, prepare, copy_of)
                with closing(address.connect()) as other:
                    prove_exclusion(connection, other)
            heard = deaf(listen, name, stored, copy_of=copy_of) if listen is not None else ()
            log, identity = stored
            channel = Channel.of(log, identity.log_id)
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
                stored=stored,
                watch=lambda moved: HeadWatch(
                    address.connect, log, channel, moved, listen=listen.connect if listen is not None else None
                ),
                on_fatal=on_fatal,
                warnings=(*hazards(server), *heard),
            )
            opened.pop_all()
            return made

    def read(self, query: Callable[[Connection], T]) -> T:
        """Run `query` on a connection that reads, for the tables of the hook's owner."""
        return self._reading().read(query)

    def write(self, query: Callable[[Connection], T]) -> T:
        """Run `query` in a short transaction between two groups of appends, for the tables of the hook's owner."""
        with self._writing:
            self._reading()
            return self._writer.write(query)

    def confirm(self) -> None:
        with self._writing:
            self._reading()
            self._writer.confirm()

    def _put_blanked(self, rows: Sequence[tuple[bytes, bytes, bytes, int]], expected_version: int | None) -> None:
        parameters = {"log": self.number, **arrays(("payload", "salt", "content_hash", "position"), rows)}

        def written(connection: Connection) -> None:
            if expected_version is not None:
                # Under the log's lock no process appends.
                ask(connection, sql.LOCK, {"log": self.number})
                at = {"log": self.number, "position": rows[0][-1]}
                ((version,),) = ask(connection, sql.VERSION_AT, at).fetchall()
                require_expected(expected_version, version)
            connection.execute(sql.BLANK, parameters)
            connection.execute(sql.BLANK_REQUESTS, parameters)

        self.write(written)

    def purge(self) -> bool:
        """See EventLog: old rows, write-ahead logs and standbys are the server's to write."""
        return True

    def full(self) -> str:
        """The server's disk is not this process's to look at: an append finds out."""
        return ""

    def head_of(self, namespace: str) -> int:
        """See EventLog. The log knows of every commit before the call, whichever process made it."""
        reader = self._reading()
        self._advance(head := reader.head())
        looked, known = self._namespace_heads.get(namespace, (0, 0))
        if looked < head:
            known = max(known, reader.head_of_since(namespace, looked, head) if looked else reader.head_of(namespace))
            self._namespace_heads[namespace] = head, known
        return known

    def _release(self) -> None:
        with self._writing:
            self._watch.stop()
            self._writer.wake()
            self._writer.close()
        self._watch.join()
        self._reader.close()

    def _followed(self, head: int) -> None:
        """Take over the head that the watch has seen, and tell the listeners on its thread.

        A lower one is looked at again, because this process may have written after the watch has looked. A head that is
        lower still tells that a primary was lost with events that its standby did not have.
        """
        known = self._head
        if head < known and (head := self._reader.head()) < known:
            self._namespace_heads = {}
            self._fall(known, head)
        self._advance(head)
        self._announce()


def _prepared(
    connection: Connection,
    name: str,
    clock_us: Callable[[], int],
    prepare: Callable[[Connection, int], None] | None,
    copy_of: str,
) -> StoredLog:
    """The log, whose tables are there after this."""
    for _ in range(OPENINGS_MAX):
        try:
            with transaction(connection, OPENING_LIMITS):
                make_tables(connection)
                stored = made_log(connection, name, clock_us=clock_us, copy_of=copy_of)
                if prepare is not None:
                    prepare(connection, stored.number)
                return stored
        except psycopg.errors.LockNotAvailable as error:
            raise held_elsewhere(error) from error
        except psycopg.Error as error:
            if not was_made_meanwhile(error):
                raise
    raise LogUnavailable("other processes are making the log's tables")
