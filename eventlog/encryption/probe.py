"""Tells whether a log is encrypted, without a key."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from abridged.eventlog.encryption.framing import is_encrypted
from abridged.eventlog.errors import LogCorrupt, LogEncrypted
from abridged.eventlog.event import RecordedEvent
from abridged.eventlog.log import EventLog

NEWEST: Final = 64
"""The events at a log's end that are looked at: those of erasures, which are in clear, may be the last."""


def newest_encrypted(log: EventLog) -> RecordedEvent | None:
    """The newest encrypted event, as far as the end and the beginning of a log tell; damage there tells nothing."""
    for limit, backward in ((NEWEST, True), (1, False)):
        with suppress(LogCorrupt):
            for event in log.read_all(limit=limit, backward=backward):
                if is_encrypted(event.payload):
                    return event
    return None


def require_clear(log: EventLog) -> None:
    """Raise LogEncrypted for a log that is encrypted."""
    if newest_encrypted(log) is not None:
        raise LogEncrypted("the log is encrypted, and encryption is off")
