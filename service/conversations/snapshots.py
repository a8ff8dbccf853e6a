"""Snapshots of conversations' states in the log's database, so that opening a long one reads only its end.

A snapshot is never trusted over the log: it is sealed under the log's own secret, and it counts only if its stream has,
at its version, the event whose position and chain hash it names. One that does not fit is ignored. One whose stream is
damaged may be the only copy of its state, and is kept (`service.conversations.set_aside`).
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Column, Connection, LargeBinary, MetaData, String, Table
from sqlalchemy.schema import CreateTable

from eventlog.errors import EventLogError
from eventlog.event import StreamId
from eventlog.log import EventLog
from eventlog.sqlite.engine import dropped, is_as_made
from service.codec.state import STATE_CODEC, state_from_bytes, state_to_bytes
from service.domain.conversation import Conversation

MESSAGES_MAX = 4_096
"""Messages in the window of a state that is kept: reading more of them takes as long as folding them."""

BYTES_MAX = 4 << 20
"""Bytes of a state that is kept."""

PURPOSE = "snapshots"
"""Of the log's secret under which snapshots are sealed."""

SEAL_BYTES = 16

Read = Callable[[Callable[[Connection], Any]], Any]
"""Runs a query in a short snapshot of the database and returns its result."""

SNAPSHOTS = Table(
    "snapshots",
    MetaData(),
    Column("namespace", String, primary_key=True),
    Column("id", String, primary_key=True),
    Column("event_version", BigInteger, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("chain", LargeBinary, nullable=False),
    Column("codec", String, nullable=False),
    Column("state", LargeBinary, nullable=False),
    Column("seal", LargeBinary, nullable=False),
)


class Snapshot(NamedTuple):
    """A conversation's state after the event that has this version, position and chain hash."""

    state: Conversation
    event_version: int
    position: int
    chain: bytes


class SqlSnapshots:
    """One snapshot a conversation, the newest. Methods may be called in any thread."""

    def __init__(self, secret: bytes, read: Read, *, codec: str = STATE_CODEC) -> None:
        """`secret` is the log's for PURPOSE, `read` its own short snapshots, `codec` that of the states."""
        self._codec = codec
        self._secret = secret
        self._read = read

    def of(self, key: StreamId) -> Snapshot | None:
        """The conversation's snapshot; None without one, or if this version did not write it."""
        row = self._row(key)
        if row is None or row.codec != self._codec or not self._is_sealed(row):
            return None
        return Snapshot(state_from_bytes(row.state), row.event_version, row.position, row.chain)

    def version_of(self, key: StreamId) -> int:
        """The version after which the conversation's snapshot was taken, whoever wrote it; 0 without one."""
        row = self._row(key)
        return 0 if row is None else int(row.event_version)

    def is_damaged(self, key: StreamId) -> bool:
        """Whether the conversation has a snapshot whose seal does not fit."""
        row = self._row(key)
        return row is not None and not self._is_sealed(row)

    def fitting(self, key: StreamId, log: EventLog) -> Snapshot | None:
        """The conversation's snapshot, if the log has the event that it was taken after; else, or on an error, None."""
        try:
            found = self.of(key)
            if found is None or found.state.id != key.name or found.state.event_version != found.event_version:
                return None
            sealed = log.read_sealed(key, after=found.event_version - 1, limit=1)
        except EventLogError:
            return None
        at = [(s.event.version, s.event.position, s.chain) for s in sealed]
        return found if at == [(found.event_version, found.position, found.chain)] else None

    def row(self, key: StreamId, snapshot: Snapshot) -> tuple[Any, ...] | None:
        """Return the row that `put` writes; None for a state that is too large to keep."""
        state = state_to_bytes(snapshot.state)
        if len(state) > BYTES_MAX:
            return None
        place = (snapshot.event_version, snapshot.position, snapshot.chain)
        unsealed = (*key, *place, self._codec, state)
        return (*unsealed, self._seal(unsealed))

    def _row(self, key: StreamId) -> Any:
        return self._read(lambda connection: connection.exec_driver_sql(_SELECT, tuple(key)).first())

    def _is_sealed(self, row: Any) -> bool:
        *unsealed, seal = row
        return bool(seal == self._seal(tuple(unsealed)))

    def _seal(self, values: tuple[Any, ...]) -> bytes:
        # How Python writes values tells their types too: a number is not its text.
        *place, state = values
        digest = blake2b(repr(place).encode(), key=self._secret, digest_size=SEAL_BYTES)
        digest.update(state if isinstance(state, bytes) else repr(state).encode())
        return digest.digest()


def prepare(connection: Connection) -> None:
    """Make the table in the transaction that opens the log, in the place of one that is not as this version makes it.

    What a fault of the read table makes doubtful stays until the rebuild has read the events that it is a state of.
    """
    if not has_snapshots(connection):
        dropped(connection, SNAPSHOTS.name)
        connection.execute(CreateTable(SNAPSHOTS))


def put(connection: Connection, row: tuple[Any, ...]) -> None:
    """Write a row of `SqlSnapshots.row` in the place of the conversation's earlier one."""
    connection.exec_driver_sql(_PUT, row)


def has_snapshots(connection: Connection) -> bool:
    """Whether the file has the table, as this version makes it."""
    return is_as_made(connection, SNAPSHOTS)


def is_worth_keeping(state: Conversation) -> bool:
    """Whether the window is small enough for a snapshot."""
    return len(state.window) <= MESSAGES_MAX


_SELECT = "SELECT * FROM snapshots WHERE namespace = ? AND id = ?"
_PUT = f"INSERT OR REPLACE INTO snapshots VALUES ({', '.join('?' for _ in SNAPSHOTS.columns)})"  # noqa: S608 - of constants
