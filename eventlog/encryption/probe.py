"""Tells whether a log is encrypted, without a key."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from abridged.eventlog.encryption.framing import is_encrypted
from abridged.eventlog.errors import LogCorrupt, LogEncrypted
from abridged.eventlog.event import RecordedEvent
from abridged.eventlog.log import EventLog

NEWEST: Final = 64
"""The number of events at a log's end that are looked at: the last ones may be erasures, which are in clear."""


def newest_encrypted(log: EventLog) -> RecordedEvent | None:
    """The newest encrypted event among the last NEWEST of a log and its first one; None if all of them are in clear, or
    damage hides the others."""
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
