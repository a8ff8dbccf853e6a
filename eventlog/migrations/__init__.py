"""Makes the newest schema, step by step. The package imports alembic, so nothing imports it before a migration is
due."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

__all__ = ["config", "upgrade"]


def config() -> Config:
    """Alembic's configuration for the migrations of this package."""
    settings = Config()
    settings.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    settings.set_main_option("path_separator", "os")
    return settings


def upgrade(connection: Connection) -> None:
    """Make the tables in an empty file, in the connection's transaction: all of them or none."""
    settings = config()
    settings.attributes["connection"] = connection
    command.upgrade(settings, "head")
