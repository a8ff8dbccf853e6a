"""Tells whether a log is encrypted, without a key."""

from __future__ import annotations

from contextlib import suppress

from abridged.eventlog.encryption.framing import ClearTypes, is_encrypted
from abridged.eventlog.errors import LogCorrupt, LogEncrypted
from abridged.eventlog.event import RecordedEvent
from abridged.eventlog.log import PAGE_EVENTS_MAX, EventLog


def newest_encrypted(log: EventLog, clear: ClearTypes) -> RecordedEvent | None:
    """The event that tells a log encrypted: the newest one but those that nobody encrypts, however many of erasures
    follow it; from the beginning on the first one, if there is damage at the end."""
    for backward in (True, False):
        with suppress(LogCorrupt):
            return _first_encrypted(log, clear, backward=backward)
    return None


def require_clear(log: EventLog, clear: ClearTypes) -> None:
    """Raise LogEncrypted for a log that is encrypted."""
    if newest_encrypted(log, clear) is not None:
        raise LogEncrypted("the log is encrypted, and encryption is off")


def _first_encrypted(log: EventLog, clear: ClearTypes, *, backward: bool) -> RecordedEvent | None:
    after, limit = 0, 1
    while page := log.read_all(after=after, limit=limit, backward=backward):
        for event in page:
            if not clear.have(event.type, event.payload):
                return event if is_encrypted(event.payload) else None
        after, limit = page[-1].position, PAGE_EVENTS_MAX
    return None
