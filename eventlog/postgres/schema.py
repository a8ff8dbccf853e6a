"""The tables of logs in a PostgreSQL database, of which it may hold several: keys begin with the number of their log.

Columns carry the invariants, as in `eventlog/sqlite/schema.py`. The row of `logs` is never updated: it is the lock
under which positions are given out. Events refer to streams and types without foreign keys, because checking one locks
a row for each event; whoever holds the log's lock has looked the numbers up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable, DropIndex, DropTable, ExecutableDDLElement

REVISION = "0001"
"""The schema that this version makes and reads."""

REVISION_TABLE = "eventlog_revision"

REVISIONS = Table(
    REVISION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{REVISION_TABLE}_pkc"),
)
"""The table of the schema's revision; it has one row."""

METADATA = MetaData()

TEXT = Text(collation="C")
"""Names are compared by their bytes, whatever language the database has."""

_DIALECT: Dialect = postgresql.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it so
_OTHER_NAMES = {"float": "double precision", "varchar": "character varying"}


def _number_of_log() -> Column[int]:
    return Column("log", SmallInteger, nullable=False)


logs = Table(
    "logs",
    METADATA,
    Column("log", SmallInteger, primary_key=True, autoincrement=False),
    Column("name", TEXT, nullable=False),
    Column("log_id", Text, nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("is_whole", Boolean, nullable=False),
    UniqueConstraint("name", name="uq_logs_name"),
)
"""One row for each log: its name here, its id, the secret of its content hashes, and whether it is no copy
that is being made."""

streams = Table(
    "streams",
    METADATA,
    _number_of_log(),
    Column("id", BigInteger, nullable=False),
    Column("namespace", TEXT, nullable=False),
    Column("name", TEXT, nullable=False),
    PrimaryKeyConstraint("log", "id", name="pk_streams"),
    UniqueConstraint("log", "namespace", "name", name="uq_streams_namespace_name"),
)
"""Names of streams. The newest event of a stream has its version, so no row is hot."""

types = Table(
    "types",
    METADATA,
    _number_of_log(),
    Column("id", Integer, nullable=False),
    Column("name", TEXT, nullable=False),
    PrimaryKeyConstraint("log", "id", name="pk_types"),
    UniqueConstraint("log", "name", name="uq_types_name"),
)
"""Names of event types: a dozen, which events refer to by number."""

events = Table(
    "events",
    METADATA,
    _number_of_log(),
    Column("position", BigInteger, nullable=False),
    Column("stream", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("event_id", LargeBinary, nullable=False),
    Column("type", Integer, nullable=False),
    Column("schema_version", BigInteger, nullable=False),
    Column("time_us", BigInteger, nullable=False),
    Column("trace_context", TEXT, nullable=False),
    Column("content_hash", LargeBinary, nullable=False),
    Column("commitment", LargeBinary, nullable=False),
    Column("chain", LargeBinary, nullable=False),
    Column("salt", LargeBinary),
    Column("payload", LargeBinary),
    PrimaryKeyConstraint("log", "position", name="pk_events"),
    UniqueConstraint("log", "stream", "version", name="uq_events_stream_version"),
    UniqueConstraint("log", "stream", "event_id", name="uq_events_stream_event_id"),
    CheckConstraint("(salt IS NULL) = (payload IS NULL)", name="ck_events_erased_together"),
)
"""The logs themselves. An event's namespace is its stream's."""

requests = Table(
    "requests",
    METADATA,
    _number_of_log(),
    Column("stream", BigInteger, nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("content_hash", LargeBinary, nullable=False),
    Column("first_position", BigInteger, nullable=False),
    Column("last_position", BigInteger, nullable=False),
    Column("last_version", BigInteger, nullable=False),
    PrimaryKeyConstraint("log", "stream", "key", name="pk_requests"),
)
"""Request keys, which may have characters that no text of PostgreSQL holds, and their first use."""

leases = Table(
    "leases",
    METADATA,
    _number_of_log(),
    Column("namespace", TEXT, nullable=False),
    Column("name", TEXT, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("log", "namespace", "name", name="pk_leases"),
)
"""The work that is under way, until when by the database's clock, and the event that claimed it."""

OWN = (REVISIONS, *METADATA.tables.values())
"""The tables that every database with a log has."""


def created(table: Table) -> list[str]:
    """The statements that make a table and its indexes."""
    indexes = sorted(table.indexes, key=lambda index: str(index.name))
    made: list[ExecutableDDLElement] = [CreateTable(table), *(CreateIndex(index) for index in indexes)]
    return [str(statement.compile(dialect=_DIALECT)) for statement in made]


def remade_indexes(table: Table) -> list[str]:
    """The statements that make a table's indexes in the place of those of another version."""
    indexes = sorted(table.indexes, key=lambda index: str(index.name))
    made = [each for index in indexes for each in (DropIndex(index, if_exists=True), CreateIndex(index))]
    return [str(statement.compile(dialect=_DIALECT)) for statement in made]


def dropped(table: Table) -> str:
    """The statement that drops a table, if it is there."""
    return str(DropTable(table, if_exists=True).compile(dialect=_DIALECT))


def columns(table: Table) -> list[tuple[str, str, bool]]:
    """Name, type and whether it is never NULL of each column, as the database describes it."""
    return [(column.name, type_of(column), not column.nullable) for column in table.columns]


def quoted(names: Iterable[str]) -> list[str]:
    """Names as statements take them: a column may be called like a word of the language."""
    return [_DIALECT.identifier_preparer.quote(name) for name in names]


def type_of(column: Column[Any]) -> str:
    """The type of a column, as the database names it."""
    name, _, _ = column.type.compile(_DIALECT).partition(" COLLATE ")
    stem, bracket, rest = name.lower().partition("(")
    return _OTHER_NAMES.get(stem, stem) + bracket + rest
