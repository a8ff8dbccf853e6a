"""The database of a log when it is opened: its tables, the log's identity, and the proof that its lock excludes.

A place that cannot keep what a log promises is refused here, before an event is written to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import psycopg
from psycopg.errors import Diagnostic
from sqlalchemy import Table

from abridged.eventlog.backend import Notice
from abridged.eventlog.chain import LogIdentity
from abridged.eventlog.errors import (
    EventLogError,
    LogCorrupt,
    LogForeign,
    LogLocked,
    LogNewer,
    LogOlder,
    LogUnavailable,
    LogUnsafe,
)
from abridged.eventlog.postgres import sql
from abridged.eventlog.postgres.connections import (
    IDLE_MAX_MS,
    STATEMENT_MAX_MS,
    Address,
    Connection,
    Cursor,
    ask,
    is_direct,
)
from abridged.eventlog.postgres.errors import (
    DUPLICATE_OBJECT,
    DUPLICATE_TABLE,
    LOCK_NOT_AVAILABLE,
    UNIQUE_VIOLATION,
    of_cause,
    translating,
)
from abridged.eventlog.postgres.schema import METADATA, OWN, REVISION, REVISION_TABLE, columns, created

LOCK_WAIT_MS = 5_000
"""Longest wait for the log's lock, which another process holds for the time of one commit."""

OPENING_WAIT_MS = 8_000
"""Longest wait while a log is opened: longer than IDLE_MAX_MS, after which the server takes back the locks of a stopped
process."""

LIMITS = {
    "lock_timeout": str(LOCK_WAIT_MS),
    "statement_timeout": str(STATEMENT_MAX_MS),
    "idle_timeout": str(IDLE_MAX_MS),
}
OPENING_LIMITS = {**LIMITS, "lock_timeout": str(OPENING_WAIT_MS)}


class Server(NamedTuple):
    """The settings of a server that a log depends on."""

    is_standby: bool
    is_read_only: bool
    schema: str | None
    encoding: str
    fsync: str
    full_page_writes: str


class StoredLog(NamedTuple):
    """A log in a database: the number that its keys begin with, and its identity."""

    number: int
    identity: LogIdentity


@contextmanager
def transaction(connection: Connection, limits: Mapping[str, str] = LIMITS) -> Iterator[None]:
    """Run the body in one transaction under the limits of a group, or those, and take it back if the body raises.

    Raises LogUnavailable for a commit that is no acknowledgement.
    """
    try:
        connection.execute(sql.BEGIN)
        connection.execute(sql.LIMITS, limits)
        yield
        with acknowledged(connection) as commits:
            commits.append(connection.execute(sql.COMMIT))
    except BaseException:
        taken_back(connection)
        raise


@contextmanager
def acknowledged(connection: Connection) -> Iterator[list[Cursor]]:
    """Raise LogUnavailable unless the commits of the body, which it lists, are as durable as they were asked to be.

    A commit whose wait for a synchronous standby was cancelled succeeds with a warning: if the primary dies now, the
    standby has nothing of it. A retry waits for the standby under the log's lock.
    """
    commits: list[Cursor] = []
    warnings: list[str] = []

    def noticed(notice: Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            warnings.append(notice.message_primary or "")

    connection.add_notice_handler(noticed)
    try:
        yield commits
    finally:
        connection.remove_notice_handler(noticed)
    if any(commit.statusmessage != sql.COMMIT for commit in commits):
        raise LogUnavailable("the server took the transaction back")
    if warnings:
        raise LogUnavailable(f"the server warned of the commit: {warnings[0]}")


@contextmanager
def snapshot(connection: Connection) -> Iterator[None]:
    """Have all statements of the body see the same commits; they can only read."""
    try:
        connection.execute(sql.SNAPSHOT)
        yield
    finally:
        taken_back(connection)


def taken_back(connection: Connection) -> None:
    """Roll the open transaction back; a connection that cannot is closed, and the server takes it back."""
    try:
        if not connection.closed:
            connection.execute(sql.ROLLBACK)
    except psycopg.Error:
        connection.close()


def require_fit(server: Server) -> None:
    """Raise LogUnsafe for a server that no log can be kept in."""
    if server.is_standby:
        raise LogUnsafe("the server is a standby, which can only be read: connect to the primary")
    if server.is_read_only:
        raise LogUnsafe("transactions of this role can only read: set default_transaction_read_only = off for it")
    if server.schema is None:
        raise LogUnsafe("the role has no schema to keep tables in: create one, or set its search_path")
    if server.encoding != "UTF8":
        raise LogUnsafe(f"the database has the encoding {server.encoding}: make one with UTF8")


def server_of(connection: Connection) -> Server:
    return Server(*_row(connection, sql.SERVER))


def hazards(server: Server) -> list[Notice]:
    """The hazards of a server for the logs that it keeps."""
    off = [name for name in ("fsync", "full_page_writes") if getattr(server, name) == "off"]
    hint = "turn it on, and restart the server"
    return [
        Notice("unsafe_server", f"the server has {name} = off: a power cut loses acknowledged messages", hint)
        for name in off
    ]


def deaf(address: Address, name: str, stored: StoredLog, *, copy_of: str = "") -> tuple[Notice, ...]:
    """The hazard of an address at which nothing can be heard of the log now.

    Raises LogUnsafe for one at which it never will be: of another log, of a standby, or of a pooler.
    """
    try:
        with translating(), closing(address.connect()) as connection:
            require_fit(server_of(connection))
            if not has_tables(connection) or stored_log(connection, name, copy_of=copy_of) != stored:
                raise LogUnsafe("log.listen_url leads to another log than log.url")
            if not is_direct(connection):
                raise LogUnsafe("log.listen_url leads to a pooler, which passes on no notifications: name the server")
    except LogUnavailable as error:
        what = f"log.listen_url: {error}; what other sidecars commit is seen with a delay until it answers"
        return (Notice("not_listening", what, "let the server be reached there, or leave log.listen_url out"),)
    return ()


def prove_exclusion(one: Connection, other: Connection, *, lock: str = sql.TABLES_LOCK) -> None:
    """Raise LogUnsafe unless the lock of a row that `one` takes keeps `other` out.

    Poolers that run each statement in another session, and databases that only pretend to lock, do not; two processes
    would give out the same positions there. Commits lock other rows: a log whose lock another process holds can be
    opened.
    """
    try:
        one.execute(sql.BEGIN)
        one.execute(sql.LIMITS, OPENING_LIMITS)
        one.execute(lock.encode())
        other.execute(sql.BEGIN)
        other.execute(sql.TABLES_LOCK_AT_ONCE)
    except psycopg.Error as error:
        if error.sqlstate != LOCK_NOT_AVAILABLE:
            raise
        if one.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS:
            return
        raise held_elsewhere(error) from error
    finally:
        taken_back(one)
        taken_back(other)
    raise LogUnsafe(
        "two sessions hold the lock of a row at once, so nothing would keep two writers apart: connect to the server "
        "itself, or through a pooler that gives a transaction one session"
    )


def make_tables(connection: Connection) -> None:
    """Make the tables of logs where the schema has none. Raises what forbids to use those that are there."""
    found = described(connection, [table.name for table in OWN])
    if found:
        _require_own(connection, found)
        return
    for table in OWN:
        execute_each(connection, created(table))
    connection.execute(sql.INSERT_REVISION, {"revision": REVISION})


def held_elsewhere(error: psycopg.Error) -> EventLogError:
    """The error of an opening that a lock was not granted to."""
    held = LogUnavailable(
        f"{error.sqlstate}: another session has held a lock on the log's tables for more than "
        f"{OPENING_WAIT_MS / 1_000:g} s: pg_locks says which"
    )
    return of_cause(held, LOCK_NOT_AVAILABLE)


def stored_log(connection: Connection, name: str, *, copy_of: str = "") -> StoredLog | None:
    """The log of a name; None if the database does not have it.

    Raises LogLocked for a copy that is being made, unless it is that of the log with the id `copy_of`.
    """
    row = ask(connection, sql.IDENTITY, {"name": name}).fetchone()
    if row is None:
        return None
    number, log_id, key, is_whole = row
    if not is_whole and log_id != copy_of:
        raise LogLocked(
            "a log is being imported into this place, or the import was interrupted: wait for its end, or import again"
        )
    return StoredLog(number, LogIdentity(log_id, key))


def names_of_logs(connection: Connection) -> list[str]:
    """The names of the whole logs of the database."""
    return [name for (name,) in connection.execute(sql.NAMES)] if has_tables(connection) else []


def made_log(connection: Connection, name: str, *, clock_us: Callable[[], int], copy_of: str = "") -> StoredLog:
    """The log of a name, for which it takes no lock; a new one gets its secret here, and its id unless it is a copy."""
    if (known := stored_log(connection, name, copy_of=copy_of)) is not None:
        return known
    new = LogIdentity.new(copy_of)
    row = {"name": name, "log_id": new.log_id, "key": new.key, "created_us": clock_us(), "is_whole": not copy_of}
    connection.execute(sql.INSERT_LOG, row)
    made = stored_log(connection, name, copy_of=copy_of)
    assert made is not None, "its row was inserted, here or by another process"
    return made


def lock_tables(connection: Connection, log: int) -> None:
    """Have no other process append to the log, or change the tables of any, until the transaction ends."""
    connection.execute(sql.LOCK, {"log": log})
    connection.execute(sql.TABLES_LOCK)


def has_tables(connection: Connection) -> bool:
    """Return whether the schema has the tables of logs. Raises LogForeign, LogOlder, LogNewer or LogCorrupt for
    others."""
    found = described(connection, [table.name for table in OWN])
    if found:
        _require_own(connection, found)
    return bool(found)


def described(connection: Connection, tables: Collection[str]) -> dict[str, list[tuple[str, str, bool]]]:
    """The tables that are there, each with its columns: name, type and whether it is never NULL."""
    found: dict[str, list[tuple[str, str, bool]]] = {}
    for table, *column in connection.execute(sql.DESCRIBED, {"tables": list(tables)}).fetchall():
        found.setdefault(table, []).append((column[0], column[1], column[2]))
    return found


def is_as_made(found: list[tuple[str, str, bool]] | None, table: Table) -> bool:
    """Return whether a table has the columns of `table`."""
    return found == columns(table)


def execute_each(connection: Connection, statements: Collection[str]) -> None:
    for statement in statements:
        connection.execute(statement.encode())


def was_made_meanwhile(error: psycopg.Error) -> bool:
    """Return whether another process made the tables, or the log, at the same time: opening it again finds them.

    A table brings a type of its name, and the server may find either there first.
    """
    return error.sqlstate in {DUPLICATE_OBJECT, DUPLICATE_TABLE, UNIQUE_VIOLATION}


def _require_own(connection: Connection, found: dict[str, Any]) -> None:
    if REVISION_TABLE not in found:
        raise LogForeign(
            f"the schema has a table {min(found)} of something else: give the log a schema of its own by the role's "
            "search_path, or by options in the URL"
        )
    rows = connection.execute(sql.REVISION).fetchall()
    if len(rows) != 1:
        raise LogCorrupt(f"the table {REVISION_TABLE} does not say which version made the log")
    (revision,) = rows[0]
    if revision > REVISION:
        raise LogNewer(f"a newer version made the log's tables (schema {revision}, known is {REVISION})")
    if revision < REVISION:
        raise LogOlder(f"an older version made the log's tables (schema {revision}, known is {REVISION})")
    for table in METADATA.tables.values():
        if not is_as_made(found.get(table.name), table):
            raise LogCorrupt(f"the table {table.name} is not as it was made")


def _row(connection: Connection, statement: str) -> tuple[Any, ...]:
    row = connection.execute(statement.encode()).fetchone()
    assert row is not None, "the statement always has a row"
    return row
