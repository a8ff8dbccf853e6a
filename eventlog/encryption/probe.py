"""Tells whether a log is encrypted, without a key, and whether data keys are its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from abridged.eventlog.encryption.framing import ClearTypes, is_encrypted, key_id_of
from abridged.eventlog.errors import KeysUnusable, LogCorrupt, LogEncrypted
from abridged.eventlog.event import RecordedEvent
from abridged.eventlog.log import PAGE_EVENTS_MAX, EventLog
from abridged.eventlog.verification import LogVerification

if TYPE_CHECKING:
    from abridged.eventlog.encryption.data_keys import DataKeys

ENCRYPTED = "the log is encrypted, and encryption is off"


def newest_encrypted(log: EventLog | LogVerification, head: int, clear: ClearTypes) -> RecordedEvent | None:
    """Return the event that tells a log encrypted, up to the position `head`: the newest one but those that nobody
    encrypts, however many of erasures follow it; the first such one if there is damage at the end."""
    for look in (_newest, _first):
        with suppress(LogCorrupt):
            telling = look(log, head, clear)
            return telling if telling is not None and is_encrypted(telling.payload) else None
    return None


def require_own(keys: DataKeys, log: EventLog | LogVerification, head: int, clear: ClearTypes) -> None:
    """Raise KeysUnusable if the log is encrypted up to the position `head`, and not one key of its events is among
    `keys`: they are those of another log. An older copy of its own has some."""
    newest = newest_encrypted(log, head, clear)
    if newest is None or keys.know(key_id_of(newest.payload)):
        return
    asked = {key_id_of(newest.payload)}
    with suppress(LogCorrupt):
        for event in _telling(log, 0, head, clear):
            if is_encrypted(event.payload) and (key_id := key_id_of(event.payload)) not in asked:
                if keys.know(key_id):
                    return
                asked.add(key_id)
    raise KeysUnusable(
        f"{keys.store} does not have data key {key_id_of(newest.payload).hex()}, or any other of the log"
    )


def require_clear(log: EventLog, clear: ClearTypes) -> None:
    """Raise LogEncrypted for a log that is encrypted."""
    if newest_encrypted(log, log.head(), clear) is not None:
        raise LogEncrypted(ENCRYPTED)


def _newest(log: EventLog | LogVerification, head: int, clear: ClearTypes) -> RecordedEvent | None:
    end, count = head, 1
    while end > 0:
        start = max(0, end - count)
        *_, telling = None, *_telling(log, start, end, clear)
        if telling is not None:
            return telling
        end, count = start, PAGE_EVENTS_MAX
    return None


def _first(log: EventLog | LogVerification, head: int, clear: ClearTypes) -> RecordedEvent | None:
    return next(_telling(log, 0, head, clear), None)


def _telling(log: EventLog | LogVerification, start: int, end: int, clear: ClearTypes) -> Iterator[RecordedEvent]:
    """Yield the events with positions > `start` and <= `end` but those that nobody encrypts, in order."""
    while start < end and (page := log.read_all(after=start, limit=min(PAGE_EVENTS_MAX, end - start))):
        yield from (event for event in page if not clear.have(event.type, event.payload))
        start = page[-1].position
