"""Makes a log in a database as the copy of another log, which nobody else opens until all of it is there.

An import that was interrupted leaves a copy that is not whole. The next import removes it, and nothing else opens it.
An import that fails removes its own copy alone, which the key tells from that of another.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress

from abridged.eventlog.errors import EventLogError, LogGone
from abridged.eventlog.log import EventLog
from abridged.eventlog.postgres import sql
from abridged.eventlog.postgres.connections import Address, Connection
from abridged.eventlog.postgres.database import described, has_tables, stored_log, transaction
from abridged.eventlog.postgres.errors import translating
from abridged.eventlog.postgres.log import PostgresEventLog
from abridged.eventlog.postgres.rows import PROJECTIONS
from abridged.eventlog.postgres.schema import METADATA, logs, quoted
from abridged.eventlog.postgres.snapshots import TABLES as SNAPSHOTS


def copied(
    address: Address, name: str, log_id: str, fill: Callable[[EventLog], None], check: Callable[[], None]
) -> None:
    """See StoredBackend.copy."""
    _cleared(address, name)
    key = b""
    try:
        opened = PostgresEventLog.open(address, name, clock_us=lambda: time.time_ns() // 1_000, copy_of=log_id)
        with closing(opened) as made:
            own = made.read(lambda connection: stored_log(connection, name, copy_of=log_id))
            assert own is not None, "the log is open"
            key = own.identity.key
            fill(made)
        check()
        with translating(), closing(address.connect()) as connection, transaction(connection):
            if connection.execute(sql.WHOLE, {"log": own.number, "key": key}).rowcount != 1:
                raise LogGone("another import has taken the place of this one")
    except BaseException:
        # The next import clears what cannot be cleared now.
        with suppress(EventLogError, FileExistsError):
            _cleared(address, name, key)
        raise


def _cleared(address: Address, name: str, key: bytes | None = None) -> None:
    """Remove what an interrupted import has left; with a key only the copy that has it. Raises FileExistsError for a
    whole log."""
    # Removing a large copy takes longer than any call may.
    with translating(), closing(address.connect(statement_max_ms=0)) as connection:
        if not has_tables(connection):
            return
        if (there := connection.execute(sql.IDENTITY, {"name": name}).fetchone()) is None:
            return
        log, _, own, is_whole = there
        if key is not None and own != key:
            return
        if is_whole:
            raise FileExistsError(f"there is a log {name} at {address}")
        for table in quoted(_tables(connection, log)):
            connection.execute(f"DELETE FROM {table} WHERE log = %(log)b".encode(), {"log": log})  # noqa: S608 - of our own


def _tables(connection: Connection, log: int) -> list[str]:
    """Every table that has rows of a log, that of the logs last: while its row is there, nobody opens the rest."""
    known = [PROJECTIONS.name, *(table.name for table in SNAPSHOTS), *METADATA.tables]
    if described(connection, [PROJECTIONS.name]):
        rows = connection.execute(f"SELECT name FROM {PROJECTIONS.name} WHERE log = %(log)b".encode(), {"log": log})  # noqa: S608 - of our own
        known += [name for (name,) in rows]
    there = described(connection, known)
    return sorted(there, key=lambda name: name == logs.name)
