"""The tables of a log in a file. New files are made from them; a test compares them with the sum of the migrations.

Columns carry the invariants: positions and versions are unique, an event id is unique in its stream for ever. A row is
updated only to blank its event, which changes its payload, its salt and its content hash.
"""

from __future__ import annotations

from abridged.eventlog.sqlite.table import Check, Column, Reference, Table

HEAD_REVISION = "0004"
"""The newest migration: a file at this revision is opened without loading the migrations."""

READ_REVISIONS = frozenset({"0002", HEAD_REVISION})
"""The revisions with these tables. The first append to a file raises its revision to the newest."""

REVISION_TABLE = "eventlog_revision"

REVISIONS = Table(
    REVISION_TABLE,
    (Column("version_num", "VARCHAR(32)"),),
    key=("version_num",),
    key_name=f"{REVISION_TABLE}_pkc",
)
"""The table of the schema's revision, as the migrations make it; it has one row."""

log = Table(
    "log",
    (Column("log_id", "TEXT"), Column("key", "BLOB"), Column("created_us", "INTEGER")),
    key=("log_id",),
    key_name="pk_log",
    options=("STRICT",),
)
"""One row: the log's id and the secret of its content hashes."""

streams = Table(
    "streams",
    (Column("id", "INTEGER"), Column("namespace", "TEXT"), Column("name", "TEXT")),
    key=("id",),
    key_name="pk_streams",
    constraints=("CONSTRAINT uq_streams_namespace_name UNIQUE (namespace, name)",),
    options=("STRICT",),
)
"""Names of streams. The newest event of a stream has its version, so no row is hot."""

types = Table(
    "types",
    (Column("id", "INTEGER"), Column("name", "TEXT")),
    key=("id",),
    key_name="pk_types",
    constraints=("CONSTRAINT uq_types_name UNIQUE (name)",),
    options=("STRICT",),
)
"""Names of event types: a dozen, which events refer to by number."""

events = Table(
    "events",
    (
        Column("position", "INTEGER"),
        Column("stream", "INTEGER"),
        Column("version", "INTEGER"),
        Column("event_id", "BLOB"),
        Column("type", "INTEGER"),
        Column("schema_version", "INTEGER"),
        Column("time_us", "INTEGER"),
        Column("trace_context", "TEXT"),
        Column("content_hash", "BLOB"),
        Column("commitment", "BLOB"),
        Column("chain", "BLOB"),
        Column("salt", "BLOB", is_nullable=True),
        Column("payload", "BLOB", is_nullable=True),
    ),
    key=("position",),
    key_name="pk_events",
    constraints=(
        "CONSTRAINT uq_events_stream_version UNIQUE (stream, version)",
        "CONSTRAINT uq_events_stream_event_id UNIQUE (stream, event_id)",
    ),
    checks=(Check("ck_events_erased_together", "(salt IS NULL) = (payload IS NULL)"),),
    references=(Reference("fk_events_stream", "stream", "streams"), Reference("fk_events_type", "type", "types")),
    options=("STRICT",),
)
"""The log itself. An event's namespace is its stream's."""

requests = Table(
    "requests",
    (
        Column("stream", "INTEGER"),
        Column("key", "TEXT"),
        Column("content_hash", "BLOB"),
        Column("first_position", "INTEGER"),
        Column("last_position", "INTEGER"),
        Column("last_version", "INTEGER"),
    ),
    key=("stream", "key"),
    key_name="pk_requests",
    references=(Reference("fk_requests_stream", "stream", "streams"),),
    options=("WITHOUT ROWID", "STRICT"),
)
"""Request keys and their first use."""

TABLES = (log, streams, types, events, requests)
"""The log's own tables, each after those that it refers to."""
