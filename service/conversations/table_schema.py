"""The tables of the read table of conversations, and what is wrong with those that a file has."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)

from eventlog.errors import LogCorrupt
from eventlog.sqlite.engine import is_as_made
from eventlog.sqlite.errors import DATABASE_ERRORS, translated
from service.conversations.row import Row, checked

VERSION = 5
"""Of the rows. It is raised with whatever changes a column, what one says, or the seal: then tables of the versions
before are made again from the log, and none is altered."""

_METADATA = MetaData()
PROJECTIONS = Table(
    "projections",
    _METADATA,
    Column("name", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("log_id", Text, nullable=False),
    Column("complete", Integer, nullable=False),
    sqlite_strict=True,
)
"""Which version made a read table, of which log, and whether to its end."""

CONVERSATIONS = Table(
    "conversations",
    _METADATA,
    Column("namespace", String, primary_key=True),
    Column("id", String, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("event_version", BigInteger, nullable=False),
    Column("message_version", BigInteger, nullable=False),
    Column("ratio", Float, nullable=False),
    Column("labels", String, nullable=False),
    Column("pending_pass", String, nullable=False),
    Column("wait_until_us", BigInteger, nullable=False),
    Column("fallback", Integer, nullable=False),
    Column("model", String, nullable=False),
    Column("calibration_factor", Float, nullable=False),
    Column("usage_reports", Integer, nullable=False),
    Column("settings", LargeBinary, nullable=False),
    Column("window_tokens", BigInteger, nullable=False),
    Column("lowest_ratio", Float, nullable=False),
    Column("window_messages", BigInteger, nullable=False),
    Column("messages_since_pass", BigInteger, nullable=False),
    Column("live_summary_id", String, nullable=False),
    Column("depth", Integer),
    Column("summary_count", BigInteger, nullable=False),
    Column("failures_in_row", Integer, nullable=False),
    Column("last_depth", Integer),
    Column("last_message_count", BigInteger),
    Column("last_token_ratio", Float),
    Column("created_us", BigInteger, nullable=False),
    Column("updated_us", BigInteger, nullable=False),
    Column("held_by", String, nullable=False),
    Column("title", String, nullable=False),
    Column("closed", Integer, nullable=False),
    Column("seal", LargeBinary, nullable=False),
    Index("conversations_by_change", "namespace", "position"),
    Index("conversations_attention", "pending_pass", "wait_until_us", "fallback"),
    # Only of those that are counted, so that a count reads them and no others, and most appends write to neither.
    Index("conversations_over_budget", "ratio", "closed", sqlite_where=text("ratio > 1 AND closed = 0")),
    Index("conversations_held", "held_by", sqlite_where=text("held_by <> ''")),
    sqlite_with_rowid=False,
)


assert Row._fields == tuple(column.name for column in CONVERSATIONS.columns), "rows are written and read by place"


class Fault(StrEnum):
    """Why a read table has to be made again before it is read."""

    MISSING = "is missing"
    FOREIGN = "is another log's"
    OLDER = "was made by an older version"
    NEWER = "was made by a newer version"
    INTERRUPTED = "was not made to its end"
    DAMAGED = "is not as it was made"


def table_fault(connection: Connection) -> Fault | None:
    """Return the fault of the read table as a whole; None when its rows can be read."""
    try:
        return _found_fault(connection)
    except DATABASE_ERRORS as error:
        if not isinstance(translated(error), LogCorrupt):
            raise
        return Fault.DAMAGED


def _found_fault(connection: Connection) -> Fault | None:
    if not _columns(connection, CONVERSATIONS):
        return Fault.MISSING
    if not _columns(connection, PROJECTIONS):
        return Fault.OLDER
    if not is_as_made(connection, PROJECTIONS):
        return Fault.DAMAGED
    stored = connection.exec_driver_sql(_STORED, (CONVERSATIONS.name,)).all()
    if not stored:
        return Fault.OLDER
    found = stored[0]
    if len(stored) > 1 or not isinstance(found.version, int):
        return Fault.DAMAGED
    if found.version < VERSION:
        return Fault.OLDER
    if found.version > VERSION:
        return Fault.NEWER
    if not found.is_this_logs:
        return Fault.FOREIGN
    if not found.complete:
        return Fault.INTERRUPTED
    whole = is_as_made(connection, CONVERSATIONS) and _indexes_are_ours(connection)
    return None if whole else Fault.DAMAGED


def _indexes_are_ours(connection: Connection) -> bool:
    """Whether nothing else has the name of an index; one that is missing is made at the next start."""
    for index in CONVERSATIONS.indexes:
        named = connection.exec_driver_sql(_NAMED, (index.name,)).first()
        if named is None:
            continue
        columns = [row.name for row in connection.exec_driver_sql(f"PRAGMA index_info({index.name})")]
        if named.tbl_name != CONVERSATIONS.name or columns != [column.name for column in index.columns]:
            return False
    return True


_NAMED = "SELECT tbl_name FROM sqlite_schema WHERE name = ?"
_STORED = "SELECT version, complete, log_id = (SELECT log_id FROM log) AS is_this_logs FROM projections WHERE name = ?"
_BEYOND = "SELECT * FROM conversations WHERE NOT (typeof(position) = 'integer' AND position <= ?)"
_HEADS = "SELECT (SELECT max(position) FROM conversations), (SELECT max(position) FROM events)"


def refuse_lost_end(connection: Connection) -> None:
    """Raise LogCorrupt when events are missing that the read table knows of; one that cannot be read knows of none."""
    try:
        require_same_head(connection)
    except DATABASE_ERRORS as error:
        if not isinstance(translated(error), LogCorrupt):
            raise


def require_same_head(connection: Connection) -> None:
    """Raise LogCorrupt when events are missing that the read table knows of: positions would be given out again.

    Rows whose seal does not hold know of nothing.
    """
    columns = _columns(connection, CONVERSATIONS)
    if "position" not in columns:
        return
    listed, written = connection.exec_driver_sql(_HEADS).one()
    if listed is not None and not (isinstance(listed, int) and listed <= (written or 0)):
        if tuple(columns) == Row._fields:
            beyond = connection.exec_driver_sql(_BEYOND, (written or 0,)).all()
            if not any(_is_sealed(tuple(row)) for row in beyond):
                return
        raise LogCorrupt(f"events up to position {listed} were written, and {written or 0} is the last one there")


def _is_sealed(row: tuple[Any, ...]) -> bool:
    try:
        checked(row)
    except LogCorrupt:
        return False
    return True


def _columns(connection: Connection, table: Table) -> list[str]:
    # By statements of our own: SQLAlchemy's inspection parses the schema's text, and breaks where that is damaged.
    return [row.name for row in connection.exec_driver_sql(f"PRAGMA table_info({table.name})")]
