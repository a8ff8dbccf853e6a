"""Errors of an event log, and whether trying again can help.

EventLogError
├── WrongExpectedVersion   the stream is not where the caller thought; nothing was written
├── EventIdConflict        an event id is known with other content; nothing was written, never retry
├── KnownEvents            some, not all, of a batch's event ids are known with equal content; nothing was written
├── RequestKeyConflict     a request key is known with other content; nothing was written, never retry
├── EventTooLarge          a payload or a batch is over its limit
├── LogUnavailable         busy or unreachable; retryable with the same ids
├── LogFull                no space left; retryable when there is room again
├── LogClosed              the log was closed
│   └── LogForked          the log was opened by the parent of this process
├── LogLocked              another process owns the file
├── LogUnsafe              the place or the setting cannot keep what the log promises; refused when it is opened
│   ├── LogOlder           a version before the first release wrote the file
│   ├── LogNewer           a newer version wrote the file, or a table beside the log
│   ├── LogEncrypted       the contents are encrypted, and there is no key
│   └── KeysUnusable       the keys of the contents are not there, or cannot be read with the keys that are given
│       └── KeyLost        one of them is not there, or is not what was stored; others are
├── LogFailed              an I/O error left the file in doubt; the process must stop, a new one recovers
├── LogGone                the log is not in its place; nothing is acknowledged into a file that is still open
└── LogCorrupt             a row or a file is not what was written; never served, never retried
    ├── StreamCorrupt      what is damaged belongs to one stream
    └── LogForeign         the file is no log: another program's database, or none
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from abridged.eventlog.event import StreamId


class EventLogError(Exception):
    """Something went wrong in the event log. `cause` is a code or a word for it, which names no place."""

    cause = ""


class WrongExpectedVersion(EventLogError):
    """The stream's version is not the expected one."""

    def __init__(self, *, expected: int, actual: int) -> None:
        super().__init__(f"expected version {expected}, stream is at {actual}")
        self.expected = expected
        self.actual = actual


class EventIdConflict(EventLogError):
    """An event id was used before with other content; `versions` has the stream versions of those on disk."""

    def __init__(self, event_ids: tuple[bytes, ...], versions: Mapping[bytes, int] = MappingProxyType({})) -> None:
        super().__init__(f"{len(event_ids)} event id(s) known with other content")
        self.event_ids = event_ids
        self.versions = versions


class KnownEvents(EventLogError):
    """Part of the batch is already on disk; `versions` maps each known event id to its stream version."""

    def __init__(self, versions: Mapping[bytes, int]) -> None:
        super().__init__(f"{len(versions)} event(s) of the batch are known")
        self.versions = dict(versions)


class RequestKeyConflict(EventLogError):
    """A request key was used before with other content; `version` is that of the last event written for it."""

    def __init__(self, version: int) -> None:
        super().__init__("the request key is known with other content")
        self.version = version


class EventTooLarge(EventLogError):
    """A payload or a batch exceeds the log's limit."""

    def __init__(self, *, size: int, limit: int, unit: str = "bytes") -> None:
        super().__init__(f"{size} {unit}, the limit is {limit}")
        self.size = size
        self.limit = limit
        self.unit = unit


class LogUnavailable(EventLogError):
    """The log is busy or unreachable; a retry with the same ids is safe."""


class LogFull(EventLogError):
    """No space is left for the log; it resumes by itself once there is."""


class LogClosed(EventLogError):
    """The log was closed."""


class LogForked(LogClosed):
    """The log was opened before this process was forked; only the process that opened it may use it."""


class LogLocked(EventLogError):
    """Another process owns the log's file."""


class LogUnsafe(EventLogError):
    """The file is in a place where locks or flushes cannot be trusted."""


class LogOlder(LogUnsafe):
    """A version before the first release wrote the file; no later one reads it."""


class LogNewer(LogUnsafe):
    """A newer version of the program wrote this, and this version would misread it."""


class LogEncrypted(LogUnsafe):
    """The contents of the log are encrypted, and it is read without its keys."""


class KeysUnusable(LogUnsafe):
    """The keys of an encrypted log are missing, another log's, damaged, or wrapped with a key that is not given."""


class KeyLost(KeysUnusable):
    """A key of a stream is not there, or is not what was stored: what it encrypted cannot be read, and all else can."""

    def of(self, stream: StreamId) -> KeyLost:
        """The error with the name of the stream whose contents need the key."""
        return KeyLost(f"{stream.namespace}/{stream.name} cannot be read: {self}")


class LogFailed(EventLogError):
    """The log does not know what is on disk after an I/O error: it acknowledges nothing more until a new process has
    recovered."""


class LogGone(EventLogError):
    """Another file or none is in the place of the log's, so events that are written now would be lost. A restart would
    not recover it: this process keeps the removed file open, and still reads."""


class LogCorrupt(EventLogError):
    """Stored data differs from the data that was written."""


class StreamCorrupt(LogCorrupt):
    """Stored data of one stream differs from the data that was written; `version` is that of its first damaged event, 0
    while it is unknown."""

    def __init__(self, what: str, stream: StreamId, version: int = 0) -> None:
        super().__init__(what)
        self.stream = stream
        self.version = version


class LogForeign(LogCorrupt):
    """The file is not a log: another program's database, no database at all, or empty where a log must be."""
