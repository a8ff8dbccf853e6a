"""Connections to the database of a log, and the few that its reads share.

The system finds a connection whose peer is gone within ANSWER_MAX_S, also a half-open one. Behind a pooler nothing is
set for a session, prepared or listened to, because its next transaction may run in another.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from abridged.eventlog.errors import EventLogError, LogClosed, LogUnavailable, LogUnsafe
from abridged.eventlog.event_reader import READER_WAIT_S
from abridged.eventlog.postgres import sql
from abridged.eventlog.postgres.errors import of_cause, translating

Connection = psycopg.Connection[tuple[Any, ...]]
Cursor = psycopg.Cursor[tuple[Any, ...]]

Run = Callable[[Callable[[Connection], Any]], Any]
"""Runs a function on a connection that reads, or in a transaction between two groups of appends, and returns its
result."""

CONNECT_WAIT_S = 5
ANSWER_MAX_S = 10
READERS_MAX = 4
PREPARE_AFTER = 2
"""A statement that comes again is prepared: planning it costs more than running it on a few events."""

STATEMENT_MAX_MS = 10_000
IDLE_MAX_MS = 5_000
"""A transaction whose process was stopped is taken back, so that it does not hold the log's lock."""

_KEEPALIVE: dict[str, Any] = {
    "connect_timeout": CONNECT_WAIT_S,
    "keepalives_idle": ANSWER_MAX_S,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 1_000 * ANSWER_MAX_S,
    "application_name": "abridged",
}

T = TypeVar("T")


class Address:
    """The place of a database, and its user. The address's text names neither user nor password."""

    def __init__(self, url: str) -> None:
        """Raises LogUnsafe for a URL that names no PostgreSQL database."""
        try:
            given = conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # Not chained: the driver's error quotes what it could not read, perhaps the password.
            raise LogUnsafe("the log's URL is not that of a PostgreSQL database") from None
        places = f"{given.get('host')} {given.get('hostaddr')} {given.get('dbname')}"
        has_port = all(each.isdigit() for each in str(given.get("port") or 0).split(","))
        # An option `host` hides what stands behind the first of two @.
        if not has_port or "@" in places or url.partition("://")[2].partition("?")[0].count("@") > 1:
            raise LogUnsafe(
                "the log's URL is read otherwise than it is meant: write / ? # @ in a password as %2F %3F %23 %40"
            )
        self._conninfo = make_conninfo("", **{**_KEEPALIVE, **given})
        host, port = given.get("host") or given.get("hostaddr") or "", given.get("port") or ""
        self._text = f"postgresql://{host}{':' if port else ''}{port}/{given.get('dbname') or ''}"

    def __repr__(self) -> str:
        return self._text

    def connect(self, *, statement_max_ms: int = STATEMENT_MAX_MS) -> Connection:
        """A new connection, whose statements may take so long (0: without limit). Raises LogUnavailable, or LogUnsafe
        if another attempt would not help."""
        try:
            with translating():
                connection = psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)
                try:
                    _settle(connection, statement_max_ms)
                except BaseException:
                    connection.close()
                    raise
        except EventLogError as error:
            raise of_cause(type(error)(f"cannot connect to {self}: {error}"), error.cause) from error
        except psycopg.ProgrammingError:
            raise LogUnsafe(f"an option in the URL of {self} has a value that it cannot have") from None
        return connection


def _settle(connection: Connection, statement_max_ms: int) -> None:
    if is_direct(connection):
        connection.prepare_threshold = PREPARE_AFTER
        limits = {"statement_timeout": str(statement_max_ms), "idle_timeout": str(IDLE_MAX_MS)}
        connection.execute(sql.SESSION_LIMITS, limits)


def is_direct(connection: Connection) -> bool:
    """Return whether the session is the server's own: a pooler names itself, or another process, as the peer."""
    row = connection.execute(sql.CONNECTED).fetchone()
    return row is not None and row[0] == connection.info.backend_pid


def ask(connection: Connection, statement: str | bytes, parameters: Mapping[str, Any]) -> Cursor:
    """Run a statement whose rows come in binary form."""
    text = statement if isinstance(statement, bytes) else statement.encode()
    return connection.cursor(binary=True).execute(text, parameters)


def arrays(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    """Rows by column, as the arrays of a statement."""
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)) if rows else {name: [] for name in names}


class Readers:
    """A few connections that reads share; each is made when it is first needed, and anew when it broke."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._idle: queue.LifoQueue[Connection | None] = queue.LifoQueue()
        self._closed = False
        for _ in range(READERS_MAX):
            self._idle.put(None)

    def run(self, query: Callable[[Connection], T]) -> T:
        """The result of `query`, which only reads. The query runs again, on a new connection, where an idle one had
        broken."""
        try:
            connection = self._idle.get(timeout=READER_WAIT_S)
        except queue.Empty:
            raise LogUnavailable("too many reads are waiting") from None
        try:
            with translating():
                if connection is not None:
                    try:
                        return query(connection)
                    except psycopg.OperationalError:
                        if not connection.closed:
                            raise
                connection = None
                if self._closed:
                    raise LogClosed("the log is closed")
                connection = self._connect()
                return query(connection)
        finally:
            self._give_back(connection)

    def close(self) -> None:
        """Close the idle connections, and each other one once its read has ended."""
        self._closed = True
        for _ in range(READERS_MAX):
            try:
                connection = self._idle.get_nowait()
            except queue.Empty:
                return
            if connection is not None:
                connection.close()

    def _give_back(self, connection: Connection | None) -> None:
        if connection is not None and (connection.closed or self._closed):
            connection.close()
            connection = None
        self._idle.put(connection)
