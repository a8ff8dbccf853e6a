"""Rows of events without what others have: the namespace is the stream's, the type is a number, hashes of contents and
requests are half as long.

Made in a new file alone: `eventlog/sqlite/rewrite.py` copies the rows of an older one into it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the smaller table in place of the other, which is empty."""
    op.drop_index("ix_events_namespace", "events")
    op.drop_table("events")
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
