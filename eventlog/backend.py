"""The contract of a kind of place that logs are kept in. Each is a folder beside this file, but the one in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from abridged.eventlog.event import StreamId
from abridged.eventlog.leases import Leases
from abridged.eventlog.log import AppendHook, EventLog
from abridged.eventlog.memory import MemoryEventLog
from abridged.eventlog.rows import MemoryRows, R, Rows, RowTable, StoredRows
from abridged.eventlog.snapshots import Snapshots
from abridged.eventlog.verification import LogVerification


class Notice(NamedTuple):
    """A hazard of a log for its operator; `code` is stable. A start is refused for one that `is_refused`; one that
    `is_avoided` threatens only whoever does what its message says."""

    code: str
    message: str
    hint: str = ""
    is_refused: bool = False
    is_avoided: bool = False


class Kept(NamedTuple):
    """The rows and snapshots of a log that outlives the process."""

    rows: StoredRows[Any]
    snapshots: Snapshots


class StreamKeys(Protocol):
    """The keys of an encrypted log's streams. Every method may run in any thread, and raises an EventLogError."""

    def erase(self, stream: StreamId, position: int) -> None:
        """Erase every key that an event of the stream names: no copy of the log has its contents any more. The event
        at this position says that they are erased."""
        ...

    def erased_later(self) -> list[StreamId]:
        """The streams that were erased by events which the log, a copy of an earlier one, does not have. Each is
        returned until it is erased again or settled."""
        ...

    def settle(self, streams: Collection[StreamId]) -> None:
        """Say that nothing of these is left to erase, until somebody restores another copy of an earlier log."""
        ...

    def has_key(self, stream: StreamId) -> bool:
        """Return whether the stream has a key that was not erased."""
        ...


class Opened(NamedTuple):
    """An open log, what it keeps beside its events, its hazards, the leases of a log that other processes write, too,
    and the keys of one that is encrypted."""

    log: EventLog
    kept: Kept | None = None
    notices: tuple[Notice, ...] = ()
    leases: Leases | None = None
    keys: StreamKeys | None = None


class Backend(Protocol):
    """A place for one log."""

    def rows(self, table: RowTable[R]) -> Rows[R]:
        """The rows of `table`, which can be used once the log is open."""
        ...

    def open(
        self,
        rows: Any,
        *,
        clock_us: Callable[[], int],
        hook: AppendHook,
        on_fatal: Callable[[Exception], None],
    ) -> Opened:
        """Open or create the log with its `rows`, which `rows` returned. `hook` writes them.

        `on_fatal` is called on the writer's thread with an error after which every append is refused: the process
        should stop and restart, except after LogGone, which a restart would not fix. Raises an EventLogError, and has
        changed nothing then.
        """
        ...


class StoredBackend(Backend, Protocol):
    """A place whose log outlives the process. The backend's text names the place, without a secret."""

    def rows(self, table: RowTable[R]) -> StoredRows[R]:
        """See Backend."""
        ...

    def names(self) -> list[str]:
        """The names of the logs in this place, of which this one is one if it is there; empty where logs have none."""
        ...

    def size_bytes(self) -> int:
        """Bytes that the log takes. Raises OSError if there is no log."""
        ...

    def log_id(self) -> str:
        """The id of the log, whoever owns it and whichever version wrote it; empty without a log.

        Raises LogForeign for another file than a log, and LogCorrupt or LogGone for one that cannot be read.
        """
        ...

    def hazards(self) -> list[Notice]:
        """The hazards of a log in this place, whether or not one is there."""
        ...

    def verification(self, rows: Any, *, is_owned: bool = True) -> AbstractContextManager[LogVerification]:
        """Open the log, with its `rows`, for checks, or, unless it `is_owned` meanwhile, to read those of its events
        that are there. Raises LogLocked when a process owns a file that is to be owned, LogOlder or LogNewer when
        another version wrote it, and what `log_id` raises."""
        ...

    def copy(self, log_id: str, fill: Callable[[EventLog], None], check: Callable[[Backend], None]) -> None:
        """Make a log here with another one's id, whole or not at all.

        `fill` appends to it, and `check`, which may open it in its place until then, raises what forbids it. Raises
        FileExistsError for a log that is there, and what `open` raises; nothing is in its place then.
        """
        ...

    def rewrite(self, rows: Any, fill: Callable[[Backend], None], *, goes_on: Callable[[], bool]) -> bool:
        """Write the log anew without its `rows`, whose damage may hide which parts are the events' own.

        `fill` opens the new log and makes the rows again; it raises what forbids it. A file is only read until the new
        one is whole and filled; the rows of a database go first. Returns False, and leaves the log unchanged, if
        `goes_on`, which is called every few milliseconds, returned False. Raises what `verification` raises, and
        LogFull without room.
        """
        ...


class MemoryBackend:
    """A Backend whose log ends with the process."""

    def rows(self, table: RowTable[R]) -> MemoryRows[R]:
        return MemoryRows(table)

    def open(
        self, rows: Any, *, clock_us: Callable[[], int], hook: AppendHook, on_fatal: Callable[[Exception], None]
    ) -> Opened:
        """Open an empty log; the call cannot fail."""
        del rows, on_fatal
        return Opened(MemoryEventLog(clock_us=clock_us, hook=hook))
