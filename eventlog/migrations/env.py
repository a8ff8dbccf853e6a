"""Runs the migrations on the connection that the caller brings, inside the caller's transaction."""

from __future__ import annotations

from alembic import context

from abridged.eventlog.sqlite.schema import REVISION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=REVISION_TABLE,
    transactional_ddl=True,
)
context.run_migrations()
