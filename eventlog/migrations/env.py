"""Runs the migrations on the connection that the caller brings, inside the caller's transaction."""

from __future__ import annotations

from alembic import context

from abridged.eventlog.schema import METADATA, REVISION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=REVISION_TABLE,
    transactional_ddl=True,
)
context.run_migrations()
