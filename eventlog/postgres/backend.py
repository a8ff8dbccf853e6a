"""A log in a PostgreSQL database, with whatever is kept beside its events."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from typing import Any, TypeVar

from abridged.eventlog.backend import Backend, Kept, Notice, Opened
from abridged.eventlog.errors import EventLogError
from abridged.eventlog.log import AppendHook, EventLog
from abridged.eventlog.postgres import sql
from abridged.eventlog.postgres.connections import Address, Connection
from abridged.eventlog.postgres.copy import copied
from abridged.eventlog.postgres.database import (
    deaf,
    has_tables,
    hazards,
    lock_tables,
    names_of_logs,
    require_fit,
    server_of,
    stored_log,
    transaction,
)
from abridged.eventlog.postgres.errors import translating
from abridged.eventlog.postgres.leases import PostgresLeases
from abridged.eventlog.postgres.log import DEFAULT_NAME, PostgresEventLog
from abridged.eventlog.postgres.rows import PostgresRows
from abridged.eventlog.postgres.schema import OWN
from abridged.eventlog.postgres.snapshots import PostgresSnapshots
from abridged.eventlog.postgres.snapshots import prepare as prepare_snapshots
from abridged.eventlog.postgres.verification import PostgresVerification
from abridged.eventlog.rows import R, RowTable
from abridged.eventlog.snapshots import PURPOSE

T = TypeVar("T")


class PostgresBackend:
    """A StoredBackend: the log of a name in the database at `url`, in the first schema of the role's search path."""

    def __init__(self, url: str, name: str = DEFAULT_NAME, *, listen_url: str = "", copy_of: str = "") -> None:
        """Take the server's own address from `listen_url` where `url` is that of a pooler. The log is a copy that is
        being made of the log with the id `copy_of`, if there is one. Raises LogUnsafe for a URL that names no
        PostgreSQL database."""
        self._url = url
        self._address = Address(url)
        self._name = name
        self._listen = Address(listen_url) if listen_url else None
        self._copy_of = copy_of

    def __str__(self) -> str:
        return str(self._address) if self._name == DEFAULT_NAME else f"{self._address} (log {self._name})"

    def rows(self, table: RowTable[R]) -> PostgresRows[R]:
        return PostgresRows(table)

    def open(
        self,
        rows: PostgresRows[Any],
        *,
        clock_us: Callable[[], int],
        hook: AppendHook,
        on_fatal: Callable[[Exception], None] | None = None,
    ) -> Opened:
        def prepare(connection: Connection, number: int) -> None:
            rows.of(number).prepare(connection)
            prepare_snapshots(connection, number)

        log = PostgresEventLog.open(
            self._address,
            self._name,
            clock_us=clock_us,
            hook=hook,
            prepare=prepare,
            on_fatal=on_fatal,
            listen=self._listen,
            copy_of=self._copy_of,
        )
        rows.through(log.read, log.write)
        kept = Kept(rows, PostgresSnapshots(log.number, log.secret(PURPOSE), log.read, log.write))
        return Opened(log, kept, log.warnings, PostgresLeases(log.number, log.write))

    def size_bytes(self) -> int:
        """Bytes of the tables of every log in the schema. Raises OSError if there is no log."""

        def size(connection: Connection) -> int:
            row = connection.execute(sql.SIZE, {"tables": [table.name for table in OWN]}).fetchone()
            return int(row[0]) if row is not None else 0

        if not (found := self._asked(size)):
            raise FileNotFoundError(f"there is no log at {self}")
        return found

    def names(self) -> list[str]:
        return self._asked(names_of_logs)

    def log_id(self) -> str:
        def read(connection: Connection) -> str:
            stored = stored_log(connection, self._name) if has_tables(connection) else None
            return stored.identity.log_id if stored is not None else ""

        return self._asked(read)

    def hazards(self) -> list[Notice]:
        def found(connection: Connection) -> list[Notice]:
            server = server_of(connection)
            require_fit(server)
            stored = stored_log(connection, self._name) if has_tables(connection) else None
            unheard = deaf(self._listen, self._name, stored) if self._listen is not None and stored is not None else ()
            return [*hazards(server), *unheard]

        try:
            return self._asked(found)
        except EventLogError as error:
            return [Notice("unfit_database", str(error), "set log.url to a database that is fit", is_refused=True)]

    def verification(
        self, rows: PostgresRows[Any], *, is_owned: bool = True
    ) -> AbstractContextManager[PostgresVerification]:
        del is_owned
        return PostgresVerification.opened(self._address, self._name, rows)

    def copy(self, log_id: str, fill: Callable[[EventLog], None], check: Callable[[Backend], None]) -> None:
        made = PostgresBackend(self._url, self._name, copy_of=log_id)
        copied(self._address, self._name, log_id, fill, lambda: check(made))

    def rewrite(
        self,
        rows: PostgresRows[Any],
        fill: Callable[[Backend], None] = lambda _: None,
        *,
        goes_on: Callable[[], bool] = lambda: True,
    ) -> bool:
        """See StoredBackend. No page of the rows is one of the events, so that only the rows go."""
        del goes_on

        def emptied(connection: Connection) -> None:
            stored = stored_log(connection, self._name) if has_tables(connection) else None
            if stored is None:
                raise FileNotFoundError(f"there is no log at {self}")
            with transaction(connection):
                lock_tables(connection, stored.number)
                rows.of(stored.number).forget(connection)

        self._asked(emptied)
        fill(self)
        return True

    def _asked(self, query: Callable[[Connection], T]) -> T:
        with translating(), closing(self._address.connect()) as connection:
            return query(connection)
