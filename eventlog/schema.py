"""The tables of a log. New files are made from them, older ones migrated; a test compares both.

Columns carry the invariants: positions and versions are unique, an event id is unique in its stream for ever. A row is
updated only to blank its event, which changes its payload, its salt and its content hash.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
)

HEAD_REVISION = "0002"
"""The newest migration: a file at this revision is opened without loading the migrations."""

REVISION_TABLE = "eventlog_revision"

METADATA = MetaData(
    naming_convention={
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

REVISIONS = Table(
    REVISION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{REVISION_TABLE}_pkc"),
)
"""The table of the schema's revision, as the migrations make it; it has one row."""

_NUMBER = BigInteger().with_variant(Integer, "sqlite")

log = Table(
    "log",
    METADATA,
    Column("log_id", Text, primary_key=True),
    Column("key", LargeBinary, nullable=False),
    Column("created_us", _NUMBER, nullable=False),
    sqlite_strict=True,
)
"""One row: the log's id and the secret of its content hashes."""

streams = Table(
    "streams",
    METADATA,
    Column("id", _NUMBER, primary_key=True, autoincrement=False),
    Column("namespace", Text, nullable=False),
    Column("name", Text, nullable=False),
    UniqueConstraint("namespace", "name"),
    sqlite_strict=True,
)
"""Names of streams. The newest event of a stream has its version, so no row is hot."""

types = Table(
    "types",
    METADATA,
    Column("id", _NUMBER, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False, unique=True),
    sqlite_strict=True,
)
"""Names of event types: a dozen, which events refer to by number."""

events = Table(
    "events",
    METADATA,
    Column("position", _NUMBER, primary_key=True, autoincrement=False),
    Column("stream", _NUMBER, ForeignKey("streams.id"), nullable=False),
    Column("version", _NUMBER, nullable=False),
    Column("event_id", LargeBinary, nullable=False),
    Column("type", _NUMBER, ForeignKey("types.id"), nullable=False),
    Column("schema_version", _NUMBER, nullable=False),
    Column("time_us", _NUMBER, nullable=False),
    Column("trace_context", Text, nullable=False),
    Column("content_hash", LargeBinary, nullable=False),
    Column("commitment", LargeBinary, nullable=False),
    Column("chain", LargeBinary, nullable=False),
    Column("salt", LargeBinary),
    Column("payload", LargeBinary),
    UniqueConstraint("stream", "version"),
    UniqueConstraint("stream", "event_id"),
    CheckConstraint("(salt IS NULL) = (payload IS NULL)", name="erased_together"),
    sqlite_strict=True,
)
"""The log itself. An event's namespace is its stream's."""

requests = Table(
    "requests",
    METADATA,
    Column("stream", _NUMBER, ForeignKey("streams.id"), primary_key=True, autoincrement=False),
    Column("key", Text, primary_key=True),
    Column("content_hash", LargeBinary, nullable=False),
    Column("first_position", _NUMBER, nullable=False),
    Column("last_position", _NUMBER, nullable=False),
    Column("last_version", _NUMBER, nullable=False),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
"""Request keys and their first use."""
