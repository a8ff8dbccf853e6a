"""The choice of the place that the log is kept in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from abridged.eventlog.backend import Backend, MemoryBackend, StoredBackend
from abridged.eventlog.errors import LogUnsafe
from abridged.service.config.settings import LogSettings
from abridged.service.models.settings import SettingUnusable

if TYPE_CHECKING:
    from abridged.eventlog.sqlite.backend import SqliteBackend

NOT_INSTALLED = "a log in PostgreSQL needs the package extra `postgres`: pip install 'abridged[postgres]'"


def backend_of(settings: LogSettings) -> Backend:
    """Raises SettingUnusable."""
    return MemoryBackend() if settings.backend == "memory" else stored_backend(settings)


def file_backend(path: Path) -> SqliteBackend:
    """The place of the log in the file `path`: for what only a file needs."""
    from abridged.eventlog.sqlite.backend import SqliteBackend

    return SqliteBackend(path)


def stored_backend(settings: LogSettings) -> StoredBackend:
    """The place of the log of `settings`, whose log outlives the process: for what works on a log itself.

    Raises SettingUnusable for a database that cannot be spoken to from here.
    """
    # A log in memory needs no database, whose import takes a tenth of the start.
    if settings.url is None:
        return file_backend(settings.path)
    try:
        from abridged.eventlog.postgres.backend import PostgresBackend
    except ImportError as error:
        raise SettingUnusable(NOT_INSTALLED) from error
    try:
        listen_url = settings.listen_url.get_secret_value() if settings.listen_url is not None else ""
        return PostgresBackend(settings.url.get_secret_value(), settings.name, listen_url=listen_url)
    except LogUnsafe as error:
        raise SettingUnusable(str(error)) from error
