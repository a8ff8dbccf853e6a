"""Reads a log that a sidecar may be writing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from abridged.eventlog.encryption.probe import newest_encrypted
from abridged.eventlog.rows import StoredRows
from abridged.eventlog.verification import LogVerification
from abridged.service.bootstrap.backends import stored_backend
from abridged.service.codec.events import CLEAR
from abridged.service.config.settings import LogSettings
from abridged.service.conversations.row import READ_TABLE, Row

T = TypeVar("T")


def read_stored(settings: LogSettings, read: Callable[[LogVerification, StoredRows[Row]], T]) -> T | None:
    """Return what `read` finds in the log of `settings`, without its keys; None if there is no log."""
    stored = stored_backend(settings)
    if not stored.log_id():
        return None
    rows = stored.rows(READ_TABLE)
    with stored.verification(rows, is_owned=False) as log:
        return read(log, rows)


def is_encrypted(settings: LogSettings) -> bool:
    """Return whether the log of `settings` is there and encrypted; no key is needed."""
    found = read_stored(settings, lambda log, _: newest_encrypted(log, log.event_count(), CLEAR) is not None)
    return bool(found)
