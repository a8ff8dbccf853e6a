"""The choice of the place that the log is kept in."""

from __future__ import annotations

from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from abridged.eventlog.backend import Backend, MemoryBackend, StoredBackend
from abridged.eventlog.errors import LogUnsafe
from abridged.service.config.settings import LogSettings, Settings
from abridged.service.models.settings import SettingUnusable

if TYPE_CHECKING:
    from abridged.eventlog.encryption.key_store import KeyStore
    from abridged.eventlog.sqlite.backend import SqliteBackend

NO_CRYPTOGRAPHY = (
    "encryption needs the package extra `encryption`: scripts/install encryption, or pip install 'PATH[encryption]'"
)
NOT_INSTALLED = (
    "a log in PostgreSQL needs the package extra `postgres`: scripts/install postgres, or pip install 'PATH[postgres]'"
)


def backend_of(settings: Settings) -> Backend:
    """The place of the log. Raises SettingUnusable."""
    if settings.log.backend == "memory" and settings.log.url is None:
        return MemoryBackend()
    return log_backend(settings)


def log_backend(settings: Settings) -> StoredBackend:
    """The place of the log, which outlives the process, with its keys if it is encrypted. Raises SettingUnusable."""
    return readable(stored_backend(settings.log), settings)


def readable(place: StoredBackend, settings: Settings) -> StoredBackend:
    """The log of `settings`, or a copy of it, in `place`, with its keys if it is encrypted. Raises SettingUnusable."""
    if not settings.encryption.is_on:
        return place
    try:
        from abridged.service.bootstrap.encryption import encrypted
    except ImportError as error:
        raise SettingUnusable(NO_CRYPTOGRAPHY) from error
    return encrypted(place, settings)


def file_backend(path: Path) -> SqliteBackend:
    """The place of the log in the file `path`: for what only a file needs."""
    from abridged.eventlog.sqlite.backend import SqliteBackend

    return SqliteBackend(path)


def is_log_file(file: BufferedReader) -> bool:
    """Return whether an open file begins as that of a log does, and not as its lines."""
    from abridged.eventlog.sqlite.file import FILE_MAGIC

    return file.peek(len(FILE_MAGIC)).startswith(FILE_MAGIC)


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


def keys_in_database(url: SecretStr) -> tuple[str, Callable[[], bool], Callable[[], KeyStore]]:
    """The name of the place of data keys in a database, what tells whether they are there, and what opens them.

    Raises SettingUnusable for a database that cannot be spoken to from here.
    """
    try:
        from abridged.eventlog.postgres.connections import Address
        from abridged.eventlog.postgres.data_keys import PostgresKeyStore
    except ImportError as error:
        raise SettingUnusable(NOT_INSTALLED) from error
    text = url.get_secret_value()
    try:
        return str(Address(text)), lambda: PostgresKeyStore.exists(text), lambda: PostgresKeyStore(text)
    except LogUnsafe as error:
        raise SettingUnusable(str(error)) from error
