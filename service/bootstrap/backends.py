"""The choice of the place that the log is kept in."""

from __future__ import annotations

from abridged.eventlog.backend import Backend, MemoryBackend, StoredBackend
from abridged.service.config.settings import LogSettings


def backend_of(settings: LogSettings) -> Backend:
    return MemoryBackend() if settings.backend == "memory" else stored_backend(settings)


def stored_backend(settings: LogSettings) -> StoredBackend:
    """The place of the log of `settings`, whose log outlives the process: for what works on a log itself."""
    # A log in memory needs no database, whose import takes a tenth of the start.
    from abridged.eventlog.sqlite.backend import SqliteBackend

    return SqliteBackend(settings.path)
