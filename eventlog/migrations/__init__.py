"""Brings a database to the newest schema. Imports alembic, so it is itself imported only when there is work to do."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection

from eventlog.errors import LogCorrupt

__all__ = ["config", "upgrade"]


def config() -> Config:
    """Alembic's configuration for the migrations of this package."""
    settings = Config()
    settings.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    settings.set_main_option("path_separator", "os")
    return settings


def upgrade(connection: Connection) -> None:
    """Run what is missing, in the connection's transaction: all of it or nothing."""
    settings = config()
    settings.attributes["connection"] = connection
    try:
        command.upgrade(settings, "head")
    except CommandError as error:
        raise LogCorrupt(f"the schema's revision is none: {error}") from error
