"""The folder of archives: one file for each archived conversation, with the lines of an export of it alone.

A file gets its name once it is on disk and was read back, and has every event of the conversation. Equal events make
equal files, so a process that writes one again writes the same bytes.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b, file_digest
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.eventlog.log import EventLog
from abridged.service.codec.event_json import event_line, event_of_line
from abridged.service.codec.events import ERASED
from abridged.service.conversations.log_copy import LogLinesRefused, head_of_lines
from abridged.service.conversations.log_part import head_of_part, part_id
from abridged.service.conversations.replay import recorded_events
from abridged.service.domain.errors import ArchiveUnusable
from abridged.service.domain.events import ConversationArchived

_MODE: Final = 0o600
_SLUG_CHARS: Final = 40
_ID_BYTES: Final = 8
_ZEROS: Final = bytes(1 << 20)


class Archive(NamedTuple):
    """The file of a conversation: its name, its size, and its SHA-256 in hexadecimal digits."""

    file: str
    size_bytes: int
    sha256: str


class ArchiveFolder:
    """The archives of one log. Every method works on the disk: call it in a thread. Methods raise ArchiveUnusable if
    the folder or a file cannot be used; all but `remove` do so, too, if no folder is set."""

    def __init__(self, path: Path | None, *, unset: str = "log.archive_dir is not set") -> None:
        """`unset` is the reason that callers get without a path."""
        self._path = path
        self._unset = unset

    @property
    def is_set(self) -> bool:
        """True if the settings name a folder."""
        return self._path is not None

    def require_set(self, name: str) -> None:
        """Raise ArchiveUnusable for the conversation of this name if no folder is set."""
        if not self.is_set:
            raise ArchiveUnusable(self._unset, file=name)

    def write(self, log: EventLog, key: StreamId, events: int) -> Archive:
        """Write the first `events` of a conversation, all that it has, unless their file is there already."""
        name = f"{_prefix(log.log_id, key)}{events}.jsonl"
        with self._reporting(name) as folder:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(ArchiveUnusable, OSError):  # a folder of this name is in the way of the new file, too
                return _checked(folder / name, log, key, events)
            new = folder / f"{name}.{secrets.token_hex(4)}.new"
            try:
                with open(new, "xb", opener=_private) as file:
                    file.writelines(_lines(log, key, events))
                    file.flush()
                    os.fsync(file.fileno())
                archive = _checked(new, log, key, events)
                new.replace(folder / name)
            except BaseException:
                new.unlink(missing_ok=True)
                raise
            _flush(folder)
            return archive._replace(file=name)

    def require(self, archived: ConversationArchived) -> None:
        """Raise ArchiveUnusable unless the file is there as it was written."""
        with self._opened(archived) as file:
            _require_same(file, archived)

    def require_reachable(self, name: str) -> None:
        """Raise ArchiveUnusable unless there is a file of this name, which can be overwritten."""
        with self._reporting(name) as folder:
            try:
                os.close(_regular(folder / name, os.O_WRONLY))
            except FileNotFoundError as error:
                raise ArchiveUnusable(_ABSENT.format(folder), file=name) from error

    def require_erasable(self, log_id: str, key: StreamId, name: str) -> None:
        """Raise ArchiveUnusable unless an erasure of the conversation in this log takes the file of this name along, or
        the file is empty: that of a log which this one is a part of is not this one's to remove."""
        if not self.is_given_up(name) and not name.startswith(_prefix(log_id, key)):
            raise ArchiveUnusable(_ANOTHERS, file=name)

    def is_given_up(self, name: str) -> bool:
        """Return whether an empty file says that the archive is gone. Raises ArchiveUnusable without a file."""
        self.require_reachable(name)
        with self._reporting(name) as folder:
            return not (folder / name).stat().st_size

    def events(self, log: EventLog, key: StreamId, archived: ConversationArchived) -> Iterator[RecordedEvent]:
        """Check the whole file, then yield its events in the places that the log has for them."""
        with self._opened(archived) as file:
            _require_own(file, log, key, archived)
            _require_same(file, archived)
            file.seek(0)
            file.readline()
            known = part_id(log.log_id, {key: archived.events})
            for recorded in islice(recorded_events(log, key), archived.events):
                try:
                    event, _ = event_of_line(file.readline().decode(), log_id=known)
                except ValueError as error:  # of a file that is removed meanwhile
                    raise ArchiveUnusable(f"line {recorded.version + 1} is no event", file=archived.file) from error
                if event._replace(position=recorded.position, payload=recorded.payload) != recorded:
                    raise ArchiveUnusable(f"line {recorded.version + 1} is no event of the log", file=archived.file)
                yield event._replace(position=recorded.position)

    def remove(self, log_id: str, key: StreamId, *, before: int | None = None, but: str = "") -> None:
        """Overwrite and remove the files of a conversation, and what an unfinished write left, all `but` one: of fewer
        events than `before`, or all. A later one may be of another process, which has archived it anew."""
        if self._path is None or not self._path.exists():
            return
        prefix = _prefix(log_id, key)
        with self._reporting(prefix) as folder:
            found = [
                entry.path
                for entry in os.scandir(folder)
                if entry.name.startswith(prefix)
                and entry.name != but
                and (before is None or _events_of(entry.name, prefix) < before)
            ]
            for path in found:
                with suppress(FileNotFoundError):  # another process is as fast
                    _overwrite(path)
                    os.unlink(path)
            if found:
                _flush(folder)

    @contextmanager
    def _opened(self, archived: ConversationArchived) -> Iterator[BufferedReader]:
        with self._reporting(archived.file) as folder:
            self.require_reachable(archived.file)
            with open(folder / archived.file, "rb", opener=_regular) as file:
                yield file

    @contextmanager
    def _reporting(self, name: str) -> Iterator[Path]:
        if self._path is None:
            raise ArchiveUnusable(self._unset, file=name)
        try:
            yield self._path
        except OSError as error:
            raise ArchiveUnusable(f"{self._path} cannot be used: {error.strerror}", file=name) from error


_NO_FILE = "under its name is no regular file"
_ANOTHERS = (
    "it is the archive of another log, from which this one was exported as a part: give this log a folder of its own; "
    "an empty file under that name in it lets the conversation be erased"
)
_ABSENT = "it is not in {}: put it back there; if it is gone for good, an empty file under its name lets it be erased"


def _prefix(log_id: str, key: StreamId) -> str:
    """The beginning of the names of a conversation's files: a readable part, and a hash of the conversation's own."""
    own = blake2b("\0".join((log_id, *key)).encode(), digest_size=_ID_BYTES).hexdigest()
    namespace, name = (re.sub(r"[^A-Za-z0-9_-]", "_", part)[:_SLUG_CHARS] for part in key)
    return f"{namespace}.{name}.{own}."


def _events_of(name: str, prefix: str) -> int:
    """The number of events in the name of a conversation's file, 0 if it has none."""
    number = name.removeprefix(prefix).partition(".")[0]
    return int(number) if number.isdecimal() else 0


def _lines(log: EventLog, key: StreamId, events: int) -> Iterator[bytes]:
    known = part_id(log.log_id, {key: events})
    for last in log.read_stream(key, after=events - 1, limit=1):
        yield head_of_part(known, events, log.log_id, last.position).encode()
    for recorded in islice(recorded_events(log, key, head=events), events):
        if recorded.payload == ERASED:
            # Another process has archived it meanwhile; its file must not give way to one without content.
            raise ArchiveUnusable(f"the log has no content at position {recorded.position}", file=key.name)
        yield f"{event_line(known, recorded._replace(position=recorded.version))}\n".encode()


def _checked(path: Path, log: EventLog, key: StreamId, events: int) -> Archive:
    """Compare the file with the events of the log, flush it and describe it. Raises ArchiveUnusable if they differ."""
    with open(path, "rb", opener=_regular) as file:
        for number, line in enumerate(_lines(log, key, events), 1):
            if file.readline() != line:
                raise ArchiveUnusable(f"line {number} is not what was written", file=path.name)
        if file.read(1):
            raise ArchiveUnusable("there is more in it than was written", file=path.name)
        os.fsync(file.fileno())
        file.seek(0)
        return Archive(path.name, os.fstat(file.fileno()).st_size, file_digest(file, "sha256").hexdigest())


def _require_own(file: BufferedReader, log: EventLog, key: StreamId, archived: ConversationArchived) -> None:
    """Raise ArchiveUnusable for the file of another log or conversation, or an older one of this conversation."""
    try:
        head = head_of_lines(file)
    except LogLinesRefused as error:
        raise ArchiveUnusable(str(error), file=archived.file) from error
    if head.log_id != part_id(log.log_id, {key: archived.events}):
        whose = "this log" if head.part_of == log.log_id else f"log {head.part_of or head.log_id}"
        raise ArchiveUnusable(f"it has other events than were archived: {head.events:,} of {whose}", file=archived.file)
    file.seek(0)


def _require_same(file: BufferedReader, archived: ConversationArchived) -> None:
    size = os.fstat(file.fileno()).st_size
    if size != archived.size_bytes:
        raise ArchiveUnusable(f"it has {size:,} bytes; {archived.size_bytes:,} were written", file=archived.file)
    if file_digest(file, "sha256").hexdigest() != archived.sha256:
        raise ArchiveUnusable("its SHA-256 is not that of what was written", file=archived.file)


def _overwrite(path: str) -> None:
    descriptor = _regular(path, os.O_WRONLY)
    try:
        left = os.fstat(descriptor).st_size
        while left > 0:
            left -= os.write(descriptor, _ZEROS[:left])
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _regular(path: str | Path, flags: int) -> int:
    """Open a regular file of the folder. Raises ArchiveUnusable for a link, whose target stays, and for a pipe."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise
        raise ArchiveUnusable(_NO_FILE, file=Path(path).name) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ArchiveUnusable(_NO_FILE, file=Path(path).name)
    return descriptor


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, _MODE)


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
