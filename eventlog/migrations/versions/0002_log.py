"""The log, its streams, event types, events and request keys, as of the first release.

A migration never imports the schema: it says how the tables of its time look. Files of revision 0001 are older than the
first release, and refused.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the tables of a new log."""
    op.create_table(
        "log",
        sa.Column("log_id", sa.Text, nullable=False),
        sa.Column("key", sa.LargeBinary, nullable=False),
        sa.Column("created_us", _NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("log_id", name="pk_log"),
        sqlite_strict=True,
    )
    op.create_table(
        "streams",
        sa.Column("id", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_streams"),
        sa.UniqueConstraint("namespace", "name", name="uq_streams_namespace_name"),
        sqlite_strict=True,
    )
    op.create_table(
        "types",
        sa.Column("id", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_types"),
        sa.UniqueConstraint("name", name="uq_types_name"),
        sqlite_strict=True,
    )
    op.create_table(
        "events",
        sa.Column("position", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("stream", _NUMBER, nullable=False),
        sa.Column("version", _NUMBER, nullable=False),
        sa.Column("event_id", sa.LargeBinary, nullable=False),
        sa.Column("type", _NUMBER, nullable=False),
        sa.Column("schema_version", _NUMBER, nullable=False),
        sa.Column("time_us", _NUMBER, nullable=False),
        sa.Column("trace_context", sa.Text, nullable=False),
        sa.Column("content_hash", sa.LargeBinary, nullable=False),
        sa.Column("commitment", sa.LargeBinary, nullable=False),
        sa.Column("chain", sa.LargeBinary, nullable=False),
        sa.Column("salt", sa.LargeBinary),
        sa.Column("payload", sa.LargeBinary),
        sa.PrimaryKeyConstraint("position", name="pk_events"),
        sa.ForeignKeyConstraint(["stream"], ["streams.id"], name="fk_events_stream"),
        sa.ForeignKeyConstraint(["type"], ["types.id"], name="fk_events_type"),
        sa.UniqueConstraint("stream", "version", name="uq_events_stream_version"),
        sa.UniqueConstraint("stream", "event_id", name="uq_events_stream_event_id"),
        sa.CheckConstraint("(salt IS NULL) = (payload IS NULL)", name=op.f("ck_events_erased_together")),
        sqlite_strict=True,
    )
    op.create_table(
        "requests",
        sa.Column("stream", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("content_hash", sa.LargeBinary, nullable=False),
        sa.Column("first_position", _NUMBER, nullable=False),
        sa.Column("last_position", _NUMBER, nullable=False),
        sa.Column("last_version", _NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("stream", "key", name="pk_requests"),
        sa.ForeignKeyConstraint(["stream"], ["streams.id"], name="fk_requests_stream"),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
